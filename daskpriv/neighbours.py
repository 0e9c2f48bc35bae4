"""Nearest neighbours for everyone: the engine without metrics."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskpriv.cluster.driver import Dask
from daskpriv.cluster.frames import lazy_columns
from daskpriv.errors import InputError
from daskpriv.events import Listener, silent
from daskpriv.evidence import Neighbours
from daskpriv.prepare import Columns, encode, spaces_for, survey
from daskpriv.runs import kept_while_used
from daskpriv.session import engine_for, executor_for, open_any, whole
from daskpriv.space.gower import Missing, RangeFrom, SpaceOptions
from daskpriv.tables.schema import Schema

_SMALL = 1_000_000  # neighbours; more of them stay on the workers instead of passing through the scheduler


class Computed(np.ndarray[Any, Any]):
    """A NumPy array that also answers `.compute()`, so that small and large work read alike."""

    def compute(self) -> np.ndarray[Any, Any]:
        """The plain array."""
        return np.asarray(self)


@dataclass(frozen=True, eq=False)
class NearestNeighbours:
    """The k nearest reference rows of every query row.

    Attributes
    ----------
    distance : float64 (n, k)
        Ascending; +inf where the reference has fewer than k rows. NumPy for small work, else a Dask array.
    row : int64 (n, k)
        Reference row ids in the order (distance, id); -1 where the reference has fewer than k rows.
    ties : int64 (n,)
        Reference rows at exactly distance[:, 0].
    warnings : tuple of str
        What was noticed about the tables, such as a column left out because it looks like an id.
    """

    distance: Any
    row: Any
    ties: Any
    warnings: tuple[str, ...] = ()

    def compute(self) -> NearestNeighbours:
        """The same with NumPy arrays."""
        distance, row, ties = (np.asarray(a.compute()) for a in (self.distance, self.row, self.ties))
        return NearestNeighbours(distance, row, ties, self.warnings)


def nearest_neighbours(
    query: Any,
    reference: Any,
    k: int = 2,
    *,
    columns: Sequence[str] | None = None,
    exclude_self: bool = False,
    schema: Schema | str | os.PathLike[str] | None = None,
    fit: Any = None,
    client: Any = None,
    block_rows: int | None = None,
    missing: str = "level",
    weights: dict[str, float] | None = None,
    progress: Listener = silent,
) -> NearestNeighbours:
    """Exact Gower nearest neighbours between two tables of mixed columns.

    Parameters
    ----------
    query, reference : path, URL, glob, list of them, or a frame
    k : int
        How many neighbours.
    columns : sequence of str, optional
        Compare only these.
    exclude_self : bool
        Query and reference are one table: a row is never its own neighbour (by id, not by value).
    schema : Schema or path, optional
    fit : table, list of tables, "query", "reference" or "both", optional
        The tables that give numeric columns their range; default the reference.
    client : distributed.Client, optional
    block_rows : int, optional
        Rows per block; no choice changes the result.
    missing : {"level", "gower", "max", "anonymeter", "clearbox"}
        What a missing cell means.
    weights : {column: weight}, optional
    progress : callable, optional
        Called with every event of the run.

    Returns
    -------
    NearestNeighbours

    Examples
    --------
    >>> import pandas as pd, daskpriv
    >>> real = pd.DataFrame({"age": [20, 40, 60], "city": ["Graz", "Linz", "Linz"]})
    >>> nn = daskpriv.nearest_neighbours(real.head(1), real, k=2)
    >>> nn.distance.tolist(), nn.row.tolist()
    ([[0.0, 0.75]], [[0, 1]])
    """
    k = whole(k, "k")
    try:
        options = SpaceOptions(Missing(missing), RangeFrom.REAL)
    except ValueError:
        raise InputError(f"missing must be one of {', '.join(Missing)}.") from None
    tables = {"reference": open_any(reference, "reference")}
    tables["query"] = open_any(query, "query", tables["reference"])
    fitted, extra = _fit(fit)
    for i, source in enumerate(extra):
        tables[f"fit {i + 1}"] = open_any(source, f"fit {i + 1}", tables["reference"])
    fit_names = fitted or tuple(f"fit {i + 1}" for i in range(len(extra)))
    for name, table in tables.items():
        if table.rows < 1:
            raise InputError(f"{name}: 0 row(s), a search needs at least 1.")
    if exclude_self and tables["query"].rows != tables["reference"].rows:
        raise InputError("exclude_self: query and reference must be the same table, but their numbers of rows differ.")
    described = Schema.load(schema) if isinstance(schema, (str, os.PathLike)) else schema
    narrowed = Columns(described, columns, weights=weights)
    with executor_for(client, progress) as executor, kept_while_used(executor) as store:
        engine = engine_for(executor, tables, block_rows, progress)
        engine.store = store
        if exclude_self:
            engine.same = frozenset({("query", "reference")})
        surveyed = survey(engine, tables, narrowed, ("reference",))
        prepared = spaces_for(engine, surveyed, encode(engine, surveyed, ("query", "reference"), k), options, fit_names)
        lists = engine.search([Neighbours("query", "reference", k)], prepared.blocks, prepared.spaces)
        answers = lists["query", "reference"]
        if isinstance(executor, Dask) and store.reachable and tables["query"].rows * k > _SMALL:
            sizes = prepared.blocks["query"].sizes
            return NearestNeighbours(*lazy_columns(store, answers, sizes, k), surveyed.warnings)
        parts = [x.load(store) for x in answers]
    joined = (np.concatenate([getattr(p, name) for p in parts]) for name in ("distance", "row", "ties"))
    distance, row, ties = (a.view(Computed) for a in joined)
    return NearestNeighbours(distance, row, ties, surveyed.warnings)


def _fit(fit: Any) -> tuple[tuple[str, ...], list[Any]]:
    """Names of tables that are already open, or sources still to be opened."""
    named = {"reference": ("reference",), "query": ("query",), "both": ("query", "reference")}
    if fit is None:
        return ("reference",), []
    if isinstance(fit, str) and fit in named:
        return named[fit], []
    return (), list(fit) if isinstance(fit, (list, tuple)) else [fit]
