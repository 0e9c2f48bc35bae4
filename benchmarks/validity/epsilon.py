"""V8: the lower bound on epsilon, for mechanisms whose epsilon is known, after a split by `daskpriv split`."""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

import daskpriv
from benchmarks.validity import trials
from benchmarks.validity.trials import Asked, Outcome, Rate
from benchmarks.validity.worlds import Generator, rng_of

HELP = "V8: how often the bound on epsilon is above it"
_PLACES, _JOBS = 50, 40
Frame = pd.DataFrame


def add_options(parser: argparse.ArgumentParser) -> None:
    """What this study takes."""
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--mechanism", nargs="+", default=list(MECHANISMS), choices=tuple(MECHANISMS))
    parser.add_argument("--epsilon", nargs="+", type=float, default=[0.5, 1.0, 2.0, 4.0])
    parser.add_argument("--n", type=int, default=1000, help="real rows, train and holdout together")


def smooth(rows: int, rng: Generator) -> Frame:
    """Rows of which no two are alike."""
    x = rng.standard_normal((rows, 3))
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 0] + x[:, 1], "c": np.exp(x[:, 2])})


def cells(rows: int, rng: Generator) -> Frame:
    """Rows of two categories: about half as many rows as cells for 1 000 rows."""
    return pd.DataFrame(
        {
            "place": _names("place", rng.integers(_PLACES, size=rows)),
            "job": _names("job", rng.integers(_JOBS, size=rows)),
        }
    )


def _names(word: str, numbers: np.ndarray) -> list[str]:
    return [f"{word} {i:02d}" for i in numbers]


def randomised_response(real: Frame, is_train: np.ndarray, epsilon: float, rng: Generator) -> Frame:
    """Every row that could be in train is released, or not, by a coin that tells the truth with odds e^epsilon."""
    truth = rng.random(len(real)) < math.exp(epsilon) / (1 + math.exp(epsilon))
    return real[is_train == truth]


def laplace_histogram(real: Frame, is_train: np.ndarray, epsilon: float, rng: Generator) -> Frame:
    """Counts of all cells plus Laplace noise of scale 1 / epsilon, rounded, each cell as often as its count says."""
    every = pd.MultiIndex.from_product([_names("place", np.arange(_PLACES)), _names("job", np.arange(_JOBS))])
    counts = real[is_train].value_counts(["place", "job"]).reindex(every, fill_value=0).to_numpy()
    noisy = np.maximum(np.rint(counts + rng.laplace(0, 1 / epsilon, len(counts))), 0).astype(int)
    return every.repeat(noisy).to_frame(index=False, name=["place", "job"])


Mechanism = Callable[[Frame, np.ndarray, float, Generator], Frame]
MECHANISMS: dict[str, tuple[Callable[[int, Generator], Frame], Mechanism]] = {
    "randomised response": (smooth, randomised_response),
    "Laplace histogram": (cells, laplace_histogram),
}


def trial(asked: Asked) -> Outcome:
    """A fair split, what the mechanism releases of it, and the bound."""
    name, epsilon, n, number = asked
    rng = rng_of(8, number, name, round(1000 * epsilon))
    source, mechanism = MECHANISMS[name]
    real = source(n, rng).assign(id=np.arange(n))
    with tempfile.TemporaryDirectory(prefix="daskpriv-") as folder:
        daskpriv.split(real, folder, seed=int(rng.integers(2**62)))
        train, holdout = (pd.read_parquet(Path(folder) / side) for side in ("train", "holdout"))
        synthetic = mechanism(real.drop(columns="id"), np.isin(real["id"], train["id"]), epsilon, rng)
        report = daskpriv.evaluate(
            train,
            synthetic.assign(id=0),
            holdout,
            seed=number,
            metrics=["exposure"],
            exclude=["id"],
            split=Path(folder) / "split.json",
        )
    return {"bound": report.metrics["exposure"].details["epsilon"]["lower_bound"]}


def run(options: argparse.Namespace) -> None:
    """Every mechanism and epsilon."""
    for name in options.mechanism:
        for epsilon in options.epsilon:
            asked = [(name, epsilon, options.n, i) for i in range(options.trials)]
            print(told(name, epsilon, trials.run("epsilon", trial, asked, options)), flush=True)


def told(name: str, epsilon: float, outcomes: list[Outcome]) -> str:
    """One line: how often the bound is too large, and how sharp it is."""
    bounds = np.array([o["bound"] for o in outcomes])
    above = Rate.of(bounds > epsilon)
    return (
        f"V8 {name}, epsilon {epsilon:g}, {len(bounds)} runs: bound above epsilon in {above}, goal at most 5 %  "
        f"{above.within(most=0.05)}; median bound {np.median(bounds):.2f}, largest {bounds.max():.2f}  "
        f"{trials.spent(outcomes)}"
    )
