"""`daskpriv k8s render`: Kubernetes manifests of an evaluation, from a handful of values.

The manifests are those of k8s/render, built by kustomize; only the values are put in here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
import yaml

from daskpriv.errors import InputError
from daskpriv.tables.files import refuse_secrets
from daskpriv.tables.schema import load_yaml

_EXAMPLE = """image: registry.example.org/daskpriv:0.1.0
train: s3://bucket/train/
holdout: s3://bucket/holdout/
synthetic: s3://bucket/synthetic/
output: s3://bucket/report/
"""
_TABLES = ("train", "holdout", "synthetic", "output")
_PINNED = re.compile(r"[^\s:@]+(:\d+/[^\s:@]+)?(@sha256:[0-9a-f]{64}|:(?!latest$)[\w][\w.-]{0,127})")
_QUANTITY = re.compile(r"[1-9]\d*(Mi|Gi|Ti)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET = re.compile(r"SECRET|PASSWORD|TOKEN|CONNECTION_STRING|_KEY(_ID)?$", re.IGNORECASE)
_NO_TLS = "DASK_DISTRIBUTED__COMM__"


@dataclass(frozen=True)
class Wanted:
    """What an evaluation on Kubernetes is made of.

    Attributes
    ----------
    image : str
        With a tag that is not `latest`, or a digest.
    train, synthetic, output, holdout : str
        URLs that pods can reach.
    workers, cpus : int
        How many, and threads of each.
    memory : str
        Of each worker, such as 4Gi.
    operator : bool
        One DaskJob for the Dask operator; else a Deployment of workers and a Job.
    tls : bool
        Encrypted by the certificate in the Secret `daskpriv-tls`.
    arguments : sequence of str
        More options of `daskpriv evaluate`.
    environment, account : mapping
        More environment of all pods; annotations of their ServiceAccount, which bind it to an identity of the cloud.
    """

    image: str
    train: str
    synthetic: str
    output: str
    holdout: str = ""
    workers: int = 4
    cpus: int = 1
    memory: str = "4Gi"
    operator: bool = True
    tls: bool = True
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    account: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in _TABLES:
            url = getattr(self, name)
            _demand(
                isinstance(url, str) and ("://" in url or url == self.holdout == ""), name, "a URL such as s3://..."
            )
            refuse_secrets(url, name)
        _demand(isinstance(self.image, str) and bool(_PINNED.fullmatch(self.image)), "image", "NAME:TAG, not latest")
        for name in ("workers", "cpus"):
            count = getattr(self, name)
            _demand(type(count) is int and count >= 1, name, "a whole number of at least 1")
        for name in ("operator", "tls"):
            _demand(isinstance(getattr(self, name), bool), name, "true or false")
        _demand(isinstance(self.memory, str) and bool(_QUANTITY.fullmatch(self.memory)), "memory", "such as 4Gi")
        listed = isinstance(self.arguments, (list, tuple)) and all(isinstance(a, str) for a in self.arguments)
        _demand(listed, "arguments", "a list of texts")
        for name in ("environment", "account"):
            held = getattr(self, name)
            texts = isinstance(held, Mapping) and all(isinstance(t, str) for pair in held.items() for t in pair)
            _demand(texts, name, "names and texts (put numbers in quotes)")
        _demand(all(_NAME.fullmatch(k) for k in self.environment), "environment", "names of variables")
        if any(_SECRET.search(key) for key in self.environment):
            raise InputError(
                "environment: credentials do not belong into a ConfigMap; bind the ServiceAccount to an identity of "
                "the cloud (account)."
            )

    @classmethod
    def load(cls, path: str) -> Wanted:
        """Read a YAML file."""
        where = f"config {path!r}"
        try:
            text = Path(path).read_text("utf-8")
        except (OSError, ValueError):
            raise InputError(f"{where}: cannot be read; check the path.") from None
        data = load_yaml(text, where, "write lines such as 'train: s3://bucket/train/'")
        known = [f.name for f in fields(cls)]
        if not isinstance(data, dict):
            raise InputError(f"{where}: write lines such as 'train: s3://bucket/train/'.")
        unknown = sorted(str(k) for k in data if k not in known)
        if unknown:
            raise InputError(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(known)}.")
        needed = [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
        missing = [name for name in needed if name not in data]
        if missing:
            raise InputError(f"{where}: {missing[0]!r} is missing; give {', '.join(needed)}.")
        return cls(**data)


def _demand(kept: bool, name: str, what: str) -> None:
    if not kept:
        raise InputError(f"{name}: give {what}.")


def manifests(wanted: Wanted) -> list[dict[str, Any]]:
    """The objects to apply, in order."""
    built = files("daskpriv").joinpath("data", "k8s", "operator.yaml" if wanted.operator else "plain.yaml")
    objects: list[dict[str, Any]] = list(yaml.safe_load_all(built.read_text("utf-8")))
    for each in objects:
        named = (each["kind"], each["metadata"]["name"])
        if named == ("ConfigMap", "daskpriv-evaluation"):
            each["data"] = {name.upper(): getattr(wanted, name) for name in _TABLES if getattr(wanted, name)}
        elif named == ("ConfigMap", "daskpriv-environment"):
            each["data"] = {**_settings(each["data"], wanted.tls), **wanted.environment}
        elif named == ("ServiceAccount", "daskpriv") and wanted.account:
            each["metadata"]["annotations"] = dict(wanted.account)
        elif named == ("DaskJob", "daskpriv"):
            each["spec"]["cluster"]["spec"]["worker"]["replicas"] = wanted.workers
        elif named == ("Deployment", "daskpriv-worker"):
            each["spec"]["replicas"] = wanted.workers
        for container in _containers(each):
            _fill(container, wanted)
    return objects


def _settings(held: Mapping[str, str], tls: bool) -> dict[str, str]:
    if tls:
        return dict(held)
    kept = {key: value for key, value in held.items() if not key.startswith(_NO_TLS)}
    return {**kept, "DASK_SCHEDULER_ADDRESS": held["DASK_SCHEDULER_ADDRESS"].replace("tls://", "tcp://")}


def _containers(node: Any) -> Iterator[dict[str, Any]]:
    """Containers of all pods within an object."""
    if isinstance(node, dict):
        yield from node.get("containers", ())
        for value in node.values():
            yield from _containers(value)


def _fill(container: dict[str, Any], wanted: Wanted) -> None:
    container["image"] = wanted.image
    if container["name"] == "worker":
        held = container["resources"]
        held["requests"] = {"cpu": str(wanted.cpus), "memory": wanted.memory}
        held["limits"] = {"cpu": str(wanted.cpus + 1), "memory": wanted.memory}
    if container["name"] == "evaluation":
        given = [a for a in container["args"] if wanted.holdout or not a.startswith("--holdout")]
        container["args"] = [*given, *wanted.arguments]


@click.group("k8s")
def k8s_command() -> None:
    """Run evaluations on Kubernetes."""


@k8s_command.command("render")
@click.option("--config", type=click.Path(), help="YAML with image, train, holdout, synthetic and output.")
@click.option("--example", is_flag=True, help="Print such a file.")
def render(config: str | None, example: bool) -> None:
    """Print the manifests of an evaluation: daskpriv k8s render --config eval.yaml | kubectl apply -f -."""
    if example or config is None:
        if not example:
            raise click.UsageError("give --config FILE, or --example to see one.")
        click.echo(_EXAMPLE, nl=False)
        return
    click.echo(yaml.safe_dump_all(manifests(Wanted.load(config)), sort_keys=False), nl=False)
