"""Tier 1: a real API server takes every overlay, the real operator makes what it should, rights suffice and no more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.kube import NAMESPACE, Api, for_old_server, wait, why_not
from tests.deploy.manifests import OVERLAYS, VARIANTS, chosen, overlay

pytestmark = pytest.mark.skipif(why_not(containers=False) is not None, reason=str(why_not(containers=False)))
SUBMITTER = f"--as=system:serviceaccount:{NAMESPACE}:daskpriv-submitter"
POD = f"--as=system:serviceaccount:{NAMESPACE}:daskpriv"


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    made = Api()
    try:
        yield made
    finally:
        made.down()


@pytest.mark.parametrize(("name", "variant"), [(n, v) for n in OVERLAYS for v in VARIANTS])
def test_every_overlay_is_accepted(api: Api, tmp_path: Path, name: str, variant: str) -> None:
    objects = for_old_server(overlay(name, variant, tmp_path))
    api.apply([o for o in objects if o["kind"] == "Namespace"])
    api.apply(objects, "--dry-run=server")


def test_a_wrong_field_is_refused(api: Api, tmp_path: Path) -> None:
    job = chosen(overlay("local", "operator", tmp_path), "DaskJob", "daskpriv")
    job["spec"]["cluster"]["spec"]["worker"]["replicas"] = "two"
    with pytest.raises(AssertionError, match="replicas"):
        api.apply([job], "--dry-run=server")


def test_the_operator_makes_a_cluster_of_a_job(api: Api, tmp_path: Path) -> None:
    api.apply(for_old_server(overlay("s3-irsa", "operator", tmp_path)))
    listed = wait(
        "four workers",
        lambda: len(found := api.get("deployments", "-l", "dask.org/cluster-name=daskpriv")["items"]) == 5 and found,
        60,
    )
    assert api.get("service", "daskpriv-scheduler")["spec"]["ports"][0]["port"] == 8786
    workers = [d for d in listed if "daskpriv-default-worker" in d["metadata"]["name"]]
    assert len(workers) == 4
    for worker in workers:
        held = {e["name"]: e for e in worker["spec"]["template"]["spec"]["containers"][0]["env"]}
        assert held["DASK_SCHEDULER_ADDRESS"]["valueFrom"]["configMapKeyRef"]["name"] == "daskpriv-environment"
        assert held["DASK_WORKER_NAME"]["value"] == worker["metadata"]["name"]
        assert worker["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"] == "worker"
    runner = wait("the runner", lambda: api.run("-n", NAMESPACE, "get", "pod", "daskpriv-runner").returncode == 0, 30)
    assert runner
    api.kubectl("-n", NAMESPACE, "delete", "daskjob", "daskpriv")


def test_the_operator_adopts_an_autoscaled_cluster(api: Api, tmp_path: Path) -> None:
    wait("the job's cluster to go", lambda: not api.get("daskclusters")["items"], 120)
    api.apply(for_old_server(overlay("s3-irsa", "cluster", tmp_path)))
    wait(
        "a worker",
        lambda: (
            len(api.get("deployments", "-l", "dask.org/component=worker,dask.org/cluster-name=daskpriv")["items"]) == 1
        ),
        60,
    )
    scaler = wait(
        "adoption", lambda: (f := api.get("daskautoscaler", "daskpriv"))["metadata"].get("ownerReferences") and f, 60
    )
    assert scaler["metadata"]["ownerReferences"][0]["kind"] == "DaskCluster"


def says(api: Api, who: str, verb: str, what: str) -> str:
    """What `kubectl auth can-i` answers; `what` may name a subresource."""
    resource, _, sub = what.partition("/")
    more = [f"--subresource={sub}"] if sub else []
    return api.run("auth", "can-i", verb, resource, *more, who, "-n", NAMESPACE).stdout.strip()


def test_a_submitter_may_start_evaluations(api: Api, tmp_path: Path) -> None:
    for variant, kind, name in (("operator", "DaskJob", "daskpriv"), ("plain", "Job", "daskpriv-evaluation")):
        objects = for_old_server(overlay("local", variant, tmp_path))
        api.apply([o for o in objects if o["kind"] not in ("DaskJob", "Job", "Deployment")])
        settings = chosen(tuple(objects), "ConfigMap", "daskpriv-evaluation")
        settings["data"]["TRAIN"] = "s3://tables/other.parquet"
        work = chosen(tuple(objects), kind, name)
        work["metadata"]["name"] = "submitted"
        api.apply([settings, work], SUBMITTER)
        api.kubectl("-n", NAMESPACE, "delete", kind, "submitted", SUBMITTER)
    for verb, what in (("get", "pods"), ("watch", "pods"), ("get", "pods/log"), ("list", "jobs.batch")):
        assert says(api, SUBMITTER, verb, what) == "yes", (verb, what)


FORBIDDEN = [
    ("get", "secrets"),
    ("list", "secrets"),
    ("create", "pods"),
    ("create", "pods/exec"),
    ("create", "pods/portforward"),
    ("delete", "pods"),
    ("patch", "deployments.apps"),
    ("create", "configmaps"),
    ("list", "configmaps"),
    ("create", "serviceaccounts"),
    ("create", "serviceaccounts/token"),
    ("delete", "networkpolicies.networking.k8s.io"),
    ("patch", "networkpolicies.networking.k8s.io"),
    ("create", "rolebindings.rbac.authorization.k8s.io"),
    ("escalate", "roles.rbac.authorization.k8s.io"),
    ("impersonate", "users"),
    ("delete", "daskclusters.kubernetes.dask.org"),
]


@pytest.mark.parametrize(("verb", "what"), FORBIDDEN)
def test_a_submitter_may_no_more(api: Api, verb: str, what: str) -> None:
    for who in (SUBMITTER, POD):
        assert says(api, who, verb, what) == "no", (who, verb, what)


def test_pods_may_nothing(api: Api) -> None:
    rules = api.kubectl("auth", "can-i", "--list", POD, "-n", NAMESPACE)
    given = [line.split()[0] for line in rules.splitlines()[1:] if line and not line.startswith(" ")]
    assert set(given) == {
        "selfsubjectaccessreviews.authorization.k8s.io",
        "selfsubjectrulesreviews.authorization.k8s.io",
    }


def test_only_the_evaluation_may_be_changed(api: Api) -> None:
    asked = {"daskpriv-evaluation": "yes", "daskpriv-environment": "no"}
    for name, expected in asked.items():
        assert (
            api.run("auth", "can-i", "patch", f"configmaps/{name}", SUBMITTER, "-n", NAMESPACE).stdout.strip()
            == expected
        )
