"""The policy file: what it may say, what one sentence it gets when it says something else, and what it changes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from click.testing import CliRunner, Result
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import daskpriv
from daskpriv.cli import cli
from daskpriv.errors import InputError
from daskpriv.metrics import METRICS
from daskpriv.policy import policy_of
from daskpriv.protocol import Verdict

HEAD = "daskpriv_policy: 1\n"
Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a policy file and say where it is."""

    def written(text: str | bytes) -> Path:
        path = tmp_path / "policy.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return written


def refused(path: Any) -> str:
    """The one sentence of a policy that cannot be used."""
    with pytest.raises(InputError) as raised:
        policy_of(path)
    told = str(raised.value)
    assert told.startswith("policy")
    assert told.endswith(".")
    assert told.count("\n") == 0
    assert len(told) <= 1000
    return told


# ---------------------------------------------------------------------------------------------- reading


def test_the_policy_of_the_package() -> None:
    found = policy_of(None)
    assert (found.level, found.fail_on, found.source) == (0.95, (), "default")
    assert (found.margins["dcr_share"], found.margins["clones"]) == (0.05, 0.001)
    assert found.gates == {
        "split_p": 0.01,
        "split_effect": 0.01,
        "twins_p": 0.01,
        "fidelity_ratio": 3.0,
        "rows": 100.0,
    }


def test_its_margins_are_those_of_the_metrics() -> None:
    """A metric with a margin has one in the policy, and the same one without a policy."""
    with_margin = {
        name: next(f.default for f in dataclasses.fields(metric) if f.name == "margin")
        for name, metric in METRICS.items()
        if "margin" in {f.name for f in dataclasses.fields(metric)}
    }
    assert policy_of(None).margins == with_margin


def test_the_file_of_the_package_is_a_valid_one(tmp_path: Path) -> None:
    source = Path(daskpriv.__file__).parent / "policy.yaml"
    found = policy_of(source)
    assert dataclasses.replace(found, source="default") == policy_of(None)


def test_what_is_left_out_stays(write: Write) -> None:
    default = policy_of(None)
    found = policy_of(write(HEAD + "margins:\n  clones: 0.25\ngates: {rows: 7}\nfail_on: [leak, 'dcr_share>0.6']\n"))
    assert found.level == default.level
    assert found.margins == {**default.margins, "clones": 0.25}
    assert found.gates == {**default.gates, "rows": 7.0}
    assert found.fail_on == ("leak", "dcr_share>0.6")
    assert found.source != "default"
    assert policy_of(write(HEAD + "level: 0.5\n")) == dataclasses.replace(
        default, level=0.5, source=policy_of(write(HEAD)).source
    )
    assert policy_of(None) == default


@pytest.mark.parametrize(
    "text",
    [
        HEAD,
        HEAD + "margins:\ngates: {}\nfail_on: []\n",
        "# a remark\n---\n" + HEAD,
        "\ufeff" + HEAD,
        '{"daskpriv_policy": 1, "level": 0.95}',
        HEAD + "level: &l 0.95\nmargins: {dcr_share: 0.05}\n",
        HEAD.replace("\n", "\r\n"),
    ],
)
def test_ways_to_say_nothing_new(write: Write, text: str) -> None:
    assert dataclasses.replace(policy_of(write(text)), source="default") == policy_of(None)


def test_where_a_policy_may_lie(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(HEAD + "level: 0.8\n")
    monkeypatch.chdir(path.parent)
    MemoryFileSystem().pipe("/policies/p.yaml", path.read_bytes())
    for given_ in (path, str(path), path.name, f"file://{path}", "memory://policies/p.yaml"):
        assert policy_of(given_).level == 0.8
    held = policy_of(path)
    assert policy_of(held) is held


def test_margins_of_nought_and_large_ones_are_taken(write: Write) -> None:
    found = policy_of(write(HEAD + "margins: {clones: 0, dcr_share: 1.0e+300}\ngates: {split_p: 0.0}\n"))
    assert (found.margins["clones"], found.margins["dcr_share"]) == (0.0, 1e300)
    assert all(type(v) is float for v in (*found.margins.values(), *found.gates.values(), found.level))


# ---------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("level: 1.5", "level must be a number, at least 0.5 and below 1"),
        ("level: 1", "level must be"),
        ("level: 0.49", "level must be"),
        ("level: .nan", "level must be"),
        ("level: .inf", "level must be"),
        ("level: -0.95", "level must be"),
        ("level: '0.95'", "level must be"),
        ("level: true", "level must be"),
        ("level:", "level must be"),
        ("level: [0.95]", "level must be"),
        ("level: 2021-07-31", "level must be"),
        ("margins: {clones: .nan}", "margins.clones must be a number"),
        ("margins: {clones: -0.001}", "margins.clones must be"),
        ("margins: {dcr_share: .inf}", "margins.dcr_share must be"),
        ("margins: {dcr_share: much}", "margins.dcr_share must be"),
        ("margins: {dcr_share: {of: 1}}", "margins.dcr_share must be"),
        ("margins: {dcr_share: }", "margins.dcr_share must be"),
        ("margins: {dcr_share: no}", "margins.dcr_share must be"),
        ("margins: [0.1]", "margins must hold names and numbers"),
        ("margins: 0.1", "margins must hold"),
        ("margins: {dcr: 0.1}", "unknown margins key 'dcr'"),
        ("margins: {1: 0.1}", "unknown margins key"),
        ("gates: {rows: -1}", "gates.rows must be"),
        ("gates: {rows: '100'}", "gates.rows must be"),
        ("gates: {row: 1}", "unknown gates key 'row'"),
        ("gates: rows", "gates must hold"),
        ("fail_on: leak", "fail_on must be a list of rules"),
        ("fail_on:", "fail_on must be"),
        ("fail_on: [1]", "fail_on must be"),
        ("fail_on: [[leak]]", "fail_on must be"),
        ("fail_on: {leak: 1}", "fail_on must be"),
        ("levels: 0.9", "unknown key 'levels'"),
        ("'Level': 0.9", "unknown key 'Level'"),
        ("1: 0.9", "unknown key"),
        ("null: 0.9", "unknown key"),
        ("level: 0.9\nlevel: 0.8", "'level' is listed twice"),
        ("margins: {clones: 0.1, 'clones': 0.2}", "'clones' is listed twice"),
        ("fail_on: []\n? fail_on\n: []", "'fail_on' is listed twice"),
        ("daskpriv_policy: 1", "'daskpriv_policy' is listed twice"),
    ],
)
def test_a_bad_value_is_one_sentence_that_names_its_key(write: Write, text: str, named: str) -> None:
    assert named in refused(write(HEAD + text + "\n"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "daskpriv",
        "- daskpriv_policy: 1",
        "level: 0.9",
        "daskpriv_policy: 2",
        "daskpriv_policy: '1'",
        "daskpriv_policy: true",
        "daskpriv_policy: yes",
        "daskpriv_policy: 1.0",
        "~",
    ],
)
def test_what_is_no_policy_is_told_how_one_begins(write: Write, text: str) -> None:
    assert "the first line must say daskpriv_policy: 1" in refused(write(text))


@pytest.mark.parametrize(
    "text",
    [
        "level: [",
        "level: 0.9: 0.8",
        "\tlevel: 0.9",
        "level: *nothing",
        "level: !!python/object/apply:os.getcwd []",
        "level: !!int ''",
        "level: !mine 0.9",
        "margins: &m {clones: 0.1}\ngates:\n  <<: *m",
        "? [level]\n: 0.9",
        "---\n" + HEAD,
        "level: \x00",
        "level: " + "[" * 2000,
    ],
)
def test_what_is_no_plain_yaml_is_refused(write: Write, text: str) -> None:
    told = refused(write(HEAD + text + "\n"))
    assert "this is not valid YAML" in told


def test_aliases_that_grow_without_end(write: Write) -> None:
    """Nine lists of nine lists of ...: nothing is written out, and each place refuses what it cannot hold."""
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
        for before, name in zip("abcdefghijk", "bcdefghijkl", strict=True)
    )
    assert "unknown key 'a'" in refused(write(HEAD + bomb))
    inner = bomb.replace("a: &a", "  - &a").replace(": &", "  - &")
    inner = "".join(f"{line[line.index('- ') :]}\n" for line in inner.splitlines())
    assert "fail_on must be" in refused(write(f"{HEAD}fail_on:\n{inner}"))
    assert "fail_on must be" in refused(write(HEAD + "fail_on: &a [*a]\n"))
    assert "margins.clones must be" in refused(write(HEAD + "margins: &a {clones: *a}\n"))
    assert "unknown margins key" in refused(write("&a {daskpriv_policy: 1, margins: *a}\n"))


@pytest.mark.parametrize("value", ["1" + 400 * "0", "0x" + 400 * "f"])
@pytest.mark.parametrize("key", ["level", "margins.clones", "gates.rows"])
def test_numbers_beyond_any_float_are_refused(write: Write, key: str, value: str) -> None:
    table, _, name = key.rpartition(".")
    text = f"{table}: {{{name}: {value}}}\n" if table else f"{name}: {value}\n"
    assert f"{key} must be a number" in refused(write(HEAD + text))


@pytest.mark.parametrize("table", ["", "margins:\n  ", "gates:\n  "])
def test_keys_of_thousands_of_digits_have_no_text(write: Write, table: str) -> None:
    indent = "  " if table else ""
    told = refused(write(f"{HEAD}{table}? 0x{'f' * 5000}\n{indent}: 1\n"))
    assert "unknown" in told


def test_long_names_are_cut(write: Write) -> None:
    told = refused(write(f"{HEAD}? {'k' * 5000}\n: 1\n"))
    assert "unknown key 'kkk" in told
    assert len(told) < 500


@pytest.mark.parametrize("data", [b"daskpriv_policy: 1\n# \xff\n", HEAD.encode("utf-16"), b"\x80"])
def test_text_of_another_encoding(write: Write, data: bytes) -> None:
    assert "not UTF-8 text" in refused(write(data))


def test_what_cannot_be_read(tmp_path: Path) -> None:
    told = refused(tmp_path / "none.yaml")
    assert "none.yaml" in told
    assert "No such file or directory" in told
    assert "cannot be read" in refused(tmp_path)
    assert "cannot be read" in refused("")
    assert "cannot be read" in refused("a\0b")
    assert "cannot be read" in refused("memory://policies/none.yaml")
    for given_ in (3, b"policy.yaml", {"level": 0.9}, ["policy.yaml"]):
        assert refused(given_) == "policy: give the path of a YAML file."


def test_credentials_in_an_address_are_not_repeated() -> None:
    told = refused("https://user:hush@example.org/policy.yaml")
    assert "hush" not in told


_SCALARS: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats()
    | st.sampled_from(["leak", "0.9", "level", ""])
    | st.text("abcXYZ 0-:#'\"{}[]*&!%@", max_size=8)
    | st.dates()
    | st.binary(max_size=3)
)
_KEYS = st.sampled_from(["daskpriv_policy", "level", "margins", "gates", "fail_on", "clones", "rows", "x", "", 1, None])
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3), max_leaves=6
)


@settings(
    max_examples=150,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.dictionaries(_KEYS, _VALUES, max_size=4))
def test_any_values_make_a_policy_or_one_sentence(write: Write, data: dict[Any, Any]) -> None:
    path = write(yaml.safe_dump({"daskpriv_policy": 1, **data}, sort_keys=False))
    try:
        found = policy_of(path)
    except InputError:
        refused(path)
        return
    default = policy_of(None)
    assert 0.5 <= found.level < 1
    assert found.margins.keys() == default.margins.keys()
    assert found.gates.keys() == default.gates.keys()
    assert all(0 <= v < float("inf") for v in (*found.margins.values(), *found.gates.values()))
    assert all(isinstance(r, str) for r in found.fail_on)


# ---------------------------------------------------------------------------------------------- effects


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real tables of 300 rows and a synthetic one, of which four in ten are training rows."""
    rng = np.random.default_rng(3)
    out = tmp_path_factory.mktemp("tables")

    def table(n: int) -> pd.DataFrame:
        return pd.DataFrame({"x": rng.normal(size=n), "y": rng.normal(size=n), "z": rng.choice(list("abc"), n)})

    train, holdout, fresh = table(300), table(300), table(300)
    leaky = pd.concat([train.head(120), fresh.head(180)])
    for name, frame in (("train", train), ("holdout", holdout), ("fresh", fresh), ("leaky", leaky)):
        frame.to_parquet(out / f"{name}.parquet", index=False)
    return out


@pytest.fixture
def command(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`daskpriv evaluate` in this process, without a cluster."""
    monkeypatch.setattr("daskpriv.cli.evaluate.client_for", lambda *a: nullcontext())

    def invoked(*more: str, synthetic: str = "leaky") -> Result:
        names = {"train": "train", "holdout": "holdout", "synthetic": synthetic}
        tables = [x for option, name in names.items() for x in (f"--{option}", str(folder / f"{name}.parquet"))]
        given_ = ["evaluate", *tables, "--output", str(tmp_path / "out"), "--metrics", "dcr_share,clones", "--quiet"]
        return CliRunner().invoke(cli, [*given_, *more])

    return invoked


def report_in(tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp_path / "out" / "report.json").read_text())
    return found


def test_a_policy_moves_the_margins_of_verdicts(command: Callable[..., Result], write: Write, tmp_path: Path) -> None:
    assert command().exit_code == 0
    before = report_in(tmp_path)
    share = before["metrics"]["dcr_share"]
    assert (share["verdict"], share["details"]["margin"]) == ("LEAK", 0.05)
    assert before["settings"]["policy"] == {
        "level": 0.95,
        "margins": dict(policy_of(None).margins),
        "gates": dict(policy_of(None).gates),
    }
    path = write(HEAD + "margins: {dcr_share: 0.9}\n")
    assert command("--policy", str(path)).exit_code == 0
    after = report_in(tmp_path)
    assert after["metrics"]["dcr_share"]["verdict"] == "BOUNDED"
    assert after["metrics"]["dcr_share"]["details"]["margin"] == 0.9
    assert after["metrics"]["dcr_share"]["value"] == share["value"]
    assert after["metrics"]["dcr_share"]["p_value"] == share["p_value"]
    assert after["metrics"]["clones"] == before["metrics"]["clones"]
    assert after["settings"]["policy"]["margins"] == {**policy_of(None).margins, "dcr_share": 0.9}


def test_a_policy_says_how_many_rows_bound_a_leak(command: Callable[..., Result], write: Write, tmp_path: Path) -> None:
    """Tables of 300 rows: what was BOUNDED is not, when 301 are asked for; a leak stays one."""
    for rows, passed, share in ((300, True, "BOUNDED"), (301, False, "INCONCLUSIVE")):
        path = write(f"{HEAD}margins: {{dcr_share: 0.9}}\ngates: {{rows: {rows}}}\n")
        assert command("--policy", str(path)).exit_code == 0
        found = report_in(tmp_path)
        assert [g["passed"] for g in found["gates"] if g["name"] == "sizes"] == [passed]
        assert found["metrics"]["dcr_share"]["verdict"] == share
        assert found["metrics"]["clones"]["verdict"] == found["overall"]["verdict"] == "LEAK"


def test_a_policy_of_a_bounded_release(command: Callable[..., Result], write: Write, tmp_path: Path) -> None:
    """Without copies: clones are BOUNDED below any margin but none."""
    assert command(synthetic="fresh").exit_code == 0
    assert report_in(tmp_path)["metrics"]["clones"]["verdict"] == "BOUNDED"
    assert command("--policy", str(write(HEAD + "margins: {clones: 0}\n")), synthetic="fresh").exit_code == 0
    assert report_in(tmp_path)["metrics"]["clones"]["verdict"] == "INCONCLUSIVE"


def test_a_policy_sets_the_level_of_intervals(folder: Path, write: Write) -> None:
    tables = {name: folder / f"{name}.parquet" for name in ("train", "holdout")}
    found = {}
    for level in (0.8, 0.99):
        report = daskpriv.evaluate(
            **tables,
            synthetic=folder / "leaky.parquet",
            metrics=["dcr_share", "clones"],
            policy=write(f"{HEAD}level: {level}\n"),
        )
        for name in ("dcr_share", "clones"):
            details = report.metrics[name].details
            interval = details["excess_interval" if name == "dcr_share" else "copied_train_rows_interval"]
            assert interval[2] == level
            found[name, level] = interval
    for name in ("dcr_share", "clones"):
        narrow, wide = found[name, 0.8], found[name, 0.99]
        assert wide[0] < narrow[0] < narrow[1] <= wide[1]  # no holdout row has a copy: the share ends at 1


def test_rules_of_a_policy_fail_the_run(command: Callable[..., Result], write: Write, tmp_path: Path) -> None:
    policy = ["--policy", str(write(HEAD + "fail_on: [leak]\n"))]
    done = command(*policy)
    assert done.exit_code == 1
    assert done.stderr.splitlines() == ["daskpriv: rule 'leak' is broken."]
    assert report_in(tmp_path)["overall"]["rules"] == [{"rule": "leak", "broken": True}]
    assert report_in(tmp_path)["overall"]["passed"] is False
    assert command(*policy, synthetic="fresh").exit_code == 0
    done = command(*policy, "--fail-on", "dcr_share>0.99")
    assert done.exit_code == 1
    assert report_in(tmp_path)["overall"]["rules"] == [
        {"rule": "dcr_share>0.99", "broken": False},
        {"rule": "leak", "broken": True},
    ]


def test_rules_and_margins_of_a_policy_work_together(command: Callable[..., Result], write: Write) -> None:
    """With wide margins, what was a leak is none."""
    text = HEAD + "margins: {dcr_share: 0.9, clones: 0.9}\nfail_on: [leak]\n"
    assert command("--policy", str(write(text)), "--metrics", "dcr_share").exit_code == 0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (HEAD + "fail_on: [speed]\n", "daskpriv: rule 'speed' is not understood"),
        (HEAD + "fail_on: ['nndr<1']\n", "daskpriv: rule 'nndr<1': 'nndr' is not among the metrics of this run"),
        (HEAD + "level: 1.5\n", "level must be a number, at least 0.5 and below 1."),
        (HEAD + "margin: {}\n", "unknown key 'margin'"),
        ("level: 0.9\n", "the first line must say daskpriv_policy: 1"),
    ],
)
def test_a_bad_policy_ends_the_command_before_any_work(
    command: Callable[..., Result], write: Write, tmp_path: Path, text: str, sentence: str
) -> None:
    done = command("--policy", str(write(text)))
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("daskpriv: ")
    assert sentence in done.stderr
    assert "Traceback" not in done.output
    assert not (tmp_path / "out").exists()


def test_a_policy_that_is_not_there(command: Callable[..., Result], tmp_path: Path) -> None:
    done = command("--policy", str(tmp_path / "none.yaml"))
    assert done.exit_code == 2
    assert "cannot be read (No such file or directory); check the path." in done.stderr


def test_a_policy_object_is_taken_as_it_is(folder: Path) -> None:
    tables = {name: folder / f"{name}.parquet" for name in ("train", "holdout")}
    held = dataclasses.replace(policy_of(None), margins={**policy_of(None).margins, "dcr_share": 0.9})
    report = daskpriv.evaluate(**tables, synthetic=folder / "leaky.parquet", metrics=["dcr_share"], policy=held)
    assert report.metrics["dcr_share"].verdict is Verdict.BOUNDED
    with pytest.raises(InputError, match="give the path of a YAML file"):
        daskpriv.evaluate(**tables, synthetic=folder / "leaky.parquet", policy=0.9)
