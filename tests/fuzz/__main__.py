"""Run many fuzzed inputs: `python -m tests.fuzz --executions 100000 --seed 1 [--only parquet] [--findings FILE]`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path

from tests.fuzz.driver import child, in_this_process, supervised, targets, told


def main() -> int:
    """Run what the command line asks for; 1 when anything was found."""
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__)
    parser.add_argument("--executions", type=int, default=100_000, help="inputs in all, shared among the targets")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", choices=["parquet", "csv", "schema", "yaml", "cli", "report", "frames"], action="append"
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="processor time that one input may take")
    parser.add_argument(
        "--again", type=int, metavar="NUMBER", help="run this one input of --only, here, with its trace"
    )
    parser.add_argument("--findings", type=Path, help="where to write findings as JSON lines")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(*json.loads(asked.child))
        return 0
    chosen = {n: t for n, t in targets().items() if not asked.only or n in asked.only}
    if asked.again is not None:
        with tempfile.TemporaryDirectory() as folder:
            for name, (work, _) in chosen.items():
                out = in_this_process(name, work, asked.seed, asked.again, 1, Path(folder), asked.seconds)
                print("\n".join(f["trace"] + "\n" + f["what"] for f in out.findings) or "nothing found")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    shares = sum(share for _, share in chosen.values())
    found, executions, seconds = [], 0, 0.0
    for name, (_, share) in chosen.items():
        out = supervised(name, asked.seed, 0, round(asked.executions * share / shares), asked.seconds)
        print(told(out), flush=True)
        found += out.findings
        executions, seconds = executions + out.executions, seconds + out.seconds
        if out.interrupted:
            print("interrupted", file=sys.stderr)
            return 3
    print(f"{'all':<8} {executions:>7} inputs {seconds:>8.1f} s {len(found):>4} findings, seed {asked.seed}")
    if asked.findings:
        asked.findings.write_text("".join(json.dumps(f) + "\n" for f in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
