"""Metrics that need models and whole tables, not distances: `utility` and `discriminator`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from daskpriv.cluster.boosting import boosted_on
from daskpriv.cluster.driver import Dask
from daskpriv.engine.executor import available_memory
from daskpriv.engine.run import Engine
from daskpriv.errors import InputError, PlanError
from daskpriv.events import StageStarted, TaskDone
from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Facts, Role
from daskpriv.prepare import Surveyed
from daskpriv.protocol import MODELLED, Result
from daskpriv.space.block import Block
from daskpriv.tables.table import Table
from daskpriv.tables.types import Kind
from daskpriv.utility.discriminating import DISCRIMINATOR, discriminator
from daskpriv.utility.features import Features
from daskpriv.utility.models import Predict, check_installed, seed_of
from daskpriv.utility.target import Target, fit_target
from daskpriv.utility.trained import UTILITY, Run, utility

# Rows of a table that models are fitted to in this process: more would change scores less than intervals are wide.
MOST_ROWS = 2**17
_LEAST_ROWS = 2**10
# Per row and encoded column while a model is fitted, in half of the free memory: two tables, and copies of them.
_CELL_BYTES = 64


@dataclass(frozen=True)
class Models:
    """Which of these metrics are wanted, and what is to be predicted."""

    names: tuple[str, ...] = ()
    target: str | None = None

    def __post_init__(self) -> None:
        if self.target is not None and (not isinstance(self.target, str) or not self.target):
            raise InputError("target: give the name of one column.")
        if UTILITY in self.names and self.target is None:
            raise InputError(f"{UTILITY}: name the column that models are to predict (--target COLUMN, target=).")
        if self.names:
            check_installed(self.names[0])

    def check(self, tables: Mapping[Role, Table], subject_key: str | None, left_out: Collection[str]) -> None:
        """What the footers and options tell already."""
        if UTILITY not in self.names:
            return
        if HOLDOUT not in tables:
            raise InputError(
                f"{UTILITY}: models are tested on real rows that nobody trained on; give a holdout (`daskpriv split`)."
            )
        for name, table in tables.items():
            if name in (TRAIN, HOLDOUT, SYNTHETIC) and self.target not in table.schema.names:
                raise InputError(f"target: {name} has no column {self.target!r}; check the spelling.")
        if self.target == subject_key:
            raise InputError(
                f"target: {self.target!r} is the subject key, which says who somebody is; name another column."
            )
        if self.target in left_out:
            raise InputError(f"target: {self.target!r} is excluded; name another column or do not exclude it.")


def parted(metrics: Any, target: str | None) -> tuple[Any, Models]:
    """The metrics of distances, which may be none, and those of models. A target asks for `utility`.

    >>> parted("dcr,discriminator", None)
    (['dcr'], Models(names=('discriminator',), target=None))
    """
    listed = [n.strip() for n in metrics.split(",")] if isinstance(metrics, str) else metrics
    if not isinstance(listed, Sequence):
        return metrics, Models((UTILITY,) if target is not None else (), target)
    asked = {n for n in listed if isinstance(n, str)} | ({UTILITY} if target is not None else set())
    names = tuple(n for n in MODELLED if n in asked)
    rest = [n for n in listed if not (isinstance(n, str) and n in MODELLED)]
    if len(rest) == len(listed):
        return metrics, Models(names, target)
    return (rest[0] if rest in (["default"], ["all"]) else rest), Models(names, target)


def check_models(surveyed: Surveyed, models: Models) -> None:
    """Refuse a target that nothing can be learnt from, and tables too wide for the memory, before any search."""
    if UTILITY in models.names:
        target_of(surveyed, models)
    if models.names:
        rows_here(Features.fit(surveyed.encoding, surveyed.by_column[TRAIN]).width, available_memory())


def modelled(engine: Engine, surveyed: Surveyed, models: Models, facts: Facts) -> dict[str, Result]:
    """The results of the metrics that were asked for."""
    out = {}
    run = Run(facts.seed, facts.level)
    if UTILITY in models.names:
        out[UTILITY] = _utility(engine, surveyed, target_of(surveyed, models), run, facts)
    if DISCRIMINATOR in models.names:
        out[DISCRIMINATOR] = _discriminator(engine, surveyed, run, facts)
    return out


def target_of(surveyed: Surveyed, models: Models) -> Target:
    """The target, checked against what the tables hold."""
    name = models.target
    code = next((c for c in surveyed.encoding.columns if c.name == name), None)
    if code is None:
        is_id = any(c.name == name and c.kind is Kind.ID for c in surveyed.schema.columns)
        why = (
            "is an id: nearly every row has a value of its own"
            if is_id
            else "is not among the columns that are compared"
        )
        raise InputError(f"target: column {name!r} {why}; name another column or declare its kind in a schema.")
    return fit_target(code, {t: surveyed.summaries[t].columns[code.name] for t in (TRAIN, HOLDOUT, SYNTHETIC)})


def _utility(engine: Engine, surveyed: Surveyed, target: Target, run: Run, facts: Facts) -> Result:
    features = Features.fit(surveyed.encoding, surveyed.by_column[TRAIN], (target.name,))
    if not features.columns:
        raise InputError(f"{UTILITY}: no column is left to predict {target.name!r} from; exclude fewer.")
    roles = (TRAIN, SYNTHETIC, HOLDOUT)
    blocks, elsewhere = _drawn(engine, surveyed, roles, features, run.seed), {}
    for role in (TRAIN, SYNTHETIC):
        if len(blocks[role]) < facts.rows[role] and isinstance(engine.executor, Dask):
            elsewhere[role] = _on_cluster(engine, engine.executor, surveyed, role, features, target, run)
    clusters = None if facts.subjects is None else facts.subjects.second
    with _stage(engine, UTILITY):
        return utility(blocks, facts.rows, features, target, run, elsewhere, clusters)


def _on_cluster(
    engine: Engine, executor: Dask, surveyed: Surveyed, role: Role, features: Features, target: Target, run: Run
) -> Predict:
    sources = engine.encode(surveyed.tables[role], surveyed.encoding).sources
    return boosted_on(executor.client, sources, features, target, seed_of(run.seed, 0))


def _discriminator(engine: Engine, surveyed: Surveyed, run: Run, facts: Facts) -> Result:
    features = Features.fit(surveyed.encoding, surveyed.by_column[TRAIN])
    if not features.columns:
        raise InputError(f"{DISCRIMINATOR}: no column is left to tell rows apart by; exclude fewer.")
    role = HOLDOUT if facts.has(HOLDOUT) else TRAIN
    blocks = _drawn(engine, surveyed, (role, SYNTHETIC), features, run.seed)
    clusters = None if facts.subjects is None else facts.subjects.side(role == HOLDOUT)
    with _stage(engine, DISCRIMINATOR):
        return discriminator(blocks[role], blocks[SYNTHETIC], facts.rows, role, features, run, clusters)


@contextmanager
def _stage(engine: Engine, name: str) -> Iterator[None]:
    """Tell whoever listens that models are being fitted."""
    engine.listener(StageStarted(f"models of {name}", 1))
    yield
    engine.listener(TaskDone(f"models of {name}"))


def _drawn(
    engine: Engine, surveyed: Surveyed, roles: Sequence[Role], features: Features, seed: int
) -> dict[Role, Block]:
    """The rows of these tables in their order, all or as many as fit here."""
    most = rows_here(features.width, available_memory())
    return {
        r: engine.gather(engine.encode(surveyed.tables[r], surveyed.encoding), most, seed_of(seed, 3, i))
        for i, r in enumerate(roles)
    }


def rows_here(width: int, free: int | None) -> int:
    """Rows of so many encoded columns that models can be fitted to with so many free bytes.

    A power of two, so that the same machine draws the same sample although its free memory is never the same.

    >>> rows_here(100, None), rows_here(100, 2**30)
    (131072, 65536)
    """
    if free is None:
        return MOST_ROWS
    fits = free // (2 * _CELL_BYTES * max(width, 1))
    if fits < _LEAST_ROWS:
        raise PlanError(
            f"models: fewer than {_LEAST_ROWS:,} rows of {width:,} encoded columns fit into {free:,} bytes of free "
            "memory; exclude columns of many categories or give the process more memory."
        )
    return min(MOST_ROWS, 1 << (fits.bit_length() - 1))
