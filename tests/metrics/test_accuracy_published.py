"""Published total variation distances, reproduced for every set of columns of every generator."""

from __future__ import annotations

import csv
import functools
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import daskpriv
from daskpriv.evidence import SYNTHETIC, Evidence, Facts, Margin, Margins
from daskpriv.protocol import Answers, Result

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
SHARED = Path(__file__).parents[3] / "shared" / "data"
pytestmark = pytest.mark.published
NUMBERS = {"tvd": "tvd", "hellinger": "hellinger", "jensen_shannon": "jensen_shannon"} | {
    "mae": "mean_deviation",
    "max": "max_deviation",
}


@dataclass(frozen=True)
class Counted:
    """A metric that hands its margins over; it could be anybody's."""

    name: ClassVar[str] = "counted"
    margins: tuple[Margins, ...]

    def needs(self, facts: Facts) -> Sequence[Margins]:
        return self.margins

    def begin(self, facts: Facts) -> Facts:
        return facts

    def chunk(self, state: Facts, evidence: Evidence) -> None:
        return None

    def combine(self, a: None, b: None) -> None:
        return None

    def advance(self, state: Facts, partial: None, answers: Answers) -> Result:
        return Result(0.0, details={"names": state.names}, internal={"margins": {m: answers[m] for m in self.margins}})


def margins(train: Path, synthetic: Path, *sizes: tuple[int, int]) -> tuple[list[Margin], tuple[str, ...]]:
    """Margins of (order, buckets) in the paper's way, and the names of the columns."""
    wanted = tuple(Margins(order, buckets, "paper") for order, buckets in sizes)
    report = daskpriv.evaluate(train, synthetic, preset="mostly-paper", metrics=[Counted(wanted)])
    found = report.metrics["counted"]
    return [found.internal["margins"][m] for m in wanted], found.details["names"]


@functools.cache
def lines_2023() -> dict[tuple[str, str], list[dict[str, str]]]:
    out: dict[tuple[str, str], list[dict[str, str]]] = {}
    if SHARED.is_dir():
        with gzip.open(SHARED / "golden" / "fidelity_2023.csv.gz", "rt") as text:
            for line in csv.DictReader(text):
                out.setdefault((line["dataset"], line["synthesizer"]), []).append(line)
    return out


@pytest.mark.parametrize("dataset", ["adult", "bank-marketing"])
def test_every_distance_of_2023(shared: Path, dataset: str) -> None:
    """Of 10 tables each; for three columns, the sample that was published."""
    compared = 0
    for (of, generator), lines in lines_2023().items():
        if of != dataset:
            continue
        file = "holdout" if generator == "HOLDOUT" else f"syn_2023-{generator}"
        found, names = margins(
            shared / dataset / "train.parquet", shared / dataset / f"{file}.parquet", (1, 10), (2, 10), (3, 5)
        )
        ours = {
            frozenset(names[c] for c in line): tvd
            for margin in found
            for line, tvd in zip(margin.columns, margin.compared[SYNTHETIC].tvd, strict=True)
        }
        for line in lines:
            columns = frozenset(line[d] for d in ("dim1", "dim2", "dim3") if line[d])
            assert ours[columns] == pytest.approx(float(line["tvd"]), abs=1e-12), (generator, columns)
        compared += len(lines)
    assert compared == {"adult": 5750, "bank-marketing": 8330}[dataset]


def check_2021(rows: Sequence[dict[str, Any]], train: Path, synthetic: Path) -> None:
    sizes = {1: (1, 100), 2: (2, 10), 3: (3, 5)}
    found, _ = margins(train, synthetic, *(sizes[r["k"]] for r in rows))
    for row, margin in zip(rows, found, strict=True):
        assert len(margin.columns) == margin.of_how_many == row["n_combos"]
        for theirs, ours in NUMBERS.items():
            assert np.mean(getattr(margin.compared[SYNTHETIC], ours)) == pytest.approx(row[theirs], abs=1e-12), theirs


@pytest.mark.parametrize(
    ("generator", "file"), [("mostly", "synthetic_good"), ("synthpop", "synthetic_leaky"), ("val", "holdout")]
)
def test_means_of_2021(adult: Path, generator: str, file: str) -> None:
    rows = json.loads((GOLDEN / "paper2021_fidelity.json").read_text())["rows"]
    some = [r for r in rows if r["synthesizer"] == generator]
    assert len(some) == 3
    check_2021(some, adult / "train.parquet", adult / f"{file}.parquet")


@pytest.mark.parametrize("dataset", ["adult", "bank-marketing"])
@pytest.mark.parametrize("generator", ["ctgan", "flip50", "mostly_e4", "val"])
def test_means_of_2021_of_other_generators(shared: Path, dataset: str, generator: str) -> None:
    rows = json.loads((shared / "golden" / "paper2021_fidelity.json").read_text())["rows"]
    some = [r for r in rows if (r["dataset"], r["synthesizer"]) == (dataset, generator)]
    assert len(some) == 3
    file = "holdout" if generator == "val" else f"syn_{generator}"
    check_2021(some, shared / dataset / "train.parquet", shared / dataset / f"{file}.parquet")


@pytest.mark.parametrize("dataset", ["adult/mostly", "adult/synthpop", "bank-marketing/synthpop"])
@pytest.mark.parametrize("fit", ["trn+hol", "trn only"])
def test_accuracies_of_mostlyai_qa(shared: Path, dataset: str, fit: str) -> None:
    """That tool rounds the accuracy of every set of columns to five decimals; its triples have ten buckets, too.

    Given a holdout, it takes both together for train.
    """
    calls = json.loads((shared / "golden" / "mostlyai_qa.json").read_text())["cases"][f"data/{dataset}"]["calls"]
    wanted = next(found for call, found in calls.items() if fit in call)
    folder, generator = (shared / dataset).parent, dataset.split("/")[1]
    margins = tuple(Margins(order, 10, "mostlyai-qa") for order in (1, 2, 3))
    train = [folder / f"{t}.parquet" for t in (("train", "holdout") if fit == "trn+hol" else ("train",))]
    report = daskpriv.evaluate(train, folder / f"syn_{generator}.parquet", metrics=[Counted(margins)])
    found = report.metrics["counted"]
    names, answers = found.details["names"], found.internal["margins"]
    for margin, number in zip(margins, ("univariate", "bivariate", "trivariate"), strict=True):
        ours = np.round(1 - answers[margin].compared[SYNTHETIC].tvd, 5)
        if number == "univariate":
            assert dict(zip(names, ours.tolist(), strict=True)) == {c: v[0] for c, v in wanted["per_column"].items()}
        if number in wanted:
            assert np.mean(ours) == pytest.approx(wanted[number], abs=1e-9), number
            # What it expects of chance is the law of normal differences: too little for sparse cells.
            by_chance = 1 - np.mean(answers[margin].compared[SYNTHETIC].expected)
            assert wanted[f"{number}_max"] - 1e-3 < by_chance < wanted[f"{number}_max"] + 1e-5, number
