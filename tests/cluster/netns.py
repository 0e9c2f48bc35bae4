"""Machines that are network namespaces: one per scheduler and worker, on a bridge in a namespace of its own.

The client stays where it is and is one more port of the bridge. Packets are dropped as a real partition does it:
silently, in the middle, by a filter (a classic BPF program) where a port's packets enter the bridge. No iptables.
"""

from __future__ import annotations

import functools
import ipaddress
import os
import shutil
import socket
import subprocess
from pathlib import Path

from tests.cluster import owned

_NAMES = Path("/var/run/netns")
_PREFIX = "daskpriv-net-"
_SUBNETS = 250
_PASS, _DROP = 0xFFFFFFFF, 2


class NetworkError(Exception):
    """A command of iproute2 failed."""


def _call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise NetworkError(f"{' '.join(command)}: {done.stderr.strip()}")


def _try(*command: str) -> None:
    subprocess.run(command, capture_output=True, timeout=120, check=False)


def _program(addresses: list[str]) -> str:
    """Bytecode that drops IPv4 packets to these addresses and lets all others pass."""
    n = len(addresses)
    steps = [(40, 0, 0, 12), (21, 0, n + 1, 0x0800), (32, 0, 0, 30)]
    steps += [(21, n - k, 0, int(ipaddress.ip_address(a))) for k, a in enumerate(addresses)]
    steps += [(6, 0, 0, _PASS), (6, 0, 0, _DROP)]
    return ",".join([str(len(steps)), *(" ".join(map(str, s)) for s in steps)])


def _claim() -> tuple[int, socket.socket]:
    """A subnet number that nobody on this machine uses; the kernel gives it back when the holder dies."""
    first = os.getpid() % _SUBNETS
    for number in (1 + (first + step) % _SUBNETS for step in range(_SUBNETS)):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0daskpriv-net-{number}")
        except OSError:
            claim.close()
        else:
            return number, claim
    raise NetworkError("all subnets are taken")


class Network:
    """A bridge and its ports; `client` is this process, others are namespaces added by name."""

    def __init__(self) -> None:
        self._number, self._claimed = _claim()
        self._prefix = f"{_PREFIX}{owned.owner()}-{self._number}-"
        self._hub = f"{self._prefix}hub"
        self._door = f"dpt{self._number}"
        self.addresses: dict[str, str] = {"client": self._address(1)}
        self._cut: set[frozenset[str]] = set()
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _address(self, host: int) -> str:
        return f"10.77.{self._number}.{host}"

    @property
    def range(self) -> list[str]:
        """All addresses that machines may get."""
        return [self._address(host) for host in range(1, 255)]

    @property
    def names(self) -> list[str]:
        """Its namespaces."""
        return _namespaces(self._prefix)

    def _begin(self) -> None:
        _try("ip", "link", "del", self._door)
        _call("ip", "netns", "add", self._hub)
        _call("ip", "-n", self._hub, "link", "add", "name", "sw0", "type", "bridge")
        _call("ip", "-n", self._hub, "link", "set", "sw0", "up")
        _call("ip", "link", "add", "name", self._door, "type", "veth", "peer", "name", "client", "netns", self._hub)
        _call("ip", "addr", "add", f"{self.addresses['client']}/24", "dev", self._door)
        _call("ip", "link", "set", self._door, "up")
        self._plug("client")

    def _plug(self, name: str) -> None:
        _call("ip", "-n", self._hub, "link", "set", "dev", name, "master", "sw0", "up")
        _call("tc", "-n", self._hub, "qdisc", "add", "dev", name, "clsact")

    def add(self, name: str) -> str:
        """A new machine; its address."""
        address = self._address(len(self.addresses) + 1)
        _call("ip", "netns", "add", self._prefix + name)
        inside = ("ip", "-n", self._prefix + name)
        _call(*inside, "link", "set", "lo", "up")
        _call(*inside, "link", "add", "name", "eth0", "type", "veth", "peer", "name", name, "netns", self._hub)
        _call(*inside, "addr", "add", f"{address}/24", "dev", "eth0")
        _call(*inside, "link", "set", "eth0", "up")
        self._plug(name)
        self.addresses[name] = address
        return address

    def enter(self, name: str) -> list[str]:
        """What to put before a command so that it runs on that machine."""
        return ["nsenter", f"--net={_NAMES / (self._prefix + name)}"]

    def cut(self, *pairs: tuple[str, str]) -> None:
        """Drop everything between the two of each pair, in both directions."""
        self._cut |= {frozenset(p) for p in pairs if p[0] != p[1]}
        self._apply({name for p in pairs for name in p})

    def mend(self, *pairs: tuple[str, str]) -> None:
        """Let pass again what was cut; without pairs: everything."""
        gone = {frozenset(p) for p in pairs} if pairs else set(self._cut)
        self._cut -= gone
        self._apply({name for p in gone for name in p})

    def _apply(self, names: set[str]) -> None:
        for name in sorted(names):
            peers = [self.addresses[p] for p in sorted(self.addresses) if frozenset((name, p)) in self._cut]
            _call(
                *("tc", "-n", self._hub, "filter", "replace", "dev", name, "ingress", "protocol", "all"),
                *("prio", "1", "handle", "1", "bpf", "da", "bytecode", _program(peers)),
            )

    def close(self) -> None:
        """Remove the namespaces, and with them links, bridge and filters."""
        _try("ip", "link", "del", self._door)
        for name in self.names:
            _try("ip", "netns", "del", name)
        self._claimed.close()


def _namespaces(prefix: str) -> list[str]:
    return sorted(p.name for p in _NAMES.glob(f"{prefix}*")) if _NAMES.is_dir() else []


def left_over(mark: str = "") -> list[str]:
    """Namespaces made here, by whomever or by this owner."""
    return _namespaces(_PREFIX + mark)


def sweep() -> None:
    """Remove the namespaces of owners that died; their processes must be dead already."""
    for name in left_over():
        if not owned.alive(name.removeprefix(_PREFIX).partition("-")[0]):
            _try("ip", "netns", "del", name)


@functools.cache
def namespaces_work() -> str | None:
    """None when namespaces, bridges and dropping packets work here, else the reason why not."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "tc", "nsenter") if shutil.which(tool) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    try:
        net = Network()
    except (NetworkError, OSError, subprocess.SubprocessError) as error:
        return f"no network can be made: {error}"
    try:
        return _probe(net)
    except (NetworkError, OSError, subprocess.SubprocessError) as error:
        return f"the network does not work: {error}"
    finally:
        net.close()


def _probe(net: Network) -> str | None:
    address = net.add("probe")
    if not reachable(address):
        return "a namespace cannot be reached over the bridge"
    net.cut(("client", "probe"))
    if reachable(address, 0.3):
        return "packets cannot be dropped"
    net.mend()
    return None if reachable(address) else "a cut cannot be mended"


def reachable(address: str, patience: float = 20) -> bool:
    """Whether a machine answers at all: a closed port refuses, a dropped packet is silence."""
    try:
        socket.create_connection((address, 9), patience).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True
