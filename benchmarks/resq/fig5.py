"""ResQ (NSDI'18) Fig. 5: cache isolation with as many packet buffers as fit the ways of DDIO.

python benchmarks/resq/fig5.py [BUFFERS]    # other than the paper's rule gives
"""

import sys
from collections.abc import Iterator

from beside_paper import COMPETITORS, RESQ, Line, comparable, report, worst

from slomo.vocabulary.machine import load_machine


def lines(buffers: int | None = None) -> Iterator[Line]:
    room_b = load_machine(RESQ).capacities().ddio_kib * 1024
    sized = buffers or int(room_b / 1600) // (COMPETITORS + 1)  # 25 lines of 64 B hold a packet of 1518 B
    for size_b in (64, 1518):
        losses = {name: worst(name, size_b, True, sized)[0] for name in comparable(size_b)}
        name = max(losses, key=losses.__getitem__)
        what = f"{sized} buffers each, {size_b} B, worst of all ({name}): % lost"
        yield Line("Fig. 5", what, "<3", losses[name], -1, 3)


if __name__ == "__main__":
    sys.exit(report(lines(*map(int, sys.argv[1:]))))
