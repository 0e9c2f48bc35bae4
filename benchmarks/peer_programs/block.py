"""`python -m benchmarks.peer_programs.block FOLDER PEER`: the privacy block of clearbox-sure, or our twin of it.

The block: distances of synthetic rows to train and to holdout, their statistics, clones, the share closer to train, and
a membership attack that measures a fifth of the real rows, half of them from train, against the synthetic table.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peer_programs.search import pin

ROLES = ("train", "holdout", "synthetic")


def sure(folder: Path) -> dict[str, float]:
    """The functions in the order of its tutorial, on frames in memory, without its parallel processes."""
    pandas, privacy = import_module("pandas"), import_module("sure.privacy")
    frames = {name: pandas.read_parquet(folder / f"{name}.parquet") for name in ROLES}
    quiet: dict[str, Any] = {"save_data": False}
    begun = time.process_time()
    distances = {}
    for name, role in (("synth_train", "train"), ("synth_val", "holdout")):
        found = privacy.distance_to_closest_record(name, frames["synthetic"], frames[role], parallel=False, **quiet)
        privacy.dcr_stats(name, found, **quiet)
        privacy.number_of_dcr_equal_to_zero(name, found, **quiet)
        distances[role] = found
    searched = time.process_time()
    share = privacy.validation_dcr_test(distances["train"], distances["holdout"], **quiet)
    attack = import_module("sure.privacy").adversary_dataset(frames["train"], frames["holdout"], 0.2)
    truth = attack["privacy_test_is_training"]
    privacy.membership_inference_test(attack, frames["synthetic"], truth, parallel=False, **quiet)
    end = time.process_time()
    return {
        "cpu_s": end - begun,
        "distances_cpu_s": searched - begun,
        "mean_distance": float(np.mean(distances["train"], dtype=np.float64)),
        "share": float(share["percentage"]) / 100,
    }


def ours(folder: Path) -> dict[str, float]:
    """The same distances from files, with our tests in place of its; once on few rows to load the compiled kernels."""
    daskpriv, parquet = import_module("daskpriv"), import_module("pyarrow.parquet")
    (folder / "few").mkdir()
    for name in (*ROLES, "attack"):
        few = parquet.read_table(folder / f"{name}.parquet").slice(0, 300)
        parquet.write_table(few, folder / "few" / f"{name}.parquet")
    import_module("scipy.stats")  # loaded on first need otherwise: start-up, which is not timed
    _ours(daskpriv, folder / "few")
    begun = time.process_time()
    measures, attack = _ours(daskpriv, folder)
    end = time.process_time()
    return {
        "cpu_s": end - begun,
        "distances_cpu_s": attack - begun,
        "mean_distance": measures["dcr"].details["synthetic->train"]["mean"],
        "share": measures["dcr_share"].details["share_strict"],
    }


def _ours(daskpriv: Any, folder: Path) -> tuple[Any, float]:
    paths = {name: str(folder / f"{name}.parquet") for name in ROLES}
    report = daskpriv.evaluate(**paths, metrics=["dcr", "clones", "dcr_share"])
    evaluated = time.process_time()
    daskpriv.nearest_neighbours(str(folder / "attack.parquet"), paths["synthetic"], k=1, fit="both")
    return report.metrics, evaluated


if __name__ == "__main__":
    pin()
    print(json.dumps({"clearbox-sure": sure, "daskpriv": ours}[sys.argv[2]](Path(sys.argv[1]))))
