"""`python -m benchmarks.validity null --draws 1000`, `... power --trials 200`; `... goals` says which there are."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from benchmarks.validity import bias, discovery, epsilon, goals, large, monotone, null, power, trials
from benchmarks.validity.worlds import NoWorldError

STUDIES: dict[str, Any] = {
    "null": null,
    "power": power,
    "large": large,
    "bias": bias,
    "discovery": discovery,
    "monotone": monotone,
    "epsilon": epsilon,
}


def main(arguments: list[str] | None = None) -> int:
    """Run one study."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.validity")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("goals", help="where each goal is shown")
    for name, study in STUDIES.items():
        command = commands.add_parser(name, help=study.HELP)
        trials.add_options(command)
        study.add_options(command)
    options = parser.parse_args(arguments)
    if options.command == "goals":
        print("\n".join(goals.lines()))
        return 0
    if min(getattr(options, name, 1) for name in ("trials", "draws")) < 1:
        parser.error("at least one trial")
    try:
        STUDIES[options.command].run(options)
    except NoWorldError as error:
        print(f"{options.command}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
