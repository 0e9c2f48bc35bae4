"""Tier 2: the image from deploy/Dockerfile evaluates the adult tables in real pods, from S3 and back.

Whatever happens to pods, the results have the same bits as on this machine. NetworkPolicies are enforced all the time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.certificates import certificates
from tests.deploy.kube import NAMESPACE, Node, for_old_server, image, wait, why_not
from tests.deploy.manifests import K8S, ROOT, VARIANTS, Object, built, chosen, overlay
from tests.deploy.network import Firewall

pytestmark = pytest.mark.skipif(why_not(containers=True) is not None, reason=str(why_not(containers=True)))
S3 = "http://daskpriv-s3.daskpriv.svc.cluster.local:5000"
LONG = 900  # seconds; six processes share two cores
OPTIONS = ["--block-rows=2000"]  # more units, so that there is a middle in which pods can die; never another result


@pytest.fixture(scope="module")
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    made = Node([image("daskpriv", "deploy/Dockerfile"), image("daskpriv-s3", "deploy/s3/Dockerfile")])
    try:
        yield made
    finally:
        made.down()


@pytest.fixture(scope="module", autouse=True)
def network(node: Node) -> Iterator[Firewall]:
    with Firewall(node) as kept:
        yield kept


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Object:
    """The results of one process on this machine, without image, cluster or bucket."""
    folder, output = ROOT / "daskpriv" / "data" / "adult", tmp_path_factory.mktemp("here")
    tables = {"train": "train", "holdout": "holdout", "synthetic": "synthetic_leaky"}
    given = [f"--{name}={folder / file}.parquet" for name, file in tables.items()]
    command = [
        sys.executable,
        "-m",
        "daskpriv",
        "evaluate",
        *given,
        f"--output={output}",
        "--cluster=local:1",
        "--quiet",
    ]
    subprocess.run(command, check=True, cwd=ROOT)
    return results(json.loads((output / "report.json").read_text()))


@pytest.fixture(autouse=True)
def cleared(node: Node) -> Iterator[None]:
    """Each test begins with no evaluation, whatever the one before has left."""
    yield
    gone(node)
    node.kubectl("-n", NAMESPACE, "delete", "secret", "daskpriv-tls", "--ignore-not-found")


def results(report: Object) -> Object:
    """All of a report but costs and places."""
    tables = {n: {k: v for k, v in t.items() if k != "source"} for n, t in report["inputs"]["tables"].items()}
    return {**{k: v for k, v in report.items() if k != "run"}, "inputs": {**report["inputs"], "tables": tables}}


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """Where two reports differ; no value, so that a failure is short."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [d for k in one for d in differences(one[k], other[k], f"{where}/{k}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [d for i, pair in enumerate(zip(one, other, strict=True)) for d in differences(*pair, f"{where}/{i}")]
    return [] if one == other else [where]


def objects_of(variant: str, scratch: Path, output: str, options: list[str], **settings: str) -> list[Object]:
    """The overlay for one small node, with another output and more options."""
    made = for_old_server(overlay("local", variant, scratch))
    for each in made:
        if each["kind"] == "ConfigMap" and each["metadata"]["name"] == "daskpriv-evaluation":
            each["data"] |= {"OUTPUT": f"s3://tables/{output}", **settings}
        if each["kind"] == "DaskAutoscaler":
            each["spec"]["maximum"] = 2
        if each["kind"] in ("Job", "DaskJob"):
            spec = each["spec"]["template"]["spec"] if each["kind"] == "Job" else each["spec"]["job"]["spec"]
            spec["containers"][0]["args"] += options
    return made


def fetched(node: Node, key: str) -> Any:
    """A JSON file from the bucket; moto wants to be told a name, and takes any."""
    asked = f"u.Request('{S3}/tables/{key}', headers={{'Authorization': 'AWS none:none'}})"
    done = node.inside(sys.executable, "-c", f"import urllib.request as u; print(u.urlopen({asked}).read().decode())")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def gone(node: Node) -> None:
    """Remove what works, keep the S3 server and the settings."""
    for kind in ("daskjob", "daskcluster", "job"):
        node.kubectl("-n", NAMESPACE, "delete", kind, "--all", "--ignore-not-found", "--timeout=120s")
    node.kubectl("-n", NAMESPACE, "delete", "deployment,service", "-l", "app.kubernetes.io/name=daskpriv")
    wait("pods to go", lambda: not node.get("pods", "-l", "app.kubernetes.io/name=daskpriv")["items"], 150)


def job_status(node: Node) -> str:
    return str(node.get("daskjob", "daskpriv").get("status", {}).get("jobStatus", ""))


def job_conditions(node: Node) -> list[str]:
    status = node.get("job", "daskpriv-evaluation").get("status", {})
    return [c["type"] for c in status.get("conditions", ()) if c["status"] == "True"]


def pieces_done(node: Node, pod: str) -> int:
    """Finished units of the searches, each of which is kept in the run store."""
    return sum('"TaskDone"' in line and '"stage": "search-' in line for line in node.logs(pod).splitlines())


def pods_of(node: Node, component: str) -> list[str]:
    """Names of pods that are not on their way out."""
    listed = node.get("pods", "-l", f"app.kubernetes.io/component={component}")["items"]
    return [p["metadata"]["name"] for p in listed if "deletionTimestamp" not in p["metadata"]]


def finished(node: Node, variant: str) -> None:
    """The evaluation ends well."""
    if variant == "operator":
        ended = wait("the DaskJob", lambda: (s := job_status(node)) in ("Successful", "Failed") and s, LONG)
        assert ended == "Successful", node.logs("daskpriv-runner")[-2000:]
    else:
        wait("the Job", lambda: "Complete" in job_conditions(node), LONG)


@pytest.mark.parametrize("variant", VARIANTS)
def test_from_apply_to_report(node: Node, network: Firewall, here: Object, tmp_path: Path, variant: str) -> None:
    begun, dropped = time.monotonic(), network.dropped()
    node.apply(objects_of(variant, tmp_path, f"first-{variant}", []))
    finished(node, variant)
    seconds = time.monotonic() - begun
    print(f"\n{variant}: {seconds:.0f} s from kubectl apply to report")
    assert differences(results(fetched(node, f"first-{variant}/report.json")), here) == []
    assert network.dropped() - dropped == {}, "pods wanted what no policy allows"


def middle(node: Node, pod: str) -> None:
    """Until a good part of its pieces is done, and by no means all."""

    def reached() -> bool:
        phase = node.get("pod", pod)["status"]["phase"]
        assert phase in ("Pending", "Running"), f"{pod} has ended: {node.logs(pod)[-500:]}"
        return pieces_done(node, pod) >= 40

    wait("some pieces to be done", reached, LONG)


@pytest.mark.parametrize(("variant", "gently"), [("operator", False), ("plain", False), ("plain", True)])
def test_a_worker_pod_deleted_in_the_middle(
    node: Node, here: Object, tmp_path: Path, variant: str, gently: bool
) -> None:
    output = f"worker-{variant}-{gently}"
    node.apply(objects_of(variant, tmp_path, output, OPTIONS))
    pod = wait("the evaluation", lambda: pods_of(node, "evaluation"), 60)[0]
    middle(node, pod)
    victim = pods_of(node, "worker")[0]
    node.kubectl(
        "-n", NAMESPACE, "delete", "pod", victim, *(["--wait=false"] if gently else ["--force", "--grace-period=0"])
    )
    assert not job_conditions(node) if variant == "plain" else job_status(node) == "Running"
    finished(node, variant)
    assert differences(results(fetched(node, f"{output}/report.json")), here) == []
    if gently:
        assert "etire" in node.logs("-l", "app.kubernetes.io/component=scheduler", "--tail=-1")
        events = node.kubectl("-n", NAMESPACE, "get", "events", "--field-selector", f"involvedObject.name={victim}")
        assert "FailedPreStopHook" not in events


def test_the_job_pod_deleted_and_resumed(node: Node, here: Object, tmp_path: Path) -> None:
    node.apply(objects_of("plain", tmp_path, "resumed", OPTIONS))
    first = wait("the evaluation", lambda: pods_of(node, "evaluation"), 60)[0]
    middle(node, first)
    node.kubectl("-n", NAMESPACE, "delete", "pod", first, "--force", "--grace-period=0")
    second = wait("another pod", lambda: [p for p in pods_of(node, "evaluation") if p != first], 60)[0]
    finished(node, "plain")
    named = [json.loads(line) for line in node.logs(second).splitlines() if '"RunNamed"' in line]
    assert named[0]["kept"] > 0, "nothing of the first pod's work was used"
    assert differences(results(fetched(node, "resumed/report.json")), here) == []


def test_the_scheduler_pod_deleted(node: Node, here: Object, tmp_path: Path) -> None:
    """Its node is drained: the run ends with exit code 3, another pod of the Job goes on with a new scheduler."""
    node.apply(objects_of("plain", tmp_path, "moved", OPTIONS))
    pod = wait("the evaluation", lambda: pods_of(node, "evaluation"), 60)[0]
    middle(node, pod)
    node.kubectl("-n", NAMESPACE, "delete", "pod", pods_of(node, "scheduler")[0], "--force", "--grace-period=0")
    finished(node, "plain")
    assert differences(results(fetched(node, "moved/report.json")), here) == []


def test_a_dask_job_deleted_and_applied_again(node: Node, here: Object, tmp_path: Path) -> None:
    objects = objects_of("operator", tmp_path, "again", OPTIONS)
    node.apply(objects)
    wait("the runner", lambda: pods_of(node, "evaluation"), 60)
    middle(node, "daskpriv-runner")
    gone(node)
    node.apply(objects)
    finished(node, "operator")
    named = [json.loads(line) for line in node.logs("daskpriv-runner").splitlines() if '"RunNamed"' in line]
    assert named[0]["kept"] > 0
    assert differences(results(fetched(node, "again/report.json")), here) == []


def connects(node: Node, pod: str, address: str, port: int, namespace: str = NAMESPACE) -> str:
    """How it ends when a pod opens a connection."""
    tried = f"import socket; socket.create_connection(({address!r}, {port}), 3)"
    done = node.run("-n", namespace, "exec", pod, "--", "python3", "-c", f"{tried}; print('connected')")
    return "connected" if done.stdout == "connected\n" else done.stderr


def test_nothing_else_may_connect(node: Node, tmp_path: Path) -> None:
    """What the policies say, from within pods; each port answers somebody, so a timeout is the policy."""
    objects = objects_of("plain", tmp_path, "network", OPTIONS)
    stranger = chosen(tuple(objects), "Deployment", "daskpriv-s3")
    stranger["metadata"] |= {"name": "stranger", "namespace": "default"}
    node.apply([*objects, stranger])
    evaluation = wait("the evaluation", lambda: pods_of(node, "evaluation"), 60)[0]
    middle(node, evaluation)
    found = {
        p["metadata"]["name"]: p["status"]["podIP"]
        for p in node.get("pods", "--field-selector=status.phase=Running")["items"]
    }
    scheduler, worker, other = (pods_of(node, "scheduler") + pods_of(node, "worker"))[:3]
    s3 = next(n for n in found if n.startswith("daskpriv-s3"))
    outside = node.kubectl("get", "pods", "-l", "app.kubernetes.io/name=daskpriv-s3", "-o", "name")
    outside = outside.strip().removeprefix("pod/")
    yes = [(worker, scheduler, 8786), (worker, other, 40000), (worker, s3, 5000), (scheduler, worker, 40001)]
    no = [(worker, scheduler, 8787), (evaluation, worker, 40000), (s3, scheduler, 8786), (s3, worker, 40000)]
    for source, target, port in [*yes, (evaluation, s3, 5000)]:
        assert connects(node, source, found[target], port) == "connected", (source, target, port)
    for source, target, port in no:
        assert "imed out" in connects(node, source, found[target], port), (source, target, port)
    assert "imed out" in connects(node, worker, "10.0.0.1", 443)  # the API server
    for target, port in ((scheduler, 8786), (worker, 40000), (s3, 5000)):
        assert "imed out" in connects(node, outside, found[target], port, "default"), (target, port)
    node.kubectl("delete", "deployment", "stranger")


def test_bad_input_ends_failed_with_its_sentence(node: Node, tmp_path: Path) -> None:
    node.apply(objects_of("operator", tmp_path, "bad", [], TRAIN="s3://tables/adult/missing.parquet"))
    wait("the DaskJob to fail", lambda: job_status(node) == "Failed", LONG)
    lines = [line for line in node.logs("daskpriv-runner").splitlines() if line.startswith("daskpriv: ")]
    told = [line for line in lines if "warning" not in line]
    assert len(told) == 1, lines
    assert "train" in told[0]
    assert told[0].endswith(".")
    assert "Traceback" not in node.logs("daskpriv-runner")
    print(f"\n{told[0]}")


def test_encrypted_with_a_secret(node: Node, here: Object, tmp_path: Path) -> None:
    """The operator's cluster by TLS, which the operator itself knows nothing of."""
    made = certificates(tmp_path / "tls", ["127.0.0.1"])
    files = [f"--from-file=ca.crt={made.ca}", f"--from-file=tls.crt={made.cert}", f"--from-file=tls.key={made.key}"]
    node.kubectl("-n", NAMESPACE, "create", "secret", "generic", "daskpriv-tls", *files)
    objects = objects_of("operator", tmp_path, "tls", [])
    encrypted = next(
        o["data"] for o in built(K8S / "render" / "operator") if o["metadata"]["name"] == "daskpriv-environment"
    )
    for each in objects:
        if each["kind"] == "ConfigMap" and each["metadata"]["name"] == "daskpriv-environment":
            each["data"] |= encrypted
    node.apply(objects)
    wait("the scheduler", lambda: "tls://" in node.logs("-l", "app.kubernetes.io/component=scheduler"), LONG)
    finished(node, "operator")
    assert "not encrypted" not in node.logs("daskpriv-runner")
    assert differences(results(fetched(node, "tls/report.json")), here) == []


def test_rendered_manifests_run(node: Node, here: Object, tmp_path: Path) -> None:
    """`daskpriv k8s render`, with the environment that the S3 server of this node wants."""
    wanted = {
        "image": "daskpriv:local",
        "train": "s3://tables/adult/train.parquet",
        "holdout": "s3://tables/adult/holdout.parquet",
        "synthetic": "s3://tables/adult/synthetic_leaky.parquet",
        "output": "s3://tables/rendered",
        "workers": 1,
        "memory": "2Gi",
        "operator": False,
        "tls": False,
        "environment": {"AWS_ENDPOINT_URL": "http://daskpriv-s3:5000", "AWS_DEFAULT_REGION": "us-east-1"},
    }
    (tmp_path / "eval.yaml").write_text(yaml.safe_dump(wanted))
    command = [sys.executable, "-m", "daskpriv", "k8s", "render", "--config", str(tmp_path / "eval.yaml")]
    text = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    objects = for_old_server(yaml.safe_load_all(text))
    for each in objects:
        if each["kind"] == "ConfigMap" and each["metadata"]["name"] == "daskpriv-environment":
            each["data"] |= {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none"}
        if each["kind"] == "Deployment":
            each["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "200m"
    node.apply(objects)
    wait("the worker", lambda: node.get("deployment", "daskpriv-worker")["status"].get("availableReplicas") == 1, LONG)
    finished(node, "plain")
    assert differences(results(fetched(node, "rendered/report.json")), here) == []
