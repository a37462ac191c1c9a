"""Predictions judged by a simulator that nobody here wrote: ChampSim, playing traces of our native network functions.

Six functions are profiled beside the synthetic competitor, all models are trained on that profile, and mixes of two,
three and four functions are predicted and compared with what ChampSim says (docs/guides/champsim.md says how it is
built). Interval widths come from the profile alone; the mixes calibrate nothing.

    python benchmarks/champsim.py                      from the shipped dataset: minutes, it trains three times
    python benchmarks/champsim.py --runs 3 --mixes 20  from the first settings and mixes of the shipped dataset
    python benchmarks/champsim.py --make FOLDER        play everything first (hours; goes on where it was killed)
    python benchmarks/champsim.py --make FOLDER --variant prefetch --runs 12 --mixes 12
"""

import argparse
import itertools
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from slomo.evaluation.evaluate import Evaluation, errors, evaluate
from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.records.catalog import find_dataset
from slomo.records.dataset import ProfileDataset
from slomo.records.storage import save_dataset
from slomo.testbed.champsim.testbed import MACHINE, ChampSimTestbed
from slomo.training.training import train
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.defaults import DEFAULT_MODEL
from slomo.vocabulary.network_function import NetworkFunction
from slomo.vocabulary.workload import Traffic, Workload

NAME, SEED = "champsim-4", 2026
RUNS, MIXES = 11, 60
COLUMNS = ("mape", "p95", "within_5", "bias", "coverage", "width")
BASELINES = ("dobrescu", "dobrescu-curve", "bubbleup", "bubbleup-curve")
#: Zipf, so that a capture draws its packets: one packet per flow in turn would be a scan, which LRU never serves.
FLOWS = {"packet_size_b": 64, "flow_distribution": "zipf", "zipf_exponent": 0.5}
DPI = NetworkFunction(
    "dpi",
    "search for strings in payloads, Aho and Corasick",
    settings={"patterns": 3000},
    host={
        "command": ["{slomo_nf}", "--nf", "dpi", "--cores", "{core}", "--pcap", "{pcap}", "--patterns", "{patterns}"],
        "throughput": {"source": "json-lines", "packets": "packets"},
    },
)
FUNCTIONS = (
    Workload("ip-router", {"routes": 200}, Traffic(flow_count=3000, **FLOWS)),
    Workload("mazunat", {"flow_capacity": 4096}, Traffic(flow_count=2000, **FLOWS)),
    Workload("flowstats", {"flow_capacity": 8192}, Traffic(flow_count=4000, **FLOWS)),
    Workload("stateless-firewall", {"rules": 60}, Traffic(flow_count=1000, **FLOWS)),
    Workload("maglev", {"flow_capacity": 8192}, Traffic(flow_count=3000, **FLOWS)),
    Workload("dpi", {"patterns": 60}, Traffic(flow_count=2000, **FLOWS)),
)
#: Levels of the synthetic competitor, from a trickle within its own L2 to more than the LLC and the channel bear.
SIZES_MIB, READS, INSTANCES = (0.0625, 0.125, 0.25, 0.5, 2), (1, 8, 50), (1, 1, 2, 2, 3)
#: Levels that write too, one line for two that they read, and how many at a time: network functions leave dirty lines.
WRITING_MIB, WRITING_INSTANCES = (0.125, 0.25, 0.5), (3, 1, 2)
VARIANTS = {
    "base": {},
    "seed2": {"virtual_memory.randomization": 2},
    "seed3": {"virtual_memory.randomization": 3},
    "prefetch": {"L1D.prefetcher": "next_line", "L2C.prefetcher": "ip_stride"},
    "ship": {"LLC.replacement": "ship"},
    "drrip": {"LLC.replacement": "drrip"},
}


def competitor(size_mib: float, reads: int, writes: int = 0) -> Workload:
    settings = {"data_size_mib": float(size_mib), "reads_per_packet": reads, "packet_buffers": 64}
    return Workload("synthetic", settings | ({"writes_per_packet": writes} if writes else {}), Traffic(flow_count=1000))


def profile_plan(most: int = RUNS) -> ExperimentPlan:
    """Every function alone, beside `most` settings of a competitor that reads, in a drawn order, and all that write."""
    each = [competitor(size, reads) for size in SIZES_MIB for reads in READS]
    random = np.random.default_rng(SEED)
    drawn = [(each[number], count) for count in INSTANCES for number in random.permutation(len(each))]
    order = random.permutation(len(drawn))
    settings = list(dict.fromkeys((drawn[number][0],) * drawn[number][1] for number in order))[:most]
    writing = [(competitor(size, 8, writes=4),) * count for count in WRITING_INSTANCES for size in WRITING_MIB]
    beside = [(), *settings, *writing]
    return ExperimentPlan("pressure", tuple(Colocation(MACHINE, nf, others) for others in beside for nf in FUNCTIONS))


def mixes_plan(most: int = MIXES) -> ExperimentPlan:
    """All pairs, threes and fours of unlike functions, like pairs and some fours of two kinds, in a drawn order."""
    together = [
        *itertools.combinations_with_replacement(FUNCTIONS, 2),
        *itertools.combinations(FUNCTIONS, 3),
        *itertools.combinations(FUNCTIONS, 4),
        *((one, one, other, other) for one, other in itertools.pairwise((*FUNCTIONS[:5],))),
    ]
    drawn = np.random.default_rng(SEED).permutation(len(together))[:most]
    return ExperimentPlan("mixes", tuple(Colocation(MACHINE, *_split(together[number])) for number in drawn))


def _split(tenants: tuple[Workload, ...]) -> tuple[Workload, tuple[Workload, ...]]:
    return tenants[0], tenants[1:]


def make(folder: Path, variant: str, runs: int, mixes: int, jobs: int | None) -> ProfileDataset:
    """Play a profile and mixes; whatever was played before is taken from the folder."""
    testbed = ChampSimTestbed(network_functions=(DPI,), variant=VARIANTS[variant], folder=folder)
    plans = (profile_plan(runs), mixes_plan(mixes))
    parts = [run_campaign(plan, testbed, folder / f"{variant}-{plan.name}-{len(plan)}.sqlite", jobs) for plan in plans]
    return parts[0].merge(parts[1])


def judge(dataset: ProfileDataset) -> tuple[Evaluation, Evaluation]:
    """Predict all mixes from the profile alone, and again with intervals calibrated on the other half of the mixes."""
    profile = dataset.select(plan=["solo", "pressure"])
    mixes = dataset.select(plan="mix")
    library = train(profile, seed=SEED)
    uncalibrated = evaluate(library, mixes, models=names_of(evaluate(library, mixes)))
    keys = sorted(mixes.frame["run_key"].unique())
    halves = [part_of(mixes, keys[start::2]) for start in (0, 1)]
    crossed = [
        evaluate(train(profile.merge(other), seed=SEED), own, models=tuple(uncalibrated.models))
        for own, other in (halves, reversed(halves))
    ]
    return uncalibrated, together(crossed)


def names_of(evaluation: Evaluation) -> tuple[str, ...]:
    return (DEFAULT_MODEL, *evaluation.models)


def part_of(dataset: ProfileDataset, keys: list[str]) -> ProfileDataset:
    frame = dataset.frame
    return ProfileDataset(frame[frame["run_key"].isin(keys)].reset_index(drop=True), dataset.environment)


def together(parts: list[Evaluation]) -> Evaluation:
    """Return one evaluation of the rows of several."""
    rows = {column: [value for part in parts for value in part.rows[column]] for column in parts[0].rows}
    frame = pd.DataFrame(rows)
    ends = ["measured_mpps", "predicted_mpps", "low_mpps", "high_mpps"]
    models = {name: errors(*frame[frame["model"] == name][ends].to_numpy().T) for name in parts[0].models}
    mixes = sum(part.mixes for part in parts)
    return Evaluation(parts[0].machine, mixes, parts[0].nominal_coverage, models, {}, rows)


def report(dataset: ProfileDataset) -> None:
    """Print errors of every model, coverage of the default's intervals, and whether the targets are met."""
    uncalibrated, crossed = judge(dataset)
    rows = dataset.select(plan="pressure").frame
    predictions = len(uncalibrated.rows["target"]) // len(uncalibrated.models)
    print(f"{uncalibrated.mixes} mixes, {predictions} predictions; trained on {len(rows)} rows beside the competitor")
    frame = uncalibrated.to_frame()
    default = frame[frame["model"] == DEFAULT_MODEL]
    lost = 100.0 * (1.0 - default["measured_mpps"] / default["solo_mpps"])
    print(f"lost in mixes: {lost.mean():.1f} % on average, at most {lost.max():.1f} %\n")
    print(f"{'[%]':22}" + "".join(f"{name:>11}" for name in (*COLUMNS, "coverage*", "width*")))
    for name, each in uncalibrated.models.items():
        other = crossed.models[name]
        figures = (*(getattr(each, column) for column in COLUMNS), other.coverage, other.width)
        print(f"{name:22}" + "".join(f"{figure:11.2f}" for figure in figures))
    print("* intervals calibrated on the other half of the mixes\n")
    for nf, part in default.groupby("target"):
        own = 100.0 * (1.0 - part["measured_mpps"] / part["solo_mpps"])
        print(f"{nf:22} loses {own.mean():5.1f} %, default off by {part['error_percent'].abs().mean():5.2f} %")
    for count, part in default.groupby("competitor_count"):
        signed = part["error_percent"]
        print(f"beside {count}: off by {signed.abs().mean():.2f}, on average {signed.mean():+.2f} %")
    verdicts(uncalibrated, crossed)


def verdicts(uncalibrated: Evaluation, crossed: Evaluation) -> None:
    """Print the targets and whether they are met."""
    ours = uncalibrated.models[DEFAULT_MODEL]
    print()
    for name in (*BASELINES, "mean", "none"):
        other = uncalibrated.models.get(name)
        if other is None:
            print(f"  {name}: not trained, a metric is missing")
            continue
        word = "ok" if ours.mape < other.mape else "OFF"
        print(f"  {word} default {ours.mape:.2f} % off, {name} {other.mape:.2f} %")
    for what, evaluation in (("from the profile alone", uncalibrated), ("with half of the mixes", crossed)):
        coverage = evaluation.models[DEFAULT_MODEL].coverage
        print(
            f"  {'ok' if 85 <= coverage <= 96 else 'OFF'} 90 % intervals {what} hold {coverage:.1f} %, needed 85 to 96"
        )


CARD = """# {name}

Six native network functions of this repository, played by ChampSim from traces of what they execute.

| | |
| --- | --- |
| made by | `python benchmarks/champsim.py --make FOLDER --variant {variant} --runs {runs} --mixes {mixes}` |
| made again | the same traces give the same figures; traces of functions compiled otherwise moved mixes by 1.3 % |
| testbed | ChampSim, upstream commit 2ff2501, unpatched, configuration in provenance.json; docs/guides/champsim.md |
| traces | valgrind 3.19 lackey, after 150 bursts of 32 packets; a window of 130 000 cycles after 90 000 to settle |
| network functions | {functions}; 64 B packets, flows drawn by Zipf's law (0.5) |
| rows | {solo} alone, {pressure} beside 1 to 3 competitors, {mix} from {mixes} mixes |
| competitor | {settings} settings, {writing} of them write |
| columns | docs/reference/datasets.md; units in docs/reference/metrics.md |
| missing | what ChampSim does not count (DDIO, PCIe, latency); `L3OCC` is not counted, it follows from the traces |

Good for: judging predictors by a simulator that nobody of this project wrote. Mixes are not for training.

Not good for: statements about real servers. Caches are a sixteenth of a small server's and footprints as much smaller,
packets come from a ring in memory without DDIO, and a window is some 400 packets long.
"""


def save(dataset: ProfileDataset, folder: Path, variant: str, runs: int, mixes: int) -> None:
    counts = dataset.frame["plan"].value_counts()
    card = CARD.format(
        name=folder.name,
        variant=variant,
        runs=runs,
        mixes=mixes,
        writing=len(WRITING_MIB) * len(WRITING_INSTANCES),
        functions=", ".join(nf.nf for nf in FUNCTIONS),
        solo=counts["solo"],
        pressure=counts["pressure"],
        settings=counts["pressure"] // len(FUNCTIONS),
        mix=counts["mix"],
    )
    save_dataset(dataset, folder, card=card)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make", type=Path, metavar="FOLDER", help="play first; traces and finished runs stay there")
    parser.add_argument("--variant", choices=VARIANTS, default="base", help="of ChampSim's configuration")
    parser.add_argument("--runs", type=int, default=RUNS, help="settings of the competitor that reads")
    parser.add_argument("--mixes", type=int, default=MIXES)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--out", type=Path, help="write the dataset here")
    given = parser.parse_args()
    if given.make is None:
        name = NAME if given.variant == "base" else f"{NAME}-{given.variant}"
        dataset = find_dataset(name, Path(__file__).parents[1] / "datasets")
        plans = (profile_plan(given.runs), mixes_plan(given.mixes))
        report(part_of(dataset, [colocation.key for plan in plans for colocation in plan.colocations]))
        return 0
    dataset = make(given.make, given.variant, given.runs, given.mixes, given.jobs)
    if given.out is not None:
        save(dataset, given.out, given.variant, given.runs, given.mixes)
    report(dataset)
    return 0


if __name__ == "__main__":
    sys.exit(main())
