"""What NetworkPolicies open, by their definition, and rules of iptables for the node of tier 2, which enforces none.

https://kubernetes.io/docs/concepts/services-networking/network-policies. Written independently of k8s/: what is not
needed there (rules for everybody, named ports) is an error here, never an opening.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

from tests.deploy.kube import Node
from tests.deploy.manifests import Object

PODS, SERVICES = IPv4Network("10.244.0.0/24"), IPv4Network("10.0.0.0/24")  # of ../shared/kube/node.sh
Opening = tuple[IPv4Network, str, int]  # addresses, protocol, port


@dataclass(frozen=True)
class Pod:
    """One end of a connection."""

    name: str
    namespace: str
    address: IPv4Network
    labels: Mapping[str, str]


def _selects(selector: Object, labels: Mapping[str, str]) -> bool:
    assert set(selector) <= {"matchLabels", "matchExpressions"}
    for wanted in selector.get("matchExpressions", ()):
        assert wanted["operator"] == "In"
        if labels.get(wanted["key"]) not in wanted["values"]:
            return False
    return all(labels.get(k) == v for k, v in selector.get("matchLabels", {}).items())


def _without(block: IPv4Network, holes: Iterable[IPv4Network]) -> list[IPv4Network]:
    left = [block]
    for hole in holes:
        left = [n for b in left for n in (b.address_exclude(hole) if hole.subnet_of(b) else [b])]
    return left


def _addresses(peer: Object, namespace: str, pods: Sequence[Pod]) -> list[IPv4Network]:
    """Whom an entry of `from` or `to` names."""
    assert peer
    assert set(peer) <= {"ipBlock", "podSelector", "namespaceSelector"}
    if "ipBlock" in peer:
        assert len(peer) == 1
        return _without(IPv4Network(peer["ipBlock"]["cidr"]), map(IPv4Network, peer["ipBlock"].get("except", ())))
    spaces = peer.get("namespaceSelector", {"matchLabels": {"kubernetes.io/metadata.name": namespace}})
    return [
        p.address
        for p in pods
        if _selects(spaces, {"kubernetes.io/metadata.name": p.namespace})
        and _selects(peer.get("podSelector", {}), p.labels)
    ]


def openings(policies: Iterable[Object], pod: Pod, direction: str, pods: Sequence[Pod]) -> set[Opening] | None:
    """What a pod may accept (`Ingress`) or reach (`Egress`); None where no policy speaks of it, which opens all."""
    held = [
        p
        for p in policies
        if p["metadata"]["namespace"] == pod.namespace
        and direction in p["spec"]["policyTypes"]
        and _selects(p["spec"]["podSelector"], pod.labels)
    ]
    side = {"Ingress": "from", "Egress": "to"}[direction]
    found = {
        (block, port["protocol"], int(port["port"]))
        for policy in held
        for rule in policy["spec"].get(direction.lower(), ())
        for port in rule["ports"]
        for peer in rule[side]
        for block in _addresses(peer, policy["metadata"]["namespace"], pods)
    }
    return found if held else None


def allows(policies: Sequence[Object], source: Pod, target: Pod, port: int, pods: Sequence[Pod]) -> bool:
    """Whether one pod may open a TCP connection to another."""
    for pod, direction, other in ((source, "Egress", target), (target, "Ingress", source)):
        opened = openings(policies, pod, direction, pods)
        if opened is not None and not any(
            (protocol, number) == ("TCP", port) and other.address.subnet_of(block) for block, protocol, number in opened
        ):
            return False
    return True


def _chain(name: str, opened: set[Opening] | None, ends: str, then: str, told: str) -> Iterator[str]:
    """The rules of one pod in one direction: `then` where it is open, else drop."""
    yield f":{name} - [0:0]"
    if opened is None:
        yield f"-A {name} -j {then}"
        return
    for block, protocol, port in sorted(opened):
        yield f"-A {name} {ends} {block} -p {protocol.lower()} --dport {port} -j {then}"
    yield f'-A {name} -m comment --comment "{told}" -j DROP'


def firewall(policies: Sequence[Object], pods: Sequence[Pod]) -> str:
    """Input of `iptables-restore --noflush`: first what the source may reach, then what the target accepts.

    Who has an address of a pod and is not known yet reaches nothing, as with network plugins that set up a pod first.
    """
    chains: list[str] = []
    first, second = [], []
    for pod in sorted(pods, key=lambda p: p.address):
        reach, accept = (f"NP-{way}-{pod.address.network_address}" for way in ("E", "I"))
        for name, way, ends, then in ((reach, "Egress", "-d", "NP-IN"), (accept, "Ingress", "-s", "ACCEPT")):
            chains += _chain(name, openings(policies, pod, way, pods), ends, then, f"{pod.name} {way}")
        first.append(f"-A NP -s {pod.address} -g {reach}")
        second.append(f"-A NP-IN -d {pod.address} -g {accept}")
    lines = [
        "*filter",
        ":NP - [0:0]",
        ":NP-IN - [0:0]",
        *sorted(chains, key=lambda line: line[0] != ":"),  # chains are declared before rules name them
        "-A NP -m conntrack --ctstate RELATED,ESTABLISHED -j RETURN",
        f"-A NP -d {SERVICES} -j RETURN",  # nobody is behind this Service yet: kube-proxy refuses
        *first,
        f"-A NP -s {PODS} -j DROP",
        "-A NP -j NP-IN",
        *second,
        f"-A NP-IN -d {PODS} -j DROP",
        "-A NP-IN -j ACCEPT",
        "COMMIT",
    ]
    return "\n".join([*lines, ""])


class Firewall:
    """Keeps the policies of a node while it is entered."""

    def __init__(self, node: Node) -> None:
        self._node, self._rules, self._before, self._end = node, "", Counter[str](), threading.Event()
        self._thread, self._lock = threading.Thread(target=self._keep, daemon=True), threading.Lock()

    def __enter__(self) -> Firewall:
        self._update()
        for chain in ("FORWARD", "INPUT"):  # INPUT: names are answered on the node itself
            self._iptables("iptables", "-I", chain, "1", "-j", "NP")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def dropped(self) -> Counter[str]:
        """Packets that were dropped so far, by pod and direction."""
        with self._lock:
            return self._before + self._now()

    def _keep(self) -> None:
        while not self._end.wait(1):
            self._update()

    def _iptables(self, *command: str, given: str = "") -> str:
        done = self._node.inside(*command, given=given)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def _update(self) -> None:
        listed = self._node.run("get", "pods,networkpolicies", "-A", "-o", "json")
        if listed.returncode:
            return  # the API server has other things to do; the rules stay
        objects = json.loads(listed.stdout)["items"]
        pods = [
            Pod(
                o["metadata"]["name"], o["metadata"]["namespace"], IPv4Network(address), o["metadata"].get("labels", {})
            )
            for o in objects
            if o["kind"] == "Pod" and (address := o["status"].get("podIP")) and o["status"]["phase"] == "Running"
        ]
        rules = firewall([o for o in objects if o["kind"] == "NetworkPolicy"], pods)
        with self._lock:
            if rules != self._rules:
                self._before += self._now()
                self._iptables("iptables-restore", "--noflush", given=rules)
                self._rules = rules

    def _now(self) -> Counter[str]:
        """What the present rules have counted; new rules begin at zero."""
        listed = self._iptables("iptables-save", "-c", "-t", "filter").splitlines() if self._rules else ()
        found = (re.match(r'\[(\d+):\d+\] -A NP-.* --comment "(.+)" -j DROP', line) for line in listed)
        return Counter({f[2]: int(f[1]) for f in found if f and f[1] != "0"})
