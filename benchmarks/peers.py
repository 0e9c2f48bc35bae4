"""The same tables, the same run, one core: daskpriv next to other programs and to plain loops.

`python -m benchmarks.peers [--tiny] [CASE or PEER ...]`. Every peer runs in a process of its own, in an environment of
its own that is made on demand from peers.txt. Its figure is query rows times reference rows per CPU second; a slow peer
gets fewer query rows. What it found is held against the definition in float64.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import daskpriv
from benchmarks.datasets import CASES, LARGE, PACKAGED, ROOT, AbsentError, Case, case, ranges
from benchmarks.peer_programs.adapters import PEERS

ENVIRONMENTS = ROOT / ".bench-venvs"
REQUIREMENTS = Path(__file__).parent / "peers.txt"
BUDGET_S = 5.0
BLOCK = "privacy_block"
TINY = ("adult", "uniform50")
INDEXES = ("daskpriv", "pynear")
INSTALLED = ("daskpriv", "daskpriv-call", "numba-plain", "numba-abandoning")
UNAVAILABLE = ("clearbox-synthetic-kit",)
OWN_RANGES = ("gower", "anonymeter", "clearbox-sure")
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS")
LIMIT_S = 900
WRONG = 1e-6

Floats = npt.NDArray[np.float64]


class PeerError(Exception):
    """A peer that did not install, crashed or took too long; the message says which."""


def ours(query: Path, reference: Path, k: int) -> Floats:
    """Distances by the stable public call, reading included."""
    found = daskpriv.nearest_neighbours(str(query), str(reference), k=k, fit="reference")
    return np.asarray(found.compute().distance)


def run(tiny: bool, names: Collection[str] = ()) -> dict[str, Any]:
    """Millions of pairs per CPU second and the largest error, per case and peer; `names` are cases and peers."""
    known = INSTALLED if tiny else (*PEERS, *UNAVAILABLE)
    peers = [p for p in known if p in names] or list(known)
    cases = [c for c in (*CASES, BLOCK) if c in names] or [*(TINY if tiny else CASES), BLOCK]
    out: dict[str, Any] = {}
    for name in cases:
        try:
            out[name] = privacy_block(tiny, peers) if name == BLOCK else compared(_sized(name, tiny), tiny, peers, name)
        except AbsentError as error:
            _tell(f"{name}: left out, {error}")
            out |= {} if tiny else {name: {"reason": str(error)}}
    return out


def _sized(name: str, tiny: bool) -> Case:
    """A case at the size at which it is compared."""
    if tiny:
        return case(name, 300, 200)
    return case(name, 1_600_000, 5_000) if name == LARGE else case(name, 24_421, 50_000)


def compared(tables: Case, tiny: bool, peers: Collection[str], name: str) -> dict[str, Any]:
    """The peers on one case; the large one is for indexes only."""
    peers = [p for p in peers if name != LARGE or p in INDEXES]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prepare(tables, folder)
        return _each(peers, tiny, lambda peer: measured(peer, folder, tables, 0.2 if tiny else BUDGET_S))


def _each(peers: Collection[str], tiny: bool, measure: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """What every peer gave, or why it gave nothing; a tiny run accepts no failure."""
    out: dict[str, Any] = {}
    for peer in peers:
        try:
            out[peer] = measure(peer)
        except PeerError as error:
            if tiny:
                raise
            out[peer] = {"reason": str(error)}
        _tell(f"{peer}: {out[peer]}")
    return out


def measured(peer: str, folder: Path, tables: Case, seconds: float) -> dict[str, Any]:
    """One peer on one case: its speed, and how far what it found is from the definition."""
    answer = launched(peer, ["benchmarks.peer_programs.search", str(folder), peer, str(seconds)])
    rows, pairs = answer["rows"], answer["rows"] * tables.reference.num_rows / 1e6
    found = np.load(folder / f"found-{peer}.npy")
    out = {
        "mpairs_per_s": pairs / answer["query_s"],
        "mpairs_per_s_with_build": pairs / (answer["query_s"] + answer["build_s"]),
        "build_s": answer["build_s"],
        "query_s": answer["query_s"],
        "query_rows": rows,
        "k": found.shape[1],
        **errors(found, truth(tables, rows, folder)),
    }
    if peer in OWN_RANGES:
        query = tables.query.slice(0, rows)
        both = ranges(pa.concat_tables([query, tables.reference]))
        own = errors(found, truth(Case(query, tables.reference, both), rows))
        out |= {f"{name}_own_ranges": value for name, value in own.items()}
    return out


def errors(found: Floats, expected: Floats) -> dict[str, float]:
    """Largest error of the nearest distance and of the second, if any; share of rows whose nearest is wrong."""
    gap = np.nan_to_num(np.abs(found - expected[:, : found.shape[1]]), nan=np.inf)
    second = {"max_error_2nd": float(gap[:, 1].max())} if found.shape[1] > 1 else {}
    return {"max_error": float(gap[:, 0].max()), "share_wrong": float(np.mean(gap[:, 0] > WRONG)), **second}


def truth(tables: Case, rows: int, folder: Path | None = None) -> Floats:
    """The two smallest distances by the definition; kept in the folder, because peers share query rows."""
    kept = folder / "truth.npy" if folder is not None else None
    known = np.load(kept) if kept is not None and kept.exists() else np.empty((0, 2))
    if len(known) < rows:
        qn, qc, rn, rc = matrices(tables)
        names, widths = numeric(tables)
        schema = np.array([names.index(n) if n in names else -1 for n in tables.reference.schema.names])
        fresh = _truth(qn[len(known) : rows], qc[len(known) : rows], rn, rc, widths, schema)
        known = np.concatenate([known, fresh])
        if kept is not None:
            np.save(kept, known)
    return np.asarray(known[:rows])


@numba.njit(cache=True)
def _truth(qn: Any, qc: Any, rn: Any, rc: Any, widths: Any, schema: Any) -> Any:  # pragma: no cover - compiled
    """In the order of the schema: the place among the numeric columns, or -1 for the next nominal one."""
    out = np.full((len(qn), 2), np.inf)
    for i in range(len(qn)):
        for j in range(len(rn)):
            d, nominal = 0.0, 0
            for k in schema:
                if k >= 0:
                    d += min(abs(qn[i, k] - rn[j, k]) / widths[k], 1.0)
                else:
                    d += 1.0 if qc[i, nominal] != rc[j, nominal] else 0.0
                    nominal += 1
            d /= len(schema)
            if d < out[i, 1]:
                out[i, 1] = max(d, out[i, 0])
                out[i, 0] = min(d, out[i, 0])
    return out


def numeric(tables: Case) -> tuple[list[str], Floats]:
    """Numeric columns and their ranges; a constant column counts as nominal, which is the same by the definition."""
    kept = tables.ranges.filter(pa.array(np.asarray(tables.ranges["range"]) > 0))
    return kept["column"].to_pylist(), np.asarray(kept["range"], dtype=np.float64)


def matrices(tables: Case) -> tuple[Floats, npt.NDArray[np.int32], Floats, npt.NDArray[np.int32]]:
    """Query numbers, query codes, reference numbers, reference codes; one code per distinct value of both tables."""
    names, _ = numeric(tables)
    nominal = [n for n in tables.reference.schema.names if n not in names]
    both = pa.concat_tables([tables.query, tables.reference])
    numbers, codes = np.empty((len(both), len(names))), np.empty((len(both), len(nominal)), np.int32)
    for i, name in enumerate(names):
        numbers[:, i] = both[name].to_numpy()
    for i, name in enumerate(nominal):
        codes[:, i] = both[name].combine_chunks().dictionary_encode().indices.to_numpy()
    cut = len(tables.query)
    return numbers[:cut], codes[:cut], numbers[cut:], codes[cut:]


def prepare(tables: Case, folder: Path) -> None:
    """The files peers read: both tables as Parquet, as scaled numbers and codes, and as points of an L1 space."""
    qn, qc, rn, rc = matrices(tables)
    _, widths = numeric(tables)
    lowest = rn.min(axis=0, initial=np.inf)
    qn, rn = (qn - lowest) / widths, (rn - lowest) / widths
    for name, array in (("qn", qn), ("qc", qc), ("rn", rn), ("rc", rc)):
        np.save(folder / f"{name}.npy", np.ascontiguousarray(array))
    np.save(folder / "columns.npy", tables.reference.num_columns)
    np.save(folder / "rows.npy", [len(qn), len(rn)])
    highest = np.concatenate([qc, rc]).max(axis=0, initial=0)
    for name, numbers, codes in (("query", qn, qc), ("reference", rn, rc)):
        np.save(folder / f"{name}.npy", np.hstack([numbers, *paired(codes, highest)]))
    for name, table in (("query", tables.query), ("reference", tables.reference)):
        pq.write_table(table, folder / f"{name}.parquet", compression="zstd")


def paired(codes: npt.NDArray[np.int32], highest: npt.NDArray[np.int32]) -> list[Floats]:
    """Two categories per axis, at +0.5 and -0.5: any two differ by exactly 1 in L1, with half the axes of one-hot."""
    out = []
    for column, last in zip(codes.T, highest, strict=True):
        axes = np.zeros((len(column), last // 2 + 1))
        axes[np.arange(len(column)), column // 2] = np.where(column % 2, -0.5, 0.5)
        out.append(axes)
    return out


class Environment(NamedTuple):
    """An interpreter, and the home directory it writes to."""

    python: Path
    home: Path


def launched(peer: str, arguments: list[str]) -> dict[str, Any]:
    """Run a module for a peer in its environment and read the JSON of its last line."""
    there = environment(peer)
    variables = {**os.environ, **dict.fromkeys(ONE_THREAD, "1")}
    if there is not None:
        variables["HOME"] = str(there.home)
    command = [str(there.python) if there else sys.executable, "-W", "ignore", "-m", *arguments]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise PeerError(f"not done after {LIMIT_S} s") from None
    if done.returncode:
        raise PeerError(f"exit code {done.returncode}: {_last(done.stderr)}")
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def environment(peer: str) -> Environment | None:
    """The environment of a peer, made if it is not there or its pins have changed; None for this interpreter."""
    if peer not in requirements():
        return None
    folder, pins = ENVIRONMENTS / peer, requirements()[peer]
    made, stamp = folder / "pins.sha256", hashlib.sha256(pins.encode()).hexdigest()
    if not made.exists() or made.read_text() != stamp:
        shutil.rmtree(folder, ignore_errors=True)
        uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
        if uv is None:
            raise PeerError("not installed: uv, which makes the environments, is not there")
        _installing([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], "")
        _installing([uv, "pip", "install", "--no-deps", "--python", str(folder / "bin" / "python"), "-r", "-"], pins)
        made.write_text(stamp)
    return Environment(folder / "bin" / "python", folder)


def requirements() -> dict[str, str]:
    """The sections of peers.txt."""
    out: dict[str, str] = {}
    name = ""
    for line in REQUIREMENTS.read_text().splitlines():
        if line.startswith("["):
            name = line.strip("[]")
        elif name and line:
            out[name] = out.get(name, "") + line + "\n"
    return out


def _installing(command: list[str], given: str) -> None:
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PeerError(f"not installed: {' '.join(done.stderr.split())[:240]}")


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1][-240:]


def privacy_block(tiny: bool, peers: Collection[str] = ("daskpriv", "clearbox-sure")) -> dict[str, Any]:
    """CPU seconds of what clearbox-sure computes about privacy on adult, and of the same distances here."""
    rows = 300 if tiny else 24_421
    chosen = [p for p in (INSTALLED[:1] if tiny else ("daskpriv", "clearbox-sure")) if p in peers]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tables = {role: pq.read_table(PACKAGED / f"{role}.parquet").slice(0, rows) for role in ("train", "holdout")}
        tables["synthetic"] = pq.read_table(PACKAGED / "synthetic_good.parquet").slice(0, rows)
        attacked = min(int(0.1 * (len(tables["train"]) + len(tables["holdout"]))), len(tables["holdout"]))
        tables["attack"] = pa.concat_tables([tables[role].slice(0, attacked) for role in ("train", "holdout")])
        for role, table in tables.items():
            pq.write_table(table, folder / f"{role}.parquet", compression="zstd")
        program = "benchmarks.peer_programs.block"
        return _each(chosen, tiny, lambda peer: launched(peer, [program, str(folder), peer]))


def lines(results: dict[str, Any]) -> list[str]:
    """Results as a table of text."""
    heads = f"{'':<28}{'Mpairs/s':>10}{'w. build':>10}{'build s':>9}{'rows':>7} k {'error':>9}{'wrong':>8}  own ranges"
    out = [heads]
    for name, peers in results.items():
        for peer, r in peers.items():
            if not isinstance(r, dict) or "mpairs_per_s" not in r:
                out.append(f"{name + ' ' + peer:<28}  {r}")
                continue
            out.append(
                f"{name + ' ' + peer:<28}{r['mpairs_per_s']:>10.4g}{r['mpairs_per_s_with_build']:>10.4g}"
                f"{r['build_s']:>9.3f}{r['query_rows']:>7} {r['k']} {r['max_error']:>9.1e}{r['share_wrong']:>8.2%}"
                + (f"  {r['max_error_own_ranges']:.1e}" if "max_error_own_ranges" in r else "")
            )
    return out


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: list[str]) -> None:
    tiny, names = "--tiny" in arguments, [a for a in arguments if a != "--tiny"]
    unknown = set(names) - {*CASES, BLOCK, *PEERS, *UNAVAILABLE}
    if unknown:
        sys.exit(f"neither a case nor a peer: {', '.join(sorted(unknown))}")
    found = run(tiny, names)
    print(json.dumps({"benchmark": "peers", "tiny": tiny, **found}))
    print("\n".join(lines(found)))


if __name__ == "__main__":
    main(sys.argv[1:])
