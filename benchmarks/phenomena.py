"""Check the simulator against the figures of ResQ (NSDI'18) and SLOMO (SIGCOMM'20): paper's number, ours, ok or OFF.

One parameter set for all figures. Run ``python benchmarks/phenomena.py`` (a few minutes on one core), or name the
figures wanted; each line is printed as it comes. ``--seeds 5 --write`` plays each under five seeds, keeps means with
standard errors, and writes docs/papers.md (``papers.py`` does that). Every figure of ResQ has a script of its own in
``benchmarks/resq``; figures 8 and 9 need models (``benchmarks/placement/prepare.py``) and are not among these.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import phenomena_runs
import phenomena_slomo as slomo_paper
from phenomena_runs import TABLE_1, Line

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
#: Why a line is off, where that was tested, by the start of its text.
CAUSES = {
    **dict.fromkeys(
        [f"{name}: slope falls" for name in TABLE_1],
        "a function sends the packets of a batch together: p95 grows with the batches, and its slope falls where they "
        "reach their most (32 packets at load 0.8 to 0.9 for efficuts and suricata, 8 at 0.5 to 0.7 for the others); "
        "sent one by one, below, all are convex. The bend is small, though it grows with the runs in standard errors: "
        "p95 is 5 to 6 % above the line of its neighbours (lpm, endre, snort; firewall 2), with the 110 us of Fig. 2b "
        "0.1 to 0.3 % (snort 1.6)",
    ),
    "memory bandwidth used then": "with two channels 34 and 90 %, but then Fig. 3 is 0.21. 10.1 and 25.5 GB/s move "
    "here; what the ports carry (16.9 GB/s one way at 1518 B) at Table 2's own miss rates of stats (RX 89.1, TX 63.5 "
    "%) is 25.8 GB/s, 94 to 99 % of a memory of 26 to 27 GB/s as two channels have, 45 % of four",
    "worst of all at 64 B": "memory is slower at part load: two channels and 0.9 at the knee gave 1.7 %, "
    "but contradict MLC and Fig. 3",
    "245 buffers each, 64 B": "not the buffers (64 each: the same), but memory at part load, as in Table 2 at 64 B",
    "245 buffers each, 1518 B": "buffers that just fit DDIO's ways still leak to memory; 1.8 % with 120 each",
    "lpm: a point below": "at two ways: flows are uniform, as in the paper, so each way saves as many misses, time per "
    "packet falls by a straight line, and one over it is convex. Zipf 0.6 is concave",
    "access rate's effect above": "from 37 to 70 million references a second on 30 MB, where memory limits one "
    "competitor; the figure's labels are 70 to 130. Three of them, 208 million, take 7 points more. With "
    "`llc_insertion: adaptive` it is 12.5 from 37 to 74",
    "worst of all at load 0.5": "no load gives it: lpm beside stats +114 % at load 0.05, +184 at 0.2, +236 at 0.5, and "
    "the 44.3 % that Fig. 2a loses make each packet's service 80 % longer at any. With 110 us to the generator and "
    "back it would be 24.5. That the paper's profiles take 8 to 12 measurements also says so: its profiler, at 1 %, "
    "takes 33 to 35 points of our p95 over load, with 110 us 9 to 13 (lpm, stats, mazunat)",
    "most lost: %": "neither the channels of memory (32.7 with four), nor how many compete (46 with seven), nor the "
    "LLC's insertion (39 with `llc_insertion: adaptive`): one competitor of 40 million references a second takes 24 to "
    "26 here, and the figure's labels are 70 to 130 million",
}


def main() -> int:
    """Play the figures named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=" ".join(FIGURES))
    parser.add_argument("--seeds", type=int, default=1)
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
    for seed in range(1, given.seeds + 1):
        phenomena_runs.reseed(seed)
        for name in figures:
            for line in FIGURES[name]():
                print(line, flush=True)
                off += line.ok is False
    print(f"{off} off")
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
