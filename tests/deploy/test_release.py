"""What a release promises: workflows, licences, versions, examples that run."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from daskpriv.cluster.spec import Spec
from daskpriv.version import __version__
from tests.deploy.manifests import ROOT, program

FREE = re.compile(
    r"apache|bsd|mit\b|mit license|isc|python software foundation|psf|mpl|mozilla|unlicense|hpnd|zlib|cc0", re.I
)


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ("vendor.github-workflows", ".github/workflows/test.yml"),
        ("vendor.github-workflows", ".github/workflows/publish.yml"),
        ("vendor.citation-file-format", "CITATION.cff"),
    ],
)
def test_follows_its_schema(schema: str, path: str) -> None:
    command = [program("check-jsonschema"), "--builtin-schema", schema, path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout


def test_targets_that_workflows_call_exist() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+)(?: [a-z0-9- ]+)?:", (ROOT / "Makefile").read_text(), re.MULTILINE))
    targets |= set(re.findall(r"^test-oldest (test-newest):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = set()
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for word in re.findall(r"run: make ([a-z0-9-]+)", path.read_text()):
            called |= {f"{word}{pins}" for pins in ("oldest", "newest")} if word.endswith("-") else {word}
    assert called <= targets, called - targets
    assert {"test", "dist", "audit", "test-k8s"} <= called


def test_one_version_everywhere() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == __version__
    for path in (ROOT / "k8s" / "overlays").glob("*/kustomization.yaml"):
        tags = [i["newTag"] for i in yaml.safe_load(path.read_text())["images"] if i["name"] == "daskpriv"]
        assert tags in ([__version__], ["local"]), path


def test_everything_that_is_required_has_a_free_licence() -> None:
    seen: set[str] = set()
    ahead = ["daskpriv"]
    while ahead:
        name = ahead.pop()
        extras = {"", "s3", "gcs", "azure"} if name == "daskpriv" else {""}
        for text in metadata.requires(name) or ():
            asked = Requirement(text)
            needed = asked.marker is None or any(asked.marker.evaluate({"extra": e}) for e in extras)
            if needed and asked.name.lower() not in seen:
                seen.add(asked.name.lower())
                ahead.append(asked.name)
    assert len(seen) > 30
    unfree = [name for name in sorted(seen) if not FREE.search(_licence(name))]
    assert unfree == []


def _licence(name: str) -> str:
    held = metadata.metadata(name)
    said = [held.get("License-Expression") or "", (held.get("License") or "")[:200]]
    return " ".join([*said, *(c for c in held.get_all("Classifier") or () if c.startswith("License"))])


def test_the_package_is_typed() -> None:
    assert (ROOT / "daskpriv" / "py.typed").exists()


@pytest.mark.parametrize("path", ["deploy/slurm/cluster.yaml", "deploy/ssh/cluster.yaml"])
def test_clusters_that_are_described(path: str) -> None:
    spec = Spec.load(str(ROOT / path))
    assert spec.made_by in ("dask_jobqueue.SLURMCluster", "distributed.SSHCluster")
    assert spec.arguments


@pytest.mark.parametrize("name", ["daskpriv-scheduler", "daskpriv-worker"])
def test_systemd_units(name: str, tmp_path: Path) -> None:
    checker = shutil.which("systemd-analyze")
    if checker is None:
        pytest.skip("systemd-analyze is not here")
    text = (ROOT / "deploy" / "systemd" / f"{name}.service").read_text()
    unit = tmp_path / f"{name}.service"
    unit.write_text(text.replace("/opt/daskpriv/bin/dask", "/bin/true"))
    done = subprocess.run([checker, "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.cluster
def test_the_slurm_script_runs(adult: Path, tmp_path: Path) -> None:
    """With an `srun` that starts its command here."""
    tables, programs = tmp_path / "tables", tmp_path / "bin"
    tables.mkdir()
    programs.mkdir()
    for name, source in (("train", "train"), ("holdout", "holdout"), ("synthetic", "synthetic_good")):
        shutil.copy(adult / f"{source}.parquet", tables / f"{name}.parquet")
    scripts = {"srun": 'exec "$@"', "daskpriv": f'exec {sys.executable} -m daskpriv "$@" --metrics clones --quiet'}
    scripts["dask"] = f'exec {sys.executable} -m dask "$@"'
    for name, line in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(stat.S_IRWXU)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "SLURM_JOB_ID": "7",
        "SLURM_CPUS_PER_TASK": "1",
        "TABLES": str(tables),
        "OUTPUT": str(tmp_path / "report"),
    }
    script = ROOT / "deploy" / "slurm" / "evaluate.sbatch"
    done = subprocess.run(
        ["bash", str(script)], env=environment, capture_output=True, text=True, check=False, timeout=240, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "report" / "report.json").exists()
    assert not list((tmp_path / "report").glob("scheduler-*"))
