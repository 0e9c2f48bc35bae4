"""The parts of the engine one by one: memory, store, published values, pieces, indexes, executors."""

from __future__ import annotations

import contextlib
import functools
import json
import operator
import pickle
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import daskpriv
from daskpriv.engine import cache, credits, reference
from daskpriv.engine.cache import Cache
from daskpriv.engine.executor import Executor, Serial, Threads
from daskpriv.engine.plan import Layout
from daskpriv.engine.published import Published, digest_of, fetch_from, no_longer_from, value_of
from daskpriv.engine.run import Engine
from daskpriv.engine.store import Folder, LostPieceError, Memory, Store, key_of, packed
from daskpriv.engine.units import Credited, Piece, from_arrow, to_arrow
from daskpriv.errors import RunError
from daskpriv.events import Event, StageStarted, TaskDone, silent
from daskpriv.evidence import CloserTable, Credits, Neighbours, NeighbourTable
from daskpriv.prepare import Columns, Prepared, encode, spaces_for, survey
from daskpriv.space.gower import SpaceOptions
from daskpriv.space.guide import Extent, Guide
from daskpriv.space.index import Index
from daskpriv.tables.open import open_table

# ---------------------------------------------------------------------------------------------- memory


@dataclass(eq=False)
class Heavy:
    """A value that says it takes a thousand bytes."""

    name: str

    def __sizeof__(self) -> int:
        return 1000


@dataclass
class Making:
    """Makes values and remembers which."""

    made: list[str] = field(default_factory=list)

    def of(self, name: str) -> Callable[[], Heavy]:
        def make() -> Heavy:
            self.made.append(name)
            return Heavy(name)

        return make


def at_once(number: int, call: Callable[[int], Any]) -> list[Any]:
    """What so many threads get that start together; exceptions as values."""
    barrier = threading.Barrier(number)

    def run(i: int) -> Any:
        barrier.wait(180)
        try:
            return call(i)
        except Exception as error:
            return error

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(run, range(number)))


def test_a_value_is_made_once_for_all_threads() -> None:
    held, making = Cache(10_000), Making()

    def slow() -> Heavy:
        time.sleep(0.1)
        return making.of("a")()

    found = at_once(8, lambda i: held.get("a", slow))
    assert making.made == ["a"]
    assert all(v is found[0] for v in found)


def test_one_value_does_not_wait_for_another() -> None:
    """While one is made, others are made and found; also from within."""
    held, other = Cache(10_000), threading.Event()

    def first() -> str:
        assert other.wait(180)
        return held.get("within", lambda: "within")

    def second() -> str:
        other.set()
        return "second"

    assert at_once(2, lambda i: held.get(i, (first, second)[i])) == ["within", "second"]


def test_the_least_recently_used_is_forgotten_first() -> None:
    held, making = Cache(3500), Making()
    for name in "abc":
        held.get(name, making.of(name))
    held.get("a", making.of("a"))
    held.get("d", making.of("d"))  # b goes
    for name in "acd":
        held.get(name, making.of(name))
    assert making.made == ["a", "b", "c", "d"]
    held.get("b", making.of("b"))  # a goes, which was asked for before c and d
    assert making.made == ["a", "b", "c", "d", "b"]
    held.get("c", making.of("c"))
    assert making.made == ["a", "b", "c", "d", "b"]
    assert 3000 <= held.nbytes <= 3500


def test_the_value_asked_for_last_is_kept_however_large() -> None:
    held, making = Cache(10), Making()
    for name in "aab":
        held.get(name, making.of(name))
    assert making.made == ["a", "b"]
    held.get("b", making.of("b"))
    assert making.made == ["a", "b"]
    held.get("a", making.of("a"))
    assert making.made == ["a", "b", "a"]


def test_a_smaller_memory_forgets_at_once() -> None:
    held, making = Cache(10_000), Making()
    for name in "abc":
        held.get(name, making.of(name))
    held.resize(2500)
    assert 2000 <= held.nbytes <= 2500
    held.clear()
    assert held.nbytes == 0
    held.get("c", making.of("c"))
    assert making.made == ["a", "b", "c", "c"]


def test_what_is_held_is_counted_whatever_happens_at_once() -> None:
    """Threads that find, fail, evict and forget."""
    held = Cache(20_000)

    def fails() -> Heavy:
        raise OSError

    def busy(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(400):
            name = f"{rng.randrange(40)}"
            if rng.random() < 0.01:
                held.clear()
            elif rng.random() < 0.1:
                with contextlib.suppress(OSError):
                    held.get(name, fails)
            else:
                assert held.get(name, Making().of(name)).name == name

    assert at_once(6, busy) == [None] * 6
    assert held.nbytes == sum(e.size for e in held._entries.values())
    assert all(e.ready for e in held._entries.values())
    held.clear()
    assert held.nbytes == 0


def test_lists_weigh_as_much_as_what_they_hold() -> None:
    held = Cache(10_000)
    held.get("a", lambda: [Heavy("a"), (Heavy("b"), Heavy("c"))])
    assert held.nbytes >= 3000


def test_an_exception_is_not_remembered() -> None:
    held, making = Cache(10_000), Making()

    def fails() -> Heavy:
        raise OSError("just now")

    for _ in range(2):
        with pytest.raises(OSError, match="just now"):
            held.get("a", fails)
    assert held.nbytes == 0
    assert held.get("a", making.of("a")) is held.get("a", fails)


def test_after_a_failure_one_of_those_who_waited_makes_it() -> None:
    held, calls = Cache(10_000), []

    def fails_once() -> Heavy:
        calls.append(0)
        time.sleep(0.05)
        if len(calls) == 1:
            raise OSError("just now")
        return Heavy("a")

    found = at_once(6, lambda i: held.get("a", fails_once))
    assert sum(isinstance(v, OSError) for v in found) == 1
    assert sum(isinstance(v, Heavy) for v in found) == 5


# ---------------------------------------------------------------------------------------------- store

KEY, OTHER = key_of("run", "search", 0), key_of("run", "search", 1)


def lists(rows: int = 5, k: int = 2, seed: int = 0) -> NeighbourTable:
    rng = np.random.default_rng(seed)
    ids = np.arange(10, 10 + rows)
    return NeighbourTable(ids, np.sort(rng.random((rows, k))), rng.integers(0, 99, (rows, k)), rng.integers(1, 9, rows))


RESULTS: dict[str, tuple[Any, dict[str, str]]] = {
    "search": (
        lists(),
        {"query": "int64", "ties": "int64", "distance_0": "double", "distance_1": "double"}
        | {"row_0": "int64", "row_1": "int64"},
    ),
    "count": (
        CloserTable(np.arange(4), np.arange(4) * 2, np.ones(4, np.int64)),
        {"query": "int64", "closer": "int64", "equal": "int64"},
    ),
    "credits": (
        Credited(np.array([0, 0, 1], np.int8), np.array([3, 8, 1]), np.array([7, 1, 2])),
        {"side": "int8", "row": "int64", "credit": "int64"},
    ),
}


def fields_of(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def assert_equal(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    for name, array in fields_of(a).items():
        other = getattr(b, name)
        assert array.dtype == other.dtype
        assert array.shape == other.shape
        assert array.tobytes() == other.tobytes()


@pytest.fixture(params=["path", "url"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    return Folder(str(tmp_path) if request.param == "path" else f"file://{tmp_path}")


def file_of(tmp_path: Path, name: str) -> Path:
    return tmp_path / "pieces" / name


@pytest.mark.parametrize("kind", RESULTS)
def test_a_piece_holds_ids_distances_and_counts_and_nothing_else(kind: str, tmp_path: Path) -> None:
    value, columns = RESULTS[kind]
    folder = Folder(str(tmp_path))
    name = folder.put(KEY, to_arrow(value))
    assert_equal(from_arrow(folder.get(KEY, name)), value)
    written = pq.ParquetFile(file_of(tmp_path, name))
    assert {f.name: str(f.type) for f in written.schema_arrow} == columns
    assert written.schema_arrow.metadata == {b"daskpriv.piece": KEY.encode()}
    assert set(written.metadata.metadata) == {b"daskpriv.piece", b"ARROW:schema"}
    assert [p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()] == [f"pieces/{name}"]


def test_infinite_distances_and_empty_lists_come_back(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    far = NeighbourTable(np.arange(2), np.full((2, 3), np.inf), np.full((2, 3), -1), np.zeros(2, np.int64))
    nobody = Credited(np.zeros(0, np.int8), np.zeros(0, np.int64), np.zeros(0, np.int64))
    for place, value in enumerate((far, nobody)):
        key = key_of("run", place)
        assert_equal(from_arrow(folder.get(key, folder.put(key, to_arrow(value)))), value)


def test_a_run_stores_no_cell(tmp_path: Path) -> None:
    """Every column of every piece of a whole run, the manifest, and the names of all files."""
    rng = np.random.default_rng(0)
    canary = [f"canary-{i}" for i in range(5)]
    tables = {
        name: pd.DataFrame({"who": rng.choice(canary, n), "pay": rng.integers(10**15, 10**15 + 50, n)})
        for name, n in (("train", 90), ("holdout", 80), ("synthetic", 70))
    }
    daskpriv.evaluate(**tables, store=tmp_path, block_rows=30)
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert {p.suffix for p in files} == {".parquet", ".json"}
    for path in files:
        if path.suffix == ".json":
            assert "canary" not in path.read_text()
            assert "10000000000000" not in path.read_text()
            assert set(json.loads(path.read_text())["tables"]["train"]) == {"rows", "fingerprint", "source"}
            continue
        table = pq.read_table(path)
        kinds = {str(t) for t in table.schema.types}
        assert kinds <= {"int8", "int64", "double"}
        known = r"query|ties|(distance|row)_\d|closer|equal|side|row|credit|widest"
        assert all(re.fullmatch(known, c) for c in table.schema.names)
        for column in table.select([c for c in table.schema.names if c != "credit"]).columns:
            assert column.to_numpy()[np.isfinite(column.to_numpy())].max(initial=0) <= 90


def test_pieces_are_found_by_a_listing(folder: Folder) -> None:
    assert folder.finished() == {}
    names = {key: folder.put(key, to_arrow(lists(seed=i))) for i, key in enumerate((KEY, OTHER))}
    assert folder.finished() == names
    assert folder.put(KEY, to_arrow(lists(seed=0))) == names[KEY]
    assert folder.finished() == names


def test_the_listing_ignores_what_is_not_a_piece(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    name = folder.put(KEY, to_arrow(lists()))
    piece = file_of(tmp_path, name)
    for foreign in (
        "README", "manifest.json", name.replace(".parquet", ".parquet.tmp"), f"{KEY[:2]}/.{Path(name).name}.1-2-3.part",
        f"{KEY[:2]}/{KEY}.parquet", f"{KEY[:2]}/{KEY.upper()}-{KEY}.parquet", f"deep/{name}", f"{KEY}-{KEY}.parquet",
    ):  # fmt: skip
        path = file_of(tmp_path, foreign)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(piece.read_bytes())
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file.parquet").write_bytes(piece.read_bytes())
    assert folder.finished() == {KEY: name}


def lost(folder: Folder, key: str, name: str) -> None:
    with pytest.raises(LostPieceError):
        folder.get(key, name)


def test_a_piece_that_was_cut_short_is_lost(tmp_path: Path, folder: Folder) -> None:
    table = to_arrow(lists())
    name = folder.put(KEY, table)
    path = file_of(tmp_path, name)
    whole = path.read_bytes()
    for size in (0, 1, 4, len(whole) // 2, len(whole) - 8, len(whole) - 1):
        path.write_bytes(whole[:size])
        lost(folder, KEY, name)
        assert folder.finished() == {}  # what is damaged does not stay
    path.write_bytes(whole + b"\0")
    lost(folder, KEY, name)
    path.write_bytes(whole)
    assert folder.get(KEY, name).equals(table)


def test_a_piece_with_a_flipped_bit_is_lost(tmp_path: Path) -> None:
    """Anywhere: Parquet alone would not notice most of them."""
    folder = Folder(str(tmp_path))
    name = folder.put(KEY, to_arrow(lists()))
    path = file_of(tmp_path, name)
    whole = path.read_bytes()
    for place in range(0, len(whole), 23):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(bytes(damaged))
        lost(folder, KEY, name)


def test_a_piece_that_was_deleted_is_lost(tmp_path: Path, folder: Folder) -> None:
    name = folder.put(KEY, to_arrow(lists()))
    file_of(tmp_path, name).unlink()
    lost(folder, KEY, name)
    lost(folder, KEY, "")
    assert folder.finished() == {}


def test_a_piece_under_the_name_of_another_is_lost(tmp_path: Path, folder: Folder) -> None:
    """With the checksum of its own bytes, with that of the other, and asked for by the other's key."""
    name, other = (folder.put(key, to_arrow(lists(seed=i))) for i, key in enumerate((KEY, OTHER)))
    lost(folder, OTHER, name)
    name = folder.put(KEY, to_arrow(lists(seed=0)))
    mine = file_of(tmp_path, name).read_bytes()
    file_of(tmp_path, other).write_bytes(mine)
    lost(folder, OTHER, other)
    moved = f"{OTHER[:2]}/{OTHER}-{digest_of(mine)}.parquet"
    file_of(tmp_path, moved).parent.mkdir(exist_ok=True)
    file_of(tmp_path, moved).write_bytes(mine)
    assert folder.finished()[OTHER] == moved
    lost(folder, OTHER, moved)


def test_a_piece_that_says_it_is_another_is_lost(tmp_path: Path) -> None:
    """Its name and checksum are right; what it says within is not, or is missing, or it is no Parquet file."""
    folder = Folder(str(tmp_path))
    sink = pa.BufferOutputStream()
    pq.write_table(to_arrow(lists()), sink)
    for data in (packed(OTHER, to_arrow(lists())), sink.getvalue().to_pybytes(), b"PAR1 not at all PAR1", b""):
        name = f"{KEY[:2]}/{KEY}-{digest_of(data)}.parquet"
        path = file_of(tmp_path, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        assert folder.finished()[KEY] == name
        lost(folder, KEY, name)
        path.unlink(missing_ok=True)


def test_pieces_of_another_run_are_not_found(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    theirs, ours = key_of("another", "search", 0), key_of("run", "search", 0)
    assert theirs != ours
    name = folder.put(theirs, to_arrow(lists()))
    assert ours not in folder.finished()
    lost(folder, ours, name)
    assert len({key_of("run", "search", 1, 23), key_of("run", "search", 12, 3), key_of("run", "search", "1", 23)}) == 3


def test_a_store_that_cannot_be_used_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    folder = Folder(str(tmp_path / "file"))
    with pytest.raises(RunError, match=r"the run store .* cannot be used .* --store"):
        folder.put(KEY, to_arrow(lists()))


def test_memory_keeps_what_it_is_given() -> None:
    memory, table = Memory(), to_arrow(lists())
    with pytest.raises(LostPieceError):
        memory.get(KEY, "")
    assert memory.get(KEY, memory.put(KEY, table)) is table
    assert memory.finished() == {}
    assert memory.reachable
    with pytest.raises(LostPieceError):
        Memory().get(KEY, KEY)


# ---------------------------------------------------------------------------------------------- published


@pytest.fixture
def home() -> Iterator[tuple[str, list[str]]]:
    """A home whose values are digests twice over, and what it was asked for."""
    asked: list[str] = []

    def fetch(digest: str) -> bytes:
        asked.append(digest)
        time.sleep(0.02)
        return pickle.dumps([digest, digest])

    fetch_from("a home", fetch)
    yield "a home", asked
    no_longer_from("a home")


def test_a_copy_asks_its_home_once(home: tuple[str, list[str]]) -> None:
    name, asked = home
    original = Published("0123456789", name, ["the value"])
    sent = pickle.dumps(original)
    assert b"the value" not in sent
    copies = [pickle.loads(sent) for _ in range(8)]
    found = at_once(8, lambda i: copies[i].get())
    assert asked == ["0123456789"]
    assert all(v is found[0] for v in found)
    assert found[0] == ["0123456789"] * 2
    assert pickle.loads(pickle.dumps(copies[0])).get() is found[0]
    assert original.get() == ["the value"]
    assert asked == ["0123456789"]
    cache.forget()
    assert copies[3].get() == found[0]
    assert asked == ["0123456789"] * 2


def test_what_is_published_does_not_show(home: tuple[str, list[str]]) -> None:
    published = Published("0123456789", home[0], "secret")
    assert repr(published) == "Published(01234567)"
    assert value_of(published) == "secret"
    assert value_of("plain") == "plain"


def test_none_is_a_value_too() -> None:
    assert Published("d", "nowhere", None).get() is None


# ---------------------------------------------------------------------------------------------- pieces


@dataclass(eq=False)
class Counted:
    """A unit that counts how often it is carried out."""

    value: Any
    runs: int = 0
    label: str = "rows 0 to 5"

    def run(self, store: Store) -> Any:
        self.runs += 1
        return self.value


def test_a_lost_piece_is_made_again(tmp_path: Path) -> None:
    folder, unit = Folder(str(tmp_path)), Counted(lists())
    name = folder.put(KEY, Piece(KEY, unit).make(folder))
    piece = Piece(KEY, unit, name)
    assert unit.runs == 1
    assert_equal(piece.load(folder), unit.value)
    assert unit.runs == 1
    path = file_of(tmp_path, name)
    for damage in (path.unlink, lambda: path.write_bytes(path.read_bytes()[:-1]), lambda: path.write_bytes(b"")):
        damage()
        assert_equal(piece.load(folder), unit.value)  # this process still has it
        cache.forget()
        before = unit.runs
        assert_equal(piece.load(folder), unit.value)
        assert unit.runs == before + 1
        assert folder.finished() == {KEY: name}  # and whoever is next finds it
        cache.forget()
        assert_equal(piece.load(folder), unit.value)
        assert unit.runs == before + 1


def test_where_the_store_is_out_of_reach_a_lost_piece_is_made_but_not_kept(tmp_path: Path) -> None:
    folder, unit = Folder(str(tmp_path), reachable=False), Counted(lists())
    assert_equal(Piece(KEY, unit).load(folder), unit.value)
    assert unit.runs == 1
    assert folder.finished() == {}


def test_a_lost_piece_is_made_once_for_all_threads(tmp_path: Path) -> None:
    unit = Counted(lists())
    piece = Piece(KEY, unit, f"{KEY[:2]}/{KEY}-{KEY}.parquet")
    for found in at_once(6, lambda i: piece.load(Folder(str(tmp_path)))):
        assert_equal(found, unit.value)
    assert unit.runs == 1


# ---------------------------------------------------------------------------------------------- engines

FRAMES = {"train": 700, "holdout": 500, "synthetic": 400}


def frame_of(seed: int, rows: int) -> pd.DataFrame:
    """Numbers and categories with massive ties."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {"a": rng.integers(0, 6, rows), "b": rng.choice(list("xyz"), rows), "c": rng.random(rows).round(1)}
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    for seed, (name, rows) in enumerate(FRAMES.items()):
        frame_of(seed, rows).to_parquet(folder / f"{name}.parquet")
    rng = np.random.default_rng(9)
    for name, rows in (("reference", 3000), ("query", 300)):
        pd.DataFrame(rng.random((rows, 2)), columns=["a", "b"]).to_parquet(folder / f"{name}.parquet")
    return folder


def prepared(engine: Engine, files: Path, names: Sequence[str]) -> Prepared:
    """Tables of these names; the first one gives the ranges."""
    surveyed = survey(engine, {n: open_table(files / f"{n}.parquet", n) for n in names}, Columns(), names[:1])
    return spaces_for(engine, surveyed, encode(engine, surveyed), SpaceOptions(), names[:1])


def neighbours(engine: Engine, files: Path) -> NeighbourTable:
    """`query` in `reference`."""
    ready = prepared(engine, files, ("reference", "query"))
    answers = engine.search([Neighbours("query", "reference", 2)], ready.blocks, ready.spaces)["query", "reference"]
    found = [a.load(engine.store) for a in answers]
    return NeighbourTable(
        *(np.concatenate([getattr(f, n) for f in found]) for n in ("query", "distance", "row", "ties"))
    )


def law(files: Path, cut: Layout, k: int, executor: Executor | None = None) -> list[list[int]]:
    """How often each real row is a nearest row."""
    engine = Engine(executor or Serial(), cut)
    ready = prepared(engine, files, ("train", "holdout", "synthetic"))
    pairs = [Neighbours("synthetic", r, k) for r in ("train", "holdout")]
    found = engine.search(pairs, ready.blocks, ready.spaces)
    answer = engine.credits(Credits("synthetic", "train", "holdout"), ready.blocks, ready.spaces, found)
    return [answer.credit.tolist(), answer.first.tolist(), answer.second.tolist()]


@pytest.mark.parametrize("cut", [Layout(1000, 10_000), Layout(90, 10_000), Layout(90, 150)])
@pytest.mark.parametrize("k", [1, 30])
def test_credits_are_added_up_some_rows_at_a_time(
    cut: Layout, k: int, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wide ties and listed ones; ranges of real rows of any size, also larger and smaller than the tables."""
    expected = law(files, Layout(1000, 10_000), 30)
    assert [sum(expected[1]), sum(expected[2])] == [700, 500]
    assert len(expected[0]) > 10
    assert law(files, cut, k) == expected
    for rows in (7, 100, 500, 699):
        monkeypatch.setattr(credits, "_CREDIT_ROWS", rows)
        assert law(files, cut, k) == expected


def test_pieces_that_vanish_during_a_run_are_made_again(files: Path, tmp_path: Path) -> None:
    """Between the search and whoever reads its answers, in one group and in two rounds."""
    expected = neighbours(Engine(Serial(), Layout(100, 10_000)), files)
    for place, cut in enumerate((Layout(100, 10_000), Layout(100, 800))):
        engine = Engine(Serial(), cut, store=Folder(str(tmp_path / str(place))))
        ready = prepared(engine, files, ("reference", "query"))
        answers = engine.search([Neighbours("query", "reference", 2)], ready.blocks, ready.spaces)["query", "reference"]
        held = list((tmp_path / str(place)).rglob("*.parquet"))
        assert len(held) >= 3
        for path in held:
            path.unlink()
        cache.forget()
        found = [a.load(engine.store) for a in answers]
        for name in ("query", "distance", "row", "ties"):
            assert np.concatenate([getattr(f, name) for f in found]).tobytes() == getattr(expected, name).tobytes()


class Shuffled(Serial):
    """Units end in any order, and what is published is named by its bytes, as on a cluster."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def publish(self, value: Any) -> Published[Any]:
        return Published(digest_of(pickle.dumps(value)), "here", value)

    def each(self, stage: str, fn: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        order = list(range(len(items)))
        self._random.shuffle(order)
        for i in order:
            yield i, fn(items[i])


class KilledError(Exception):
    """In the place of a client that dies."""


def killed_after(units: int) -> Callable[[Event], None]:
    """A listener that ends the run after so many searches."""
    left = [units]

    def listen(event: Event) -> None:
        if isinstance(event, TaskDone) and event.stage.startswith("search"):
            left[0] -= 1
            if not left[0]:
                raise KilledError

    return listen


def resumed(files: Path, folder: Path, seed: int, cut: Layout) -> tuple[NeighbourTable, int]:
    """A run that died, gone on with; blocks are measured in another order the second time."""
    store = Folder(str(folder))
    with pytest.raises(KilledError):
        neighbours(Engine(Shuffled(seed), cut, killed_after(4), store=store, run="run"), files)
    cache.forget()
    engine = Engine(Shuffled(seed + 100), cut, silent, store=store, run="run")
    return neighbours(engine, files), engine.reused


@pytest.mark.parametrize("seed", range(8))
def test_a_resumed_run_in_two_rounds_gives_the_same_bytes(seed: int, files: Path, tmp_path: Path) -> None:
    """Parts are cut on a sample in the order of completion: pieces of another cut must not be believed."""
    expected = neighbours(Engine(Serial(), Layout(100, 10_000)), files)
    found, _ = resumed(files, tmp_path, seed, Layout(100, 800))
    assert_equal(found, expected)


def test_a_resumed_run_in_one_group_makes_no_piece_twice(files: Path, tmp_path: Path) -> None:
    expected = neighbours(Engine(Serial(), Layout(30, 10_000)), files)
    found, reused = resumed(files, tmp_path, 1, Layout(30, 10_000))
    assert_equal(found, expected)
    assert reused == 4


def test_a_resumed_run_in_two_rounds_makes_no_piece_twice(files: Path, tmp_path: Path) -> None:
    assert resumed(files, tmp_path, 1, Layout(100, 800))[1] == 4


def test_a_guide_does_not_depend_on_the_order_of_blocks(files: Path) -> None:
    engine = Engine(Serial(), Layout(300, 1000))
    ready = prepared(engine, files, ("reference", "query"))
    space = ready.spaces["query", "reference"]
    extents = [Extent.of(space, s.load()) for s in ready.blocks["reference"].sources]
    guides = set()
    for seed in range(10):
        random.Random(seed).shuffle(extents)
        guides.add(pickle.dumps(Guide.fit(space, functools.reduce(operator.add, extents), 3)))
    assert len(guides) == 1


def test_an_index_of_another_cut_is_not_used(files: Path) -> None:
    """A process may still hold the indexes of a run that died, or of one beside it."""
    expected = neighbours(Engine(Serial(), Layout(100, 10_000)), files)
    cache.forget()
    for seed, rows in enumerate((1000, 1500, 10_000, 800, 3000)):
        assert_equal(neighbours(Engine(Shuffled(seed), Layout(100, rows)), files), expected)


def test_runs_without_a_name_share_no_piece(files: Path) -> None:
    engines = [Engine(Serial(), Layout(100, 100)) for _ in range(2)]
    assert engines[0].run != engines[1].run
    assert engines[0].run


# ---------------------------------------------------------------------------------------------- indexes


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As many threads build an index as before."""
    before = reference._THREADS
    yield
    reference.use_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("rows", [10_000, 900])
def test_threads_of_a_process_build_the_same_index_once(
    rows: int, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[int] = []
    build = Index.build.__func__  # type: ignore[attr-defined]

    def counting(cls: type[Index], guide: Guide, part: int, pieces: Any) -> Index:
        built.append(part)
        return build(cls, guide, part, pieces)

    engine = Engine(Serial(), Layout(100, rows))
    ready = prepared(engine, files, ("reference", "query"))
    asked = engine.reference(ready.blocks["reference"], ready.spaces["query", "reference"])
    reference.use_threads(1)
    expected = [pickle.dumps(index) for g in range(len(asked.groups)) for index in asked.held(g)]
    cache.forget()
    reference.use_threads(3)
    monkeypatch.setattr(Index, "build", classmethod(counting))
    for g in range(len(asked.groups)):
        found = at_once(4, lambda i, g=g: asked.held(g))
        assert all(f is found[0] for f in found)
    assert sorted(built) == sorted(p for group in asked.groups for p in group)
    assert [pickle.dumps(index) for g in range(len(asked.groups)) for index in asked.held(g)] == expected
    assert sum(asked.sizes) == asked.rows == 3000


# ---------------------------------------------------------------------------------------------- executors


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[Threads]:
    executor = Threads(request.param)
    yield executor
    executor.close()


def test_every_unit_is_carried_out_once(threads: Threads) -> None:
    for executor in (Serial(), threads):
        assert sorted(executor.each("s", lambda i: i * i, range(100))) == [(i, i * i) for i in range(100)]
        assert list(executor.each("s", str, [])) == []
        assert executor.publish([1]).get() == [1]


def test_few_units_wait_at_a_time(threads: Threads) -> None:
    """Results do not pile up while nobody takes them."""
    begun: list[int] = []
    results = threads.each("s", begun.append, range(1000))
    next(results)
    time.sleep(0.1)
    assert len(begun) <= 4 * threads.slots
    results.close()  # type: ignore[attr-defined]
    seen = len(begun)
    time.sleep(0.05)
    assert len(begun) == seen


def test_the_first_error_ends_a_stage(threads: Threads) -> None:
    begun: list[int] = []

    def fails(i: int) -> int:
        begun.append(i)
        if i == 20:
            raise ValueError("twenty")
        return i

    with pytest.raises(ValueError, match="twenty"):
        list(threads.each("s", fails, range(10_000)))
    seen = len(begun)
    assert seen < 1000
    time.sleep(0.05)
    assert len(begun) == seen
    assert [v for _, v in threads.each("s", lambda i: i, [1])] == [1]


def test_stages_are_told_of(files: Path) -> None:
    """Every stage tells how many units it has, and every unit that it is done."""
    events: list[Event] = []
    engine = Engine(Serial(), Layout(100, 800), events.append)
    neighbours(engine, files)
    for stage in {e.stage for e in events if isinstance(e, StageStarted)}:
        begun = [e for e in events if isinstance(e, StageStarted) and e.stage == stage]
        done = [e for e in events if isinstance(e, TaskDone) and e.stage == stage]
        assert sum(e.tasks for e in begun) == len(done)
        assert sum(e.pairs for e in begun) == sum(e.pairs for e in done)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the operating system tells it right")
def test_peak_memory_is_that_of_the_process_and_not_of_its_parent() -> None:
    told = "from daskpriv.engine.executor import peak_memory; print(peak_memory() >> 20)"
    large = f"import subprocess, sys; held = b'x' * (900 << 20); subprocess.run([sys.executable, '-c', {told!r}])"
    done = subprocess.run([sys.executable, "-c", large], capture_output=True, text=True, check=True)
    assert 20 < int(done.stdout) < 600
