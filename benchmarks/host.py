"""Contention on this very machine: measured slowdown of real NFs, and prediction of pairs that were never trained on.

The nine functions of synthetic_nf/, two table sizes where they have tables, run beside the synthetic competitor in
eight settings, and beside each other at full and at half speed, by turns alone and together inside one process, in two
blocks of random order. Models are trained from what reporters felt (or counters counted) beside the settings alone;
pairs are predicted, and compared with shares of the solo measured beside them. Numbers mean something only on a machine
that does nothing else and owns cache behind L2; where it owns less than 4 MiB there is nothing to tell, and it ends.

    python benchmarks/host.py              about 23 minutes on two cores, calibration included
    python benchmarks/host.py --quick      five functions, one block, in about 5 minutes; too few pairs for the goals
    python benchmarks/host.py --share 0.5  accept windows with half a core: a busy machine, wild numbers
"""

import argparse
import collections
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from host_functions import PACED, at_pace, functions, paced, workloads

from slomo.errors import UnstableMeasurementError
from slomo.profiling.campaign.run import IncompleteCampaignError, run_campaign
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.records.dataset import ProfileDataset
from slomo.records.run import RunRecord
from slomo.testbed.host import interleaving
from slomo.testbed.host.machine.this_machine import cache_mib, this_machine
from slomo.testbed.host.run import Run
from slomo.testbed.host.settings import HostSettings
from slomo.testbed.host.tenant import HostTenant, Window
from slomo.testbed.host.testbed import HostTestbed
from slomo.training.training import train
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.defaults import DEFAULT_MODEL
from slomo.vocabulary.workload import Workload

QUICK = ("ip-router", "flowstats", "mazunat", "l2fwd", "dpi")
BASELINES = ("mean", "bubbleup", "dobrescu", "bubbleup-curve", "dobrescu-curve")
LEAST_CACHE_MIB = 4.0
PAIRS, QUICK_PAIRS = 34, 12
GOAL_OVER_NOISE, GOAL_OF_BASELINE, GOAL_R2 = 1.2, 0.85, 0.5
GOAL_COVERAGE, GOAL_WIDTH_OVER_NOISE = (85.0, 95.0), 4.0
GOAL_OVERHEAD_S, GOAL_CPU = 1.5, 0.007


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nf", action="append", help="network function, repeatable; at least two")
    parser.add_argument("--quick", action="store_true", help="five functions, one block")
    parser.add_argument("--counters", help="'probe' or a counter reader; the first that works here if not given")
    parser.add_argument("--share", type=float, default=0.95, help="share of its core an NF must get to count")
    parser.add_argument("--pairs", type=int, help="runs of two functions together; each gives two unseen pairs")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the order and the pairs")
    parser.add_argument("--even-without-cache", action="store_true", help="go on where there is nothing to tell")
    parser.add_argument("--json", type=Path, help="write everything to this file")
    parser.add_argument("--dataset", type=Path, help="keep the dataset, for `slomo train` and `slomo predict`")
    return parser.parse_args()


def settings(given: argparse.Namespace) -> HostSettings:
    lenient = {"limit": 10.0, "drift_limit": 1.0} if given.share < 0.9 else {"limit": 0.2}
    return HostSettings(
        window_s=0.15, settle_s=0.06, pairs=3, most_pairs=5, precision=0.015, minimum_cpu_share=given.share, attempts=8,
        probe_pairs=3, probe_window_s=0.12, probe_budget_s=4.5, probe_fresh_s=240.0, **lenient,
    )  # fmt: skip


def competitions(llc_mib: float) -> list[Workload]:
    """Return eight settings of the competitor that span footprint, access rate, bandwidth and writes."""
    stream = min(max(64.0, 4.0 * llc_mib), 512.0)
    rows: list[dict[str, Any]] = [
        {"data_size_mib": 0.5 * llc_mib, "pattern": "random"},
        {"data_size_mib": 1.0 * llc_mib, "pattern": "random"},
        {"data_size_mib": 1.0 * llc_mib, "pattern": "random", "rate_mpps": 0.3},
        {"data_size_mib": 3.0 * llc_mib, "pattern": "random"},
        {"data_size_mib": stream, "pattern": "sequential", "rate_mpps": 0.5},
        {"data_size_mib": stream, "pattern": "sequential"},
        {"data_size_mib": 1.5 * llc_mib, "pattern": "random", "writes_per_packet": 64},
        {"data_size_mib": stream, "pattern": "sequential", "writes_per_packet": 64},
    ]
    sized = ({**row, "data_size_mib": round(row["data_size_mib"], 2)} for row in rows)
    return [Workload("synthetic", {"reads_per_packet": 64, **row}) for row in sized]


class Windows:
    """Stands where the harness takes its windows; adds up how long they were, and what the harness did meanwhile."""

    def __init__(self, settle_s: float) -> None:
        self.seconds, self.cpu_s, self.settle_s, self._take = 0.0, 0.0, settle_s, interleaving.take_windows

    def __call__(self, tenants: Sequence[HostTenant], window_s: float) -> list[Window]:
        """Take windows as the harness does, by the clock."""
        started, cpu_s = time.monotonic(), time.process_time()
        try:
            return self._take(tenants, window_s)
        finally:
            self.cpu_s += time.process_time() - cpu_s
            self.seconds += time.monotonic() - started + self.settle_s


WINDOWS = Windows(HostSettings().settle_s)
interleaving.take_windows = WINDOWS  # type: ignore[assignment, attr-defined]


@dataclass
class Recorder:
    """A testbed that keeps what it measured and what that cost, and says how far it is."""

    inner: HostTestbed
    total: int
    records: list[RunRecord] = field(default_factory=list)
    overheads_s: list[float] = field(default_factory=list)  # per experiment, besides windows
    name: str = "host"
    exclusive: bool = True

    def run(self, colocation: Colocation, *, seed: int = 0) -> RunRecord:
        """Run, keep the record, say so."""
        started, inside = time.monotonic(), WINDOWS.seconds
        record = self.inner.run(colocation, seed=seed)
        self.overheads_s.append(time.monotonic() - started - (WINDOWS.seconds - inside))
        self.records.append(record)
        kept = record.provenance["host"].get("pairs", {}).get("ratio", 1.0)
        note = f"[{len(self.records)}/{self.total}] {colocation.label}: keeps {100 * kept:.1f} %"
        print(f"{note} ({time.monotonic() - started:.1f} s)", file=sys.stderr)
        return record

    def environment(self) -> Mapping[str, Any]:
        """Return the real testbed's."""
        return self.inner.environment()

    def estimate_s(self, colocation: Colocation) -> float:
        """Return the real testbed's."""
        return self.inner.estimate_s(colocation)


def half_speeds(targets: Sequence[Workload], testbed: HostTestbed) -> list[Workload]:
    """Return the larger half of the targets, paced at half of what they do now."""
    slowed = []
    for target in targets[1::2]:
        definition = testbed.definition(target.nf)
        with Run() as run:
            tenant = run.start(definition, target, testbed.cores[1:2])
            time.sleep(0.3)
            (window,) = interleaving.take_windows([tenant], 0.2)
        slowed.append(at_pace(target, 0.5 * window.rate_mpps))
    return slowed


def plan(machine: str, targets: Sequence[Workload], slow: Sequence[Workload], pressures: Sequence[Workload],
         given: argparse.Namespace) -> ExperimentPlan:  # fmt: skip
    """Return solo runs, runs under pressure, and pairs drawn at random; the campaign shuffles them block by block."""
    solo = [Colocation(machine, one) for one in (*targets, *slow)]
    pressed = [Colocation(machine, target, (pressure,)) for target in targets for pressure in pressures]
    every = [(one, other) for one in targets for other in (*targets, *slow) if one != other]
    count = given.pairs or (QUICK_PAIRS if given.quick else PAIRS)
    drawn = np.random.default_rng(given.seed).permutation(len(every))[:count]
    pairs = [Colocation(machine, every[i][0], (every[i][1],)) for i in sorted(drawn)]
    blocks = 1 if given.quick else 2
    return ExperimentPlan("host-benchmark", (*solo, *pressed, *pairs), replicates=blocks, seed=given.seed)


def measure(given: argparse.Namespace) -> tuple[ProfileDataset, Recorder] | None:
    """Return what was measured; None where there is nothing to tell."""
    here = functions()
    names = [name for name in (given.nf or (QUICK if given.quick else here)) if name in here]
    own = [*here.values(), *(paced(function) for function in here.values())]
    machine, started = this_machine(), time.monotonic()
    testbed = HostTestbed(machine, own, counters=given.counters, settings=settings(given))
    try:
        calibration = None if testbed.reader is not None else testbed.probe().calibration
        llc_mib = (cache_mib(3) or (32.0, 0))[0] if calibration is None else calibration.llc_mib
        l2_mib = (cache_mib(2) or (1.0, 0))[0]
        told = [] if calibration is None else [item.name for item in calibration.reporters]
        print(f"{machine.description}: {llc_mib:.1f} MiB of cache, {l2_mib:g} of it L2; reporters {', '.join(told)}; "
              f"seed {given.seed}; {time.monotonic() - started:.0f} s to calibrate")  # fmt: skip
        if llc_mib - l2_mib < LEAST_CACHE_MIB and not given.even_without_cache:
            return None
        targets = workloads(names)
        experiments = plan(machine.name, targets, half_speeds(targets, testbed), competitions(llc_mib), given)
        recorder = Recorder(testbed, len(experiments.runs()))
        try:
            return run_campaign(experiments, recorder), recorder
        except IncompleteCampaignError as error:
            print(f"note: {error.message}")
            if error.dataset is None:
                raise
            return error.dataset, recorder
    finally:
        testbed.close()


def show_losses(dataset: ProfileDataset) -> None:
    """Print what every function lost beside the competitor's settings, and what noise there is."""
    print("\nlost beside the synthetic competitor [%], mean of the blocks: median and most over the settings")
    for target in dataset.targets:
        rows = dataset.select(target=target)
        pressed = rows.frame[rows.frame["plan"] == "pressure"]
        if len(pressed):
            lost = 100.0 * (1.0 - pressed["throughput_mpps"].to_numpy() / dataset.solo_mpps(target))
            print(f"  {target[:60]:60s} {np.median(lost):6.1f} {lost.max():6.1f}")
    steady = dataset.environment.get("stability", {})
    print(f"the machine itself: {json.dumps(steady)}")


def unseen(dataset: ProfileDataset) -> ProfileDataset:
    """Return the rows of pairs whose target has a model: all but those of paced functions."""
    frame = dataset.frame
    keep = (frame["plan"] == "mix") & ~frame["nf"].str.endswith(PACED)
    return ProfileDataset(frame[keep].reset_index(drop=True), dataset.environment)


def predictions(dataset: ProfileDataset, pairs: ProfileDataset) -> tuple[dict[str, Any], "np.ndarray[Any, Any]"]:
    """Return, per family and for the default, predicted share, low and high of every pair; and the measured shares."""
    from slomo.prediction.predictor import Predictor

    frame = dataset.frame
    library = train(ProfileDataset(frame[frame["plan"] != "mix"].reset_index(drop=True), dataset.environment))
    machine = dataset.machines[0]
    targets = [pairs.workload(str(key)) for key in pairs.frame["target"]]
    others = [pairs.competitors(row) for row in range(len(pairs))]
    models = [library.find(target, machine) for target in targets]
    names = [name for name in models[0].sensitivity if all(name in model.sensitivity for model in models)]
    by_family = {}
    for name in names:
        batch = Predictor(library, machine, name, method="composed").predict_batch(targets, others)
        by_family[name] = np.array([batch.throughput_mpps, batch.low_mpps, batch.high_mpps]) / batch.solo_mpps
    alike = {model.workload.key: model for model in models}
    chosen = {key: model.named(DEFAULT_MODEL) for key, model in alike.items()}
    by_family["default"] = np.stack(
        [by_family[chosen[target.key]][:, row] for row, target in enumerate(targets)], axis=1
    )
    measured = pairs.throughput / np.array([model.solo_mpps for model in models])
    counts = collections.Counter(chosen.values())
    print("default: " + ", ".join(f"{name} for {count}" for name, count in counts.most_common()))
    return by_family, measured


def noise_of(pairs: ProfileDataset, measured: "np.ndarray[Any, Any]") -> float:
    """Return the mean absolute error that the truth itself would have on these rows [points], from the two blocks.

    The standard deviation of a row's mean, times the mean absolute value of a normal variable.
    """
    frame = pairs.frame
    twice = frame["replicates"].to_numpy() > 1
    if not twice.any():
        return float("nan")
    spread = (frame["throughput_cv"].to_numpy() * measured / np.sqrt(frame["replicates"].to_numpy()))[twice]
    return float(100.0 * np.sqrt(np.mean(spread**2)) * np.sqrt(2.0 / np.pi))


def show_pairs(by_family: Mapping[str, Any], measured: "np.ndarray[Any, Any]", noise: float) -> None:
    """Print errors of every family, and whether the default does what it must."""
    away = {name: 100.0 * np.abs(values[0] - measured) for name, values in by_family.items()}
    best = min(float(away[name].mean()) for name in BASELINES if name in away)
    total = float(np.square(away["mean"]).sum())
    print(
        f"\n{len(measured)} unseen pairs; lost {100 * (1 - measured.max()):.1f} to {100 * (1 - measured.min()):.1f} %, "
        f"standard deviation of the truth {100 * measured.std():.1f} points; noise of a row {noise:.2f} points"
    )
    print(f"  {'model':16s} {'error':>6s} {'p95':>6s} {'R2 to mean':>10s} {'holds %':>8s} {'width':>6s}  [points]")
    for name, values in by_family.items():
        inside = (values[1] <= measured) & (measured <= values[2])
        width = 100.0 * np.median(values[2] - values[1])
        r2 = 1.0 - float(np.square(away[name]).sum()) / total
        print(f"  {name:16s} {away[name].mean():6.2f} {np.quantile(away[name], 0.95):6.2f} {r2:10.2f} "
              f"{100 * inside.mean():8.0f} {width:6.1f}")  # fmt: skip
    error = float(away["default"].mean())
    r2 = 1.0 - float(np.square(away["default"]).sum()) / total
    (
        low,
        _,
    ) = by_family["default"][1], None
    inside = 100.0 * float(((low <= measured) & (measured <= by_family["default"][2])).mean())
    width = 100.0 * float(np.median(by_family["default"][2] - low))
    verdict(
        error <= GOAL_OVER_NOISE * noise,
        f"default errs by {error:.2f} points, {error / noise:.2f} of the noise (goal {GOAL_OVER_NOISE:g})",
    )
    verdict(
        error <= GOAL_OF_BASELINE * best or r2 >= GOAL_R2,
        f"{error / best:.2f} of the best baseline (goal {GOAL_OF_BASELINE:g}), R2 {r2:.2f} (or goal {GOAL_R2:g})",
    )
    verdict(
        GOAL_COVERAGE[0] <= inside <= GOAL_COVERAGE[1], f"90 % intervals (of the next measurement) hold {inside:.0f} %"
    )
    verdict(
        width <= GOAL_WIDTH_OVER_NOISE * noise,
        f"median width {width:.1f} points, {width / noise:.1f} of the noise (goal {GOAL_WIDTH_OVER_NOISE:g})",
    )


def show_costs(recorder: Recorder) -> None:
    """Print what the harness itself took."""
    overhead, share = statistics.median(recorder.overheads_s), WINDOWS.cpu_s / WINDOWS.seconds
    verdict(
        overhead <= GOAL_OVERHEAD_S,
        f"{overhead:.2f} s per experiment besides windows (goal {GOAL_OVERHEAD_S:g}; "
        f"worst {max(recorder.overheads_s):.2f})",
    )
    verdict(share <= GOAL_CPU, f"harness {100 * share:.2f} % of a core (goal {100 * GOAL_CPU:g} %)")


def verdict(reached: bool, text: str) -> None:
    print(f"{'ok ' if reached else 'OFF'} {text}")


def keep(given: argparse.Namespace, dataset: ProfileDataset, recorder: Recorder) -> None:
    """Write what was measured, before anything is made of it."""
    if given.dataset:
        dataset.to_parquet(given.dataset)
    if given.json:
        made = recorder.inner.probe.made
        document = {
            "calibration": made.calibration.to_dict() if made else None,
            "runs": [record.to_dict() for record in recorder.records],
        }
        given.json.write_text(json.dumps(document, indent=1, default=float) + "\n")


def main() -> int:
    given, started = arguments(), time.monotonic()
    try:
        measured = measure(given)
    except UnstableMeasurementError as error:
        print(f"nothing to tell here: {error.message}")
        return error.exit_code
    if measured is None:
        print(f"nothing to tell here: less than {LEAST_CACHE_MIB:g} MiB of cache behind L2 to share")
        return 0
    dataset, recorder = measured
    keep(given, dataset, recorder)
    show_losses(dataset)
    pairs = unseen(dataset)
    by_family, shares = predictions(dataset, pairs)
    show_pairs(by_family, shares, noise_of(pairs, shares))
    show_costs(recorder)
    if given.quick or given.share < 0.9:
        print("note: one block has no noise of its own, and a busy machine is noise: it shows that everything works")
    print(f"{time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
