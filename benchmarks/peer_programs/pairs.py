"""`python -m benchmarks.peer_programs.pairs FOLDER PEER ROWS COLUMN...`: all pairs of some columns, one JSON line.

Reading is not timed; finding buckets and filling them is `prepare_s`, comparing the pairs is `compare_s`, both in CPU
seconds of one core.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.peer_programs.search import pin

BUCKETS = 10
SAMPLED = 50_000
CALL = "daskpriv-call"
Codes = dict[str, npt.NDArray[np.int64]]


class Compared(NamedTuple):
    """What a peer found, in the order of the pairs; `distances` are TVDs where the peer has them."""

    prepare_s: float
    compare_s: float
    combinations: int
    distances: list[float]


def main(folder: Path, peer: str, rows: int, columns: Sequence[str]) -> None:
    pin()
    if peer == CALL:
        print(json.dumps(call(folder)._asdict()))
        return
    pandas = import_module("pandas")
    train, synthetic = (
        pandas.read_parquet(folder / f"{n}.parquet", columns=list(columns)) for n in ("train", "synthetic")
    )
    print(json.dumps(PEERS[peer](train.head(rows), synthetic.head(rows))._asdict()))


def call(folder: Path) -> Compared:
    """The public call on the files, reading, buckets and report included; once on few rows to load the kernels."""
    daskpriv, parquet = import_module("daskpriv"), import_module("pyarrow.parquet")
    accuracy, few = import_module("daskpriv.metrics").Accuracy(orders=(2,)), folder / "few"
    few.mkdir(exist_ok=True)
    for name in ("train", "synthetic"):
        parquet.write_table(
            parquet.ParquetFile(folder / f"{name}.parquet").read_row_group(0)[:200], few / f"{name}.parquet"
        )
    for place in (few, folder):
        begun = time.process_time()
        files = {name: str(place / f"{name}.parquet") for name in ("train", "synthetic")}
        daskpriv.evaluate(**files, metrics=[accuracy], output=str(place / "out"), internal=True)
        spent = time.process_time() - begun
    found = parquet.read_table(folder / "out" / "internal" / "accuracy.parquet")
    return Compared(0.0, spent, found.num_rows, found["synthetic_tvd"].to_pylist())


def mostly(train: Any, synthetic: Any, compared: str = "calculate_bivariates") -> Compared:
    """The functions that its report calls, on all rows as it does by default; its buckets are ten and a few more."""
    module = import_module("mostlyai.qa._accuracy")
    train, synthetic = (t.rename(columns=lambda n: f"tgt::{n}") for t in (train, synthetic))
    begun = time.process_time()
    real, buckets = module.bin_data(train, BUCKETS)
    made, _ = module.bin_data(synthetic, buckets)
    prepared = time.process_time()
    with import_module("joblib").parallel_config(n_jobs=1):
        found = getattr(module, compared)(real, made)
    end = time.process_time()
    found = found.head(len(found) // 2) if compared == "calculate_bivariates" else found  # each pair comes twice
    return Compared(prepared - begun, end - prepared, len(found), [1 - float(a) for a in found["accuracy"]])


def mostly_triples(train: Any, synthetic: Any) -> Compared:
    """The same for triples, of which it takes 10 000 at random where there are more."""
    return mostly(train, synthetic, "calculate_trivariates")


def sdmetrics(train: Any, synthetic: Any, sampled: int | None = None) -> Compared:
    """Its quality report, which finds its buckets within the property and correlates two numeric columns."""
    report = import_module("sdmetrics.reports.single_table").QualityReport()
    report.num_rows_subsample = sampled
    numeric = import_module("pandas").api.types.is_numeric_dtype
    metadata = {"columns": {n: {"sdtype": "numerical" if numeric(train[n]) else "categorical"} for n in train}}
    begun = time.process_time()
    report.generate(train, synthetic, metadata, verbose=False)
    end = time.process_time()
    return Compared(0.0, end - begun, len(report.get_details("Column Pair Trends")), [])


def sdmetrics_sampled(train: Any, synthetic: Any) -> Compared:
    """As it comes: pairs with a categorical column on a sample."""
    return sdmetrics(train, synthetic, SAMPLED)


def crosstab(train: Any, synthetic: Any) -> Compared:
    """The loop that a reader writes in pandas."""
    table = import_module("pandas").crosstab

    def distance(a: Codes, b: Codes, x: str, y: str) -> float:
        first, second = (table(t[x], t[y], normalize="all") for t in (a, b))
        first, second = first.align(second, fill_value=0.0)
        return float(first.sub(second, fill_value=0.0).abs().to_numpy().sum()) / 2

    return _looped(train, synthetic, distance)


def bincount(train: Any, synthetic: Any) -> Compared:
    """The loop that a reader who knows numpy writes."""

    def distance(a: Codes, b: Codes, x: str, y: str) -> float:
        wide = max(a[y].max(), b[y].max()) + 1
        cells = int(max(a[x].max(), b[x].max()) + 1) * int(wide)
        first, second = (np.bincount(t[x] * wide + t[y], minlength=cells) / len(t[x]) for t in (a, b))
        return float(np.abs(first - second).sum()) / 2

    return _looped(train, synthetic, distance)


def _looped(train: Any, synthetic: Any, distance: Callable[[Codes, Codes, str, str], float]) -> Compared:
    begun = time.process_time()
    coded = [_bucketed(train[name], synthetic[name]) for name in train]
    a, b = ({n: c[i] for n, c in zip(train, coded, strict=True)} for i in (0, 1))
    prepared = time.process_time()
    found = [distance(a, b, x, y) for x, y in combinations(train, 2)]
    return Compared(prepared - begun, time.process_time() - prepared, len(found), found)


def _bucketed(real: Any, made: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Codes by the rule of `accuracy`: deciles of train, (a, b], or the 9 commonest categories; other; missing."""
    if import_module("pandas").api.types.is_numeric_dtype(real):
        edges = np.unique(np.quantile(real.dropna().to_numpy(), np.linspace(0, 1, BUCKETS + 1)))
        return _cut(real.to_numpy(np.float64), edges), _cut(made.to_numpy(np.float64), edges)
    counts = real.value_counts().rename_axis("name").reset_index(name="rows")
    common = counts.sort_values(["rows", "name"], ascending=[False, True])["name"][: BUCKETS - 1].tolist()
    code = {name: i for i, name in enumerate(common)}
    return _named(real, code), _named(made, code)


def _cut(values: npt.NDArray[np.float64], edges: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    codes = np.maximum(np.searchsorted(edges, values, side="left") - 1, 0)
    codes[(values < edges[0]) | (values > edges[-1])] = len(edges)
    codes[np.isnan(values)] = len(edges) + 1
    return codes


def _named(values: Any, code: dict[str, int]) -> npt.NDArray[np.int64]:
    codes = values.map(code).fillna(len(code)).to_numpy(np.int64)
    return np.where(values.isna(), len(code) + 1, codes)


def kernel(train: Any, synthetic: Any) -> Compared:
    """From the same codes as the loops, to every number that `accuracy` tells of a pair, noise included."""
    count = import_module("daskpriv.kernels.planes").count_small
    deviations = import_module("daskpriv.stats.fidelity").deviations
    coded = [_bucketed(train[name], synthetic[name]) for name in train]
    tables = [np.array([c[i] for c in coded], np.uint8) for i in (0, 1)]
    widths = np.array([max(a.max(), b.max()) + 1 for a, b in coded], np.int64)
    pairs = np.array(list(combinations(range(len(widths)), 2)), np.int64)
    starts = np.concatenate([[0], np.cumsum(np.prod(widths[pairs], axis=1))])

    def compared(rows: int) -> Any:
        counts = []
        for table in tables:
            counts.append(np.zeros(starts[-1], np.int64))
            count(np.ascontiguousarray(table[:, :rows]), widths, pairs, starts, counts[-1])
        return deviations(counts[1], counts[0], starts, (rows, rows)).tvd

    compared(10)  # loads the compiled kernels
    begun = time.process_time()
    found = compared(len(train))
    return Compared(0.0, time.process_time() - begun, len(pairs), found.tolist())


PEERS: dict[str, Callable[[Any, Any], Compared]] = {
    "daskpriv-kernel": kernel,
    "pandas-crosstab": crosstab,
    "numpy-bincount": bincount,
    "mostlyai-qa": mostly,
    "mostlyai-qa-triples": mostly_triples,
    "sdmetrics": sdmetrics,
    "sdmetrics-sampled": sdmetrics_sampled,
}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:])
