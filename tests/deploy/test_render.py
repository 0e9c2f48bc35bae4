"""`daskpriv k8s render` puts values into the manifests that kustomize builds, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from daskpriv.cli import cli
from daskpriv.cli.k8s import Wanted, manifests
from daskpriv.errors import InputError
from tests.deploy.manifests import K8S, ROOT, built, chosen, faults

FIVE: dict[str, Any] = {
    "image": "registry.example.org/daskpriv:1.2",
    "train": "s3://b/train/",
    "holdout": "s3://b/holdout/",
    "synthetic": "s3://b/synthetic/",
    "output": "s3://b/report/",
}
OVERLAY = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../VARIANT]
generatorOptions: {disableNameSuffixHash: true}
images: [{name: daskpriv, newName: registry.example.org/daskpriv, newTag: "1.2"}]
configMapGenerator:
  - name: daskpriv-evaluation
    namespace: daskpriv
    behavior: replace
    literals: [TRAIN=s3://b/train/, HOLDOUT=s3://b/holdout/, SYNTHETIC=s3://b/synthetic/, OUTPUT=s3://b/report/]
"""


@pytest.mark.parametrize("operator", [True, False])
def test_five_values_give_what_kustomize_gives(operator: bool, tmp_path: Path) -> None:
    variant = "operator" if operator else "plain"
    shutil.copytree(K8S, tmp_path / "k8s")
    folder = tmp_path / "k8s" / "render" / "five"
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(OVERLAY.replace("VARIANT", variant))
    expected = {(o["kind"], o["metadata"]["name"]): o for o in built(folder)}
    rendered = {(o["kind"], o["metadata"]["name"]): o for o in manifests(Wanted(**FIVE, operator=operator))}
    assert rendered == expected


def test_every_value_arrives() -> None:
    more = {
        "workers": 7,
        "cpus": 3,
        "memory": "24Gi",
        "tls": False,
        "arguments": ["--fail-on=leak"],
        "environment": {"AWS_DEFAULT_REGION": "eu-central-1"},
        "account": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/r"},
    }
    objects = tuple(manifests(Wanted(**{**FIVE, "holdout": ""}, **more)))
    assert [f for o in objects for f in faults(o)] == []
    cluster = chosen(objects, "DaskJob", "daskpriv")["spec"]["cluster"]["spec"]
    job = chosen(objects, "DaskJob", "daskpriv")["spec"]["job"]["spec"]["containers"][0]
    worker = cluster["worker"]["spec"]["containers"][0]
    assert cluster["worker"]["replicas"] == 7
    assert worker["resources"] == {"requests": {"cpu": "3", "memory": "24Gi"}, "limits": {"cpu": "4", "memory": "24Gi"}}
    assert job["args"][-1] == "--fail-on=leak"
    assert not [a for a in job["args"] if "HOLDOUT" in a]
    assert "HOLDOUT" not in chosen(objects, "ConfigMap", "daskpriv-evaluation")["data"]
    environment = chosen(objects, "ConfigMap", "daskpriv-environment")["data"]
    assert environment["DASK_SCHEDULER_ADDRESS"] == "tcp://daskpriv-scheduler:8786"
    assert environment["AWS_DEFAULT_REGION"] == "eu-central-1"
    assert not [k for k in environment if "TLS" in k]
    account = chosen(objects, "ServiceAccount", "daskpriv")["metadata"]
    assert account["annotations"] == {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/r"}
    assert "annotations" not in chosen(objects, "ServiceAccount", "daskpriv-submitter")["metadata"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"image": "daskpriv:latest"}, "image"),
        ({"image": "daskpriv"}, "image"),
        ({"image": 3}, "image"),
        ({"train": "/data/train.parquet"}, "train"),
        ({"train": None}, "train"),
        ({"synthetic": "s3://user:password@b/t"}, "synthetic: the URL carries a credential"),
        ({"workers": 0}, "workers"),
        ({"workers": True}, "workers"),
        ({"memory": "4 GB"}, "memory"),
        ({"tls": "yes"}, "tls"),
        ({"arguments": "--quiet"}, "arguments"),
        ({"environment": {"REGION": 1}}, "environment"),
        ({"environment": {"A B": "c"}}, "environment"),
        ({"environment": {"AWS_SECRET_ACCESS_KEY": "x"}}, "environment: credentials"),
        ({"environment": {"AZURE_STORAGE_CONNECTION_STRING": "x"}}, "environment: credentials"),
        ({"account": ["a"]}, "account"),
    ],
)
def test_values_that_cannot_be(change: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told) as refused:
        Wanted(**{**FIVE, **change})
    assert "password" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "write lines"),
        ("- a", "write lines"),
        ("image: [", "not valid YAML"),
        ("image: a\nimage: b", "listed twice"),
        ("image: daskpriv:1\n", "'train' is missing"),
        ("imagee: daskpriv:1\n", "unknown key 'imagee'"),
        ("1: 2\n", "unknown key '1'"),
    ],
)
def test_files_that_cannot_be(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "eval.yaml"
    path.write_text(text)
    done = CliRunner().invoke(cli, ["k8s", "render", "--config", str(path)])
    assert done.exit_code == 2
    assert told in done.stderr
    assert done.stdout == ""


def test_the_example_is_rendered(tmp_path: Path) -> None:
    example = CliRunner().invoke(cli, ["k8s", "render", "--example"])
    path = tmp_path / "eval.yaml"
    path.write_text(example.stdout)
    done = CliRunner().invoke(cli, ["k8s", "render", "--config", str(path)])
    assert done.exit_code == 0
    assert "DaskJob" in [o["kind"] for o in yaml.safe_load_all(done.stdout)]


def test_without_a_file() -> None:
    done = CliRunner().invoke(cli, ["k8s", "render"])
    assert done.exit_code == 2
    missing = CliRunner().invoke(cli, ["k8s", "render", "--config", "not-here.yaml"])
    assert missing.exit_code == 2
    assert "cannot be read" in missing.stderr


def test_the_documented_example_is_the_printed_one() -> None:
    printed = CliRunner().invoke(cli, ["k8s", "render", "--example"]).stdout
    assert printed in (ROOT / "docs" / "kubernetes.md").read_text()
