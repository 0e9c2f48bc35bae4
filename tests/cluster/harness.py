"""A Dask cluster of real processes that can be killed, stopped, frozen, cut off and started again.

    with RealCluster(workers=3) as cluster, cluster.client() as client:
        ...
        cluster.kill_worker(0)

Every wait is bounded. Nothing is left behind: processes are marked (see `owned`), and what a killed test run left is
swept away when the next cluster starts.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

import psutil
from distributed import Client, Security, rpc

from tests import ports
from tests.cluster import netns, owned
from tests.cluster.certificates import Certificates, certificates, tls_works
from tests.cluster.netns import namespaces_work

__all__ = ["HarnessError", "Node", "Pids", "RealCluster", "namespaces_work", "sweep", "tls_works", "until"]

REPOSITORY = Path(__file__).resolve().parents[2]
Node = int | Literal["scheduler", "client"]
_SCHEDULER = "scheduler"
_open: set[RealCluster] = set()
_numbers = itertools.count()


class HarnessError(Exception):
    """The cluster did not do what the harness waited for."""


class Pids(NamedTuple):
    """Processes of one worker; without a nanny only `worker`."""

    nanny: int | None
    worker: int | None


@dataclass
class _Process:
    """A process that leads its own session, so that a signal reaches it and its children at once."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path
    mark: str

    @property
    def running(self) -> bool:
        return self.popen.poll() is None

    def signal(self, number: int, whole: bool = True) -> None:
        """To all of them, or to the leader alone; the number of a dead leader may be another's by now."""
        with suppress(ProcessLookupError):
            if self.running:
                (os.killpg if whole else os.kill)(self.popen.pid, number)
            elif whole:
                for pid in owned.marked(self.mark):
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)

    def kill(self) -> None:
        """All of them, and wait until they are gone (a dying process loses its mark first)."""
        pids = owned.marked(self.mark)
        self.signal(signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self.popen.wait(60)
        owned.kill(pids)


class RealCluster:
    """A scheduler and workers as processes of their own; a context manager.

    Parameters
    ----------
    workers, threads, nanny, memory_limit
        As of `dask worker`; workers are called 0, 1, 2... here and "w0", "w1"... in Dask.
    namespaces : bool
        Each process on a "machine" of its own with its own address, see `namespaces_work`.
    tls : bool or Certificates
        Encrypted and authenticated, with new certificates or these, see `tls_works`.
    env, scheduler_env, worker_env : environment variables of all, of the scheduler, of the workers.
    worker_ttl : str
        After what silence the scheduler gives a worker up ("8s"); Dask's default is 5 minutes, less than 5 s has no
        effect. A nanny that is silent too takes 30 s more: Dask asks it to restart its worker.
    local_directory : path
        Where workers spill; default: inside `folder`.
    pythonpath, pythonpath_scheduler
        PYTHONPATH; default: this repository, so that tasks defined in tests can be imported.
    folder : path
        For logs and all else; default: a temporary one, removed at the end (`logs` still works).
    patience : float
        Seconds to wait for processes to start, on a machine that may stand still for some of them.
    """

    def __init__(
        self,
        workers: int = 3,
        *,
        threads: int = 1,
        nanny: bool = True,
        memory_limit: str = "1GiB",
        namespaces: bool = False,
        tls: bool | Certificates = False,
        env: Mapping[str, str] | None = None,
        scheduler_env: Mapping[str, str] | None = None,
        worker_env: Mapping[str, str] | None = None,
        worker_ttl: str | None = None,
        local_directory: str | Path | None = None,
        pythonpath: str | Path | None = None,
        pythonpath_scheduler: str | Path | None = None,
        folder: Path | None = None,
        patience: float = 180,
    ) -> None:
        self.count, self.nanny, self.patience = workers, nanny, patience
        self._threads, self._memory, self._namespaces, self._wants_tls = threads, memory_limit, namespaces, tls
        self._env, self._scheduler_env, self._worker_env = dict(env or {}), dict(scheduler_env or {}), worker_env or {}
        if worker_ttl is not None:
            self._scheduler_env["DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL"] = worker_ttl
        self._path = str(pythonpath or REPOSITORY)
        self._scheduler_path = str(pythonpath_scheduler or self._path)
        self._own_folder, self._given_folder, self._given_scratch = folder is None, folder, local_directory
        self.mark = f"{owned.owner()}.{next(_numbers)}"
        self.address = ""
        self.tls: Certificates | None = None
        self.network: netns.Network | None = None
        self._scheduler: _Process | None = None
        self._port: socket.socket | None = None
        self._workers: list[_Process] = []
        self._timers: list[threading.Timer] = []
        self._generation = itertools.count()
        self._kept_logs: str | None = None
        self._lock = threading.RLock()

    # ---- start and end

    def __enter__(self) -> Self:
        sweep()
        _open.add(self)
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        self.folder = self._given_folder or owned.new_folder()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.scheduler_file = self.folder / "scheduler.json"
        self.scratch = Path(self._given_scratch or self.folder / "scratch")
        self.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.folder / "logs").mkdir(exist_ok=True)
        (self.folder / "cwd").mkdir(exist_ok=True)
        if self._namespaces:
            self.network = netns.Network()
            self.network.add(_SCHEDULER)
        else:
            self._port = ports.reserved()  # a scheduler that is started again gets its address back
        if self._wants_tls:
            self.tls = self._certificates()
        self._start_scheduler(ports.number(self._port) if self._port else 0)
        for _ in range(self.count):
            self.start_worker(wait=False)
        for number in range(self.count):
            self.wait_worker(number)

    def _certificates(self) -> Certificates:
        if isinstance(self._wants_tls, Certificates):
            return self._wants_tls
        return certificates(self.folder / "tls", ["127.0.0.1", *(self.network.range if self.network else [])])

    def close(self) -> None:
        """End and remove everything; may be called twice, and after a failed start."""
        with self._lock:
            for timer in self._timers:
                timer.cancel()
            owned.kill(owned.marked(self.mark))
            for process in self._processes():
                process.kill()
            if self.network:
                self.network.close()
                self.network = None
            if self._port:
                self._port.close()
            self._keep_logs()
            _open.discard(self)

    def _keep_logs(self) -> None:
        if not hasattr(self, "folder"):
            return
        self._kept_logs = self.logs()
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _processes(self) -> list[_Process]:
        return [*([self._scheduler] if self._scheduler else []), *self._workers]

    # ---- processes

    def _environment(self, path: str, *more: Mapping[str, str]) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DASK_", "PYTEST_", "PYTHON"))}
        mine = {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
        return {**kept, **mine, **{k: v for m in (self._env, *more) for k, v in m.items()}}

    def _spawn(self, name: str, module: str, arguments: Sequence[str], env: dict[str, str]) -> _Process:
        log = self.folder / "logs" / f"{name}-{next(self._generation)}.log"
        mark = f"{self.mark}.{name}"
        before = self.network.enter(name) if self.network else []
        tls = self.tls.options() if self.tls else []
        command = [*before, sys.executable, "-m", f"distributed.cli.{module}", "--no-dashboard", *tls, *arguments]
        with self._lock:
            if self._kept_logs is not None:
                raise HarnessError("the cluster is closed")
            with log.open("wb") as out:
                popen = subprocess.Popen(
                    command,
                    cwd=self.folder / "cwd",
                    env={**env, owned.VARIABLE: mark},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        return _Process(name, popen, log, mark)

    def _start_scheduler(self, port: int) -> None:
        self.scheduler_file.unlink(missing_ok=True)
        host = self.network.addresses[_SCHEDULER] if self.network else "127.0.0.1"
        arguments = ["--host", host, "--port", str(port), "--scheduler-file", str(self.scheduler_file)]
        env = self._environment(self._scheduler_path, self._scheduler_env)
        self._scheduler = self._spawn(_SCHEDULER, "dask_scheduler", arguments, env)
        until = time.monotonic() + self.patience
        while not (address := self._written_address()):
            if not self._scheduler.running or time.monotonic() > until:
                raise HarnessError(f"the scheduler did not start:\n{_tail(self._scheduler.log)}")
            time.sleep(0.02)
        self.address = address

    def _written_address(self) -> str:
        try:
            return str(json.loads(self.scheduler_file.read_text())["address"])
        except (OSError, ValueError, KeyError):
            return ""

    def start_worker(self, wait: bool = True) -> int:
        """One more worker, on a new machine if machines are namespaces; its number."""
        with self._lock:
            number = len(self._workers)
            name = f"w{number}"
            host = self.network.add(name) if self.network else "127.0.0.1"
            arguments = [
                *("--host", host, "--name", name, "--nthreads", str(self._threads), "--nworkers", "1"),
                *("--memory-limit", self._memory, "--local-directory", str(self.scratch)),
                *("--death-timeout", str(self.patience), "--nanny" if self.nanny else "--no-nanny", self.address),
            ]
            env = self._environment(self._path, self._worker_env)
            self._workers.append(self._spawn(name, "dask_worker", arguments, env))
        if wait:
            self.wait_worker(number)
        return number

    # ---- what is there

    def security(self) -> Security | None:
        """For clients in this process."""
        return self.tls.security() if self.tls else None

    def client(self, **options: Any) -> Client:
        """A client that is not the default one."""
        given: dict[str, Any] = {"set_as_default": False, "timeout": 60, "security": self.security(), **options}
        return Client(self.address, **given)

    def client_env(self) -> dict[str, str]:
        """What a client in another process needs in its environment."""
        return self.tls.env() if self.tls else {}

    def registered(self, timeout: float = 60) -> dict[str, str]:
        """Workers that the scheduler knows: name -> address; raises when it does not answer."""
        return asyncio.run(asyncio.wait_for(self._registered(timeout), timeout))

    async def _registered(self, timeout: float) -> dict[str, str]:
        security = self.security()
        arguments = security.get_connection_args("client") if security else {}
        async with rpc(self.address, connection_args=arguments, timeout=timeout) as scheduler:
            known = await scheduler.identity(n_workers=-1)
        return {str(w["name"]): address for address, w in known["workers"].items()}

    def wait_workers(self, count: int, timeout: float | None = None) -> None:
        """Until the scheduler knows exactly so many workers."""
        self._wait(lambda known: len(known) == count, f"{count} workers", timeout)

    def wait_worker(self, i: int, timeout: float | None = None) -> None:
        """Until the scheduler knows this worker; raises at once when its process has ended."""
        process = self._workers[i]
        self._wait(lambda known: f"w{i}" in known, f"worker {i}", timeout, lambda: not process.running)

    def _wait(
        self,
        there: Callable[[dict[str, str]], bool],
        what: str,
        timeout: float | None,
        hopeless: Callable[[], bool] = lambda: False,
    ) -> None:
        until = time.monotonic() + (self.patience if timeout is None else timeout)
        known: dict[str, str] = {}
        while time.monotonic() < until and not hopeless():
            with suppress(OSError, TimeoutError):
                known = self.registered(min(5, max(0.2, until - time.monotonic())))
                if there(known):
                    return
            time.sleep(0.1)
        raise HarnessError(f"waited for {what}, the scheduler knows {sorted(known)}:\n{self._tails()}")

    def alive_workers(self) -> list[int]:
        """Workers whose process (the nanny, if there is one) has not ended."""
        return [i for i, process in enumerate(self._workers) if process.running]

    def scheduler_alive(self) -> bool:
        """Whether the scheduler's process has not ended."""
        return self._scheduler is not None and self._scheduler.running

    def worker_pids(self, i: int) -> Pids:
        """The nanny and its child; None for what is not there."""
        process = self._workers[i]
        pid = process.popen.pid if process.running else None
        return Pids(pid, _child(pid)) if self.nanny else Pids(None, pid)

    def _named_pids(self) -> dict[str, int]:
        pids = {f"w{i}": self.worker_pids(i).worker for i in self.alive_workers()}
        if self._scheduler and self._scheduler.running:
            pids[_SCHEDULER] = self._scheduler.popen.pid
        return {name: pid for name, pid in pids.items() if pid is not None}

    def memory(self) -> dict[str, int]:
        """Resident bytes of the scheduler and of each worker (not its nanny)."""
        found = {}
        for name, pid in self._named_pids().items():
            with suppress(psutil.Error):
                found[name] = int(psutil.Process(pid).memory_info().rss)
        return found

    def open_files(self) -> dict[str, list[str]]:
        """Open file descriptors of the same processes, as what they point to."""
        return {name: _descriptors(pid) for name, pid in self._named_pids().items()}

    def log_files(self) -> list[Path]:
        """Logs of all processes there have been, oldest first."""
        return sorted((self.folder / "logs").glob("*.log"), key=lambda p: int(p.stem.rpartition("-")[2]))

    def logs(self) -> str:
        """All logs; also after the end."""
        if self._kept_logs is not None:
            return self._kept_logs
        return "\n".join(f"=== {p.stem}\n{p.read_text(errors='replace')}" for p in self.log_files())

    def _tails(self) -> str:
        return "\n".join(f"=== {p.stem}\n{_tail(p)}" for p in self.log_files())

    # ---- faults of processes

    def kill_worker(self, i: int, sig: int = signal.SIGKILL, child_only: bool = False) -> None:
        """Send a signal to nanny and child at once, as when a machine dies, or to the child alone (an OOM kill)."""
        process = self._workers[i]
        if not child_only and sig == signal.SIGKILL:
            process.kill()
        elif not child_only:
            process.signal(sig)
        elif (pid := self.worker_pids(i).worker) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, sig)

    def terminate_worker(self, i: int) -> None:
        """SIGTERM to the nanny, as an eviction does; the worker leaves by itself."""
        self._workers[i].signal(signal.SIGTERM, whole=False)

    def stop_worker(self, i: int, child_only: bool = False) -> None:
        """SIGSTOP nanny and child: the machine stalls; or the child alone."""
        self.kill_worker(i, signal.SIGSTOP, child_only)

    def cont_worker(self, i: int) -> None:
        """The machine goes on."""
        self.kill_worker(i, signal.SIGCONT)

    def kill_all_workers(self) -> None:
        """All at once."""
        alive = [self._workers[i] for i in self.alive_workers()]
        pids = [pid for process in alive for pid in owned.marked(process.mark)]
        for process in alive:
            process.signal(signal.SIGKILL)
        owned.kill(pids)
        for process in alive:
            process.kill()

    def kill_scheduler(self) -> None:
        """SIGKILL; workers notice and leave by themselves."""
        if self._scheduler:
            self._scheduler.kill()

    def restart_scheduler(self, workers: int = 0) -> None:
        """A new scheduler on the same port (it has forgotten everything), and so many new workers."""
        self.kill_scheduler()
        self._start_scheduler(int(self.address.rpartition(":")[2]))
        started = [self.start_worker(wait=False) for _ in range(workers)]
        for number in started:
            self.wait_worker(number)

    def stop_scheduler(self) -> None:
        """SIGSTOP."""
        if self._scheduler:
            self._scheduler.signal(signal.SIGSTOP)

    def cont_scheduler(self) -> None:
        """SIGCONT."""
        if self._scheduler:
            self._scheduler.signal(signal.SIGCONT)

    def freeze_scheduler(self, seconds: float, wait: bool = True) -> None:
        """Stop it for so long; without `wait` this returns at once."""
        self.stop_scheduler()
        if not wait:
            self._timers.append(timer := threading.Timer(seconds, self.cont_scheduler))
            timer.daemon = True
            timer.start()
            return
        try:
            time.sleep(seconds)
        finally:
            self.cont_scheduler()

    # ---- faults of the network

    def _net(self) -> netns.Network:
        if self.network is None:
            raise HarnessError("network faults need RealCluster(namespaces=True)")
        return self.network

    def _others(self, node: Node) -> list[str]:
        return [name for name in self._net().addresses if name != _name(node)]

    def blackhole(self, node: Node) -> None:
        """Nothing reaches this worker (or scheduler), and nothing comes from it."""
        self._net().cut(*((_name(node), other) for other in self._others(node)))

    def separate(self, a: Node, b: Node) -> None:
        """These two cannot reach each other; the others can reach both."""
        self._net().cut((_name(a), _name(b)))

    def partition(self) -> None:
        """The workers of this moment cannot reach the scheduler; the client can."""
        self._net().cut(*((_SCHEDULER, p.name) for p in self._workers))

    def heal(self, node: Node | None = None) -> None:
        """The network is whole again, everywhere or for this machine."""
        pairs = [] if node is None else [(_name(node), other) for other in self._others(node)]
        self._net().mend(*pairs)


def until(there: Callable[[], object], seconds: float = 180) -> bool:
    """Whether something comes true in time."""
    end = time.monotonic() + seconds
    while not there():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def _name(node: Node) -> str:
    return f"w{node}" if isinstance(node, int) else node


def _child(nanny: int | None) -> int | None:
    """The worker process of a nanny, not its resource tracker."""
    if nanny is None:
        return None
    with suppress(psutil.Error):
        for child in psutil.Process(nanny).children():
            with suppress(psutil.Error):
                if child.status() != psutil.STATUS_ZOMBIE and "spawn_main" in " ".join(child.cmdline()):
                    return int(child.pid)
    return None


def _descriptors(pid: int) -> list[str]:
    found = []
    with suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.append(os.readlink(link))
    return sorted(found)


def _tail(log: Path, size: int = 3000) -> str:
    return log.read_text(errors="replace")[-size:] if log.is_file() else ""


def sweep() -> None:
    """Remove processes, folders and namespaces of test processes that were killed."""
    owned.sweep()
    netns.sweep()


@atexit.register
def _close_all() -> None:
    for cluster in list(_open):
        if cluster.mark.startswith(f"{owned.owner()}."):
            cluster.close()
