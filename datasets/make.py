"""Make the shipped datasets: SLOMO's network functions on each of SLOMO's two machines, simulated.

    python datasets/make.py [MACHINE ...] [--out FOLDER]

The same seed gives the same measurements.parquet, byte for byte; `make datasets` runs this. About ten minutes a machine
on two cores. Killed, it goes on where it was: finished runs wait in a store in the temporary folder.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.plans.basic import mixes_plan, pressure_plan
from slomo.profiling.plans.plan import ExperimentPlan, combine
from slomo.profiling.plans.reduced_mixes import part_load_plan, part_load_runs, reduced_mixes_plan
from slomo.records.dataset import ProfileDataset
from slomo.records.storage import save_dataset
from slomo.testbed.registry import make_testbed
from slomo.vocabulary.machine import load_machine

MACHINES = ("e5-2620v4", "silver-4110")
#: SLOMO (SIGCOMM'20) section 3, table 1.
NETWORK_FUNCTIONS = (
    "ip-router", "vpn", "flowstats", "stateless-firewall", "maglev", "snort", "suricata", "pfsense",
)  # fmt: skip
SEED = 2020
RUNS = 120
PART_LOAD_RUNS = part_load_runs("sources", RUNS)
CALIBRATION_MIXES = 160
REDUCED_MIXES = 40
FOLDER = Path(__file__).parent

CARD = """# {name}

SLOMO's eight network functions on a simulated {description}.

| | |
| --- | --- |
| made by | `python datasets/make.py {machine}`, seed {seed}; the same file again, byte for byte |
| testbed | slomo's line-level simulator (docs/concepts/simulator.md): no real machine was measured |
| network functions | {functions}; 64 B packets, 100 000 flows drawn uniformly, saturating unless said |
| rows | {solo} solo, {pressure} beside the synthetic competitor ({per_nf} each), {mixes} from {runs} unlike mixes |
| pressure | design `sources`: a third of the settings each for cache, I/O and memory; a quarter at part load |
| at reduced load | {reduced} more from {reduced_runs} mixes, about half the NFs at 15 to 95 % of their solo speed |
| columns | docs/reference/datasets.md; units in docs/reference/metrics.md |
| missing | cells are empty where a metric was not reported; no cell stands for zero unless it says 0 |

Good for: trying models and composition, teaching, comparing predictors at equal budgets. The mixes are meant to
calibrate intervals, those at reduced load the intervals of `solve_server` there: throughput at reduced load is what was
offered (`offered_mpps`, also in `competitors`), and says nothing about sensitivity. Mixes to judge predictions come
from the other half of all mixes (`slomo evaluate`), which this file does not hold.

Not good for: statements about real servers. docs/concepts/simulator.md says how faithful the simulator is.
"""


def dataset_plan(machine: str) -> ExperimentPlan:
    """Return all experiments at full load of one dataset."""
    pressure = pressure_plan(NETWORK_FUNCTIONS, machine, "sources", runs=RUNS - PART_LOAD_RUNS, seed=SEED)
    mixes = mixes_plan(NETWORK_FUNCTIONS, machine, CALIBRATION_MIXES, stream="calibration", seed=SEED)
    return combine(f"slomo-{machine}", [pressure, mixes])


def idle_plan(dataset: ProfileDataset) -> ExperimentPlan:
    """Return the runs at part load, as shares of what the dataset's solo runs served."""
    return part_load_plan(dataset, PART_LOAD_RUNS, seed=SEED)


def reduced_plan(dataset: ProfileDataset) -> ExperimentPlan:
    """Return the mixes at reduced load, as shares of what the dataset's solo runs served."""
    return reduced_mixes_plan(dataset, REDUCED_MIXES, stream="calibration", seed=SEED)


def card(machine: str, dataset: ProfileDataset) -> str:
    """Return the dataset's card."""
    counts = dataset.frame["plan"].value_counts()
    mixes = dataset.frame[dataset.frame["plan"] == "mix"]
    loaded = mixes["run_key"].isin({colocation.key for colocation in reduced_plan(dataset).colocations})
    return CARD.format(
        name=f"slomo-{machine}",
        description=load_machine(machine).description,
        machine=machine,
        seed=SEED,
        functions=", ".join(NETWORK_FUNCTIONS),
        solo=counts["solo"],
        pressure=counts["pressure"],
        per_nf=counts["pressure"] // len(NETWORK_FUNCTIONS),
        mixes=(~loaded).sum(),
        runs=mixes.loc[~loaded, "run_key"].nunique(),
        reduced=loaded.sum(),
        reduced_runs=mixes.loc[loaded, "run_key"].nunique(),
    )


def make(machine: str, folder: Path, jobs: int | None = None) -> None:
    """Make one dataset below `folder`."""
    store = Path(tempfile.gettempdir()) / f"slomo-dataset-{machine}.sqlite"
    testbed = make_testbed("simulated", machine=machine)
    dataset = run_campaign(dataset_plan(machine), testbed, store=store, jobs=jobs)
    for following in (idle_plan(dataset), reduced_plan(dataset)):
        dataset = dataset.merge(run_campaign(following, testbed, jobs=jobs))
    save_dataset(dataset, folder / f"slomo-{machine}", card=card(machine, dataset))
    store.unlink()
    print(f"{folder / f'slomo-{machine}'}: {len(dataset)} rows", file=sys.stderr)


def main() -> None:
    """Make the datasets that were asked for."""
    parser = argparse.ArgumentParser(description="Make the shipped datasets.")
    parser.add_argument("machines", nargs="*", default=MACHINES)
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--jobs", type=int)
    arguments = parser.parse_args()
    for machine in arguments.machines:
        make(machine, arguments.out, arguments.jobs)


if __name__ == "__main__":
    main()
