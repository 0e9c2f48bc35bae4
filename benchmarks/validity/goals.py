"""Where each goal for the validity of the numbers is shown: a study of this folder, or tests."""

from __future__ import annotations

from typing import NamedTuple


class Goal(NamedTuple):
    """One goal: the commands that measure it, or the tests (file::function, or a whole file) that hold it."""

    name: str
    goal: str
    commands: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()


_STUDY = "python -m benchmarks.validity"
_LAWS = "tests/laws/test_properties.py"
GOALS = (
    Goal(
        "V1",
        "false alarms of every test and verdict 3.5 to 6.5 % at 5 % (or fewer), 1000 draws in each of 10 suites; whole "
        "report at most 5 %",
        (f"{_STUDY} null --draws 1000", f"{_STUDY} null --draws 1000 --metrics all"),
    ),
    Goal(
        "V2",
        "n = 5000, report at 5 %: power 99 % for 25 verbatim rows, 80 % for 10; 95 % for 50 jittered rows and for 100 "
        "noisy outliers, 65 % for 50",
        (f"{_STUDY} power --trials 200", f"{_STUDY} power --trials 100 --peers", f"{_STUDY} power --full --peers"),
    ),
    Goal(
        "V3",
        "20 verbatim copies among 1 M x 1 M x 1 M rows found in 95 % of trials; MDE of the share at most 0.3 %",
        (f"{_STUDY} large --rows 20000 --trials 20", f"{_STUDY} large --trials 5"),
    ),
    Goal(
        "V4",
        "bias of the copy rate at most 0.1 points, its interval holds it in 93 to 97 %, for 0 to 20 % planted",
        (f"{_STUDY} bias --trials 1000",),
    ),
    Goal(
        "V5",
        "exposure list: false discoveries at most 1.5 points above nominal; every verbatim copy of 1 % or more listed",
        (f"{_STUDY} discovery --trials 100",),
    ),
    Goal("V6", "every score monotone in the leak, 0 to 100 % in 11 points", (f"{_STUDY} monotone --trials 10",)),
    Goal(
        "V7",
        "the same report for any order of rows and columns, any partitions and workers; repeated synthetic rows change "
        "no p-value (but those of the density attack, which counts them)",
        tests=(
            f"{_LAWS}::test_row_order_does_not_matter",
            f"{_LAWS}::test_block_rows_do_not_matter",
            f"{_LAWS}::test_the_executor_does_not_matter",
            f"{_LAWS}::test_the_way_in_does_not_matter",
            f"{_LAWS}::test_swapping_train_and_holdout_maps_share_to_its_complement",
            "tests/test_exactness.py::test_the_order_of_columns_is_that_of_the_schema",
            "tests/test_distributed.py",
            "tests/test_validity_benchmarks.py::test_repeated_synthetic_rows_change_no_p_value",
        ),
    ),
    Goal(
        "V8",
        "the lower bound on epsilon is above it in at most 5 % of runs of mechanisms with a known epsilon",
        (f"{_STUDY} epsilon --trials 200",),
        ("tests/test_split.py::test_the_bound_seldom_exceeds_the_epsilon_of_randomised_response",),
    ),
    Goal(
        "V9",
        "numbers of publications and tools to 1e-6, with what misleads printed beside them",
        tests=(
            "tests/test_published.py",
            "tests/metrics/test_peers.py",
            "tests/metrics/test_peers.py::test_the_preset_says_what_misleads",
        ),
    ),
)


def lines() -> list[str]:
    """One paragraph per goal."""
    out = []
    for goal in GOALS:
        out.append(f"{goal.name}  {goal.goal}")
        out += [f"      {command}" for command in goal.commands]
        out += [f"      python -m pytest {test}" for test in goal.tests]
    return out
