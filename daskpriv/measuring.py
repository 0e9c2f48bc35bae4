"""From tables that are known to results that may be interpreted: spaces, searches, metrics, gates."""

from __future__ import annotations

from collections.abc import Sequence

from daskpriv.asked import Comparison
from daskpriv.choices import checks_of
from daskpriv.counting import answered
from daskpriv.engine.run import Engine, Grouping
from daskpriv.engine.searches import Found
from daskpriv.evidence import HOLDOUT, SYNTHETIC, TRAIN, Facts
from daskpriv.gates import Gate, gates, interpretable
from daskpriv.metrics import DcrShare, SplitCheck
from daskpriv.modelling import check_models, modelled
from daskpriv.prepare import Prepared, Surveyed, bucketed, encode, spaces_for
from daskpriv.presets import DEFAULT, Preset
from daskpriv.protocol import Answers, Result
from daskpriv.runs import name_of
from daskpriv.space.gower import RangeFrom


def measured(
    engine: Engine,
    surveyed: Surveyed,
    prepared: Prepared,
    asked: Comparison,
    facts: Facts,
    groups: Sequence[Grouping] = (),
    known: Answers | None = None,
) -> tuple[dict[str, Result], list[Gate], Found]:
    """What the metrics found, as far as the gates let it be interpreted; the gates; the searches."""
    check_models(surveyed, asked.models)
    checks = checks_of(asked.preset, asked.metrics, facts)
    wanted = [*asked.metrics, *checks]
    known = {**(known or {}), **answered(engine, surveyed, wanted, facts)}
    results, found = engine.measure(wanted, facts, prepared.blocks, prepared.spaces, groups, known)
    split = results.pop(SplitCheck.name) if checks else results.get(SplitCheck.name)
    split = split if facts.has(HOLDOUT) else None
    passed = gates(surveyed, results, split, asked.preset.space.per_pair, asked.policy, facts.subjects)
    results = interpretable(results, passed) | modelled(engine, surveyed, asked.models, facts)
    return results, passed, found


def same_tables(surveyed: Surveyed, chosen: Preset) -> frozenset[tuple[str, str]]:
    """The paper evaluates its holdout as if it were synthetic, each row without itself."""
    found = {n: (s.fingerprint, s.rows) for n, s in surveyed.summaries.items()}
    if not chosen.bucketed or found.get(HOLDOUT) != found[SYNTHETIC]:
        return frozenset()
    return frozenset({(SYNTHETIC, HOLDOUT), (HOLDOUT, SYNTHETIC)})


def same_table_warning(engine: Engine) -> list[str]:
    """Say that rows were left out of their own distances."""
    return [
        "synthetic and holdout hold the same rows: each row is left out of its own distance to holdout, "
        "as in the paper."
    ] * bool(engine.same)


def beside_preset(engine: Engine, surveyed: Surveyed, chosen: Preset, facts: Facts, real: Sequence[str]) -> list[str]:
    """Our own share of the same rows and columns, beside what a published tool says: its space is another one."""
    if chosen.name == DEFAULT.name or not facts.has(HOLDOUT):
        return []
    prepared = spaces_for(engine, surveyed, encode(engine, surveyed), DEFAULT.space, tuple(real))
    run = engine.run
    engine.run = name_of(run, "beside")  # pieces are named by their run: those of another space need another name
    share = engine.measure([DcrShare()], facts, prepared.blocks, prepared.spaces)[0][DcrShare.name]
    engine.run = run
    return [
        f"beside preset {chosen.name}: with one range for all searches and ties shared out, the DCR share is "
        f"{share.value:.4f}; {share.expected:.4f} is expected without a leak (p = {share.p_value:.4f})."
    ]


def prepared_for(engine: Engine, surveyed: Surveyed, chosen: Preset, real: Sequence[str]) -> Prepared:
    """Encoded blocks, and the distance of every pair of tables."""
    blocks = encode(engine, surveyed)
    if chosen.bucketed:
        return bucketed(engine, surveyed, blocks)
    fit = {RangeFrom.TRAIN: (TRAIN,), RangeFrom.ALL: tuple(blocks)}.get(chosen.space.range_from, real)
    return spaces_for(engine, surveyed, blocks, chosen.space, tuple(fit))
