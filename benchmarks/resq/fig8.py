"""ResQ (NSDI'18) Fig. 8: SLOs broken by schedulers that know nothing of contention, cache shared and cut evenly.

python benchmarks/placement/prepare.py DIR
python benchmarks/resq/fig8.py DIR [SEED]
"""

import sys
from collections.abc import Iterator

from beside_paper import Line, report
from schedulers import Compared, usage

PAPER = {
    "first-fit (shared cache)": {"insensitive": (0, 0, 0), "combination": (11, 3, 25), "sensitive": (91, 80, 100)},
    "equal partitions": {"insensitive": (0, 0, 0), "combination": (55, 40, 70), "sensitive": (100, 95, 100)},
    "resq-greedy": {"insensitive": (0, 0, 0), "combination": (0, 0, 0), "sensitive": (0, 0, 0)},
    "resq-milp": {"insensitive": (0, 0, 0), "combination": (0, 0, 0), "sensitive": (0, 0, 0)},
}


def lines(compared: Compared) -> Iterator[Line]:
    for policy, families in PAPER.items():
        for family, (paper, low, high) in families.items():
            broken = 100 * compared.judged(policy, family).violated_share
            yield Line("Fig. 8", f"{policy}, {family}: % of SLOs broken", f"{paper}", broken, low, high)


if __name__ == "__main__":
    sys.exit(report(lines(Compared(*usage(__doc__)))))
