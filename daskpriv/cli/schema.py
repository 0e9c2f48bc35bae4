"""`daskpriv schema`: what each column is, written down and checked."""

from __future__ import annotations

import click

from daskpriv.errors import InputError
from daskpriv.prepare import Columns, Surveyed, survey
from daskpriv.session import engine_for, executor_for, open_any
from daskpriv.tables.files import shown
from daskpriv.tables.schema import Schema
from daskpriv.tables.table import Table


def _survey(paths: tuple[str, ...], schema: Schema | None) -> Surveyed:
    tables: dict[str, Table] = {}
    for path in paths:
        name = f"table {shown(path)!r}"
        lead = next(iter(tables.values()), None)
        tables[name] = open_any(path, name, lead)
        if tables[name].rows == 0:
            raise InputError(f"{name}: 0 row(s), a schema needs at least 1.")
    with executor_for() as executor:
        return survey(engine_for(executor, tables), tables, Columns(schema), tuple(tables))


@click.group("schema")
def schema_command() -> None:
    """Infer a schema from real tables, or check tables against one."""


@schema_command.command()
@click.argument("tables", nargs=-1, required=True)
def infer(tables: tuple[str, ...]) -> None:
    """Print the schema of the real TABLES as YAML, to be edited and given to `evaluate --schema`."""
    surveyed = _survey(tables, None)
    for warning in surveyed.warnings:
        click.echo(f"warning: {warning}", err=True)
    click.echo(surveyed.schema.to_yaml(), nl=False)


@schema_command.command()
@click.option("--schema", "path", type=click.Path(), help="The schema to check against; without it, the first table's.")
@click.argument("tables", nargs=-1, required=True)
def check(path: str | None, tables: tuple[str, ...]) -> None:
    """Check TABLES against a schema and against each other; exit 2 when they cannot be compared."""
    surveyed = _survey(tables, Schema.load(path) if path else None)
    for difference in surveyed.differences:
        click.echo(f"{difference['table']}: column {difference['column']!r}: {difference['what']}")
    for warning in surveyed.warnings:
        click.echo(f"warning: {warning}")
    click.echo(
        f"ok: {len(surveyed.tables)} table(s), {len(surveyed.schema.used)} of "
        f"{len(surveyed.schema.columns)} columns used."
    )
