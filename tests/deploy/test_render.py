"""`daskpriv k8s render` puts values into the manifests that kustomize builds, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from daskpriv.cli import cli
from daskpriv.cli.manifests import manifests
from daskpriv.cli.wanted import Wanted
from daskpriv.errors import InputError
from daskpriv.version import __version__
from tests.deploy.manifests import K8S, ROOT, built, chosen, faults, pods

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
    secrets = [v["secret"] for _, _, spec in pods(objects) for v in spec["volumes"] if v["name"] == "tls"]
    assert [s["optional"] for s in secrets] == [True] * 3, "without TLS nobody makes the Secret"
    account = chosen(objects, "ServiceAccount", "daskpriv")["metadata"]
    assert account["annotations"] == {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/r"}
    assert "annotations" not in chosen(objects, "ServiceAccount", "daskpriv-submitter")["metadata"]


@pytest.mark.parametrize("operator", [True, False])
def test_an_identity_of_azure_needs_a_label_on_pods(operator: bool) -> None:
    account = {"azure.workload.identity/client-id": "00000000-0000-0000-0000-000000000000"}
    objects = tuple(manifests(Wanted(**FIVE, operator=operator, account=account)))
    assert [f for o in objects for f in faults(o)] == []
    labels = [held.get("azure.workload.identity/use") for _, held, _ in pods(objects)]
    assert labels == ["true"] * 3
    without = [held for _, held, _ in pods(tuple(manifests(Wanted(**FIVE, operator=operator))))]
    assert not [held for held in without if "azure.workload.identity/use" in held]


@pytest.mark.parametrize(
    ("change", "asked"),
    [
        ({}, False),
        ({"train": "gs://b/train/"}, True),
        ({"account": {"iam.gke.io/gcp-service-account": "a@b.iam.gserviceaccount.com"}}, True),
        ({"account": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/r"}}, False),
    ],
)
def test_tokens_of_gke_come_from_its_metadata_server(change: dict[str, Any], asked: bool) -> None:
    objects = manifests(Wanted(**{**FIVE, **change}))
    assert [f for o in objects for f in faults(o)] == []
    assert ("daskpriv-metadata" in [o["metadata"]["name"] for o in objects]) == asked


@pytest.mark.parametrize(
    ("endpoint", "ports"),
    [
        ("https://s3.example.org", []),
        ("https://s3.example.org:9000/", [9000]),
        ("http://minio.minio.svc.cluster.local:9000", [9000]),
        ("http://10.0.0.7", [80]),
    ],
)
def test_the_way_to_another_object_store_is_open(endpoint: str, ports: list[int]) -> None:
    objects = tuple(manifests(Wanted(**FIVE, environment={"AWS_ENDPOINT_URL": endpoint})))
    rules = chosen(objects, "NetworkPolicy", "daskpriv-egress")["spec"]["egress"]
    held = len(chosen(tuple(manifests(Wanted(**FIVE))), "NetworkPolicy", "daskpriv-egress")["spec"]["egress"])
    assert [p["port"] for r in rules[held:] for p in r["ports"]] == ports
    assert [f for o in objects for f in faults(o)] == []


def test_arguments_arrive_as_they_are_written() -> None:
    given = ["--target=$(TRAIN)", "--fail-on=a 'b' \"c\" $$d \\ é", "--x={{y}}"]
    objects = yaml.safe_load_all(yaml.safe_dump_all(manifests(Wanted(**FIVE, arguments=given))))
    arguments = chosen(tuple(objects), "DaskJob", "daskpriv")["spec"]["job"]["spec"]["containers"][0]["args"]
    assert [a.replace("$$", "$") for a in arguments[-3:]] == given, "Kubernetes makes one $ of two"


@pytest.mark.parametrize("name", ["daskpriv:1", "r.org:5000/a/daskpriv:1.2", "daskpriv@D", "r.org/daskpriv:1@D"])
def test_images_that_are_pinned(name: str) -> None:
    image = name.replace("@D", f"@sha256:{'a' * 64}")
    assert Wanted(**{**FIVE, "image": image}).image == image


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"image": "daskpriv:latest"}, "image"),
        ({"image": "daskpriv"}, "image"),
        ({"image": 3}, "image"),
        ({"train": "/data/train.parquet"}, "train"),
        ({"train": None}, "train"),
        ({"train": "file:///data/train/"}, "train: give a URL that pods can reach"),
        ({"train": ""}, "train"),
        ({"output": "s3://"}, "output"),
        ({"output": "report"}, "output"),
        ({"image": f"daskpriv:latest@sha256:{'a' * 64}"}, "image"),
        ({"workers": "4"}, "workers: give a whole number of at least 1, without quotes"),
        ({"memory": "4G"}, "memory: give a number of Mi, Gi or Ti"),
        ({"arguments": ["--train-subjects=s3://user:password@b/t"]}, "arguments: the URL carries a credential"),
        ({"environment": {"HTTPS_PROXY": "http://user:password@proxy:1"}}, "environment: HTTPS_PROXY: the URL carries"),
        ({"environment": {"AWS_ENDPOINT_URL": "http://minio:port"}}, "environment: AWS_ENDPOINT_URL"),
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
        ({"train": "s3://b/a\0b"}, "train: give a URL without control characters"),
        ({"train": "s3://b/\ud800"}, "train: give a URL without control characters"),
        ({"arguments": ["--target=a\0"]}, "without control characters"),
        ({"environment": {"A": "\x1b[31m"}}, "without control characters"),
        ({"output": "https://web.example.org/report/"}, "output: give a bucket"),
        ({"workers": 10**20}, "workers: give at most 100000"),
        ({"cpus": 1001}, "cpus: give at most 1000"),
        ({"environment": {"AWS_ENDPOINT_URL": "s3.example.org:9000"}}, "AWS_ENDPOINT_URL: give a URL such as"),
        ({"environment": {"AWS_ENDPOINT_URL_S3": "https://"}}, "AWS_ENDPOINT_URL_S3: give a URL such as"),
        ({"environment": {"AWS_ENDPOINT_URL": ""}}, "AWS_ENDPOINT_URL: give a URL such as"),
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
    assert f"/daskpriv:{__version__}\n" in example.stdout
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
