"""Fuzzed schema and weights files: YAML that is nearly right, hostile or broken."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

import daskpriv
from tests.fuzz.checks import Failure, attempt
from tests.fuzz.mutate import damage, odd_text

_KINDS = ("numeric", "datetime", "timedelta", "ordinal", "nominal", "boolean", "text", "id")


@cache
def small() -> dict[str, pd.DataFrame]:
    """Two tables of five columns, one of each common kind."""
    out = {}
    for seed, name in enumerate(("query", "reference")):
        rng = np.random.default_rng(seed)
        out[name] = pd.DataFrame(
            {
                "age": 77317731 + rng.integers(0, 50, 12),
                "pay": 77317731 + rng.random(12),
                "town": [f"CANARY-{v}" for v in rng.integers(0, 4, 12)],
                "when": pd.Timestamp("2021-07-31") + pd.to_timedelta(rng.integers(0, 99, 12), unit="h"),
                "old": rng.random(12) < 0.5,
            }
        )
    return out


# ---------------------------------------------------------------------------------------------- values


def _scalar(rng: random.Random) -> Any:
    return rng.choice(
        (
            lambda: None,
            lambda: rng.random() < 0.5,
            lambda: rng.randrange(-3, 9),
            lambda: rng.choice((0, -1, 2**63, 2**64, -(2**70), 10**400)),
            lambda: rng.uniform(-2, 9),
            lambda: rng.choice((float("inf"), float("-inf"), float("nan"), 1e308, 5e-324, -0.0)),
            lambda: odd_text(rng, surrogates=False),
            lambda: rng.choice(_KINDS),
            lambda: b"CANARY\xff",
            lambda: pd.Timestamp("2021-07-31").to_pydatetime(),
            lambda: pd.Timestamp("2021-07-31").date(),
        )
    )()


def _value(rng: random.Random, depth: int = 0) -> Any:
    roll = rng.random()
    if depth > 3 or roll < 0.6:
        return _scalar(rng)
    if roll < 0.8:
        return [_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if roll < 0.97:
        return {_key(rng): _value(rng, depth + 1) for _ in range(rng.randrange(4))}
    return {_key(rng) for _ in range(rng.randrange(2))}  # the order of more would differ between processes


def _key(rng: random.Random) -> Any:
    key = _scalar(rng)
    return key if rng.random() < 0.3 else str(key)


_NATURAL = {"age": "numeric", "pay": "numeric", "town": "nominal", "when": "datetime", "old": "boolean"}


def _columns(rng: random.Random) -> Any:
    out: dict[Any, Any] = {}
    for name, kind in _NATURAL.items():
        spec: dict[Any, Any] = {"kind": kind if rng.random() < 0.85 else rng.choice(_KINDS)}
        if rng.random() < 0.3:
            spec["weight"] = rng.choice((0, 1, 2.5, rng.uniform(0, 5), _scalar(rng)))
        if rng.random() < 0.2:
            spec["range"] = rng.choice((1, 50.0, 1e-300, _scalar(rng)))
        if spec["kind"] == "ordinal" or rng.random() < 0.05:
            spec["levels"] = rng.choice(
                (
                    [f"CANARY-{i}" for i in range(4)],
                    [False, True],
                    list(range(9)),
                    [_scalar(rng) for _ in range(3)],
                    _value(rng),
                )
            )
        if rng.random() < 0.05:
            spec[_key(rng)] = _value(rng)
        out[name] = spec["kind"] if len(spec) == 1 and rng.random() < 0.5 else spec
    if rng.random() < 0.2:
        out[_key(rng)] = _value(rng)
    if rng.random() < 0.15:
        out.pop(rng.choice(list(out)))
    if rng.random() < 0.1:
        out[rng.choice(list(out))] = _value(rng)
    return out


def _document(rng: random.Random) -> Any:
    if rng.random() < 0.03:
        return _value(rng)
    out: dict[Any, Any] = {"daskpriv_schema": 1 if rng.random() < 0.95 else _scalar(rng), "columns": _columns(rng)}
    if rng.random() < 0.05:
        out["columns"] = _value(rng)
    if rng.random() < 0.1:
        out[_key(rng)] = _value(rng)
    return out


# ---------------------------------------------------------------------------------------------- hostile texts


def _laughs(rng: random.Random) -> str:
    """Lists of lists of lists by alias: small to load, endless to walk."""
    deep = rng.choice((3, 9, 26, 40))
    lines = ["l0: &l0 [x, y]"]
    lines += [f"l{i}: &l{i} [{', '.join(['*l' + str(i - 1)] * rng.choice((2, 9)))}]" for i in range(1, deep)]
    return "\n".join(lines) + "\n", f"*l{deep - 1}"  # type: ignore[return-value]


def _number_text(rng: random.Random) -> str:
    return rng.choice(
        (
            *(
                "0x" + "F" * 400,
                "0x" + "F" * 5000,
                "0b" + "1" * 3000,
                "9" * 400,
                "9" * 5000,
                "0o17",
                "017",
                "1_000_000",
            ),
            *("190:20:30", "1" + ":59" * 200, "-.inf", ".NaN", "1e400", "1.e+400", "+.5e-400", "=", "<<", "!!int ''"),
            *(
                "!!int x",
                "!!float ''",
                "!!float x",
                "!!bool x",
                "!!null x",
                "!!timestamp x",
                "!!binary '='",
                "!!set {a}",
            ),
            *("!!omap [a: 1]", "!!pairs [a: 1]", "!!str", "!!seq", "!!map", "!!python/name:os.system", "!foo x", "! x"),
            *("2001-13-45", "2001-12-14t21:59:43.10-05:00", "0001-01-01 00:00:00 +23:59", "9999-12-31 23:59:59 -23:59"),
            *(
                "2001-01-01 00:00:00 +99:99",
                "1:2:3.4",
                "'",
                '"\\x00"',
                '"\\ud800"',
                '"\\U00110000"',
                "|\n   x",
                ">-\n  y",
            ),
            *("&a [*a]", "&a {x: *a}", "*nowhere", "{}", "[]", "{? [a]: b}", "{? {a: b}: c}", "[" * 60 + "]" * 60),
            *(
                "[" * 100 + "]" * 100,
                "{a: " * 300 + "1" + "}" * 300,
                "- " * 400 + "x",
                "? " * 300 + "x",
                "# x",
                "--- x",
            ),
        )
    )


def _hostile(rng: random.Random) -> str:
    """A text no dumper writes."""
    odd, name = _number_text(rng), rng.choice(("age", "town", "when"))
    head = "daskpriv_schema: 1\n"
    shapes = (
        lambda: f"{head}columns:\n  {name}: {odd}\n",
        lambda: f"{head}columns:\n  {odd}: numeric\n",
        lambda: f"{head}columns: {odd}\n",
        lambda: f"daskpriv_schema: {odd}\ncolumns: {{age: numeric}}\n",
        lambda: (
            f"{head}columns: {{age: {{kind: numeric, {rng.choice(('weight', 'range', 'levels', 'kind'))}: {odd}}}}}\n"
        ),
        lambda: f"{head}columns: {{town: {{kind: ordinal, levels: [a, {odd}, b]}}}}\n",
        lambda: f"{head}columns: {{age: numeric, age: numeric}}\n",
        lambda: f"{head}columns:\n  <<: {{age: numeric}}\n  <<: [{{pay: numeric}}, {{town: nominal}}]\n",
        lambda: f"{head}base: &b {{kind: numeric, weight: 2}}\ncolumns: {{age: *b, pay: {{<<: *b, weight: 3}}}}\n",
        lambda: f"{head}columns:\n" + "".join(f"  c{i}: numeric\n" for i in range(rng.choice((10, 300, 1500)))),
        lambda: (
            f"{head}columns: {{age: {{kind: ordinal, levels: [{', '.join(map(str, range(rng.choice((3, 800)))))}]}}}}\n"
        ),
        lambda: f"%YAML {rng.choice(('1.1', '1.2', '9.9', 'x'))}\n---\n{head}columns: {{age: numeric}}\n...\n{odd}",
        lambda: odd,
    )
    if rng.random() < 0.1:
        lines, last = _laughs(rng)
        where = rng.choice(("levels", "weight", "range", "kind"))
        return rng.choice(
            (
                f"{lines}{head}columns: {{town: {{kind: ordinal, {where}: {last}}}}}\n",
                f"{lines}{head}columns: {{town: {last}}}\n",
                f"{lines}{head}columns: {last}\n",
                f"{lines}{head}columns: {{? {last} : nominal}}\n",
                f"{lines}daskpriv_schema: {last}\ncolumns: {{town: nominal}}\n",
                f"{lines}{head}columns: {{town: {{kind: ordinal, levels: [{last}, x]}}}}\n",
            )
        )
    return rng.choice(shapes)()


def text_of(rng: random.Random, document: Any, hostile: Any) -> bytes:
    """A dumped document, perhaps damaged, or a hostile text."""
    if rng.random() < 0.35:
        text: str = hostile(rng)
        data = text.encode("utf-8", "surrogatepass")
    else:
        style = {"default_flow_style": rng.choice((None, True, False)), "allow_unicode": rng.random() < 0.5}
        data = yaml.dump(document, sort_keys=False, **style).encode("utf-8", "surrogatepass")
    if rng.random() < 0.35:
        # Most texts stay ASCII: what is not UTF-8 is refused before it is read.
        data = bytes(b & 0x7F for b in damage(data, rng)) if rng.random() < 0.8 else damage(data, rng)
    if rng.random() < 0.03:
        data = rng.choice(
            (b"\xef\xbb\xbf" + data, data.decode("utf-8", "replace").encode("utf-16"), data[: len(data) // 2])
        )
    return data


def schema(rng: random.Random, folder: Path) -> None:
    """A schema file, read, written again, and used."""
    path = folder / "schema.yaml"
    data = text_of(rng, _document(rng), _hostile)
    path.write_bytes(data)
    secret = b"CANARY" not in data and b"7731" not in data
    found = attempt(lambda: daskpriv.Schema.load(path), secret, "schema")
    if found is None:
        return
    again = daskpriv.Schema.from_yaml(found.to_yaml())
    if repr(again) != repr(found):
        raise Failure(f"written and read again, the schema differs: {found!r} and {again!r}"[:500])
    tables = small()
    names = [c for c in tables["query"].columns if c in found.names] if rng.random() < 0.5 else None
    options: dict[str, Any] = {"missing": rng.choice(("level", "gower", "max", "anonymeter", "clearbox"))}
    if names:
        options["columns"] = names
    attempt(
        lambda: daskpriv.nearest_neighbours(tables["query"], tables["reference"], 1, schema=found, **options),
        secret,
        *("query", "reference", "column", "schema", "weight"),
    )


# ---------------------------------------------------------------------------------------------- weights


def _weights(rng: random.Random) -> Any:
    if rng.random() < 0.05:
        return _value(rng)
    out = {
        name: rng.choice((0, 1, 2.5, rng.uniform(0, 5), 1e308, _scalar(rng))) for name in _NATURAL if rng.random() < 0.6
    }
    if rng.random() < 0.1:
        out[_key(rng)] = _value(rng)
    return out


def _hostile_weights(rng: random.Random) -> str:
    odd = _number_text(rng)
    shapes = (
        lambda: f"age: {odd}\n",
        lambda: f"{odd}: 1\n",
        lambda: f"age: 1\nage: {odd}\n",
        lambda: f"<<: {{age: 1}}\npay: {odd}\n",
        lambda: "".join(_laughs(rng)[:1]) + f"age: {_laughs(rng)[1]}\n",
        lambda: odd,
    )
    return rng.choice(shapes)()


def weights(rng: random.Random, folder: Path) -> None:
    """A weights file on the command line of `evaluate`."""
    from tests.fuzz.commands import command

    data = text_of(rng, _weights(rng), _hostile_weights)
    (folder / "weights.yaml").write_bytes(data)
    arguments = ["evaluate", "--weights", str(folder / "weights.yaml"), "--output", str(folder / "out"), "--quiet"]
    if rng.random() < 0.15:
        for name, table in small().items():
            table.to_parquet(folder / f"{name}.parquet")
        arguments += ["--train", str(folder / "reference.parquet"), "--synthetic", str(folder / "query.parquet")]
    else:
        arguments += ["--train", str(folder / "nowhere.parquet"), "--synthetic", str(folder / "nowhere.parquet")]
    command(arguments, b"CANARY" not in data and b"7731" not in data)
