"""Builds the manifests in k8s/ and validates them strictly: no unknown field, no wrong type."""

from __future__ import annotations

import copy
import functools
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

ROOT = Path(__file__).parent.parent.parent
K8S = ROOT / "k8s"
OVERLAYS = sorted(p.name for p in (K8S / "overlays").iterdir())
VARIANTS = ("operator", "plain", "cluster")
KUBERNETES = ("1.29", "1.37")  # the oldest and newest that manifests are validated for
Object = dict[str, Any]


def program(name: str) -> str:
    """The path of a program of the test tools; skips loudly where it cannot be had."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not here: make test installs it from tests/deploy/tools.txt")
    return found


def built(folder: Path) -> tuple[Object, ...]:
    """What `kubectl kustomize` makes of a folder; the caller may change it."""
    return copy.deepcopy(_built(folder))


@functools.cache
def _built(folder: Path) -> tuple[Object, ...]:
    done = subprocess.run(
        [program("kubectl"), "kustomize", str(folder)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


def overlay(name: str, variant: str, scratch: Path) -> tuple[Object, ...]:
    """An overlay over another base, as its comment tells the user to."""
    copied = scratch / "k8s"
    if not copied.exists():
        shutil.copytree(K8S, copied)
    written = copied / "overlays" / name / "kustomization.yaml"
    text = written.read_text()
    assert "- ../../base/operator  #" in text
    target = copied / "overlays" / f"{name}-{variant}"
    shutil.copytree(written.parent, target, dirs_exist_ok=True)
    (target / "kustomization.yaml").write_text(text.replace("../../base/operator ", f"../../base/{variant} "))
    return built(target)


def faults(thing: Object, version: str = KUBERNETES[-1]) -> list[str]:
    """What is wrong with an object; unknown fields count."""
    return _faults(json.dumps(thing, sort_keys=True), version)


@functools.cache
def _faults(text: str, version: str) -> list[str]:
    """Overlays have most objects in common."""
    thing = json.loads(text)
    if thing["apiVersion"].startswith("kubernetes.dask.org/"):
        return [e.message for e in _strict_crd(thing["kind"]).iter_errors(thing)]
    kubernetes_validate = pytest.importorskip(
        "kubernetes_validate",
        reason="kubernetes-validate is not here: make test installs it from tests/deploy/tools.txt",
    )
    try:
        kubernetes_validate.validate(thing, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [str(error.message)]
    return []


@functools.cache
def _strict_crd(kind: str) -> Draft202012Validator:
    """The operator's own schema of a kind, that refuses what it does not know."""
    try:
        held = [f for f in metadata.files("dask-kubernetes") or () if "crds" in f.parts]
    except metadata.PackageNotFoundError:
        pytest.skip("dask-kubernetes is not here: make test installs it from tests/deploy/tools.txt")
    found = [yaml.safe_load(Path(str(f.locate())).read_text()) for f in held]
    schema = next(c for c in found if c["spec"]["names"]["kind"] == kind)["spec"]["versions"][0]["schema"]
    closed = _closed(schema["openAPIV3Schema"])
    for known in ("apiVersion", "kind", "metadata"):
        closed["properties"][known] = True
    return Draft202012Validator(closed)


def _closed(schema: Any) -> Any:
    """The same schema without room for unknown properties."""
    if isinstance(schema, list):
        return [_closed(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    made = {k: _closed(v) for k, v in schema.items()}
    free = made.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in made
    if isinstance(made.get("properties"), dict) and not free and "type" in made:
        made["additionalProperties"] = False
    if made.get("x-kubernetes-int-or-string"):
        made.pop("type", None)
    return made


def pods(objects: tuple[Object, ...]) -> Iterator[tuple[str, dict[str, str], Object]]:
    """(name, labels, spec) of every pod that the objects lead to, those of the operator's kinds too."""
    for each in objects:
        kind, name, spec = each["kind"], each["metadata"]["name"], each.get("spec", {})
        if kind in ("Deployment", "Job"):
            yield name, spec["template"]["metadata"]["labels"], spec["template"]["spec"]
        for part, held in _parts(kind, spec).items():
            made = {"dask.org/cluster-name": name, "dask.org/component": part}
            # The operator copies labels from a DaskJob to its DaskCluster and runner, from there to all pods.
            copied = each["metadata"].get("labels", {})
            yield f"{name}-{part}", copied | held["metadata"]["labels"] | made, held["spec"]


def _parts(kind: str, spec: Object) -> dict[str, Object]:
    if kind == "DaskJob":
        cluster = spec["cluster"]["spec"]
        return {"scheduler": cluster["scheduler"], "worker": cluster["worker"], "job-runner": spec["job"]}
    if kind == "DaskCluster":
        return {"scheduler": spec["scheduler"], "worker": spec["worker"]}
    return {}


def chosen(objects: tuple[Object, ...], kind: str, name: str) -> Object:
    """The object of this kind and name, as a copy."""
    return next(json.loads(json.dumps(o)) for o in objects if (o["kind"], o["metadata"]["name"]) == (kind, name))
