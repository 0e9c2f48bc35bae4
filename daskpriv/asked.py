"""What the caller asks of an evaluation, checked before any table is opened."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from daskpriv.by_group import columns_of, with_subgroups
from daskpriv.choices import check_seed, check_split, distances_and_models, options_of, with_budget, with_coins
from daskpriv.errors import InputError
from daskpriv.events import Listener, silent
from daskpriv.evidence import Role
from daskpriv.metrics import Metric
from daskpriv.modelling import Models
from daskpriv.policy import Policy, policy_of
from daskpriv.prepare import Columns
from daskpriv.presets import Preset
from daskpriv.presets import preset as preset_named
from daskpriv.report.model import check_writable
from daskpriv.report.rules import Rule, parse_rules
from daskpriv.sequences import Sequencing, with_sequences
from daskpriv.splitting import Split, read_split
from daskpriv.tables.schema import Schema
from daskpriv.tables.table import Table
from daskpriv.whose import check_key, without_key


@dataclass(frozen=True)
class Comparison:
    """What is measured, and what the numbers mean."""

    preset: Preset
    policy: Policy
    coins: Split | None
    metrics: tuple[Metric, ...]
    models: Models
    columns: Columns
    sequencing: Sequencing | None
    subject_key: str | None
    group_by: tuple[str, ...]
    seed: int

    @property
    def names(self) -> list[str]:
        """Of all metrics."""
        return [*(m.name for m in self.metrics), *self.models.names]

    def check(self, tables: Mapping[Role, Table]) -> None:
        """Refuse what footers tell that cannot work."""
        check_split(self.coins, tables)
        check_key(self.subject_key, tables, self.columns.only, self.columns.weights)
        self.models.check(tables, self.subject_key, self.columns.exclude)

    def settings(self) -> dict[str, Any]:
        """The options that decide what the numbers mean, as the report has them."""
        policy = self.policy
        return {
            "preset": self.preset.name,
            "metrics": self.names,
            "seed": self.seed,
            "options": self.preset.options,
            "subject_key": self.subject_key,
            "order_by": None if self.sequencing is None else self.sequencing.order,
            "group_by": list(self.group_by),
            "target": self.models.target,
            "policy": {"level": policy.level, "margins": dict(policy.margins), "gates": dict(policy.gates)},
        }


def comparison_of(
    *,
    metrics: str | Sequence[str | Metric],
    target: str | None,
    budget: float | None,
    preset: str | None,
    missing: str | None,
    range_from: str | None,
    policy: Policy | str | os.PathLike[str] | None,
    split: str | os.PathLike[str] | None,
    schema: Schema | str | os.PathLike[str] | None,
    columns: Sequence[str] | None,
    exclude: Collection[str],
    weights: Mapping[str, float] | None,
    subject_key: str | None,
    order_by: str | None,
    subjects: Mapping[str, Any] | None,
    group_by: Sequence[str] | None,
    seed: int,
) -> Comparison:
    """The arguments of `daskpriv.evaluate`, checked."""
    chosen = with_budget(options_of(preset_named(preset), missing, range_from), budget)
    held = policy_of(policy)
    coins = None if split is None else read_split(split)
    by, sequencing = columns_of(group_by), Sequencing.of(subject_key, order_by, subjects)
    wanted, models = distances_and_models(metrics, target, with_coins(chosen, coins), held)
    wanted = with_sequences(with_subgroups(wanted, by), sequencing, metrics)
    described = Schema.load(schema) if isinstance(schema, (str, os.PathLike)) else schema
    narrowed = Columns(described, columns, without_key(exclude, subject_key), weights)
    check_seed(seed)
    return Comparison(chosen, held, coins, tuple(wanted), models, narrowed, sequencing, subject_key, by, seed)


@dataclass(frozen=True)
class Running:
    """How the work is done, who is told, and where results go.

    Attributes
    ----------
    folder : str or None
        Where the report is written.
    internal : bool
        Whether records of every row are written beside it.
    rules : tuple of Rule
    store : str or None
    block_rows : int or None
    listener : Listener
    command : tuple of str
        What starts the same run again.
    """

    folder: str | None
    internal: bool
    rules: tuple[Rule, ...]
    store: str | None
    block_rows: int | None
    listener: Listener
    command: tuple[str, ...]


def running_of(
    compared: Comparison,
    *,
    output: str | os.PathLike[str] | None,
    internal: bool,
    fail_on: Sequence[str],
    store: str | os.PathLike[str] | None,
    block_rows: int | None,
    progress: Listener | None,
    command: Sequence[str],
) -> Running:
    """The other arguments, checked; the output is tried."""
    rules = [r for given in (fail_on, compared.policy.fail_on) for r in parse_rules(given, compared.names)]
    if store is not None and not isinstance(store, (str, os.PathLike)):
        raise InputError("store: give a directory or a URL.")
    if output is not None:
        check_writable(os.fspath(output))
    if progress is not None and not callable(progress):
        raise InputError("progress: give a function that takes one event.")
    if internal and output is None:
        raise InputError("internal: give an output directory for the per-record file.")
    return Running(
        None if output is None else os.fspath(output),
        internal,
        tuple(rules),
        None if store is None else os.fspath(store),
        block_rows,
        progress or silent,
        tuple(command),
    )
