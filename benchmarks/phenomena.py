"""Check the simulator against the figures of ResQ (NSDI'18) and SLOMO (SIGCOMM'20): paper's number, ours, ok or OFF.

One parameter set for all figures. Run ``python benchmarks/phenomena.py`` (a few minutes on one core), or name the
figures wanted. ``--seeds 5`` plays each under five seeds and prints means with standard errors; ``--write`` puts them
into the table of docs/concepts/simulator.md (figures not named keep their rows). Every figure of ResQ has a script of
its own in ``benchmarks/resq``; figures 8 and 9 need models (``benchmarks/placement/prepare.py``) and are not among
these.
"""

import argparse
import statistics
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
    "slomo-fig5": slomo_paper.fig5,
    "slomo-fig6": slomo_paper.fig6,
    "slomo-fig7": slomo_paper.fig7,
}
#: Why a line is off, where that was tested, by the start of its text.
CAUSES = {
    "memory bandwidth used then": "with two channels 34 and 90 %, but then Fig. 3 is 0.21",
    "worst of all at 64 B": "memory is slower at part load: two channels and 0.9 at the knee gave 1.7 %, "
    "but contradict MLC and Fig. 3",
    "lpm: a point below": "flows are uniform, so each way saves as many misses; Zipf 0.6 instead is concave",
    "mazunat: a point below": "as above",
    "stats: a point below": "as above",
}
PAGE = HERE.parent / "docs" / "concepts" / "simulator.md"
BEGIN, END = "<!-- figures: benchmarks/phenomena.py --seeds 5 --write -->", "<!-- end of figures -->"


def rows(name: str, seeds: int) -> list[str]:
    """Play a figure under several seeds; print its lines and return a row of the table for each with a range."""
    played: list[list[Line]] = []
    for seed in range(1, seeds + 1):
        phenomena_runs.reseed(seed)
        played.append([line for line in FIGURES[name]() if seeds == 1 or line.ok is not None])
        for line in played[-1] if seeds == 1 else ():
            print(line, flush=True)
    table = []
    for lines in zip(*played, strict=True):
        first = lines[0]
        if first.low is None or first.high is None:
            continue
        ours = [line.ours for line in lines]
        mean = statistics.fmean(ours)
        error = f" ± {statistics.stdev(ours) / len(ours) ** 0.5:.1g}" if len(ours) > 1 else ""
        inside = first.low <= mean <= first.high
        cause = next((why for start, why in CAUSES.items() if first.what.startswith(start)), "not tested")
        cells = (
            name.replace("resq-", "ResQ ").replace("slomo-", "SLOMO "), first.what, first.paper or "-",
            f"{first.low:g} to {first.high:g}", f"{mean:.3g}{error}", str(len(ours)),
            "fitted" if first.fitted else "held out", "in" if inside else "**off**", "" if inside else cause,
        )  # fmt: skip
        table.append("| " + " | ".join(cells) + " |")
        if seeds > 1:
            print(table[-1], flush=True)
    return table


def write(made: dict[str, list[str]]) -> None:
    """Put rows into the page's table in place of those of the same figures."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    table, after = rest.split(END)
    kept = [line for line in table.splitlines() if line.startswith(("| ResQ", "| SLOMO"))]
    labels = {name: name.replace("resq-", "ResQ ").replace("slomo-", "SLOMO ") for name in FIGURES}
    lines = []
    for name, label in labels.items():
        lines += made.get(name, [line for line in kept if line.startswith(f"| {label} |")])
    head = "| Figure | What | Paper | Its range | Ours | Seeds | | | Cause |\n" + "| --- " * 9 + "|"
    PAGE.write_text("\n".join([before + BEGIN, head, *lines, END]) + after, encoding="utf-8")


def main() -> int:
    """Play the figures named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=" ".join(FIGURES))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="put the rows into docs/concepts/simulator.md")
    given = parser.parse_args()
    for name in given.figures:
        if name not in FIGURES:
            print(f"unknown figure {name!r}; there are: {' '.join(FIGURES)}", file=sys.stderr)
            return 2
    made = {}
    print(f"{'figure':10} {'what':60} {'paper':>10} {'ours':>9}")
    for name in given.figures or FIGURES:
        made[name] = rows(name, given.seeds)
        if given.write:
            write({name: made[name]})
    off = sum("| **off** |" in row for each in made.values() for row in each)
    print(f"{off} off")
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
