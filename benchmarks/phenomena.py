"""Check the simulator against the figures of ResQ (NSDI'18) and SLOMO (SIGCOMM'20): paper's number, ours, ok or OFF.

One parameter set for all figures. Run ``python benchmarks/phenomena.py`` (a few minutes on one core), or name the
figures wanted: ``table1 unisolated cat buffers fig5 fig6 fig7 dobrescu``.
"""

import sys
from collections.abc import Callable, Iterator, Sequence

import phenomena_resq as resq
import phenomena_slomo as slomo_paper
from phenomena_runs import Line

FIGURES: dict[str, Callable[[], Iterator[Line]]] = {
    "table1": resq.table1,
    "unisolated": resq.unisolated,
    "cat": resq.cat,
    "buffers": resq.buffers,
    "fig5": slomo_paper.fig5,
    "fig6": slomo_paper.fig6,
    "fig7": slomo_paper.fig7,
    "dobrescu": slomo_paper.dobrescu,
}


def main(wanted: Sequence[str]) -> int:
    unknown = [name for name in wanted if name not in FIGURES]
    if unknown:
        print(f"unknown figure {unknown[0]!r}; there are: {' '.join(FIGURES)}", file=sys.stderr)
        return 2
    off = 0
    print(f"{'figure':10} {'what':60} {'paper':>10} {'ours':>9}")
    for name in wanted or FIGURES:
        for line in FIGURES[name]():
            print(line, flush=True)
            off += line.ok is False
    print(f"{off} off")
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
