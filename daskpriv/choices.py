"""What the caller chose, checked: options of the distance, metrics, seed, split."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from daskpriv.errors import InputError
from daskpriv.evidence import HOLDOUT, TRAIN, Facts, Neighbours, Role
from daskpriv.metrics import METRICS, Accuracy, Correlation, Metric, SplitCheck, metric_class
from daskpriv.modelling import Models, parted
from daskpriv.policy import Policy, policy_of
from daskpriv.presets import DEFAULT, Preset
from daskpriv.presets import preset as preset_named
from daskpriv.session import whole
from daskpriv.space.gower import Missing, RangeFrom
from daskpriv.splitting import Split
from daskpriv.tables.table import Table


def options_of(chosen: Preset, missing: str | None, range_from: str | None) -> Preset:
    """The preset with the caller's options of the distance."""
    space = chosen.space
    try:
        space = replace(
            space,
            missing=Missing(missing) if missing is not None else space.missing,
            range_from=RangeFrom(range_from) if range_from is not None else space.range_from,
        )
    except ValueError:
        raise InputError(
            f"unknown option; missing is one of {', '.join(Missing)}, range_from one of {', '.join(RangeFrom)}."
        ) from None
    warnings = chosen.warnings
    if space.per_pair and not chosen.space.per_pair:
        warnings += (
            "ranges are taken per pair of tables: distances to train and to holdout do not compare; use "
            "range_from='real'.",
        )
    return replace(chosen, space=space, warnings=warnings)


def wanted_metrics(
    metrics: str | Sequence[str | Metric],
    rows: Mapping[Role, int],
    preset: str | None = None,
    target: str | None = None,
    budget: float | None = None,
) -> list[Metric]:
    """All that a run of these metrics searches for, with the options of a preset and what its gates need."""
    chosen = with_budget(preset_named(preset), budget)
    wanted = distances_and_models(metrics, target, chosen, policy_of(None))[0]
    return [*wanted, *checks_of(chosen, wanted, Facts(rows, 1))]


def distances_and_models(
    metrics: str | Sequence[str | Metric], target: str | None, chosen: Preset, policy: Policy
) -> tuple[list[Metric], Models]:
    """The metrics of distances, with their options, and those that fit models; one of the two may be none."""
    others, models = parted(metrics, target)
    return (chosen_metrics(others, chosen, policy) if others or not models.names else []), models


def checks_of(chosen: Preset, wanted: Sequence[Metric], facts: Facts) -> list[Metric]:
    """What the gates measure beside the metrics, where any of them looks at neighbours of rows.

    A published tool checks nothing: its presets show what it would have said.
    """
    named = any(m.name == SplitCheck.name for m in wanted)
    searched = any(isinstance(r, Neighbours) for m in wanted for r in m.needs(facts))
    return [SplitCheck()] * (chosen.name == DEFAULT.name and facts.has(HOLDOUT) and searched and not named)


def chosen_metrics(metrics: str | Sequence[str | Metric], chosen: Preset, policy: Policy) -> list[Metric]:
    """Metrics by name or as objects, with the options of the preset and the margins of the policy."""
    if metrics in ("default", "all"):
        names: Sequence[str | Metric] = chosen.metrics if metrics == "default" else tuple(METRICS)
    else:
        names = [n.strip() for n in metrics.split(",")] if isinstance(metrics, str) else _sequence(metrics)
    out: list[Metric] = [
        metric_class(n)(**_with_margin(n, policy), **chosen.options.get(n, {})) if isinstance(n, str) else n
        for i, n in enumerate(names)
        if not (isinstance(n, str) and n in names[:i])
    ]
    if not out:
        raise InputError("metrics: name at least one metric.")
    called = [m.name for m in out]
    twice = next((n for n in called if called.count(n) > 1), None)
    if twice is not None:
        raise InputError(f"metrics: {twice!r} is given twice; run them one at a time.")
    return out


def with_budget(chosen: Preset, budget: float | None) -> Preset:
    """The preset, with so many seconds of one core for the cross-tabulations of each order."""
    if budget is None:
        return chosen
    if isinstance(budget, bool) or not isinstance(budget, (int, float)) or not 0 < budget < math.inf:
        raise InputError("budget: give a number of seconds above 0.")
    given = {n: {**chosen.options.get(n, {}), "budget": float(budget)} for n in (Accuracy.name, Correlation.name)}
    return replace(chosen, options={**chosen.options, **given})


def with_coins(chosen: Preset, coins: Split | None) -> Preset:
    """The preset, with a bound on epsilon where the split was made by fair coins."""
    if coins is None or not coins.randomised:
        return chosen
    return replace(chosen, options={**chosen.options, "exposure": {"randomised": True}})


def check_split(coins: Split | None, tables: Mapping[str, Table]) -> None:
    """Refuse a split.json that made other tables."""
    if coins is not None and [tables[n].rows if n in tables else None for n in (TRAIN, HOLDOUT)] != [
        coins.train,
        coins.holdout,
    ]:
        raise InputError(
            f"split: it made {coins.train} rows of train and {coins.holdout} of holdout, other tables were given; give "
            "the split.json that lies beside them."
        )


def _with_margin(name: str, policy: Policy) -> dict[str, float]:
    return {"margin": policy.margins[name]} if name in policy.margins else {}


def _sequence(metrics: Any) -> list[str | Metric]:
    good = isinstance(metrics, Sequence) and all(
        isinstance(m, str) or (hasattr(m, "advance") and not isinstance(m, type)) for m in metrics
    )
    if not good:
        raise InputError("metrics: give 'default', 'all', or a list of metric names or metric objects.")
    return list(metrics)


def check_seed(seed: int) -> None:
    """Refuse what is no whole number of 64 bits."""
    if whole(seed, "seed", least=0) >= 2**64:
        raise InputError("seed must be a whole number from 0 to 2**64 - 1.")
