"""`python -m tests.cluster chaos --trials 200 --seed 0` and `python -m tests.cluster matrix`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.cluster import matrix
from tests.cluster.certificates import tls_works
from tests.cluster.netns import namespaces_work

Fault = Callable[[matrix.Lane], matrix.Record]


def _chaos(options: argparse.Namespace) -> int:
    records: list[matrix.Record] = []
    begun = time.monotonic()
    with matrix.lanes(seed=options.seed) as lane:
        print(f"undisturbed: {lane.undisturbed:.1f} s, {lane.pieces} pieces, {lane.units} units", flush=True)
        for number in range(options.trials):
            if time.monotonic() - begun > options.minutes * 60:
                break
            records.append(matrix.chaos_trial(lane, options.seed * 100_000 + number))
            print(records[-1], flush=True)
    print(matrix.summary(records), flush=True)
    return 0 if records and all(r.good for r in records) else 1


def _matrix(options: argparse.Namespace) -> int:
    only = set(filter(None, options.only.split(",")))
    records: list[matrix.Record] = []
    kinds: list[tuple[tuple[Fault, ...], dict[str, Any]]] = [(matrix.PLAIN, {})]
    if (why := namespaces_work()) is None and (why := tls_works()) is None:
        kinds.append((matrix.ON_A_NETWORK, {"namespaces": True, "tls": True}))
    else:
        print(f"no faults of the network: {why}", flush=True)
    for faults, how in kinds:
        chosen = [f for f in faults if not only or f.__name__ in only]
        if not chosen:
            continue
        with matrix.lanes(seed=options.seed, **how) as lane:
            print(f"undisturbed: {lane.undisturbed:.1f} s, {lane.pieces} pieces, {lane.units} units", flush=True)
            for _ in range(options.trials):
                for fault in chosen:
                    records.append(fault(lane))
                    print(records[-1], flush=True)
    print(f"{matrix.table(records)}\n{matrix.summary(records)}", flush=True)
    return 0 if records and all(r.good for r in records) else 1


def _kills(options: argparse.Namespace) -> int:
    records = []
    with matrix.lanes(rows=12_000, seed=options.seed) as lane:
        print(f"undisturbed: {lane.undisturbed:.1f} s, {lane.pieces} pieces, {lane.units} units", flush=True)
        for number in range(options.trials):
            records.append((matrix.client_killed, matrix.client_killed_locally)[number % 2](lane))
            print(records[-1], flush=True)
    print(f"{matrix.table(records)}\nmost pieces made again: {max(r.again for r in records)}", flush=True)
    return 0 if all(r.good for r in records) else 1


def main() -> int:
    """Run one of the commands; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster")
    commands = parser.add_subparsers(required=True)
    chaos = commands.add_parser("chaos", help="random mixes of faults")
    chaos.add_argument("--trials", type=int, default=200)
    chaos.add_argument("--seed", type=int, default=0)
    chaos.add_argument("--minutes", type=float, default=60.0, help="begin no trial after so many")
    chaos.set_defaults(run=_chaos)
    every = commands.add_parser("matrix", help="each fault at random moments")
    every.add_argument("--trials", type=int, default=5, help="of each fault")
    every.add_argument("--seed", type=int, default=0)
    every.add_argument("--only", default="", help="names of faults, comma separated")
    every.set_defaults(run=_matrix)
    kills = commands.add_parser("kills", help="kill -9 of the client at random moments of a longer run")
    kills.add_argument("--trials", type=int, default=20)
    kills.add_argument("--seed", type=int, default=0)
    kills.set_defaults(run=_kills)
    options = parser.parse_args()
    return int(options.run(options))


if __name__ == "__main__":
    sys.exit(main())
