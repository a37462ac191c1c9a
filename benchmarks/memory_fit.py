"""Fit the memory model: one load-latency curve for all machines, and how many channels two of them have.

Fitted to, and nothing else:

- the slope of the curve: Intel's Memory Latency Checker 3.5 on a Silver 4110 (community.intel.com, thread 1126268): two
  sockets with six channels of DDR4-2400 each, latency at 19 loads;
- its end: ResQ (NSDI'18) Fig. 3, linear to about 90 % load, 40 % of the unloaded speed when full;
- channels of the E5-2695 v4: the same figure, played with two and four;
- channels of the E5-2620 v4: SLOMO (SIGCOMM'20) Fig. 7, 18 % lost at 18 GB/s, played with one to four.

All other figures are held out (docs/papers.md has the table). Prints what fits best, and ``OFF`` where the
simulator's constants are not that.

    python benchmarks/memory_fit.py
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from slomo.simulator.programs import layout
from slomo.vocabulary.machine import Machine, load_machine

sys.path.append(str(Path(__file__).resolve().parent / "resq"))
import fig3
import phenomena_runs
import phenomena_slomo

#: Latency [ns] and bandwidth [MB/s] of both sockets, as printed.
MLC = (
    (130.31, 135655.9), (130.34, 135653.8), (130.37, 135599.5), (129.67, 135267.3), (123.71, 131282.0),
    (98.94, 68357.8), (94.56, 42695.4), (92.29, 29473.3), (90.85, 22580.9), (90.16, 18355.0), (88.79, 13463.5),
    (87.81, 9723.8), (87.24, 7680.3), (86.54, 6068.3), (85.56, 4383.3), (84.99, 3354.4), (84.20, 2583.5),
    (83.00, 1785.2), (81.96, 1237.6),
)  # fmt: skip
#: One channel of DDR4 at 2400 and 2133 MT/s [GB/s].
DDR4_2400, DDR4_2133 = 19.2, 17.05
EFFICIENCY = 0.75


def slope() -> tuple[float, float, float]:
    """Return the speed at 90 % load by least squares, and the mean and largest residual of the 19 points."""
    latency, moved = np.array(MLC).T
    load = moved / 1e3 / (2 * 6 * DDR4_2400 * EFFICIENCY)
    speed = latency.min() / latency
    fall = float((load * (1.0 - speed)).sum() / (load * load).sum())
    off = np.abs(1.0 - fall * load - speed)
    return 1.0 - fall * layout.SPEED_KNEE, float(off.mean()), float(off.max())


def with_channels(name: str, channels: int, one_gb_s: float) -> Machine:
    """Return a machine with so many channels."""
    return replace(load_machine(name), memory_peak_gb_s=channels * one_gb_s, memory_efficiency=EFFICIENCY)


def played(machine: Machine, figure: str) -> float:
    """Return the figure's number with another machine in place of the one of that name."""
    swapped = phenomena_runs.load_machine
    fig3_machine, slomo_machine = fig3.load_machine, phenomena_slomo.load_machine

    def load(name: str) -> Machine:
        return machine if name == machine.name else swapped(name)

    phenomena_runs.load_machine = fig3.load_machine = phenomena_slomo.load_machine = load
    try:
        if figure == "fig3":
            measured = fig3.points()
            return measured[0][1] / max(latency for _, latency in measured)
        return next(line.ours for line in phenomena_slomo.fig7() if "at 18 GB/s" in line.what)
    finally:
        phenomena_runs.load_machine = swapped
        fig3.load_machine, phenomena_slomo.load_machine = fig3_machine, slomo_machine


def main() -> int:
    """Fit and compare."""
    off = 0
    knee, mean, most = slope()
    fits = abs(knee - layout.SPEED_AT_KNEE) < 0.01
    print(f"speed at 90 % load {knee:.3f} (residual of 19 points: mean {mean:.3f}, most {most:.3f}); ", end="")
    print(f"the simulator has {layout.SPEED_AT_KNEE}{'' if fits else '  OFF'}")
    off += not fits
    for figure, name, one, counts, paper in (
        ("fig3", "e5-2695v4", DDR4_2400, (2, 4), 0.40),
        ("fig7", "e5-2620v4", DDR4_2133, (1, 2, 3, 4), 18.0),
    ):
        ours = {count: played(with_channels(name, count, one), figure) for count in counts}
        best = min(ours, key=lambda count: abs(ours[count] - paper))
        fits = abs(load_machine(name).memory_peak_gb_s - best * one) < 0.1
        told = ", ".join(f"{count}: {value:.3g}" for count, value in ours.items())
        print(f"{name}, {figure}: paper {paper:g}; by channels {told}; best {best}{'' if fits else '  OFF'}")
        off += not fits
    print(f"{off} off")
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
