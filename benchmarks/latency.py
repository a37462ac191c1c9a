"""Latency of unseen mixes at unseen loads, against the simulator.

Each NF is profiled under pressure, then at several loads alone and beside five of the competitions (ResQ, NSDI'18,
section 5.2, measures alone). Mixes at full load calibrate throughput, as in `slomo profile`. Mixes never run before are
then run at loads drawn at random; p50, p95 and p99 are the medians of several long runs. Printed beside the errors of
the model: those of ResQ's curve, which knows the load relative to the throughput alone and no neighbours.

    python benchmarks/latency.py                   four NFs, some minutes on two cores
    python benchmarks/latency.py --mixes 60
"""

import argparse
import sys
from dataclasses import replace

import numpy as np

from slomo.models.applicability import Verdict
from slomo.models.library import ModelLibrary
from slomo.models.responses.latency import PERCENTILES
from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.plans.basic import mixes_plan, pressure_plan
from slomo.profiling.plans.latency_plans import latency_plan
from slomo.testbed.simulated import SimulatedTestbed
from slomo.training.training import train
from slomo.vocabulary.colocation import Colocation
from slomo.workflow.predict import predict

MACHINE = "e5-2620v4"
NFS = ("flowstats", "ip-router", "maglev", "snort")
Row = dict[str, float]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=48, help="pressure runs per NF at full load")
    parser.add_argument("--calibration", type=int, default=24, help="mixes that calibrate throughput")
    parser.add_argument("--mixes", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=5, help="long runs of each mix")
    parser.add_argument("--accesses", type=int, default=1_000_000, help="length of runs")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    testbed = SimulatedTestbed(MACHINE, accesses=given.accesses)
    library = profiled(testbed, given)
    rows = [row for colocation in mixes(given) if (row := compare(library, testbed, colocation, given))]
    report(rows, given.mixes)
    return 0


def profiled(testbed: SimulatedTestbed, given: argparse.Namespace) -> ModelLibrary:
    plan = pressure_plan(NFS, MACHINE, "grid", runs=given.runs, seed=given.seed)
    dataset = run_campaign(plan, testbed, jobs=given.jobs)
    loads = latency_plan(dataset, seed=given.seed)
    print(f"profiled with {len(plan)} runs at full load and {len(loads)} below it", file=sys.stderr, flush=True)
    dataset = dataset.merge(run_campaign(loads, testbed, jobs=given.jobs))
    if given.calibration:
        plan = mixes_plan(NFS, MACHINE, given.calibration, stream="calibration", seed=given.seed + 2)
        dataset = dataset.merge(run_campaign(plan, testbed, jobs=given.jobs))
    return train(dataset, models=["slomo-xgb"], seed=given.seed)


def mixes(given: argparse.Namespace) -> list[Colocation]:
    """Return mixes of 0 to 5 competitors; every sixth target is alone."""
    plan = mixes_plan(NFS, MACHINE, given.mixes, (1, 2, 3, 4, 5), stream="test", seed=given.seed + 1)
    return [
        replace(colocation, competitors=()) if number % 6 == 0 else colocation
        for number, colocation in enumerate(plan.colocations)
    ]


def compare(
    library: ModelLibrary, testbed: SimulatedTestbed, colocation: Colocation, given: argparse.Namespace
) -> Row | None:
    """Run a mix at a load drawn between 0.25 and 0.93 of what the target can serve there, and predict it."""
    target, others = colocation.target, colocation.competitors
    assert target is not None
    generator = np.random.default_rng([given.seed, int(colocation.key[:8], 16), len(others)])
    possible = testbed.run(colocation, seed=11).target.throughput_mpps
    load = float(generator.uniform(0.25, 0.93))
    offered = target.offered(round(load * possible, 4))
    runs = [testbed.run(Colocation(MACHINE, offered, others), seed=20 + n).target for n in range(given.repeats)]
    prediction = predict(offered, others, library, machine=MACHINE).latency
    assert prediction is not None
    if any(run.latency_p99_us is None for run in runs):  # too few packets for percentiles
        return None
    row: Row = {"load": load, "beside": float(len(others)), "supported": prediction.verdict is not Verdict.UNSUPPORTED}
    row["error of throughput"] = 100.0 * (prediction.possible_mpps / possible - 1.0)
    if not prediction.percentiles_us:
        return row
    alone = library.find(target, MACHINE)
    assert alone.latency is not None
    share = np.array([offered.traffic.offered_mpps / alone.solo_mpps])
    blind = alone.latency.predict_us(share, np.array([alone.solo_mpps]))
    for name in PERCENTILES:
        samples = np.array([getattr(run, f"latency_{name}_us") for run in runs])
        measured = float(np.median(samples))
        low, high = prediction.intervals_us[name]
        row[name] = 100.0 * (prediction.percentiles_us[name] / measured - 1.0)
        row[f"{name} alone"] = 100.0 * (float(blind[name][0]) / measured - 1.0)
        row[f"{name} width"] = 50.0 * (high - low) / measured if high is not None else np.inf
        row[f"{name} inside"] = float(((samples >= low) & (samples <= (np.inf if high is None else high))).mean())
        row[f"{name} scatter"] = 100.0 * float(samples.std() / samples.mean())
    return row


def report(rows: list[Row], wanted: int) -> None:
    judged = [row for row in rows if "p95" in row]
    throughput = np.abs([row["error of throughput"] for row in rows])
    print(
        f"{len(rows)} mixes of {wanted}, {len(judged)} with a prediction; error of throughput {throughput.mean():.2f} %"
    )
    for title, kept in (
        ("all", judged),
        ("load up to 0.8", [row for row in judged if row["load"] <= 0.8]),
        ("load above 0.8", [row for row in judged if row["load"] > 0.8]),
        ("beside others", [row for row in judged if row["beside"]]),
    ):
        columns = "median    mean     p95     bias   ResQ's curve   scatter   inside   half width [%]"
        print(f"\n{title}: {len(kept)} mixes    {columns}")
        for name in PERCENTILES if kept else ():
            error = np.array([row[name] for row in kept])
            blind = np.abs([row[f"{name} alone"] for row in kept]).mean()
            inside = 100.0 * np.mean([row[f"{name} inside"] for row in kept])
            width = np.median([row[f"{name} width"] for row in kept])
            scatter = np.mean([row[f"{name} scatter"] for row in kept])
            sizes = np.abs(error)
            print(
                f"  {name:14}{np.median(sizes):10.1f}{sizes.mean():8.1f}{np.quantile(sizes, 0.95):8.1f}"
                f"{error.mean():+9.1f}{blind:15.1f}{scatter:10.1f}{inside:9.1f}{width:13.1f}"
            )


if __name__ == "__main__":
    sys.exit(main())
