"""The commands of docs/kubernetes.md are run as far as a machine without Kubernetes can."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from distributed import Client, LocalCluster, Security

from daskpriv.cli.wanted import Wanted
from tests.deploy.manifests import K8S, OVERLAYS, ROOT, VARIANTS

PAGE = (ROOT / "docs" / "kubernetes.md").read_text()


def commands(program: str) -> list[str]:
    """Lines of code blocks that call a program."""
    return re.findall(rf"^    ({program} .*)$", PAGE, re.MULTILINE)


def test_five_values_to_manifests(tmp_path: Path) -> None:
    for line in commands("daskpriv"):
        arguments, _, target = line.partition(" > ")
        with (tmp_path / target).open("w") as out:
            command = [sys.executable, "-m", *shlex.split(arguments)]
            subprocess.run(command, stdout=out, cwd=tmp_path, check=True, env={"PYTHONPATH": str(ROOT)})
    assert (tmp_path / "eval.yaml").read_text() in PAGE
    kinds = [o["kind"] for o in yaml.safe_load_all((tmp_path / "evaluation.yaml").read_text())]
    assert {"Namespace", "DaskJob", "NetworkPolicy"} <= set(kinds)
    assert "kubectl apply -f evaluation.yaml" in commands("kubectl")


@pytest.mark.cluster
def test_certificates(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not here")
    for line in [*commands("openssl"), *commands("cp")]:
        subprocess.run(shlex.split(line), cwd=tmp_path, check=True, capture_output=True)
    files = {"tls_ca_file": "ca.crt"}
    for who in ("scheduler", "worker", "client"):
        files |= {f"tls_{who}_cert": "tls.crt", f"tls_{who}_key": "tls.key"}
    security = Security(require_encryption=True, **{k: str(tmp_path / v) for k, v in files.items()})
    options = {"processes": False, "n_workers": 1, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(protocol="tls", security=security, **options) as cluster, Client(cluster) as client:
        assert client.scheduler.address.startswith("tls://")
        assert client.submit(sum, [1, 2]).result() == 3


def test_every_place_that_is_named_exists() -> None:
    for name in re.findall(r"`((?:deploy|k8s|overlays|base)/[\w./-]+)`", PAGE):
        path = name if name.startswith(("deploy/", "k8s/")) else f"k8s/{name}"
        assert (ROOT / path).exists(), name
    assert {f"overlays/{o}" for o in OVERLAYS} <= set(re.findall(r"overlays/[\w-]+", PAGE))
    assert {f"base/{v}" for v in VARIANTS} <= set(re.findall(r"base/[\w-]+", PAGE))


def test_every_key_is_documented() -> None:
    for each in fields(Wanted):
        assert f"`{each.name}`" in PAGE or f"\n{each.name}: " in PAGE, each.name


def test_resources_that_are_commanded_are_made() -> None:
    text = (K8S.parent / "daskpriv" / "data" / "k8s" / "operator.yaml").read_text()
    names = {o["metadata"]["name"] for o in yaml.safe_load_all(text)}
    assert {"daskpriv", "daskpriv-submitter"} <= names
    assert "daskpriv-tls" in text
