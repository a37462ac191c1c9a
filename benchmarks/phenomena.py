r"""Check the simulator against the figures of ResQ (NSDI'18) and SLOMO (SIGCOMM'20): paper's number, ours, ok or OFF.

One parameter set for all figures. Run ``python benchmarks/phenomena.py`` (a few minutes on one core), or name the
figures wanted; each line is printed as it comes. ``--seeds 5 --write`` plays each under five seeds, keeps means with
standard errors, and writes docs/papers.md (``papers.py`` does that). Every figure of ResQ has a script of its own in
``benchmarks/resq``; figures 8 and 9 need models (``benchmarks/placement/prepare.py``) and are not among these.

What a figure would be with another machine or function, as the causes in docs/papers.md ask: a shipped file, changed.

    slomo machine show e5-2695v4 --yaml | sed 's/76.8/38.4/' > two-channels.yaml
    RESQ_MACHINE=two-channels.yaml python benchmarks/phenomena.py resq-table2 --seed 31
    slomo nf show lpm --yaml | sed -e '/structures:/a \  - {name: upper, size_mib: 1, reads: 0.9, pattern: chain}' \
        -e 's/1.7981/0.8981/' > lpm.yaml
    FUNCTIONS=lpm.yaml python benchmarks/phenomena.py resq-fig6      # SLOMO_MACHINE for SLOMO's figures
    MEMORY_SPEED=0.67 python benchmarks/phenomena.py resq-table2     # share of unloaded at 90 % load, a Broadwell's
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import phenomena_runs
import phenomena_slomo as slomo_paper
from phenomena_runs import Line

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE / "resq"))
RESQ_FIGURES = ("table1", "fig2a", "fig2b", "fig3", "fig4", "table2", "fig5", "fig6", "fig7", "fig10")

FIGURES: dict[str, Callable[[], Iterator[Line]]] = {
    **{f"resq-{name}": import_module(name).lines for name in RESQ_FIGURES},
    "resq-fig7-one": import_module("fig7").one_by_one,
    "slomo-fig5": slomo_paper.fig5,
    "slomo-fig6": slomo_paper.fig6,
    "slomo-fig7": slomo_paper.fig7,
}


def main() -> int:
    """Play the figures named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=" ".join(FIGURES))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--write", action="store_true", help="keep them, and write docs/papers.md")
    given = parser.parse_args()
    for name in given.figures:
        if name not in FIGURES:
            print(f"unknown figure {name!r}; there are: {' '.join(FIGURES)}", file=sys.stderr)
            return 2
    figures = given.figures or list(FIGURES)
    if given.write:
        import papers

        words = [word for name in figures for word in ("--figure", name)]
        sys.argv[1:] = [*words, "--seeds", str(given.seeds)]
        return papers.main()
    print(f"{'figure':10} {'what':60} {'paper':>10} {'ours':>9}")
    off = 0
    for seed in [given.seed] if given.seed is not None else range(1, given.seeds + 1):
        phenomena_runs.reseed(seed)
        for name in figures:
            for line in FIGURES[name]():
                print(line, flush=True)
                off += line.ok is False
    print(f"{off} off")
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
