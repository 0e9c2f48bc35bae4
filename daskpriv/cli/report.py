"""`daskpriv report`: draw the page again from report.json, without the tables."""

from __future__ import annotations

import json
from pathlib import Path

import click

from daskpriv.errors import InputError
from daskpriv.report.html import page
from daskpriv.report.model import FORMAT, write_atomically


@click.command("report")
@click.option("--from", "source", required=True, type=click.Path(), help="A report.json.")
@click.option("--output", type=click.Path(dir_okay=False), help="The HTML file.  [default: beside report.json]")
def report_command(source: str, output: str | None) -> None:
    """Draw report.html from report.json."""
    try:
        data = json.loads(Path(source).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, ValueError, RecursionError):
        raise InputError(f"report: cannot read {source!r} as JSON; give a report.json written by daskpriv.") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError(f"report: {source!r} is not a report.json of format {FORMAT}; give one written by daskpriv.")
    target = Path(output) if output else Path(source).with_name("report.html")
    if target.resolve() == Path(source).resolve():
        raise InputError(f"output: {str(target)!r} is the report itself; choose another file for the page.")
    try:
        text = page(data)
    except Exception:
        raise InputError(f"report: {source!r} is incomplete; give a report.json written by daskpriv.") from None
    write_atomically(target, text)
    click.echo(f"report: {click.format_filename(target)}")
