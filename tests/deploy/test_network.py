"""Tier 0: the NetworkPolicies of every overlay open what pods need, and nothing else."""

from __future__ import annotations

import itertools
from ipaddress import IPv4Network

import pytest

from tests.deploy.conftest import Built
from tests.deploy.kube import NAMESPACE
from tests.deploy.manifests import OVERLAYS, VARIANTS, Object, pods
from tests.deploy.network import Pod, allows, firewall, openings

PORTS = (53, 80, 443, 5000, 6443, 8786, 8787, 40000, 40001)
NEEDED = {
    ("worker", "scheduler", 8786),
    ("evaluation", "scheduler", 8786),
    ("scheduler", "worker", 40000),
    ("scheduler", "worker", 40001),
    ("worker", "worker", 40000),
    ("worker", "worker", 40001),
    ("operator", "scheduler", 8787),
}


def ends(objects: tuple[Object, ...]) -> list[Pod]:
    """Two of each sort of pod, and pods that have no business here."""
    component = "app.kubernetes.io/component"
    found = [(held.get(component, "s3"), NAMESPACE, held) for _, held, _ in pods(objects)]
    found += [("stranger", NAMESPACE, {component: "worker"}), ("operator", "dask-operator", {})]
    found += [("outsider", "default", dict(found[0][2])), ("dns", "kube-system", {})]
    return [
        Pod(name, space, IPv4Network(f"10.244.0.{i}"), labels) for i, (name, space, labels) in enumerate(2 * found, 1)
    ]


@pytest.mark.parametrize(("name", "variant"), [(n, v) for n in OVERLAYS for v in VARIANTS])
def test_who_may_talk_to_whom(made: Built, name: str, variant: str) -> None:
    objects = made(name, variant)
    policies = [o for o in objects if o["kind"] == "NetworkPolicy"]
    around = ends(objects)
    ours = {"scheduler", "worker", "evaluation"}
    opened = {
        (source.name, target.name, port)
        for source, target in itertools.permutations(around, 2)
        for port in PORTS
        if {source.name, target.name} & {*ours, "s3", "stranger"} and allows(policies, source, target, port, around)
    }
    needed = NEEDED | ({(one, "s3", 5000) for one in ours} if name == "local" else set())
    # Names and https may be anywhere, so in pods elsewhere too.
    out = {(one, other, port) for one in ours for other in ("operator", "outsider", "dns") for port in (53, 443)}
    assert opened == needed | out


def test_what_no_policy_speaks_of_is_open() -> None:
    one, other = (Pod(n, "default", IPv4Network(a), {}) for n, a in (("a", "10.244.0.1"), ("b", "10.244.0.2")))
    assert openings([], one, "Ingress", [one, other]) is None
    assert allows([], one, other, 1234, [one, other])


def test_a_hole_in_a_block_is_closed(made: Built) -> None:
    """The metadata service of the cloud, and the rules that are made of it."""
    objects = made("s3-irsa", "plain")
    policies = [o for o in objects if o["kind"] == "NetworkPolicy"]
    worker = next(p for p in ends(objects) if p.name == "worker")
    opened = openings(policies, worker, "Egress", [worker])
    assert opened is not None
    https = [block for block, _, port in opened if port == 443]
    assert not any(IPv4Network("169.254.169.254").subnet_of(b) for b in https)
    assert sum(b.num_addresses for b in https) == 2**32 - 2**16
    rules = firewall(policies, [worker]).splitlines()
    assert rules[-1] == "COMMIT"
    assert f'-A NP-E-{worker.address.network_address} -m comment --comment "worker Egress" -j DROP' in rules
