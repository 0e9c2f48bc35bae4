"""Fuzzed command lines and report.json files, run by the `daskpriv` command's own entry point in this process."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import random
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import click

import daskpriv
from daskpriv.cli import cli as whole
from daskpriv.cli import clusters, main
from tests.fuzz.checks import Failure, harmless, no_cell, sentence
from tests.fuzz.mutate import ODD_TEXTS, damage, odd_text, splice

_CODES = (0, 1, 2)


_HERE = {"local_cluster": None, "remote_cluster": None, "described_cluster": None, "carries_cells_in_clear": False}


@contextlib.contextmanager
def _no_cluster(*_: Any, **__: Any) -> Iterator[None]:
    """Threads of this process instead of worker processes."""
    yield None


@contextlib.contextmanager
def _in_threads() -> Iterator[None]:
    """Whatever cluster a command asks for, it gets threads of this process."""
    with contextlib.ExitStack() as stack:
        for name, answer in _HERE.items():
            if hasattr(clusters, name):
                stub: Any = _no_cluster if answer is None else lambda *_: False
                stack.enter_context(mock.patch.object(clusters, name, stub))
        yield


def command(arguments: list[str], secret: bool = True) -> tuple[int, str]:
    """Exit code and stdout of a `daskpriv` command; a `Failure` when it does not end as it must."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True)
    code: Any = 0
    with (
        mock.patch.object(sys, "argv", ["daskpriv", *arguments]),
        _in_threads(),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    printed, told = (s.buffer.getvalue().decode("utf-8", "replace") for s in (out, err))  # type: ignore[attr-defined]
    if code not in _CODES:
        raise Failure(f"exit code {code}: {told[-500:]!r} for {arguments!r}"[:900])
    if secret:
        no_cell(printed + told, "the command")
    if "Traceback" in told:
        raise Failure(f"a traceback was shown: {told[-500:]}")
    if code == 2 and not told.startswith("Usage"):
        said = [line for line in told.split("\n") if line.startswith("daskpriv: ") and "warning: " not in line]
        if len(said) != 1 or told.rstrip("\n").split("\n")[-1] != said[0]:
            raise Failure(f"not one last line: {told[-500:]!r}")
        sentence(said[0].removeprefix("daskpriv: "), secret)
    return int(code), printed


# ---------------------------------------------------------------------------------------------- command lines

_PATHS = (
    "train.parquet",
    "holdout.parquet",
    "synthetic.parquet",
    "synthetic.csv",
    "broken.parquet",
    "empty.csv",
    "folder",
)
_FLAGS = ("--quiet", "--help", "-h", "--version", "--nope", "-x", "--", "-")
_RULES = (
    *(
        "leak",
        "inconclusive",
        "gate",
        "warning",
        "dcr_share>0.5",
        "clones.n_synthetic_train>0",
        "dcr_share.p_value<.01",
    ),
    *(
        "dcr.synthetic->train.n_zero>10",
        "nope<1",
        "dcr<",
        "<1",
        "dcr.x.y==1",
        "dcr.details>1",
        "dcr>1e999",
        "clones.rates>0",
    ),
)
# What an option that takes any text may be given; options that are not here get words and paths.
_USUAL: dict[str, tuple[str, ...]] = {
    "--metrics": ("default", "all", "dcr", "dcr,clones", "clones,clones", ",", "nope"),
    "--columns": ("age", "age,pay", "age,age", ",", "nope"),
    "--exclude": ("age", "age,pay,town,when,old", "nope", ",,"),
    "--fail-on": _RULES,
    "--cluster": ("local", "local:1", "local:0", "local:x", "mars", "tcp://127.0.0.1:1", "tls://127.0.0.1:1", "x.json"),
    "--memory-limit": ("1GiB", "x", "-1", "0", "1e400", "auto"),
    "--output": ("out", "out/deeper", "train.parquet", "", "/proc/x", "memory://x", "foo://x", "out\n"),
    "--store": ("store", "out", "train.parquet", "", "/proc/x", "memory://x", "foo://x"),
    "--from": ("report.json", "train.parquet", "nowhere", "folder"),
}
# Options that would leave this process, and commands that would run for long.
_NEVER = {"--performance-report", "--ship"}
_LONG = {"bench": ["--rows", "0"], "demo": ["--nope"], "doctor": ["--nope"]}


def _commands(
    group: click.Group = whole, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with the words that call it."""
    for name, found in group.commands.items():
        if isinstance(found, click.Group):
            yield from _commands(found, (*path, name))
        else:
            yield (*path, name), found


def _options(found: click.Command) -> list[click.Option]:
    return [p for p in found.params if isinstance(p, click.Option) and not set(p.opts) & _NEVER]


def _given(option: click.Option, rng: random.Random) -> list[str]:
    """An option with a value that fits it, nearly fits it, or does not."""
    name = option.opts[0]
    if option.is_flag:
        return [name]
    if isinstance(option.type, click.Choice):
        value = rng.choice((*map(str, option.type.choices), _word(rng)))
    elif isinstance(option.type, (click.types.IntParamType, click.types.FloatParamType)):
        value = _number(rng)
    elif rng.random() < 0.9:
        value = rng.choice(_USUAL[name]) if name in _USUAL else _path(rng)
    else:
        value = _word(rng)
    if rng.random() < 0.02:
        name = name[: rng.randrange(2, len(name))]
    if rng.random() < 0.03:
        return [name]
    return [f"{name}={value}"] if rng.random() < 0.1 else [name, value]


def _number(rng: random.Random) -> str:
    return rng.choice(
        ("0", "1", "2", "7", "-1", "1e3", "x", "", "9" * 25, "9" * 5000, " 3 ", "１", "0x10", "1_0", "None", "nan")
    )


def _word(rng: random.Random) -> str:
    # What a command line can hold: no NUL, and of the surrogates only those that stand for undecodable bytes.
    text = odd_text(rng, surrogates=False).replace("\x00", "")
    return text + "\udcff" if rng.random() < 0.1 else text


def _path(rng: random.Random) -> str:
    roll = rng.random()
    if roll < 0.6:
        return rng.choice(_PATHS)
    odd = (
        *(
            "",
            ".",
            "/dev/null",
            "nowhere.parquet",
            "*.parquet",
            "*.csv",
            "[a-",
            "[",
            "**",
            "synthetic.*",
            "folder/",
            "./",
        ),
        *("~nobody/x.csv", "file:///nowhere", "memory://x.parquet", "foo://x", "http://[::1", "::", "a::b"),
        *("s3://CANARY:77317731@bucket/x", "https://u:CANARY@h/x?sig=CANARY", "zip://x::y.zip", "data:,x"),
    )
    return rng.choice(odd) if roll < 0.9 else _word(rng)


@cache
def _stock() -> dict[str, bytes]:
    """The bytes of small tables, a schema and a report."""
    from tests.fuzz.yamls import small

    out, tables = {}, small()
    for name, frame in (("train", "reference"), ("holdout", "query"), ("synthetic", "query")):
        sink = io.BytesIO()
        tables[frame].to_parquet(sink)
        out[f"{name}.parquet"] = sink.getvalue()
    out["synthetic.csv"] = tables["query"].to_csv(index=False).encode()
    out["broken.parquet"] = out["train.parquet"][:-9]
    out["empty.csv"] = b""
    out["report.json"] = reports()[0].encode()
    return out


def cli(rng: random.Random, folder: Path) -> None:
    """A random command line, in a folder of small tables."""
    for name, data in _stock().items():
        (folder / name).write_bytes(data)
    (folder / "folder").mkdir()
    os.chdir(folder)
    if rng.random() < 0.05:
        return _runs(rng, folder)
    words, found = rng.choice(list(_commands()))
    if rng.random() < 0.4:
        words, found = rng.choice([c for c in _commands() if c[0][0] in ("evaluate", "plan", "schema")])
    arguments = list(words)
    options = _options(found)
    for option in options:
        if option.required and rng.random() < 0.9:
            arguments += _given(option, rng)
    for option in rng.sample(options, min(len(options), rng.randrange(4))):
        arguments += _given(option, rng)
    if any(isinstance(p, click.Argument) for p in found.params):
        arguments += [_path(rng) for _ in range(rng.randrange(4))]
    if rng.random() < 0.15:
        arguments.insert(rng.randrange(len(arguments) + 1), rng.choice((*_FLAGS, _word(rng))))
    if rng.random() < 0.05:
        rng.shuffle(arguments)
    if rng.random() < 0.02:
        arguments = arguments[1:]
    for long, refused in _LONG.items():
        if long in arguments:
            arguments = [long, *refused, *(a for a in arguments if a not in (long, "--help", "-h"))]
    code, _ = command(arguments)
    page = folder / "out" / "report.html"
    if code in (0, 1) and page.exists():
        harmless(page.read_text("utf-8"))
    return None


def _runs(rng: random.Random, folder: Path) -> None:
    """A store whose manifest is damaged."""
    held = {
        "format": 1,
        "run": "a1b2",
        "block_rows": 5,
        "tables": {"train": {"rows": 12, "fingerprint": "0", "source": []}},
    }
    held |= {
        "steps": {"x": 1},
        "command": ["evaluate", "--train", "nowhere"],
        "directory": "",
        "created": "",
        "finished": "",
    }
    held |= {"version": daskpriv.__version__}
    spoiled = _spoil(held, rng) if rng.random() < 0.8 else held
    text = json.dumps(spoiled, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    (folder / "store" / "a1b2" / "pieces").mkdir(parents=True)
    (folder / "store" / "a1b2" / "manifest.json").write_bytes(damage(text, rng) if rng.random() < 0.3 else text)
    name = rng.choice(("a1b2", "a1b2", "nope", "../store", _word(rng)))
    command(
        ["runs", rng.choice(("list", "resume", "clean")), "--store", "store", *([name] if rng.random() < 0.5 else [])]
    )


# ---------------------------------------------------------------------------------------------- reports


@cache
def reports() -> list[str]:
    """Valid reports of several shapes, with a hostile column and file name."""
    from tests.fuzz.yamls import small

    tables = small()
    train, synthetic = (t.rename(columns={"town": ODD_TEXTS[14]}) for t in (tables["reference"], tables["query"]))
    out = [
        daskpriv.evaluate(train=train, synthetic=synthetic, holdout=synthetic),
        daskpriv.evaluate(train=train, synthetic=synthetic, fail_on=["leak"]),
        daskpriv.evaluate(train=train, synthetic=synthetic, metrics="clones"),
        daskpriv.evaluate(train=train, synthetic=synthetic, holdout=train, preset="clearbox"),
    ]
    return [r.to_json() for r in out]


def _paths_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _paths_of(inner, (*path, key))


def _odd_json(rng: random.Random) -> Any:
    return rng.choice(
        (
            *(
                None,
                True,
                False,
                0,
                -1,
                1,
                2.5,
                -0.0,
                1e308,
                -1e308,
                1e-320,
                float("nan"),
                float("inf"),
                10**30,
                10**4000,
            ),
            *("", [], {}, [[]], {"": {}}, [1, 2, 3], {"edges": [], "counts": []}, ["x"] * 3, "x" * 3000),
            odd_text(rng),
            odd_text(rng),
        )
    )


def _spoil(data: Any, rng: random.Random) -> Any:
    data = copy.deepcopy(data)
    for _ in range(1 + int(rng.expovariate(0.7))):
        path = rng.choice(list(_paths_of(data))[1:] or [()])
        if not path:
            return _odd_json(rng)
        holder = data
        for key in path[:-1]:
            holder = holder[key]
        roll = rng.random()
        if roll < 0.25:
            del holder[path[-1]]
        elif roll < 0.75:
            holder[path[-1]] = _odd_json(rng)
        elif isinstance(holder, dict):
            holder[odd_text(rng)] = holder[path[-1]]
        else:
            holder += holder[:50]
    return data


def report(rng: random.Random, folder: Path) -> None:
    """A damaged report.json, drawn again."""
    text = rng.choice(reports())
    if rng.random() < 0.7:
        data = json.dumps(_spoil(json.loads(text), rng), ensure_ascii=rng.random() < 0.5).encode(
            "utf-8", "surrogatepass"
        )
    else:
        data = text.encode()
        data = (
            bytes(b & 0x7F for b in damage(data, rng))
            if rng.random() < 0.8
            else splice(data, rng.choice(reports()).encode(), rng)
        )
    if rng.random() < 0.02:
        data = rng.choice(
            (b"[" * 100_000, b'{"a":' * 50_000, b"9" * 100_000, b"", b"null", b"\xff\xfe", b"\xef\xbb\xbf" + data)
        )
    path = folder / "report.json"
    path.write_bytes(data)
    arguments = ["report", "--from", str(path)]
    if rng.random() < 0.2:
        target = rng.choice(
            (str(folder / "x.html"), str(folder / "new" / "x.html"), str(folder), str(path), str(path / "x"), "")
        )
        arguments += ["--output", target]
    code, printed = command(arguments)
    if code == 0:
        page = Path(printed.strip().removeprefix("report: "))
        if page.suffix == ".json":
            raise Failure("the page was written over the report")
        harmless(page.read_text("utf-8"))
