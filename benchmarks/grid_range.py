"""Why profiles on SLOMO's published grid predict mixes badly here: which pressures its settings make, and mixes make.

The published levels (`slomo-grid`) were chosen for the authors' competitor; ours at those levels keeps every core it
has on the cache. A model cannot know what lies below the gentlest setting it was fitted on. Printed per metric: the
share of calibration mixes whose competition lies below the gentlest, and above the hardest setting of each grid, and in
which decade of pressure mixes and settings lie.

    python benchmarks/grid_range.py                     both machines, 168 runs each (a minute on two idle cores)
    python benchmarks/grid_range.py --machine silver-4110
"""

import argparse
import sys

import numpy as np
from numpy.typing import NDArray

from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.plans.basic import pressure_plan
from slomo.profiling.plans.designs import Pressure, slomo_grid
from slomo.records.catalog import find_dataset
from slomo.records.dataset import ProfileDataset
from slomo.testbed.simulated import SimulatedTestbed

MACHINES = ("e5-2620v4", "silver-4110")
METRICS = ("L2MISS", "L3MISS", "L3OCC", "READ")
#: Only what presses least and most is run: one instance of every setting, and as many as fit.
ENDS = (1, 7)
TARGET = "stateless-firewall"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", action="append", choices=MACHINES, help="repeatable")
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--jobs", type=int)
    given = parser.parse_args()
    for machine in given.machine or MACHINES:
        report(machine, given.seed, given.jobs)
    return 0


def report(machine: str, seed: int, jobs: int | None) -> None:
    """Run the ends of the published grid on one machine and compare."""
    shipped = find_dataset(f"slomo-{machine}")
    points: tuple[Pressure, ...] = tuple(point for point in slomo_grid() if point.instances in ENDS)
    plan = pressure_plan(TARGET, machine, points, seed=seed)
    print(f"{machine}: {len(plan)} runs", file=sys.stderr, flush=True)
    published = run_campaign(plan, SimulatedTestbed(machine), jobs=jobs)
    mixes = shipped.select(plan="mix")
    print(f"\n{machine}: share of {len(mixes)} competitions in mixes outside what settings make [%]")
    heads = ("below slomo-grid", "below grid", "above slomo-grid", "above grid", "gentlest, median mix")
    print(f"{'':8}" + "".join(f"{head:>22}" for head in heads))
    for name in METRICS:
        mix_values = values(mixes, name)
        ends = [values(published, name), values(shipped.select(plan="pressure"), name)]
        cells = [100.0 * np.mean(mix_values < design.min()) for design in ends]
        cells += [100.0 * np.mean(mix_values > design.max()) for design in ends]
        print(f"{name:8}" + "".join(f"{cell:22.0f}" for cell in cells), end="")
        print(f"{f'{ends[0].min():.3g}, {np.median(mix_values):.3g}':>22}", flush=True)


def values(dataset: ProfileDataset, metric: str) -> NDArray[np.float64]:
    """Return what the competition of each row with competitors makes of a metric."""
    frame = dataset.frame
    column = frame.loc[frame["competitor_count"] > 0, f"competition.{metric}"].to_numpy(dtype=float)
    return np.asarray(column[np.isfinite(column)])


if __name__ == "__main__":
    sys.exit(main())
