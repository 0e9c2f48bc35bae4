"""Tier 0: every overlay is built, validated strictly, and keeps the policies that a cluster may demand."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import dask
import pytest
import yaml

from daskpriv.cluster.settings import limits, scheduler_wait
from tests.deploy.conftest import Built
from tests.deploy.manifests import K8S, KUBERNETES, OVERLAYS, VARIANTS, built, chosen, faults, pods

every = pytest.mark.parametrize(("name", "variant"), [(n, v) for n in OVERLAYS for v in VARIANTS])


def test_the_overlays_that_are_promised() -> None:
    assert set(OVERLAYS) == {"local", "s3-irsa", "gcs-workload-identity", "azure-workload-identity", "gpu-ready"}


@every
def test_valid_without_unknown_fields(made: Built, name: str, variant: str) -> None:
    for each in made(name, variant):
        for version in KUBERNETES:
            assert faults(each, version) == [], (each["kind"], version)


def test_validation_would_notice(made: Built) -> None:
    plain, operator = made("local", "plain"), made("local", "operator")
    worker, job = chosen(plain, "Deployment", "daskpriv-worker"), chosen(operator, "DaskJob", "daskpriv")
    worker["spec"]["replica"] = worker["spec"].pop("replicas")
    assert "replica" in faults(worker)[0]
    job["spec"]["cluster"]["spec"]["idleTimeOut"] = 60
    assert "idleTimeOut" in faults(job)[0]
    job = chosen(operator, "DaskJob", "daskpriv")
    job["spec"]["cluster"]["spec"]["worker"]["spec"]["containers"][0]["envFrom"] = "daskpriv-environment"
    assert "is not of type" in faults(job)[0]


@every
def test_pods_are_confined(made: Built, name: str, variant: str) -> None:
    objects = made(name, variant)
    for pod, _, spec in pods(objects):
        user = spec["securityContext"]
        assert user["runAsNonRoot"] is True, pod
        assert user["runAsUser"] >= 10000, pod
        assert user["seccompProfile"] == {"type": "RuntimeDefault"}, pod
        assert spec["automountServiceAccountToken"] is False, pod
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), pod
        assert all(set(v) <= {"name", "emptyDir", "secret"} for v in spec["volumes"]), pod
        assert all("sizeLimit" in v["emptyDir"] for v in spec["volumes"] if "emptyDir" in v), pod
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False, pod
            assert context["readOnlyRootFilesystem"] is True, pod
            assert context["capabilities"] == {"drop": ["ALL"]}, pod
            held = container["resources"]
            assert set(held["limits"]) >= {"cpu", "memory"}, pod
            assert set(held["requests"]) == {"cpu", "memory"}, pod
            assert held["requests"]["memory"] == held["limits"]["memory"], pod
            assert re.fullmatch(r".+(:(?!latest$)[\w.-]+|@sha256:[0-9a-f]{64})", container["image"]), pod


@every
def test_no_secret_is_written_down(made: Built, name: str, variant: str) -> None:
    objects = made(name, variant)
    assert not [o for o in objects if o["kind"] == "Secret"]
    told = [pair for o in objects if o["kind"] == "ConfigMap" for pair in o["data"].items()]
    for _, _, spec in pods(objects):
        told += [(e["name"], e["value"]) for c in spec["containers"] for e in c.get("env", ()) if "value" in e]
    for key, value in told:
        assert value == "none" or not re.search("SECRET|PASSWORD|TOKEN|ACCESS_KEY|CONNECTION_STRING", key), key
        assert not re.search(r"://[^/]*@", value), key


@every
def test_what_is_named_exists(made: Built, name: str, variant: str) -> None:
    objects = made(name, variant)
    maps = {o["metadata"]["name"]: o["data"] for o in objects if o["kind"] == "ConfigMap"}
    accounts = {o["metadata"]["name"] for o in objects if o["kind"] == "ServiceAccount"}
    labels = [held for _, held, _ in pods(objects)]
    for pod, _, spec in pods(objects):
        assert spec.get("serviceAccountName", "daskpriv") in accounts, pod
        for container in spec["containers"]:
            known = {e["name"] for e in container.get("env", ())} | {"DASK_WORKER_NAME"}
            for source in [s for s in container.get("envFrom", ()) if "configMapRef" in s]:
                known |= set(maps[source["configMapRef"]["name"]])
            asked = {v for a in container.get("args", ()) for v in re.findall(r"\$\((\w+)\)", a)}
            assert asked <= known, (pod, asked - known)
    for each in objects:
        selectors = {
            "Service": lambda s: s["selector"],
            "PodDisruptionBudget": lambda s: s["selector"]["matchLabels"],
            "NetworkPolicy": lambda s: s["podSelector"].get("matchLabels", {}),
        }
        if each["kind"] in selectors:
            wanted = selectors[each["kind"]](each["spec"])
            assert any(wanted.items() <= held.items() for held in labels), each["metadata"]["name"]


@every
def test_the_network_is_closed_first(made: Built, name: str, variant: str) -> None:
    policies = [o["spec"] for o in made(name, variant) if o["kind"] == "NetworkPolicy"]
    assert {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]} in policies
    for policy in policies:
        rules = [*policy.get("ingress", ()), *policy.get("egress", ())]
        assert all(r.get("ports") and (r.get("from") or r.get("to")) for r in rules)


@every
def test_tls_wherever_the_tables_are_real(made: Built, name: str, variant: str) -> None:
    environment = chosen(made(name, variant), "ConfigMap", "daskpriv-environment")["data"]
    encrypted = environment.get("DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION") == "True"
    scheme = "tls" if encrypted else "tcp"
    assert environment["DASK_SCHEDULER_ADDRESS"] == f"{scheme}://daskpriv-scheduler:8786"
    assert encrypted == (name != "local")


@every
def test_pods_wait_for_their_certificates(made: Built, name: str, variant: str) -> None:
    """A job that started without them would end with exit code 2 and not be tried again."""
    for pod, _, spec in pods(made(name, variant)):
        if pod != "daskpriv-s3":
            held = next(v["secret"] for v in spec["volumes"] if v["name"] == "tls")
            assert held["secretName"] == "daskpriv-tls", pod
            assert held["optional"] == (name == "local"), pod


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_webhook_of_azure_finds_all_pods(made: Built, variant: str) -> None:
    objects = made("azure-workload-identity", variant)
    bound = chosen(objects, "ServiceAccount", "daskpriv")["metadata"]["annotations"]
    assert "azure.workload.identity/client-id" in bound
    for pod, held, _ in pods(objects):
        assert held.get("azure.workload.identity/use") == "true", pod


@every
def test_only_gke_may_ask_a_metadata_server(made: Built, name: str, variant: str) -> None:
    policies = [o["spec"] for o in made(name, variant) if o["kind"] == "NetworkPolicy"]
    rules = [r for p in policies for r in p.get("egress", ())]
    near = [
        t["ipBlock"]["cidr"]
        for r in rules
        for t in r["to"]
        if t.get("ipBlock", {}).get("cidr", "").startswith("169.254.")
    ]
    assert bool(near) == (name == "gcs-workload-identity")
    for rule in rules:
        for block in [t["ipBlock"] for t in rule["to"] if t.get("ipBlock", {}).get("cidr") == "0.0.0.0/0"]:
            ports = {p["port"] for p in rule["ports"]}
            assert ports == {53} or "169.254.0.0/16" in block["except"]


@every
def test_names_are_found_beside_a_cache_on_the_node(made: Built, name: str, variant: str) -> None:
    """NodeLocal DNSCache and GKE's Cloud DNS answer at link-local addresses, which no selector matches."""
    policy = chosen(made(name, variant), "NetworkPolicy", "daskpriv-egress")["spec"]["egress"]
    names = [r for r in policy if {p["port"] for p in r["ports"]} == {53}]
    assert {p["protocol"] for p in names[0]["ports"]} == {"UDP", "TCP"}
    assert {"ipBlock": {"cidr": "0.0.0.0/0"}} in names[0]["to"]


def test_where_no_cloud_gives_an_identity_a_secret_does(made: Built) -> None:
    """Only to pods that read tables, and nothing waits for it."""
    for variant in VARIANTS:
        for pod, _, spec in pods(made("s3-irsa", variant)):
            sources = [s["secretRef"] for s in spec["containers"][0].get("envFrom", ()) if "secretRef" in s]
            wanted = [] if pod.endswith("scheduler") else [{"name": "daskpriv-credentials", "optional": True}]
            assert sources == wanted, pod


def test_a_job_waits_for_its_scheduler(made: Built) -> None:
    """Their nodes and images come when they come; "does not answer" is bad input, which is not tried again."""
    environment = chosen(made("s3-irsa", "plain"), "ConfigMap", "daskpriv-environment")["data"]
    given = {f"daskpriv.{k}": environment[f"DASK_DASKPRIV__{k.upper()}"] for k in ("scheduler_wait", "patience")}
    with dask.config.set(given):
        assert scheduler_wait() == limits().patience == 15 * 60


def test_pods_hold_no_rights_in_kubernetes(made: Built) -> None:
    objects = made("s3-irsa", "plain")
    bound = [s["name"] for o in objects if o["kind"] == "RoleBinding" for s in o["subjects"]]
    assert bound == ["daskpriv-submitter"]
    assert {spec["serviceAccountName"] for _, _, spec in pods(objects)} == {"daskpriv"}
    rules = chosen(objects, "Role", "daskpriv-submitter")["rules"]
    assert not [r for r in rules if "*" in r["verbs"] + r["resources"] or "secrets" in r["resources"]]


@every
def test_an_overlay_asks_for_few_values(made: Built, name: str, variant: str) -> None:
    written = yaml.safe_load((K8S / "overlays" / name / "kustomization.yaml").read_text())
    data = chosen(made(name, variant), "ConfigMap", "daskpriv-evaluation")["data"]
    assert set(data) == {"TRAIN", "HOLDOUT", "SYNTHETIC", "OUTPUT"}
    assert "unset" not in data.values()
    assert "daskpriv" in [i["name"] for i in written["images"]]


def test_the_same_pods_with_and_without_operator(made: Built) -> None:
    """base/pods describes them once; the operator only names workers itself."""
    plain, operator = (
        {held["app.kubernetes.io/component"]: spec for _, held, spec in pods(made("s3-irsa", v))}
        for v in ("plain", "operator")
    )
    named = [e for e in plain["worker"]["containers"][0]["env"] if e["name"] != "DASK_WORKER_NAME"]
    plain["worker"]["containers"][0] = plain["worker"]["containers"][0] | {"env": named}
    assert plain == operator


@pytest.mark.parametrize("variant", VARIANTS)
def test_tables_without_a_holdout(made: Built, variant: str, tmp_path: Path) -> None:
    """A component takes its option away, and nothing else."""
    copied = tmp_path / "k8s"
    shutil.copytree(K8S, copied)
    written = copied / "overlays" / "s3-irsa" / "kustomization.yaml"
    text = written.read_text().replace("../../base/operator ", f"../../base/{variant} ")
    written.write_text(text.replace("components:\n", "components:\n  - ../../components/no-holdout\n"))
    with_it, without = made("s3-irsa", variant), built(written.parent)
    (job,) = (s["containers"][0] for _, held, s in pods(with_it) if held["app.kubernetes.io/component"] == "evaluation")
    job["args"].remove("--holdout=$(HOLDOUT)")
    assert list(without) == list(with_it)


@pytest.mark.parametrize("variant", ["operator", "plain", "gke"])
def test_the_manifests_in_the_package_are_those_of_kustomize(variant: str) -> None:
    held = (K8S.parent / "daskpriv" / "data" / "k8s" / f"{variant}.yaml").read_text()
    assert list(yaml.safe_load_all(held)) == list(built(K8S / "render" / variant)), "run `make k8s-manifests`"


def test_a_job_that_cannot_succeed_is_not_tried_again(made: Built) -> None:
    rules = chosen(made("local", "plain"), "Job", "daskpriv-evaluation")["spec"]["podFailurePolicy"]["rules"]
    assert {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]} in [
        {k: [{"type": c["type"]} for c in v] if k == "onPodConditions" else v for k, v in r.items()} for r in rules
    ]
    assert [r["onExitCodes"]["values"] for r in rules if r["action"] == "FailJob"] == [[1, 2]]


def test_workers_leave_in_good_order(made: Built, tmp_path: Path) -> None:
    for variant in VARIANTS:
        worker = next(s for n, _, s in pods(made("gpu-ready", variant)) if n.endswith("worker"))
        container = worker["containers"][0]
        assert container["lifecycle"]["preStop"]["exec"]["command"] == ["retire-worker"]
        assert (K8S.parent / "deploy" / "image" / "retire_worker.py").exists()
        assert worker["terminationGracePeriodSeconds"] >= 60
        assert "--lifetime-restart" in container["args"]
        assert "nvidia.com/gpu" in container["resources"]["limits"]
        assert worker["topologySpreadConstraints"][0]["whenUnsatisfiable"] == "ScheduleAnyway"
        assert {t["key"] for t in worker["tolerations"]} >= {"cloud.google.com/gke-spot", "nvidia.com/gpu"}
