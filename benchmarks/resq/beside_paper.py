"""What the scripts of ResQ's (NSDI'18) figures share: runs of its testbed, and the table that ends in what is off."""

import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the runs are SLOMO's figures', too

from phenomena_runs import COMPETITORS, RESQ, TABLE_1, Line, loss, run, seeds, shared, solo, tenant, traffic, worst

__all__ = [
    "COMPETITORS", "NOT_SATURATED_BY_LARGE_PACKETS", "RESQ", "TABLE_1", "Line",
    "comparable", "loss", "report", "run", "seeds", "shared", "solo", "tenant", "traffic", "worst",
]  # fmt: skip

#: Fig. 2's caption: with large packets the paper's testbed could not saturate the cores of these two.
NOT_SATURATED_BY_LARGE_PACKETS = ("lpm", "snort")


def comparable(size_b: int) -> list[str]:
    """Return the network functions that the paper shows at a frame size."""
    return [name for name in TABLE_1 if size_b < 1000 or name not in NOT_SATURATED_BY_LARGE_PACKETS]


def report(lines: Iterable[Line]) -> int:
    """Print lines as they come; return how the process ends: 1 where one is off."""
    off = 0
    print(f"{'figure':10} {'what':60} {'paper':>10} {'ours':>9}")
    for line in lines:
        print(line, flush=True)
        off += line.ok is False
    print(f"{off} off")
    return 1 if off else 0
