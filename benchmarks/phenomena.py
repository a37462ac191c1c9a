"""Check the simulator against the figures of ResQ (NSDI'18) and SLOMO (SIGCOMM'20): paper's number, ours, ok or OFF.

One parameter set for all figures. Run ``python benchmarks/phenomena.py`` (a few minutes on one core), or name the
figures wanted. Every figure of ResQ has a script of its own in ``benchmarks/resq``; figures 8 and 9 need models
(``benchmarks/placement/prepare.py``) and are not among these.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path

import phenomena_slomo as slomo_paper
from phenomena_runs import Line

sys.path.append(str(Path(__file__).resolve().parent / "resq"))
RESQ_FIGURES = ("table1", "fig2a", "fig2b", "fig3", "fig4", "table2", "fig5", "fig6", "fig7", "fig10")

FIGURES: dict[str, Callable[[], Iterator[Line]]] = {
    **{f"resq-{name}": import_module(name).lines for name in RESQ_FIGURES},
    "slomo-fig5": slomo_paper.fig5,
    "slomo-fig6": slomo_paper.fig6,
    "slomo-fig7": slomo_paper.fig7,
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
