"""Runs and where they keep what is finished, so that a run that died goes on where it stopped.

A run is named by the digest of all that its results depend on: the content of the tables, the columns, the options and
the version of daskpriv. A run with the same name may use every piece; any other finds none.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from daskpriv.engine.executor import Executor, Serial, Threads
from daskpriv.engine.store import Folder, Memory, Store, unusable
from daskpriv.errors import InputError
from daskpriv.tables.files import refuse_secrets, shown
from daskpriv.tables.sinks import get, join, listing, put, remove
from daskpriv.version import __version__

FORMAT = 1
_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Manifest:
    """What is known of a run: sizes and names, never a cell.

    Attributes
    ----------
    run : str
        Its name.
    block_rows, steps : how it was cut
    tables : {name: {"rows", "fingerprint", "source"}}
    command, directory : list of str, str
        How and where it was started from the command line; empty when it was not.
    created, finished : str
        Times in UTC; `finished` is empty until the report is written.
    """

    run: str
    block_rows: int
    tables: Mapping[str, Mapping[str, Any]]
    steps: Mapping[str, int] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    directory: str = ""
    created: str = ""
    finished: str = ""
    version: str = __version__

    def to_json(self) -> bytes:
        """As stored."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Manifest | None:
        """Read it back; None when it is not one."""
        try:
            held = json.loads(data)
            if held.pop("format") != FORMAT:
                return None
            steps = {str(k): int(v) for k, v in held.pop("steps").items()}
            made = cls(**{**held, "steps": steps, "command": tuple(map(str, held["command"]))})
            whole = type(made.block_rows) is int and min([made.block_rows, *steps.values()]) >= 1
            texts = (made.run, made.directory, made.created, made.finished, made.version)
            sound = all(isinstance(t, str) for t in texts) and all(int(t["rows"]) >= 0 for t in made.tables.values())
            return made if whole and sound else None
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
            return None


@dataclass
class Run:
    """A run that is under way: its store, and what it remembers there."""

    store: Store
    manifest: Manifest
    folder: str = ""
    resumed: bool = False

    def remember(self, steps: Mapping[str, int]) -> None:
        """Keep how searches are cut, so that a resumed run cuts the same way."""
        self.manifest = replace(self.manifest, steps=dict(steps))
        self._write()

    def finish(self) -> None:
        """The report is written."""
        self.manifest = replace(self.manifest, finished=_now())
        self._write()

    def _write(self) -> None:
        if self.folder:
            try:
                put(join(self.folder, _MANIFEST), self.manifest.to_json(), private=True)
            except Exception as error:
                raise unusable(self.folder, error) from None


@dataclass(frozen=True)
class Place:
    """Where runs are kept: below `root`, or in memory when there is none.

    Attributes
    ----------
    reachable : bool
        True when all workers can read and write it.
    lasting : bool
        False when a finished run is removed: nobody asked for its pieces.
    """

    root: str = ""
    reachable: bool = True
    lasting: bool = True

    def open(
        self, name: str, block_rows: int, tables: Mapping[str, Mapping[str, Any]], command: tuple[str, ...]
    ) -> Run:
        """Begin a run, or go on with one of this name."""
        fresh = Manifest(name, block_rows, tables, {}, command, os.getcwd() if command else "", _now())
        if not self.root:
            return Run(Memory(), fresh)
        folder = join(self.root, name)
        known = _manifest(folder)
        if known is not None and known.run != name:
            known = None  # a file of another run
        # The command of now is the one to repeat, and the run is open again: other metrics may need more pieces.
        again = known and replace(known, command=fresh.command, directory=fresh.directory, finished="")
        run = Run(Folder(folder, self.reachable), again or fresh, folder, known is not None)
        run._write()
        return run

    def close(self, run: Run) -> None:
        """The report is written: keep the pieces only where a store was asked for."""
        if not self.root:
            return
        if self.lasting:
            run.finish()
        else:
            delete(self.root, run.manifest.run)
            if "://" not in self.root:
                with suppress(OSError):
                    Path(self.root).rmdir()


@contextmanager
def place_for(store: str | None, output: str | None, executor: Executor) -> Iterator[Place]:
    """The store that was named, else one in the output directory, else memory or a temporary directory."""
    if store is None and output is None and isinstance(executor, (Serial, Threads)):
        yield Place()
        return
    root = store if store is not None else join(output, "runs") if output is not None else None
    if root is not None:
        refuse_secrets(root, "store")
        root = root if "://" in root else os.path.abspath(root)
        yield Place(root, reaches(root, executor), store is not None)
        return
    folder = tempfile.mkdtemp(prefix="daskpriv-")
    try:
        yield Place(folder, reaches(folder, executor), False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def kept_while_used(executor: Executor) -> Iterator[Store]:
    """A store for a search whose answers may be read later: it goes when nobody holds it any more."""
    if isinstance(executor, (Serial, Threads)):
        yield Memory()
        return
    folder = tempfile.mkdtemp(prefix="daskpriv-")
    store = Folder(folder, reaches(folder, executor))
    weakref.finalize(store, shutil.rmtree, folder, ignore_errors=True)
    yield store


def reaches(root: str, executor: Executor) -> bool:
    """Whether the units of this executor can read and write below `root`; refuses one that even we cannot write."""
    name = f".probe-{uuid.uuid4().hex}"
    try:
        put(join(root, name), name.encode(), private=True)
    except Exception as error:
        raise InputError(
            f"store: cannot write {shown(root)!r} ({getattr(error, 'strerror', None) or type(error).__name__}); "
            "choose another place with --store."
        ) from None
    asked: list[str] = []
    try:
        if isinstance(executor, (Serial, Threads)):
            return True
        asked = [f"{name}-{i}" for i in range(min(2 * executor.slots, 16))]
        seen = [s for _, s in executor.each("store", functools.partial(_sees, root, name), asked)]
        return all(seen) and all(_reads(join(root, mine), mine) for mine in asked)
    finally:
        for each in (name, *asked):
            with suppress(Exception):
                remove(join(root, each))


def _reads(target: str, mine: str) -> bool:
    try:
        return get(target) == mine.encode()
    except Exception:
        return False


def _sees(root: str, name: str, mine: str) -> bool:
    try:
        seen = get(join(root, name)) == name.encode()
        if seen:
            put(join(root, mine), mine.encode(), private=True)
    except Exception:
        return False
    return seen


def name_of(*what: Any) -> str:
    """The name of the run whose results depend on `what`."""
    return hashlib.blake2b(repr((FORMAT, __version__, what)).encode(), digest_size=10).hexdigest()


def listed(root: str) -> list[tuple[Manifest, int, int]]:
    """(manifest, pieces, bytes) of every run below `root`, the newest last."""
    refuse_secrets(root, "store")
    try:
        files = listing(root)
    except Exception as error:
        raise InputError(f"store: cannot read {shown(root)!r} ({type(error).__name__}); check the place.") from None
    out = []
    for name in sorted({f.split("/", 1)[0] for f in files if f.endswith("/" + _MANIFEST)}):
        known = _manifest(join(root, name))
        if known is not None and known.run == name:
            sizes = [size for f, size in files.items() if f.startswith(f"{name}/pieces/")]
            out.append((known, len(sizes), sum(sizes)))
    return sorted(out, key=lambda found: found[0].created)


def delete(root: str, name: str) -> int:
    """Delete a run; the bytes that it held."""
    if name not in {m.run for m, _, _ in listed(root)}:
        raise InputError(f"store: there is no run {name!r} in {shown(root)!r}; see `daskpriv runs list`.")
    return wipe(join(root, name))


def wipe(folder: str) -> int:
    """Delete all files below the folder of a run, its manifest last; the bytes that it held."""
    held = listing(folder)
    for file in sorted(held, key=lambda f: f == _MANIFEST):
        remove(join(folder, file))
    if "://" not in folder:
        shutil.rmtree(Path(folder), ignore_errors=True)
    return sum(held.values())


def _manifest(folder: str) -> Manifest | None:
    try:
        data = get(join(folder, _MANIFEST))
    except FileNotFoundError:
        return None
    except Exception as error:
        raise unusable(folder, error) from None
    return Manifest.from_json(data)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
