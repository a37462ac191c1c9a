"""ResQ (NSDI'18) Fig. 8: SLOs broken by schedulers that know nothing of contention, cache shared and cut evenly.

    python benchmarks/placement/prepare.py DIR
    python benchmarks/resq/fig8.py DIR [SEED]

Without DIR (-) only those two are played, which take no models, for instance with 1.75 times the cache:

    slomo machine show e5-2695v4 --yaml | sed 's/llc_mib: 45.0/llc_mib: 78.75/' > large.yaml
    RESQ_MACHINE=large.yaml python benchmarks/resq/fig8.py -
"""

import sys
from collections.abc import Iterator

from beside_paper import Line, report
from schedulers import Compared, usage

WITHOUT_MODELS = ("first-fit (shared cache)", "equal partitions")
PAPER = {
    "first-fit (shared cache)": {"insensitive": (0, 0, 0), "combination": (11, 3, 25), "sensitive": (91, 80, 100)},
    "equal partitions": {"insensitive": (0, 0, 0), "combination": (55, 40, 70), "sensitive": (100, 95, 100)},
    "resq-greedy": {"insensitive": (0, 0, 0), "combination": (0, 0, 0), "sensitive": (0, 0, 0)},
    "resq-milp": {"insensitive": (0, 0, 0), "combination": (0, 0, 0), "sensitive": (0, 0, 0)},
}


def lines(compared: Compared) -> Iterator[Line]:
    for policy, families in PAPER.items():
        if not len(compared.library) and policy not in WITHOUT_MODELS:
            continue
        for family, (paper, low, high) in families.items():
            broken = 100 * compared.judged(policy, family).violated_share
            yield Line("Fig. 8", f"{policy}, {family}: % of SLOs broken", f"{paper}", broken, low, high)


if __name__ == "__main__":
    sys.exit(report(lines(Compared(*usage(__doc__)))))
