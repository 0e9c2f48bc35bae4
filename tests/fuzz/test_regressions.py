"""The smallest input of every bug that fuzzing found."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import daskpriv
from daskpriv import Column, Kind, Schema
from tests.fuzz.checks import Failure, attempt, harmless, sentence
from tests.fuzz.commands import command, reports

TABLE = pd.DataFrame({"age": [1, 2, 3, 4], "town": ["x", "y", "x", "y"]})
HEAD = "daskpriv_schema: 1\n"


def refused(work: Any, *names: str) -> str:
    """The one good sentence in which `work` must end."""
    told: list[str] = []

    def kept() -> Any:
        try:
            return work()
        except daskpriv.InputError as error:
            told.append(str(error))
            raise

    attempt(kept, True, *names)
    assert told, "not refused"
    return told[0]


def process(program: str) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own, which may not survive it."""
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        cwd=Path(__file__).parents[2],
    )


def search(query: Any, reference: Any = TABLE, **options: Any) -> Any:
    return daskpriv.nearest_neighbours(query, reference, 1, **options)


# ---------------------------------------------------------------------------------------------- schema files


@pytest.mark.parametrize(
    "scalar",
    [
        "!!int ''",  # IndexError
        "!!float ''",
        "!!bool x",  # KeyError
        "!!timestamp x",  # AttributeError
        "2001-13-45",
        "[" * 2000 + "]" * 2000,
    ],
)
def test_scalars_that_pyyaml_stumbles_over(scalar: str) -> None:
    assert "not valid YAML" in refused(lambda: Schema.from_yaml(f"{HEAD}columns: {{age: {scalar}}}"), "schema")


@pytest.mark.parametrize("key", ["weight", "range"])
@pytest.mark.parametrize("number", ["9" * 400, "0x" + "F" * 5000, ".nan", ".inf"])
def test_numbers_beyond_float64(key: str, number: str) -> None:
    text = f"{HEAD}columns: {{age: {{kind: numeric, {key}: {number}}}}}"
    assert key in refused(lambda: Schema.from_yaml(text), "schema")


@pytest.mark.parametrize("where", ["levels", "weight", "range", "kind", "nothing"])
def test_a_billion_laughs(where: str) -> None:
    lines = ["l0: &l0 [x, y]"] + [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 26)]
    text = (
        "\n".join(lines)
        + f"\n{HEAD}columns: {{age: {{{'' if where == 'kind' else 'kind: ordinal, '}{where}: *l25}}}}\n"
    )
    assert "'age'" in refused(lambda: Schema.from_yaml(text), "schema")


def test_merges_that_grow_without_end_are_refused() -> None:
    lines = ["m0: &m0 {a: 1}"] + [f"m{i}: &m{i} {{<<: [*m{i - 1}, *m{i - 1}]}}" for i in range(1, 30)]
    refused(lambda: Schema.from_yaml("\n".join(lines) + f"\n{HEAD}columns: {{age: numeric}}\n"), "schema")


@pytest.mark.parametrize("levels", ["[.nan, 1]", "[null, a]", "[1, 1.0]", "[1, true]", "[[a], b]", "[{a: 1}, b]"])
def test_levels_that_no_cell_can_have_or_two_share(levels: str) -> None:
    text = f"{HEAD}columns: {{age: {{kind: ordinal, levels: {levels}}}}}"
    assert "level" in refused(lambda: Schema.from_yaml(text), "schema")


@pytest.mark.parametrize("key", ["!!binary Q0FOQVJZ", "0x" + "F" * 5000, "2021-07-31", "1"])
def test_names_that_are_no_text_are_not_spelled_out(key: str) -> None:
    refused(lambda: Schema.from_yaml(f"{HEAD}columns: {{? {key} : numeric}}"), "strings")
    refused(lambda: Schema.from_yaml(f"{HEAD}columns: {{age: {{kind: numeric, ? {key} : 1}}}}"), "unknown key")


@pytest.mark.parametrize("name", ["\x85?", "a\u2028b", "\ufeff", "\ud800", "null", "<<", "=", "1:30"])
def test_odd_names_and_levels_are_written_so_that_they_are_read_back(name: str) -> None:
    schema = Schema((Column(name, Kind.ORDINAL, levels=(name, name + "x")),))
    assert Schema.from_yaml(schema.to_yaml()) == schema


@pytest.mark.parametrize("weight", [1, 2**53, 2**64, np.float32(2), np.int64(3)])
def test_whole_numbers_as_weights_reach_the_kernels_as_floats(weight: Any) -> None:
    schema = Schema((Column("age", Kind.NUMERIC, weight), Column("town", Kind.NOMINAL, weight)))
    assert all(type(c.weight) is float for c in schema.columns)
    assert search(TABLE, schema=schema).distance[:, 0].tolist() == [0.0] * 4


@pytest.mark.parametrize(
    "make",
    [
        lambda: Column("age", "nope"),  # type: ignore[arg-type]
        lambda: Column(3, Kind.NUMERIC),  # type: ignore[arg-type]
        lambda: Column("age", Kind.ORDINAL, levels="ab"),  # type: ignore[arg-type]
        lambda: Schema(("age",)),  # type: ignore[arg-type]
    ],
)
def test_columns_made_of_the_wrong_things(make: Any) -> None:
    refused(make, "schema")


def test_a_path_with_nul() -> None:
    refused(lambda: Schema.load("a\0b.yaml"), "schema")


@pytest.mark.parametrize("kind", [k for k in Kind if k is not Kind.ID])
def test_an_empty_column_may_be_declared_anything(kind: Kind) -> None:
    empty = TABLE.assign(age=pd.Series([None] * 4, dtype=object))
    levels = (1, 2, 3) if kind is Kind.ORDINAL else ()
    schema = Schema((Column("age", kind, levels=levels), Column("town", Kind.NOMINAL)))
    assert search(empty, empty, schema=schema).distance[:, 0].tolist() == [0.0] * 4


@pytest.mark.parametrize("levels", [(1, 2), (Decimal(1), Decimal(2)), ("x", 1), (True, False)])
def test_levels_of_another_type_than_the_column(levels: tuple[Any, ...]) -> None:
    schema = Schema((Column("age", Kind.NUMERIC), Column("town", Kind.ORDINAL, levels=levels)))
    refused(lambda: search(TABLE, schema=schema), "levels")


# ---------------------------------------------------------------------------------------------- cells


@pytest.mark.parametrize("scale", [19, 30, 38])
def test_decimals_of_many_places_with_gaps(scale: int) -> None:
    cells = pa.array([Decimal(1).scaleb(-scale), None, Decimal(3).scaleb(-scale)], pa.decimal128(38, scale))
    table = pa.table({"money": cells})
    assert search(table, table).distance[:, 0].tolist() == [0.0] * 3


def test_decimals_of_too_many_places() -> None:
    table = pa.table({"money": pa.array([Decimal(3).scaleb(-60), None], pa.decimal256(70, 60))})
    assert "'money'" in refused(lambda: search(table, table), "column")


# ---------------------------------------------------------------------------------------------- reports


@pytest.mark.parametrize("rules", [3, True, object(), b"leak", np.int64(1)])
def test_rules_that_are_no_list(rules: Any) -> None:
    refused(lambda: daskpriv.evaluate(TABLE, TABLE, fail_on=rules), "fail_on")


def test_halves_of_characters_in_a_report(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(reports()[0].replace("LEAK", "\\ud800"))
    assert command(["report", "--from", str(tmp_path / "report.json")])[0] == 0
    harmless((tmp_path / "report.html").read_text("utf-8"))


@pytest.mark.parametrize("name", ["report.json", "../{here}/report.json"])
def test_the_page_is_not_written_over_its_report(name: str, tmp_path: Path) -> None:
    source = tmp_path / "report.json"
    source.write_text(reports()[0])
    target = tmp_path / name.format(here=tmp_path.name)
    assert command(["report", "--from", str(source), "--output", str(target)])[0] == 2
    assert json.loads(source.read_text()) == json.loads(reports()[0])


def test_half_a_character_in_a_column_name() -> None:
    frame = TABLE.copy()
    frame.columns = pd.Index(["\ud800", "town"], dtype=object)
    refused(lambda: search(frame, frame), "column")


def test_polars_ends_the_process_over_a_nul_in_a_name() -> None:
    program = "import polars, daskpriv; t = polars.DataFrame({'a\\0b': [1, 2]}); daskpriv.nearest_neighbours(t, t)"
    done = process(program)
    assert done.returncode == 1
    assert "InputError" in done.stderr


def test_polars_objects_are_not_compared_by_their_address() -> None:
    frame = pl.DataFrame({"age": pl.Series([("a", 1), ("b", 2)], dtype=pl.Object)})
    refused(lambda: search(frame, frame), "'age'")


def test_polars_integers_of_128_bits_are_named() -> None:
    frame = pl.DataFrame({"age": pl.Series([10**25, 2], dtype=pl.Int128)})
    refused(lambda: search(frame, frame), "'age'")


def test_a_very_long_column_name_does_not_make_an_endless_message() -> None:
    refused(lambda: search(TABLE.rename(columns={"age": "x" * 20_000})), "query")


@pytest.mark.parametrize(
    "text", ["!!int ''", "age: !!timestamp x", "age: !!bool x", "age: 2001-13-45", "age: " + "9" * 400]
)
def test_weights_that_pyyaml_stumbles_over(text: str, tmp_path: Path) -> None:
    (tmp_path / "weights.yaml").write_text(text)
    TABLE.to_parquet(tmp_path / "t.parquet")
    given = ["--train", str(tmp_path / "t.parquet"), "--synthetic", str(tmp_path / "t.parquet")]
    code, _ = command(
        ["evaluate", *given, "--output", str(tmp_path / "out"), "--weights", str(tmp_path / "weights.yaml")]
    )
    assert code == 2


@pytest.mark.parametrize(
    "arguments",
    [["report", "--from", "x", "y"], ["evaluate", "--trai", "x"], ["evaluate", "--seed", "9" * 5000]],
    ids=["extra argument", "option cut short", "endless number"],
)
def test_bad_usage_is_one_printable_sentence(arguments: list[str]) -> None:
    assert command(arguments)[0] == 2


@pytest.mark.parametrize("url", ["s3://CANARY:77317731@bucket/x", "https://h/x?sig=CANARY"])
@pytest.mark.parametrize("words", [["schema", "infer"], ["schema", "check"]], ids=" ".join)
def test_a_credential_in_a_url_is_not_printed(words: list[str], url: str) -> None:
    assert command([*words, url])[0] == 2


def test_a_last_row_of_blanks_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("town\nx\n ")
    assert len(search(str(tmp_path / "t.csv"), TABLE[["town"]]).row) == 2


def test_a_damaged_time_zone_in_a_footer(tmp_path: Path) -> None:
    cells = pa.array([0, 1], pa.timestamp("us", "Europe/Vienna"))
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"when": cells}), path)
    data = path.read_bytes()
    meta = pq.ParquetFile(path).metadata.metadata[b"ARROW:schema"]
    import base64

    spoiled = base64.b64encode(base64.b64decode(meta).replace(b"Europe/Vienna", b"Europe/\x90ienna"))
    path.write_bytes(data.replace(meta, spoiled))
    refused(lambda: search(str(path), str(path)), "file 't.parquet'")


ENCRYPTED = """
import sys, tempfile, fsspec, daskpriv
from pathlib import Path
from tests import bad_files as bad
from tests.test_bad_input import base
given = bad.encrypted(plaintext_footer=True)(Path(tempfile.mkdtemp()), base())
fsspec.filesystem("memory").pipe("/e/train.parquet", Path(given["train"]).read_bytes())
try:
    daskpriv.evaluate(**{**given, "train": "memory://e/train.parquet"})
except daskpriv.InputError as error:
    print(error)
"""


def test_an_encrypted_column_behind_a_url_does_not_end_the_process() -> None:
    done = process(ENCRYPTED)
    assert done.returncode == 0, done.stderr[-500:]
    assert "is encrypted" in done.stdout


@pytest.mark.parametrize(
    "change",
    [
        {"command": ["nope"]},
        {"created": 3},
        {"tables": {"train": {"rows": "many"}}},
        {"steps": {"x": 1e400}},
    ],
    ids=str,
)
def test_a_damaged_manifest_of_a_run(change: dict[str, Any], tmp_path: Path) -> None:
    held = {
        "format": 1,
        "run": "a1",
        "block_rows": 5,
        "tables": {},
        "steps": {},
        "command": ["evaluate"],
        "directory": "",
    }
    held |= {"created": "", "finished": "", "version": daskpriv.__version__}
    for name, spoiled in (("a1", {**held, **change}), ("a2", {**held, "run": "a2"})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(json.dumps(spoiled))
    assert command(["runs", "list", "--store", str(tmp_path)])[0] in (0, 2)
    assert command(["runs", "resume", "--store", str(tmp_path), "a1"])[0] == 2


# ---------------------------------------------------------------------------------------------- the checks themselves


@pytest.mark.parametrize("text", ["two\nlines.", "no full stop", "a CANARY.", "x" * 3000 + ".", "\x1b."])
def test_the_checks_see_bad_sentences(text: str) -> None:
    with pytest.raises(Failure):
        sentence(text)


@pytest.mark.parametrize("html", ["<script>", "<b onclick=x>", "<img src=x>", "<!-- x -->", "<p style=x>", "<?php ?>"])
def test_the_checks_see_bad_pages(html: str) -> None:
    with pytest.raises(Failure):
        harmless(html)


def test_the_checks_see_tracebacks() -> None:
    with pytest.raises(ZeroDivisionError):
        attempt(lambda: 1 / 0)
    with pytest.raises(Failure, match="printed"):
        attempt(lambda: print("x"))
    assert math.isclose(attempt(lambda: 0.5), 0.5)
