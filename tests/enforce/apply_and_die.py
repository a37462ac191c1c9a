"""Apply a plan to the emulated tree and be killed (SIGKILL) right before a given change or entry of the journal."""

import os
import random
import signal
import sqlite3
import sys
from contextlib import AbstractContextManager
from pathlib import Path

from slomo.enforce import EnforcementPlan, MemoryBandwidth, TenantSetting, apply
from slomo.enforce.backends.resctrl import ResctrlBackend
from slomo.host.journal import Journal
from tests.fake_resctrl.files import fake_tree


def plan(seed: int) -> EnforcementPlan:
    """Return one of many plans."""
    draw = random.Random(seed)
    at, tenants = 0, []
    for core in draw.sample(range(4), 3):
        ways = draw.randint(1, 3)
        bandwidth = MemoryBandwidth(draw.choice([20, 50, 100])) if draw.random() < 0.5 else None
        mask = ((1 << ways) - 1) << at
        tenants.append(TenantSetting(f"t{core}", cores=(core,), llc_way_mask=mask, memory_bandwidth=bandwidth))
        at += ways
    tenants.append(TenantSetting("task", process_ids=(draw.choice([101, 103]),), llc_way_mask=0x7FF & ~((1 << at) - 1)))
    return EnforcementPlan("s", tuple(tenants))


def main(folder: Path, seed: int, die_at: int) -> None:
    """Count every write, and die before number `die_at`."""
    count = 0

    def before_write(_: int = 0) -> None:
        nonlocal count
        count += 1
        if count == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    backend = ResctrlBackend(fake_tree(folder, before_change=before_write), folder / "etc")
    transaction = Journal.transaction

    def dying(self: Journal) -> AbstractContextManager[sqlite3.Connection]:
        before_write()
        return transaction(self)

    Journal.transaction = dying  # type: ignore[method-assign, assignment]
    apply(plan(seed), backend, receipts=folder / "receipts")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
