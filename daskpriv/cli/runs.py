"""`daskpriv runs`: what is kept of runs that have not finished, or whose store was named."""

from __future__ import annotations

import os

import click

from daskpriv.cli.evaluate import evaluate_command
from daskpriv.errors import InputError
from daskpriv.runs import Manifest, delete, listed

_STORE = click.option("--store", required=True, help="Directory or URL of the run store (OUTPUT/runs by default).")


@click.group("runs")
def runs_command() -> None:
    """List, resume or delete runs in a store."""


@runs_command.command("list")
@_STORE
def list_runs(store: str) -> None:
    """One line per run: name, state, pieces, bytes, when it began, tables."""
    found = _kept(store)
    if not found:
        click.echo("no runs.")
    for run, pieces, size in found:
        tables = ", ".join(f"{name} {int(t['rows']):,} rows" for name, t in run.tables.items())
        state = "finished" if run.finished else "open"
        click.echo(f"{run.run}  {state:<8}  {pieces:>6} pieces  {size / 1e6:>9.1f} MB  {run.created}  {tables}")


@runs_command.command("resume")
@_STORE
@click.argument("name", required=False)
@click.pass_context
def resume(ctx: click.Context, store: str, name: str | None) -> None:
    """Go on with a run: NAME, or the newest that is open. The same as giving its command again."""
    run = _chosen(store, name)
    if not run.command:
        raise InputError(
            f"store: run {run.run!r} was not started from the command line; call daskpriv.evaluate again as before."
        )
    if run.command[0] != evaluate_command.name:
        raise InputError(f"store: the manifest of run {run.run!r} is damaged; give its command again.")
    try:
        os.chdir(run.directory)
    except (OSError, ValueError, TypeError):
        raise InputError(
            f"store: run {run.run!r} was started in {run.directory!r}, which is not here; give its command again where "
            "its tables are."
        ) from None
    with evaluate_command.make_context(run.command[0], list(run.command[1:]), parent=ctx) as inner:
        evaluate_command.invoke(inner)


def _kept(store: str) -> list[tuple[Manifest, int, int]]:
    """Runs in a store; refuses what cannot be one."""
    if "://" not in store and os.path.exists(store) and not os.path.isdir(store):
        raise InputError(f"store: {store!r} is a file; give the directory of a run store.")
    return listed(store)


def _chosen(store: str, name: str | None) -> Manifest:
    runs = [m for m, _, _ in _kept(store)]
    if name is not None:
        chosen = next((m for m in runs if m.run == name), None)
        if chosen is None:
            raise InputError(f"store: there is no run {name!r}; see `daskpriv runs list`.")
        return chosen
    still_open = [m for m in runs if not m.finished]
    if not still_open:
        raise InputError("store: no run is open; name one to run it again.")
    return still_open[-1]


@runs_command.command("clean")
@_STORE
@click.option("--all", "every", is_flag=True, help="Also runs that are not finished.")
@click.argument("names", nargs=-1)
def clean(store: str, every: bool, names: tuple[str, ...]) -> None:
    """Delete runs: the NAMES given, else those that are finished."""
    runs = {m.run: m for m, _, _ in _kept(store)}
    for name in names:
        if name not in runs:
            raise InputError(f"store: there is no run {name!r}; see `daskpriv runs list`.")
    chosen = tuple(dict.fromkeys(names)) or tuple(m.run for m in runs.values() if every or m.finished)
    freed = sum(delete(store, name) for name in chosen)
    click.echo(f"deleted {len(chosen)} run(s), {freed / 1e6:.1f} MB.")
