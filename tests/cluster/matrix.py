"""Whole evaluations under faults: the real command in a process of its own, hit at random moments, started again.

A trial ends in the report of an undisturbed run, bit by bit, or it has failed. `python -m tests.cluster matrix` runs
them all, `python -m tests.cluster chaos --trials 200` mixes faults at random; `test_faults` runs a few.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import daskpriv
from tests.cluster import owned, run_cli, tables, tally
from tests.cluster.chaos import Mischief, files_below, flip, replace, truncate
from tests.cluster.harness import RealCluster
from tests.cluster.run_cli import Run
from tests.cluster.tables import Tables

LIMITS = {"PATIENCE": "20s", "STALL_LIMIT": "4s", "PAUSE_LIMIT": "4s", "UNIT_LIMIT": "10s"}
ROWS, BLOCK_ROWS, WORKERS = 3_000, 300, 3
LONGEST = 600.0  # seconds for one start of the command, beyond three undisturbed ones
_STARTS = 6
_THRIFTY = {  # what Dask does beside the work, many processes on few cores
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "false",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "500ms",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "5s",
}
Step = tuple[float, Callable[[], object]]


@dataclass
class Record:
    """One trial.

    Attributes
    ----------
    fault, moments : what was done, and after what share of the events of an undisturbed run
    codes : exit codes, the last of the start that wrote the report
    identical : whether the report is that of the undisturbed run
    clean : whether every other start ended as it should: exit code 3 and one sentence, or by the signal sent
    hit : whether the fault came before the command had ended
    seconds : of the longest start
    pieces, again : pieces of the run, and makings of them beyond the first
    units, more : units of the undisturbed run, and units begun beyond them
    """

    fault: str
    moments: tuple[float, ...] = ()
    codes: tuple[int, ...] = ()
    identical: bool = False
    clean: bool = True
    seconds: float = 0.0
    pieces: int = 1
    again: int = 0
    units: int = 1
    more: int = 0
    note: str = ""
    hit: bool = True

    @property
    def good(self) -> bool:
        """The fault came, the report is right, and nothing ended uncleanly."""
        return self.identical and self.clean and self.hit

    @property
    def waste(self) -> float:
        """Pieces made again, as a share of the pieces of the run."""
        return self.again / self.pieces

    def __str__(self) -> str:
        moments = ",".join(f"{m:.0%}" for m in self.moments)
        end = "identical" if self.identical else "DIFFERENT OR MISSING"
        return (
            f"{self.fault:<34} at {moments:<8} codes {self.codes!s:<12} {end}{'' if self.clean else ', NOT CLEAN'}"
            f"{'' if self.hit else ', TOO LATE'}  "
            f"{self.seconds:5.1f} s  pieces again {self.again}/{self.pieces} ({self.waste:.1%})  "
            f"more units {self.more}/{self.units}  {self.note}"
        )


class Lane:
    """A place for one trial after the other: tables, the report of an undisturbed run, a cluster.

    Parameters
    ----------
    rows, block_rows : of each table, and of a block
    options : of `RealCluster`; the cluster is started when it is first needed and replaced when it is broken
    limits : settings of daskpriv beyond `LIMITS`
    """

    def __init__(
        self,
        rows: int = ROWS,
        block_rows: int = BLOCK_ROWS,
        seed: int = 0,
        limits: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        self.folder = owned.new_folder()
        self.tables: Tables = tables.small(self.folder / "tables", rows, seed, copies=rows // 40)
        self.block_rows = block_rows
        self.rng = random.Random(seed)
        self._limits = {**LIMITS, **(limits or {})}
        self._options: dict[str, Any] = {
            "workers": WORKERS,
            "nanny": False,
            "worker_ttl": "60s",
            "env": _THRIFTY,
            **options,
        }
        self._numbers = itertools.count()
        self._cluster: RealCluster | None = None
        self.undisturbed = 0.0
        self._script: _Script | None = None
        self._tally = self.folder / "tally"
        self.expected, self.undisturbed, self.pieces, self.units, self.events = self._reference()

    def _reference(self) -> tuple[str, float, int, int, int]:
        """The report of an undisturbed run, its seconds from the first stage on, its pieces, units and events."""
        daskpriv.evaluate(**self.tables.given(), block_rows=self.block_rows)  # kernels are compiled, not waited for
        self.new_tally()
        done = self.run("undisturbed")
        if done.code or done.report is None:
            raise RuntimeError(f"the undisturbed run failed: {done.stderr[-2000:]}")
        times, counted = [e["time"] for e in events(done)], self.counted()
        return run_cli.numbers(done.report), times[-1] - times[0], len(counted.pieces), counted.units, len(times)

    @functools.cached_property
    def foreign(self) -> Path:
        """The store of another run of the same tables."""
        done = self.run("other", args=["--missing", "max"])
        if done.code:
            raise RuntimeError(f"the other run failed: {done.stderr[-2000:]}")
        return self.store("other")

    @property
    def cluster(self) -> RealCluster:
        """Started when it is first needed."""
        if self._cluster is None:
            env = {"DASK_DISTRIBUTED__WORKER__PRELOAD": "tests.cluster.tally", tally.FOLDER: str(self._tally)}
            self._cluster = RealCluster(**{**self._options, "worker_env": env})
            self._tally.mkdir(parents=True, exist_ok=True)
            self._cluster.__enter__()
        return self._cluster

    def new_cluster(self) -> RealCluster:
        """In place of one that is broken."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None
        return self.cluster

    def repair(self) -> None:
        """As many workers as at the beginning, of which all answer; a new cluster where that does not work."""
        try:
            cluster = self.cluster
            if not cluster.scheduler_alive():
                self.new_cluster()
                return
            cluster.cont_scheduler()
            for extra in cluster.alive_workers()[: -self._options["workers"]]:
                cluster.kill_worker(extra)
            for _ in range(self._options["workers"] - len(cluster.alive_workers())):
                cluster.start_worker(wait=False)
            cluster.wait_workers(self._options["workers"])
        except Exception:
            self.new_cluster()

    def close(self) -> None:
        """End the cluster, remove all files."""
        if self._cluster is not None:
            self._cluster.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def new_tally(self) -> None:
        """Begin to count anew; workers write on into new files."""
        self._tally.mkdir(parents=True, exist_ok=True)
        for path in self._tally.iterdir():
            path.unlink()

    def counted(self) -> tally.Tally:
        """What workers did since then."""
        return tally.read(self._tally)

    def name(self) -> str:
        """Of a new trial."""
        return f"trial-{next(self._numbers)}"

    def store(self, name: str) -> Path:
        """Where a trial keeps its pieces."""
        return self.folder / f"{name}.store"

    def stderr(self, name: str) -> Path:
        """What the command has said."""
        return self.folder / f"{name}.stderr"

    def moment(self, least: float = 0.0, most: float = 0.85) -> float:
        """A random moment of a run, as a share of its events; later ones may be over before they are seen."""
        return round(self.rng.uniform(least, most), 3)

    def run(
        self,
        name: str,
        steps: Sequence[Step] = (),
        moment: float = 0.0,
        args: Sequence[str] = (),
        cluster: RealCluster | str | None = None,
        store: str | None = None,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Run:
        """One start of the command; `steps` happen so many seconds after this moment of it."""
        given = {f"DASK_DASKPRIV__{k}": v for k, v in self._limits.items()}
        if isinstance(cluster, str):
            given |= {"DASK_DISTRIBUTED__WORKER__PRELOAD": "tests.cluster.tally", tally.FOLDER: str(self._tally)}
        if steps:
            self._script = options["kill_at"] = _Script(self.stderr(name), steps, max(int(moment * self.events), 1))
        store = str(self.store(name)) if store is None else store
        self.stderr(name).unlink(missing_ok=True)
        return run_cli.evaluate(
            self.tables,
            self.folder / name,
            cluster if cluster is not None else self.cluster,
            args=["--block-rows", str(self.block_rows), "--store", store, *args],
            env={**given, **(env or {})},
            **{"timeout": LONGEST + 3 * self.undisturbed, **options},
        )

    def judged(self, fault: str, moments: Sequence[float], runs: Sequence[Run], note: str = "") -> Record:
        """What became of a trial; its files are removed when all is well."""
        counted, last = self.counted(), runs[-1]
        record = Record(
            fault,
            tuple(moments),
            tuple(r.code for r in runs),
            last.report is not None and last.code == 0 and run_cli.numbers(last.report) == self.expected,
            all(is_clean(r) for r in runs),
            max(r.seconds for r in runs),
            self.pieces,
            counted.again,
            self.units,
            counted.units - self.units,
            note,
        )
        record.hit = self._script is None or self._script.begun > 0
        self._script = None
        if not record.good:
            kept = Path(tempfile.gettempdir(), f"daskpriv-fault-{os.getpid()}-{next(self._numbers)}.log")
            kept.write_text("\n".join(f"=== exit code {r.code} after {r.seconds} s\n{r.stderr}" for r in runs))
            said = [line for r in runs for line in r.stderr.splitlines() if not line.startswith("{")]
            record.note += f" | {' / '.join(said)[-600:]} | {kept}"
        return record

    def clear(self, name: str) -> None:
        """Remove the files of a trial."""
        shutil.rmtree(self.store(name), ignore_errors=True)
        shutil.rmtree(self.folder / name, ignore_errors=True)


class _Script:
    """Called often while the command runs: does what is due; says yes when the signal is to be sent."""

    def __init__(self, stderr: Path, steps: Sequence[Step], after: int) -> None:
        self._stderr, self._steps, self._after = stderr, sorted(steps, key=lambda s: s[0]), after
        self.begun = 0.0

    def __call__(self) -> bool:
        if not self.begun:
            if not (self._stderr.is_file() and self._stderr.read_bytes().count(b'{"event"') >= self._after):
                return False
            self.begun = time.monotonic()
        if self._steps and time.monotonic() - self.begun >= self._steps[0][0]:
            return self._steps.pop(0)[1]() is SEND
        return False


SEND = object()


def send() -> object:
    """The step that sends the command its signal."""
    return SEND


def events(done: Run) -> list[dict[str, Any]]:
    """What the command told, in order."""
    return [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{") and line.endswith("}")]


def sentences(done: Run) -> list[str]:
    """What the command said beside its events."""
    # Ctrl-C may come between an event and the end of its line.
    text = re.sub(r'^\{"event".*?\}(?=daskpriv: |$)', "", done.stderr, flags=re.M)
    return [line for line in text.splitlines() if line.strip() and not line.startswith("{")]


def is_clean(done: Run) -> bool:
    """A report; or the signal sent; or exit code 3 and one sentence. And nothing is left running."""
    if done.timed_out or done.left_behind or "Traceback" in done.stderr:
        return False
    if done.code in (0, -signal.SIGKILL):
        return done.code == 0 or done.killed
    said = [s for s in sentences(done) if not s.startswith("daskpriv: warning:")]
    return done.code == 3 and len(said) == 1 and said[0].startswith("daskpriv: ")


def until_done(lane: Lane, name: str, first: Run) -> list[Run]:
    """The same command again and again until it ends well."""
    runs = [first]
    while runs[-1].code != 0 and len(runs) < _STARTS:
        lane.repair()
        runs.append(lane.run(name))
    return runs


@contextmanager
def lanes(**options: Any) -> Iterator[Lane]:
    """A lane, closed at the end."""
    lane = Lane(**options)
    try:
        yield lane
    finally:
        lane.close()


# ---- chaos


def chaos_trial(lane: Lane, seed: int) -> Record:
    """A random mix of 1 to 8 faults; the client may be killed too, and is started again until it ends."""
    rng = random.Random(f"chaos-{seed}")
    name = lane.name()
    lane.repair()
    foreign = lane.foreign
    lane.new_tally()
    window = lane.undisturbed * 1.2
    mischief = Mischief(lane.cluster, seed, lane.store(name), foreign, window=window, pause=(0.2, 2.0), faults=(1, 8))
    steps: list[Step] = [(0.0, mischief.__enter__)]
    if rng.random() < 0.25:
        steps.append((rng.uniform(0, window), send))
    try:
        runs = [lane.run(name, steps)]
        while runs[-1].code != 0 and len(runs) < _STARTS:
            mischief.wait(30)
            runs.append(lane.run(name))
    finally:
        if mischief._thread.is_alive():
            mischief.stop()
    faults = [d.what for d in mischief.log if not d.what.startswith(("replace", "continue", "start_", "heal"))]
    if runs[0].killed:
        faults.append("kill_client")
    record = lane.judged(f"chaos {seed}", [], runs, ",".join(faults))
    record.clean = record.clean and not mischief.failures
    if mischief.failures:
        record.note += f" | mischief: {mischief.failures}"
    if record.good:
        lane.clear(name)
    return record


def summary(records: Sequence[Record]) -> str:
    """One line about many trials."""
    waste = [r.waste for r in records] or [0.0]
    more = [r.more / r.units for r in records] or [0.0]
    good, clean = sum(r.identical for r in records), sum(r.clean for r in records)
    return (
        f"{len(records)} trials: {good} identical, {clean} clean; waste (pieces) mean {sum(waste) / len(waste):.1%}, "
        f"worst {max(waste):.1%}; more units mean {sum(more) / len(more):.1%}, worst {max(more):.1%}; longest start "
        f"{max((r.seconds for r in records), default=0):.1f} s"
    )


# ---- one fault after the other


def _hit(lane: Lane, fault: str, *steps: Step, **options: Any) -> Record:
    """Faults of the cluster at a random moment; the command is started again when it did not survive them."""
    lane.repair()
    lane.new_tally()
    name, moment = lane.name(), lane.moment()
    first = lane.run(name, steps, moment, **options)
    if lane.cluster.network is not None:
        lane.cluster.heal()
    record = lane.judged(fault, [moment], until_done(lane, name, first))
    if record.good:
        lane.clear(name)
    return record


def _victims(lane: Lane, count: int) -> list[int]:
    return lane.rng.sample(lane.cluster.alive_workers(), count)


def kill_one(lane: Lane) -> Record:
    """SIGKILL one of three."""
    return _hit(lane, "SIGKILL 1 of 3", (0, lambda: _kill(lane, 1)))


def kill_two(lane: Lane) -> Record:
    """SIGKILL two of three."""
    return _hit(lane, "SIGKILL 2 of 3", (0, lambda: _kill(lane, 2)))


def _kill(lane: Lane, count: int, replaced: bool = False) -> None:
    for victim in _victims(lane, count):
        lane.cluster.kill_worker(victim)
        if replaced:
            lane.cluster.start_worker(wait=False)


def terminate_one(lane: Lane) -> Record:
    """SIGTERM one of three: an eviction."""

    def act() -> None:
        lane.cluster.terminate_worker(_victims(lane, 1)[0])

    return _hit(lane, "SIGTERM 1 of 3", (0, act))


def eight_kills(lane: Lane) -> Record:
    """Eight kills, 1.5 s apart, each replaced at once."""
    kills = [(1.5 * i, lambda: _kill(lane, 1, True)) for i in range(8)]
    return _hit(lane, "8 kills 1.5 s apart, replaced", *kills)


def all_replaced(lane: Lane) -> Record:
    """All killed, new ones 2 s later."""

    def again() -> None:
        for _ in range(WORKERS):
            lane.cluster.start_worker(wait=False)

    return _hit(lane, "all killed, replaced", (0, lane.cluster.kill_all_workers), (2, again))


def all_gone(lane: Lane) -> Record:
    """All killed, none replaced: it must end with exit code 3, and go on when there are workers again."""
    record = _hit(lane, "all killed, none replaced", (0, lane.cluster.kill_all_workers))
    return _must_fail_first(record, 3)


def _must_fail_first(record: Record, code: int) -> Record:
    # A fault may come too late to do harm.
    if record.codes[0] not in (0, code):
        record.clean, record.note = False, f"{record.note} | wanted exit code {code} first"
    return record


def stop_one(lane: Lane) -> Record:
    """SIGSTOP one worker for good."""

    def act() -> None:
        stopped.append(_victims(lane, 1)[0])
        lane.cluster.stop_worker(stopped[0])

    stopped: list[int] = []
    record = _hit(lane, "SIGSTOP 1 of 3", (0, act))
    for worker in stopped:
        lane.cluster.kill_worker(worker)
    return record


def scheduler_killed(lane: Lane) -> Record:
    """SIGKILL the scheduler; a new cluster for the next start."""
    return _must_fail_first(_hit(lane, "scheduler killed", (0, lane.cluster.kill_scheduler)), 3)


def scheduler_restarted(lane: Lane) -> Record:
    """The scheduler and all workers killed, and others at the same address a second later."""

    def again() -> None:
        lane.cluster.restart_scheduler()
        for _ in range(WORKERS):
            lane.cluster.start_worker(wait=False)

    def kill() -> None:
        lane.cluster.kill_scheduler()
        lane.cluster.kill_all_workers()

    return _must_fail_first(_hit(lane, "scheduler restarted", (0, kill), (1, again)), 3)


def scheduler_frozen(lane: Lane) -> Record:
    """Stopped for 15 s."""
    return _hit(lane, "scheduler frozen 15 s", (0, lambda: lane.cluster.freeze_scheduler(15, wait=False)))


def client_killed(lane: Lane) -> Record:
    """SIGKILL the client alone; the cluster lives."""
    return _hit(lane, "client kill -9", (0, send))


def client_killed_locally(lane: Lane) -> Record:
    """SIGKILL the client and its own cluster."""
    return _locally(lane, "kill -9 of client and local cluster", signal.SIGKILL, True)


def _locally(lane: Lane, fault: str, sig: int, whole_group: bool) -> Record:
    lane.new_tally()
    name, moment = lane.name(), lane.moment()
    first = lane.run(name, [(0, send)], moment, cluster="local:2", sig=sig, whole_group=whole_group)
    runs = [first] if first.code == 0 else [first, lane.run(name, cluster="local:2")]
    record = lane.judged(fault, [moment], runs)
    if record.good:
        lane.clear(name)
    return record


def interrupted(lane: Lane) -> Record:
    """Ctrl-C with workers elsewhere."""
    return _must_fail_first(_hit(lane, "Ctrl-C", (0, send), sig=signal.SIGINT), 3)


def interrupted_locally(lane: Lane) -> Record:
    """Ctrl-C, which reaches the processes of the local cluster too."""
    return _must_fail_first(_locally(lane, "Ctrl-C, local cluster", signal.SIGINT, True), 3)


def blackholed(lane: Lane) -> Record:
    """Nothing reaches one worker any more."""
    return _hit(lane, "one worker blackholed", (0, lambda: lane.cluster.blackhole(_victims(lane, 1)[0])))


def separated(lane: Lane) -> Record:
    """Two workers cannot see each other."""

    def act() -> None:
        lane.cluster.separate(*_victims(lane, 2))

    return _hit(lane, "two workers cannot see each other", (0, act))


def partitioned(lane: Lane, seconds: float = 30) -> Record:
    """No worker reaches the scheduler for a while."""
    fault = f"partition {seconds:.0f} s{', TLS' if lane.cluster.tls else ''}"
    return _hit(lane, fault, (0, lane.cluster.partition), (seconds, lane.cluster.heal))


def client_cut_off(lane: Lane) -> Record:
    """The client reaches neither scheduler nor workers for longer than connections live."""
    return _hit(lane, "client cut off 40 s", (0, lambda: lane.cluster.blackhole("client")), (40, lane.cluster.heal))


def _damaged(lane: Lane, fault: str, act: Callable[[Path], object]) -> Record:
    """The client is killed; while it is away, a third of its store is damaged."""
    lane.repair()
    lane.new_tally()
    name, moment = lane.name(), lane.moment(0.4)
    first = lane.run(name, [(0, send)], moment)
    files = files_below(lane.store(name))
    pieces = [f for f in files if f.suffix == ".parquet"]
    hurt = lane.rng.sample(pieces, -(-len(pieces) // 3))
    for path in hurt:
        act(path)
    runs = until_done(lane, name, first)
    record = lane.judged(fault, [moment], runs, f"{len(hurt)} of {len(pieces)} pieces damaged")
    if record.good:
        lane.clear(name)
    return record


def store_truncated(lane: Lane) -> Record:
    """Files cut short."""
    return _damaged(lane, "store: truncated", lambda path: truncate(path, lane.rng))


def store_flipped(lane: Lane) -> Record:
    """One byte of each file changed."""
    return _damaged(lane, "store: flipped byte", lambda path: flip(path, lane.rng))


def store_deleted(lane: Lane) -> Record:
    """Files deleted."""
    return _damaged(lane, "store: deleted", lambda path: path.unlink())


def store_foreign(lane: Lane) -> Record:
    """Files of another run under the names of ours."""
    others = [f for f in files_below(lane.foreign) if f.suffix == ".parquet"]
    return _damaged(lane, "store: foreign", lambda path: replace(path, others, lane.rng))


def store_swapped(lane: Lane) -> Record:
    """Every damaged file holds what another one of the same run held."""

    def act(path: Path) -> None:
        replace(path, [f for f in path.parents[1].rglob("*.parquet") if f != path], lane.rng)

    return _damaged(lane, "store: swapped within the run", act)


def manifest_damaged(lane: Lane) -> Record:
    """One byte of the manifest changed."""

    def act(path: Path) -> None:
        for manifest in path.parents[2].glob("manifest.json"):
            flip(manifest, lane.rng)

    return _damaged(lane, "store: manifest flipped", act)


def disk_full(lane: Lane) -> Record:
    """The disk of the store is full; with more room the same command goes on."""
    lane.repair()
    lane.new_tally()
    name = lane.name()
    place = lane.store(name)
    place.mkdir()
    needed = sum(-(-f.stat().st_size // 4096) * 4 for f in files_below(lane.store("undisturbed")))
    small = int(needed * lane.rng.uniform(0.3, 0.8))
    _mount("-t", "tmpfs", "-o", f"size={small}k", "tmpfs", str(place))
    try:
        first = lane.run(name)
        _mount("-o", "remount,size=256m", str(place))
        record = lane.judged("disk of the store full", [], until_done(lane, name, first), f"{small} kB")
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False, timeout=20)
    if first.code != 3 or "is full" not in first.stderr:
        record.clean, record.note = False, f"{record.note} | wanted exit code 3 and 'is full'"
    if record.good:
        lane.clear(name)
    return record


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, timeout=20)


def module_missing(lane: Lane) -> Record:
    """Scheduler and workers lack daskpriv: one sentence and exit code 2; with --ship it works."""
    lane.new_tally()
    name = lane.name()
    hidden = lane.folder / f"{name}.hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import os, sys\nsys.path[:] = [p for p in sys.path if not os.path.isdir(os.path.join(p or '.', 'daskpriv'))]\n"
    )
    with RealCluster(2, nanny=False, pythonpath=hidden) as cluster:
        first = lane.run(name, cluster=cluster)
        last = lane.run(name, cluster=cluster, args=["--ship"])
    record = lane.judged("module missing, then --ship", [], [first, last])
    said = sentences(first)
    record.clean = first.code == 2 and len(said) == 1 and "lacks daskpriv" in said[0] and is_clean(last)
    record.again = record.more = 0
    return record


PLAIN: tuple[Callable[[Lane], Record], ...] = (
    kill_one,
    kill_two,
    terminate_one,
    eight_kills,
    all_replaced,
    all_gone,
    stop_one,
    scheduler_killed,
    scheduler_restarted,
    scheduler_frozen,
    client_killed,
    client_killed_locally,
    interrupted,
    interrupted_locally,
    store_truncated,
    store_flipped,
    store_deleted,
    store_foreign,
    store_swapped,
    manifest_damaged,
    disk_full,
    module_missing,
)
ON_A_NETWORK: tuple[Callable[[Lane], Record], ...] = (blackholed, separated, partitioned, client_cut_off)


def table(records: Sequence[Record]) -> str:
    """One line per fault."""
    lines = [f"{'fault':<36} trials  identical  clean  longest s  waste mean  worst"]
    for fault in dict.fromkeys(r.fault for r in records):
        of_it = [r for r in records if r.fault == fault]
        waste = [r.waste for r in of_it]
        lines.append(
            f"{fault:<36} {len(of_it):>6}  {sum(r.identical for r in of_it):>9}  {sum(r.clean for r in of_it):>5}  "
            f"{max(r.seconds for r in of_it):>9.1f}  {sum(waste) / len(waste):>10.1%}  {max(waste):>5.1%}"
        )
    return "\n".join(lines)
