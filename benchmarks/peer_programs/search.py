"""`python -m benchmarks.peer_programs.search FOLDER PEER SECONDS`: one peer, one pair of tables, one JSON line."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.peer_programs.adapters import PEERS, Floats, Peer

_WARM_UP, _FIRST = 4, 8
_SHORT_S, _MOST_RUNS = 1.0, 10


def pin() -> None:
    """Stay on one core, the last one we may use."""
    try:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    except (AttributeError, OSError):
        print("cannot pin to one core", file=sys.stderr)


def timed(peer: Peer, rows: int) -> tuple[float, Floats]:
    """CPU seconds of all threads, and what was found."""
    peer.take(rows)
    begun = time.process_time()
    found = peer.nearest()
    return time.process_time() - begun, found


def averaged(peer: Peer, rows: int) -> tuple[float, Floats]:
    """The mean of several runs where one is short, so that a fast peer is not judged by its first touch of memory."""
    spent, found = timed(peer, rows)
    runs = 1
    while spent < _SHORT_S and runs < _MOST_RUNS:
        spent += timed(peer, rows)[0]
        runs += 1
    return spent / runs, found


def affordable(peer: Peer, rows: int, seconds: float) -> int:
    """How many query rows fit the budget, by two runs at growing sizes: a call has fixed costs and costs per row."""
    size, (spent, _) = min(_FIRST, rows), timed(peer, min(_FIRST, rows))
    before = (0, 0.0)
    while spent < seconds / 8 and size < rows:
        before, size = (size, spent), min(4 * size, rows)
        spent, _ = timed(peer, size)
    per_row = max((spent - before[1]) / (size - before[0]), 0.2 * spent / size)
    return int(np.clip((seconds - (spent - per_row * size)) / per_row, 1, rows))


def main(folder: Path, name: str, seconds: float) -> None:
    pin()
    peer = PEERS[name](folder)
    rows, references = (int(n) for n in np.load(folder / "rows.npy"))
    begun = time.process_time()
    peer.build()
    build = time.process_time() - begun
    timed(peer, min(_WARM_UP, rows))
    rows = affordable(peer, rows, seconds)
    if rows == references:
        rows -= 1  # `gower` fills half a matrix when both tables have the same number of rows
    spent, found = averaged(peer, rows)
    np.save(folder / f"found-{name}.npy", np.asarray(found, dtype=np.float64))
    print(json.dumps({"rows": rows, "build_s": build, "query_s": spent}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
