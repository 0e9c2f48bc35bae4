"""Boosted trees on the workers of a cluster: rows stay where they are read."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import dask
import dask.array as da
import numpy as np
from distributed import Client
from numpy.typing import NDArray

from daskpriv.engine.published import value_of
from daskpriv.engine.sources import BlockSource
from daskpriv.errors import DaskprivError, RunError
from daskpriv.space.encoding import Encoding
from daskpriv.tables.table import Part
from daskpriv.utility.features import Features
from daskpriv.utility.models import ROUNDS, Predict, boosted, boosting_options
from daskpriv.utility.target import Target


def boosted_on(
    client: Client, sources: Sequence[BlockSource], features: Features, target: Target, seed: int
) -> Predict:
    """Fit to all rows of a table that have a target.

    Sums of gradients depend on how rows lie on workers, so that other layouts give other last bits.

    Raises
    ------
    RunError
        When the cluster cannot.
    """
    encoding = dask.delayed(sources[0].encoding.get(), pure=True, traverse=False)
    wanted = dask.delayed((features, target), pure=True, traverse=False)
    width = len(features.columns)
    blocks = [
        da.from_delayed(
            dask.delayed(_numbers)(dask.delayed(value_of(s.part), traverse=False), encoding, wanted),
            (s.rows, width + 2),
            np.float32,
        )
        for s in sources
    ]
    rows = da.concatenate(blocks)
    try:
        import xgboost.dask

        # xgboost asks Dask for the current client, whichever it is given.
        with client.as_current(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the graph of a frame in memory is large
            held = xgboost.dask.DaskQuantileDMatrix(
                client,
                rows[:, :width],
                rows[:, width],
                weight=rows[:, width + 1],
                feature_types=features.kinds,
                enable_categorical=True,
            )
            found = xgboost.dask.train(client, boosting_options(target.classes, seed), held, ROUNDS)
    except DaskprivError:
        raise
    except Exception as error:
        raise RunError(
            f"utility: boosting on the cluster failed ({type(error).__name__}); check that every worker has "
            "daskpriv[utility], or run without a cluster."
        ) from None
    return boosted(found["booster"], target.classes, features.kinds)


def _numbers(part: Part, encoding: Encoding, wanted: tuple[Features, Target]) -> NDArray[Any]:
    """Features, target and weight of the rows of a part, float32 (n, p + 2); rows without a target weigh nothing."""
    features, target = wanted
    block = encoding.encode(part)
    y = target.of(block)
    known = ~np.isnan(y)
    return np.column_stack([features.plain(block), np.where(known, y, 0.0), known]).astype(np.float32)
