"""The harness itself: faults happen and are noticed, networks break and heal, nothing is left behind."""

from __future__ import annotations

import base64
import gzip
import operator
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

from tests.cluster import canary, chaos, netns, owned, run_cli, tables
from tests.cluster.certificates import _by_cryptography, certificates
from tests.cluster.chaos import Mischief
from tests.cluster.harness import REPOSITORY, HarnessError, RealCluster, namespaces_work, sweep, tls_works, until
from tests.cluster.tasks import slowly

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("faults")]

SHORT = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "2s"}
LONG = 180  # seconds; a busy machine may stand still for many
needs_namespaces = pytest.mark.skipif(namespaces_work() is not None, reason=str(namespaces_work()))
needs_tls = pytest.mark.skipif(tls_works() is not None, reason=str(tls_works()))


def is_stopped(pid: int) -> bool:
    """Whether a process does nothing because of SIGSTOP."""
    return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)


def left_of(mark: str) -> list[object]:
    """Processes, folders and namespaces of an owner."""
    folders = list(Path(owned.tempfile.gettempdir()).glob(f"{owned.PREFIX}{mark}-*"))
    return [*owned.marked(mark), *folders, *netns.left_over(mark)]


def whole(cluster: RealCluster, count: int) -> RealCluster:
    """A network without cuts and so many workers, all of them known, whatever an earlier test or a stall has left."""
    if cluster.network:
        cluster.heal()
    # What lives without being known dies, or is known in the end.
    assert until(lambda: {f"w{i}" for i in cluster.alive_workers()} == set(cluster.registered()))
    for extra in cluster.alive_workers()[count:]:
        cluster.kill_worker(extra)
    while len(cluster.alive_workers()) < count:
        cluster.start_worker()
    cluster.wait_workers(count)
    return cluster


def unknown(cluster: RealCluster, worker: int) -> bool:
    """Whether the scheduler knows nothing of this worker any more."""
    return until(lambda: f"w{worker}" not in cluster.registered())


@pytest.fixture(scope="module")
def two() -> Iterator[RealCluster]:
    with RealCluster(2, env=SHORT) as cluster:
        yield cluster


@pytest.fixture
def plain(two: RealCluster) -> RealCluster:
    return whole(two, 2)


# ---- processes


def test_a_killed_worker_is_noticed_and_its_tasks_run_elsewhere(plain: RealCluster) -> None:
    with plain.client() as client:
        futures = client.map(slowly, [0.1] * 20, range(20), pure=False)
        new = plain.start_worker()
        victim = plain.alive_workers()[0]
        nanny, child = plain.worker_pids(victim)
        assert nanny and child
        plain.kill_worker(victim)
        assert victim not in plain.alive_workers()
        assert not owned.started(nanny)
        assert not owned.started(child)
        assert client.gather(futures) == list(range(20))
        assert unknown(plain, victim)
        assert f"w{new}" in plain.registered()


def test_a_nanny_replaces_its_killed_child(plain: RealCluster) -> None:
    victim = plain.alive_workers()[0]
    before = plain.worker_pids(victim)
    plain.kill_worker(victim, child_only=True)
    assert until(lambda: plain.worker_pids(victim).worker not in (None, before.worker))
    assert plain.worker_pids(victim).nanny == before.nanny
    plain.wait_workers(2)


def test_a_terminated_worker_leaves(plain: RealCluster) -> None:
    victim = plain.alive_workers()[0]
    plain.terminate_worker(victim)
    assert unknown(plain, victim)
    assert until(lambda: victim not in plain.alive_workers())


@pytest.mark.parametrize("child_only", [True, False])
def test_a_stopped_worker_goes_on_later(plain: RealCluster, child_only: bool) -> None:
    victim = plain.alive_workers()[0]
    with plain.client() as client:
        plain.stop_worker(victim, child_only)
        stopped = (not child_only, True)
        assert until(lambda: tuple(map(is_stopped, plain.worker_pids(victim))) == stopped)
        future = client.submit(slowly, 0, 3, workers=[f"w{victim}"], pure=False)
        time.sleep(0.5)
        assert not future.done()
        plain.cont_worker(victim)
        assert future.result(timeout=LONG) == 3
    assert victim in plain.alive_workers()


def test_a_frozen_scheduler_answers_late(plain: RealCluster) -> None:
    with plain.client() as client:
        begun = time.monotonic()
        plain.freeze_scheduler(1, wait=False)
        assert client.submit(operator.add, 1, 2).result(timeout=LONG) == 3
        assert time.monotonic() - begun > 0.9


def test_a_killed_scheduler_comes_back_at_its_address(plain: RealCluster) -> None:
    before = plain.address
    old = plain.alive_workers()
    plain.kill_scheduler()
    assert not plain.scheduler_alive()
    with pytest.raises(HarnessError, match="waited for 1 workers"):
        plain.wait_workers(1, timeout=0.5)
    plain.kill_all_workers()
    assert plain.alive_workers() == []
    plain.restart_scheduler(workers=2)
    assert plain.address == before
    assert len(plain.registered()) == 2
    assert not set(old) & set(plain.alive_workers())
    with plain.client() as client:
        assert client.submit(operator.add, 1, 2).result(timeout=LONG) == 3


def test_what_is_seen_from_outside(plain: RealCluster) -> None:
    names = {"scheduler", *(f"w{i}" for i in plain.alive_workers())}
    assert set(plain.memory()) == set(plain.open_files()) == names
    assert all(2**24 < rss < 2**30 for rss in plain.memory().values())
    assert all("/dev/null" in files for files in plain.open_files().values())
    assert "Start worker at" in plain.logs()
    assert "=== scheduler-0" in plain.logs()
    assert plain.security() is None
    with pytest.raises(HarnessError, match="namespaces=True"):
        plain.partition()


def test_without_a_nanny_and_in_a_given_folder(tmp_path: Path) -> None:
    missing = tmp_path / "without"
    missing.mkdir()
    (missing / "colorsys.py").write_text("raise ModuleNotFoundError('No module named colorsys')")
    with RealCluster(1, nanny=False, folder=tmp_path / "cluster", pythonpath_scheduler=missing) as cluster:
        assert cluster.worker_pids(0).nanny is None
        with cluster.client() as client:
            assert client.submit(__import__, "colorsys").result(timeout=LONG).__name__ == "colorsys"
            with pytest.raises(ModuleNotFoundError, match="colorsys"):
                client.run_on_scheduler(lambda: __import__("colorsys").__name__)
            assert client.run(os.getpid) == {cluster.registered()["w0"]: cluster.worker_pids(0).worker}
    assert (tmp_path / "cluster" / "logs").is_dir()


# ---- networks


@pytest.fixture(scope="module")
def three() -> Iterator[RealCluster]:
    with RealCluster(3, nanny=False, namespaces=True, tls=tls_works() is None, env=SHORT) as cluster:
        yield cluster


@pytest.fixture
def net(three: RealCluster) -> RealCluster:
    return whole(three, 3)


@pytest.fixture(scope="module")
def quick_to_judge() -> Iterator[RealCluster]:
    """Its scheduler gives workers up after 5 seconds of silence, even if the whole machine has stood still."""
    slow_to_leave = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "5m"}
    options: dict[str, Any] = {"env": SHORT, "worker_env": slow_to_leave, "worker_ttl": "2s"}
    with RealCluster(3, nanny=False, namespaces=True, tls=tls_works() is None, **options) as cluster:
        yield cluster


@pytest.fixture
def nervous(quick_to_judge: RealCluster) -> RealCluster:
    return whole(quick_to_judge, 3)


@needs_namespaces
@needs_tls
def test_machines_have_addresses_and_talk_in_secret(net: RealCluster, tmp_path: Path) -> None:
    assert net.address.startswith("tls://10.77.")
    hosts = {address.rpartition(":")[0] for address in net.registered().values()}
    assert len(hosts) == 3
    with net.client() as client:
        parts = client.map(slowly, [0] * 3, range(3), workers=["w0", "w1", "w2"], pure=False)
        assert client.submit(sum, parts, workers=["w1"]).result(timeout=LONG) == 3
    with pytest.raises(OSError):
        Client(net.address.replace("tls", "tcp"), timeout=1, set_as_default=False)
    with pytest.raises(OSError):
        net.client(security=certificates(tmp_path, []).security(), timeout=1)


@needs_namespaces
def test_a_partition_is_noticed_and_heals(nervous: RealCluster) -> None:
    with nervous.client() as client:
        nervous.partition()
        assert client.run_on_scheduler(operator.add, 1, 2) == 3
        nervous.wait_workers(0)
        whole(nervous, 3)
        assert client.submit(operator.add, 1, 2).result(timeout=LONG) == 3


@needs_namespaces
def test_a_short_partition_is_survived(net: RealCluster) -> None:
    known = net.registered()
    with net.client() as client:
        futures = client.map(slowly, [0.2] * 9, range(9), pure=False)
        net.partition()
        time.sleep(1)
        net.heal()
        assert client.gather(futures) == list(range(9))
    assert net.registered() == known


@needs_namespaces
def test_two_workers_do_not_see_each_other(net: RealCluster) -> None:
    a, b, c = net.alive_workers()[:3]
    with net.client() as client:
        held = client.submit(slowly, 0, 5, workers=[f"w{a}"], pure=False)
        assert held.result(timeout=LONG) == 5
        net.separate(a, b)
        fetched = client.submit(operator.neg, held, workers=[f"w{b}"])
        assert client.submit(operator.pos, held, workers=[f"w{c}"]).result(timeout=LONG) == 5
        time.sleep(1.5)
        assert not fetched.done()
        net.heal(a)
        assert fetched.result(timeout=LONG) == -5


@needs_namespaces
def test_a_cut_off_worker_is_given_up(nervous: RealCluster) -> None:
    victim = nervous.alive_workers()[0]
    nervous.blackhole(victim)
    assert unknown(nervous, victim)
    assert victim in nervous.alive_workers()
    new = nervous.start_worker()
    assert f"w{new}" in nervous.registered()


@needs_namespaces
def test_two_networks_at_once() -> None:
    first, second = netns.Network(), netns.Network()
    try:
        mine, other = first.add("a"), second.add("a")
        assert mine != other
        first.cut(("client", "a"))
        assert not netns.reachable(mine, 0.2)
        assert netns.reachable(other)
        assert len(first.names) == len(second.names) == 2
    finally:
        first.close()
        second.close()
    assert first.names == second.names == []


@needs_tls
def test_certificates(tmp_path: Path) -> None:
    made = certificates(tmp_path, ["127.0.0.1", "10.77.1.2"])
    assert made.key.stat().st_mode & 0o077 == 0
    text = subprocess.run(
        ["openssl", "x509", "-in", made.cert, "-noout", "-text"],
        capture_output=True,
        text=True,
        check=True,
        timeout=LONG,
    ).stdout
    assert "IP Address:10.77.1.2" in text
    assert not list(tmp_path.glob("ca-key*"))


def test_certificates_without_openssl(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    made = type(certificates(tmp_path / "a", []))(*(tmp_path / name for name in ("ca.pem", "cert.pem", "key.pem")))
    _by_cryptography(made, ["127.0.0.1"])
    with RealCluster(1, tls=made) as cluster, cluster.client() as client:
        assert client.submit(operator.add, 1, 2).result(timeout=LONG) == 3


# ---- nothing is left


@pytest.mark.parametrize("namespaces", [False, pytest.param(True, marks=needs_namespaces)])
def test_nothing_is_left_after_a_failure(namespaces: bool) -> None:
    cluster = RealCluster(2, namespaces=namespaces)
    with pytest.raises(ZeroDivisionError), cluster:
        cluster.stop_worker(0)
        cluster.freeze_scheduler(60, wait=False)
        mine = left_of(owned.owner())
        assert owned.marked(cluster.mark)
        assert cluster.folder in mine
        raise ZeroDivisionError
    assert not owned.marked(cluster.mark)
    assert not cluster.folder.exists()
    assert cluster.network is None
    assert "Start worker at" in cluster.logs()
    cluster.close()
    with pytest.raises(HarnessError, match="is closed"):
        cluster.start_worker()


def test_nothing_is_left_when_it_does_not_start() -> None:
    cluster = RealCluster(1, env={"PYTHONPATH": "/nowhere", "PYTHONHOME": "/nowhere"}, patience=10)
    with pytest.raises(HarnessError, match="did not start"):
        cluster.__enter__()
    assert not owned.marked(cluster.mark)
    assert not cluster.folder.exists()


# Under names of its own: other tests, in other processes, sweep whenever they start a cluster.
_NAMES = "from tests.cluster import netns, owned; owned.VARIABLE, owned.PREFIX, netns._PREFIX = {}"
_OWNER = """
import sys
from tests.cluster.harness import RealCluster
with RealCluster(1, namespaces=sys.argv[1] == "True"):
    print(owned.owner(), flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_test_run_leaves_is_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    namespaces = namespaces_work() is None
    names = ("DASKPRIV_TEST_SWEPT", "daskpriv-swept-", "daskpriv-swept-net-")
    for (module, name), value in zip(((owned, "VARIABLE"), (owned, "PREFIX"), (netns, "_PREFIX")), names, strict=True):
        monkeypatch.setattr(module, name, value)
    command = [sys.executable, "-c", _NAMES.format(names) + _OWNER, str(namespaces)]
    popen = subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with popen:
        assert popen.stdout is not None
        mark = popen.stdout.readline().strip()
        sweep()
        assert len(left_of(mark)) >= (7 if namespaces else 4)
        popen.kill()
        popen.wait(LONG)
    assert left_of(mark)
    sweep()
    assert left_of(mark) == []


# ---- mischief


def test_mischief_depends_on_the_seed_alone(plain: RealCluster, tmp_path: Path) -> None:
    plans = [Mischief(plain, seed, store=tmp_path).plan for seed in range(300)]
    assert plans == [Mischief(plain, seed, store=tmp_path).plan for seed in range(300)]
    assert {len(p) for p in plans} == set(range(1, 9))
    assert {fault for p in plans for _, fault in p} == {*chaos.PROCESSES, *chaos.STORE}


def test_every_fault_happens_and_is_repaired(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    for name in "abcdefgh":
        (store / name).write_bytes(name.encode() * 100)
    options = {"store": store, "window": 0.2, "pause": (0.1, 0.2), "faults": (1, 1)}
    network = namespaces_work() is None
    with RealCluster(2, namespaces=network, env=SHORT) as cluster:
        for fault in (*chaos.PROCESSES, *chaos.STORE, *(chaos.NETWORK if network else ())):
            with Mischief(cluster, 7, only={fault}, **options) as mischief:
                assert mischief.wait(LONG), mischief
            assert not mischief.failures, mischief
            assert mischief.log[0].what == fault, mischief
            assert mischief.scheduler_restarts == (fault == "restart_scheduler")
            assert until(lambda: len(cluster.alive_workers()) >= 2), mischief
        with cluster.client() as client:
            assert client.submit(operator.add, 1, 2).result(timeout=LONG) == 3


def test_mischief_ends_when_asked(plain: RealCluster) -> None:
    begun = time.monotonic()
    with Mischief(plain, 3, only={"freeze_scheduler"}, faults=(5, 5), window=60, pause=(500, 600)) as mischief:
        time.sleep(0.5)
    assert mischief.finished
    assert time.monotonic() - begun < 200
    assert len(plain.registered()) >= 1


def test_damage_to_files(tmp_path: Path) -> None:
    def fresh(name: str) -> Path:
        path = tmp_path / name
        path.write_bytes(bytes(range(200)))
        return path

    rng = random.Random(1)
    cut, flipped, swapped, noise = map(fresh, ("cut", "flipped", "swapped", "noise"))
    chaos.truncate(cut, rng)
    assert len(cut.read_bytes()) < 200
    chaos.flip(flipped, rng)
    assert sum(a != b for a, b in zip(flipped.read_bytes(), range(200), strict=True)) == 1
    chaos.replace(swapped, [cut], rng)
    assert swapped.read_bytes() == cut.read_bytes()
    chaos.replace(noise, [], rng)
    assert len(noise.read_bytes()) == 200
    assert noise.read_bytes() != bytes(range(200))


# ---- canaries


def test_canaries_are_found_in_every_form(tmp_path: Path) -> None:
    word, number, fraction = "CANARYx0042x", 7_310_000_000_000_042, 31_415.926535
    table = pa.table({"a": ["x", word] * 3, "b": [1, number] * 3, "c": [0.5, fraction] * 3})
    encoded = pa.table({"a": pa.array([word] * 3).dictionary_encode()})
    pq.write_table(table, tmp_path / "table.parquet", compression="zstd")
    pq.write_table(encoded, tmp_path / "dictionary.parquet", compression="gzip", write_statistics=False)
    with (
        pa.OSFile(str(tmp_path / "table.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer,
    ):
        writer.write_table(table)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "log.gz").write_bytes(gzip.compress(f"value {word} {number}".encode()))
    (tmp_path / "deep" / "base64").write_bytes(base64.b64encode(b"z" + word.encode() + b"yy"))
    np.savez_compressed(tmp_path / "arrays.npz", a=np.array([word]), b=np.array([number]), c=np.array([fraction]))
    (tmp_path / f"{word}.txt").write_bytes(b"")
    (tmp_path / "innocent").write_bytes(b"CANARYx0043x 7310000000000043")
    (tmp_path / "broken.gz").write_bytes(b"\x1f\x8b broken")
    hits = canary.in_files([word, number, fraction], tmp_path)
    found = {(Path(h.place.split(" > ")[0]).name, h.canary) for h in hits}
    for name in ("table.parquet", "table.arrow", "arrays.npz"):
        assert {(name, word), (name, number), (name, fraction)} <= found
    assert {("dictionary.parquet", word), ("log.gz", word), ("log.gz", number), ("base64", word)} <= found
    assert any(h.place.startswith("name of") for h in hits)
    assert not any("innocent" in h.place for h in hits)
    assert canary.in_texts([word], {"good": "nothing", "bad": f"a {word} b"}) == [canary.Hit("bad", word, "utf-8")]


def test_canary_tables(tmp_path: Path) -> None:
    made = tables.canaries(tmp_path / "good")
    for name, folder in made.tables.given().items():
        assert len(canary.in_files(made.canaries, Path(folder))) > 50, name
        assert len(pd.read_parquet(folder)) == 240
    bad = tables.with_bad_cells(tmp_path / "bad")
    assert canary.in_files([bad.canaries[-1]], Path(bad.tables.train))


# ---- the command line


def test_small_tables(tmp_path: Path) -> None:
    made = tables.small(tmp_path, rows=600)
    for name, folder in made.given().items():
        files = sorted(Path(folder).iterdir())
        assert len(files) == 3
        assert all(pq.ParquetFile(f).num_row_groups == 2 for f in files)
        assert sum(pq.ParquetFile(f).metadata.num_rows for f in files) == 600 + 50 * (name == "synthetic")


@needs_tls
def test_a_run_on_a_cluster_with_tls(tmp_path: Path) -> None:
    made = tables.small(tmp_path / "tables", rows=600)
    with RealCluster(1, tls=True) as cluster:
        done = run_cli.evaluate(made, tmp_path / "out", cluster)
    assert (done.code, done.killed, done.timed_out) == (0, False, False), done.stderr
    assert done.left_behind == done.left_files == ()
    assert done.report is not None
    text = run_cli.numbers(done.report)
    assert "dcr_share" in text
    assert str(tmp_path) not in text
    assert run_cli.numbers({**done.report, "run": {}, "daskpriv": "0"}) == text
    assert run_cli.numbers({**done.report, "metrics": {}}) != text


@pytest.mark.parametrize("whole_group", [True, False])
def test_a_killed_run(tmp_path: Path, whole_group: bool) -> None:
    made = tables.small(tmp_path / "tables", rows=600)
    # Undisturbed, so many units would last long: it is not over before it is killed.
    done = run_cli.evaluate(
        made, tmp_path / "out", args=["--block-rows", "5"], kill_at="StageStarted", whole_group=whole_group
    )
    assert done.killed
    assert done.code == -signal.SIGKILL
    assert done.report is None
    assert done.left_behind == ()


def test_a_run_that_takes_too_long(tmp_path: Path) -> None:
    made = tables.small(tmp_path / "tables", rows=600)
    done = run_cli.evaluate(made, tmp_path / "out", args=["--block-rows", "5"], timeout=0.3)
    assert done.timed_out
    assert done.left_behind == ()
