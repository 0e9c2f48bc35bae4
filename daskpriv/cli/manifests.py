"""The manifests of an evaluation: those of k8s/render, built by kustomize, with the values put in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

import yaml

from daskpriv.cli.wanted import TABLES, Wanted, endpoint_ports

_AZURE = "azure.workload.identity/"
_NO_TLS = "DASK_DISTRIBUTED__COMM__"


def manifests(wanted: Wanted) -> list[dict[str, Any]]:
    """The objects to apply, in order."""
    objects = _built("operator" if wanted.operator else "plain")
    if _wants_gke(wanted):
        objects += _built("gke")
    for each in objects:
        named = (each["kind"], each["metadata"]["name"])
        if named == ("ConfigMap", "daskpriv-evaluation"):
            each["data"] = {name.upper(): getattr(wanted, name) for name in TABLES if getattr(wanted, name)}
        elif named == ("ConfigMap", "daskpriv-environment"):
            each["data"] = {**_settings(each["data"], wanted.tls), **wanted.environment}
        elif named == ("ServiceAccount", "daskpriv") and wanted.account:
            each["metadata"]["annotations"] = dict(wanted.account)
        elif named == ("NetworkPolicy", "daskpriv-egress"):
            each["spec"]["egress"] += _endpoints(wanted.environment)
        elif named == ("DaskJob", "daskpriv"):
            each["spec"]["cluster"]["spec"]["worker"]["replicas"] = wanted.workers
        elif named == ("Deployment", "daskpriv-worker"):
            each["spec"]["replicas"] = wanted.workers
        for template in _templates(each):
            if any(key.startswith(_AZURE) for key in wanted.account):
                template["metadata"]["labels"][f"{_AZURE}use"] = "true"
            for container in template["spec"]["containers"]:
                _fill(container, wanted)
            for volume in template["spec"]["volumes"]:
                if volume["name"] == "tls":
                    volume["secret"]["optional"] = not wanted.tls
    return objects


def _built(name: str) -> list[dict[str, Any]]:
    text = files("daskpriv").joinpath("data", "k8s", f"{name}.yaml").read_text("utf-8")
    return list(yaml.safe_load_all(text))


def _wants_gke(wanted: Wanted) -> bool:
    """Whether pods ask GKE's metadata server for tokens."""
    urls = [getattr(wanted, name) for name in TABLES]
    return any(key.startswith("iam.gke.io/") for key in wanted.account) or any(
        url.startswith(("gs://", "gcs://")) for url in urls
    )


def _settings(held: Mapping[str, str], tls: bool) -> dict[str, str]:
    if tls:
        return dict(held)
    kept = {key: value for key, value in held.items() if not key.startswith(_NO_TLS)}
    return {**kept, "DASK_SCHEDULER_ADDRESS": held["DASK_SCHEDULER_ADDRESS"].replace("tls://", "tcp://")}


def _templates(node: Any) -> Iterator[dict[str, Any]]:
    """The templates of all pods within an object: labels and what runs."""
    if isinstance(node, dict):
        if "containers" in node.get("spec", ()):
            yield node
        for value in node.values():
            yield from _templates(value)


def _endpoints(environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """Ways to object stores that do not answer at port 443; they may be pods of this cluster too."""
    anywhere = [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}}, {"namespaceSelector": {}}]
    ports = sorted(endpoint_ports(environment) - {443})
    return [{"to": anywhere, "ports": [{"protocol": "TCP", "port": port}]} for port in ports]


def _fill(container: dict[str, Any], wanted: Wanted) -> None:
    container["image"] = wanted.image
    if container["name"] == "worker":
        held = container["resources"]
        held["requests"] = {"cpu": str(wanted.cpus), "memory": wanted.memory}
        held["limits"] = {"cpu": str(wanted.cpus + 1), "memory": wanted.memory}
    if container["name"] == "evaluation":
        given = [a for a in container["args"] if wanted.holdout or not a.startswith("--holdout")]
        # Kubernetes would put variables for $(...): arguments arrive as they are written.
        container["args"] = [*given, *(text.replace("$", "$$") for text in wanted.arguments)]
