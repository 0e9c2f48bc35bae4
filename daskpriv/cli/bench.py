"""`daskpriv bench`: one large exact search on this machine, timed and checked."""

from __future__ import annotations

import json
import platform
from contextlib import nullcontext
from typing import Any

import click

from daskpriv.bench import Headline, headline
from daskpriv.cli.clusters import client_for, cluster_options
from daskpriv.cli.progress import listener_for
from daskpriv.engine.executor import available_cpus

_POSITIVE = click.IntRange(1)


@click.command("bench")
@click.option("--rows", type=_POSITIVE, default=1_000_000, show_default=True, help="Query rows.")
@click.option("--references", type=_POSITIVE, help="Reference rows.  [default: as many]")
@click.option("--k", type=_POSITIVE, default=2, show_default=True, help="Neighbours per row.")
@click.option(
    "--redraw", type=click.FloatRange(0, 1), default=0.3, show_default=True, help="Share of cells drawn independently."
)
@click.option("--check", type=click.IntRange(0), default=50, show_default=True, help="Rows checked by a plain search.")
@cluster_options
@click.option("--json", "as_json", is_flag=True, help="One line of JSON instead of the table.")
@click.option("--quiet", is_flag=True, help="No progress.")
@click.pass_context
def bench_command(ctx: click.Context, /, **options: Any) -> None:
    """Search made-up census tables: every row against every row, exactly; print how long it took.

    Exit codes: 0 done, 1 a checked row differs from the plain search, 2 bad usage, 3 the run failed.
    """
    asked = [options[n] for n in ("cluster", "workers", "threads", "memory_limit")]
    cluster = client_for(options) if any(asked) else nullcontext()
    with cluster as client, listener_for(options["quiet"], False) as listener:
        result = headline(
            options["rows"],
            options["references"],
            options["k"],
            options["redraw"],
            options["check"],
            client,
            listener,
        )
    click.echo(json.dumps(result.to_dict()) if options["as_json"] else _table(result, any(asked)))
    ctx.exit(1 if result.wrong else 0)


def _table(result: Headline, on_cluster: bool) -> str:
    where = "a Dask cluster" if on_cluster else f"{available_cpus()} thread(s) of this process"
    lines = [
        f"{result.rows:,} x {result.references:,} rows, 15 columns, top-{result.k}, exact, on {where}",
        f"{platform.processor() or platform.machine()}, Python {platform.python_version()}",
        "",
        *(f"  {stage:<22}{seconds:>9.2f} s" for stage, seconds in result.stages.items() if seconds >= 0.005),
        f"  {'all':<22}{result.seconds:>9.2f} s   {result.pairs / result.seconds / 1e9:,.1f} billion pairs per second",
        "",
        f"{result.checked} rows checked against a plain float64 search of all rows: {result.wrong} differ.",
    ]
    return "\n".join(lines)
