"""ResQ (NSDI'18) Table 1: nine network functions alone. Fitted: their compute and accesses are solved for it."""

import sys
from collections.abc import Iterator

from beside_paper import TABLE_1, Line, report, solo


def lines() -> Iterator[Line]:
    for name, (mpps, ipc, references, hit) in TABLE_1.items():
        ours = solo(name, 64).tenants[0]
        for what, paper, value in (
            ("Mpps", mpps, ours.throughput_mpps),
            ("IPC", ipc, ours.vector["IPC"]),
            ("L3 references/packet", references, ours.l3_references_per_packet),
        ):
            yield Line("Table 1", f"{name}: {what}", f"{paper:g}", value, 0.95 * paper, 1.05 * paper, fitted=True)
        hits = 100 * ours.vector["L3HIT"]
        yield Line("Table 1", f"{name}: L3 hit %", f"{hit:g}", hits, hit - 0.5, hit + 0.5, fitted=True)


if __name__ == "__main__":
    sys.exit(report(lines()))
