"""Contention on this very machine: measured slowdown of real NFs, and prediction of pairs that were never trained on.

Four or more of our own network functions run beside the synthetic competitor in 20 settings, by turns alone and
together inside one process. Models are trained from what reporter probes (or counters, where there are any) say about
those 20 competitions; then each NF is predicted beside each *other* NF, which no model has seen, and compared with a
measurement. Goals: one NF loses 30 % or more; mean error at most 6 %, or within twice the measured noise where that
is larger. Numbers mean something only on a machine that does nothing else.

    python benchmarks/host.py              about 13 minutes on two cores, plus two for the calibration of a new machine
    python benchmarks/host.py --quick      everything once, coarsely, in two minutes; its numbers say nothing
    python benchmarks/host.py --share 0.5  accept windows with half a core: a busy machine, wild numbers
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slomo.evaluation.evaluate import evaluate
from slomo.profiling.campaign.run import IncompleteCampaignError, run_campaign
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.records.dataset import ProfileDataset
from slomo.records.run import RunRecord
from slomo.testbed.host import interleaving
from slomo.testbed.host.cores import available_cores
from slomo.testbed.host.machine.this_machine import cache_mib, this_machine
from slomo.testbed.host.nf.definition import host_definition
from slomo.testbed.host.probe.calibration import Calibration, calibration_settings
from slomo.testbed.host.probe.procedure import calibrate
from slomo.testbed.host.probe.reporters import stream_mib
from slomo.testbed.host.settings import HostSettings
from slomo.testbed.host.steady import summarise
from slomo.testbed.host.tenant import HostTenant, Window
from slomo.testbed.host.testbed import HostTestbed
from slomo.training.training import train
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.workload import Workload

NETWORK_FUNCTIONS = ("ip-router", "flowstats", "maglev", "mazunat")
MODEL, BASELINES = "slomo-xgb", ("slomo-gbr", "slomo-gp", "dobrescu", "bubbleup", "none")
_LEAST_CACHE_MIB = 8.0  # where next to no cache is ours, shares of it would press on nothing
GOAL_LOSS, GOAL_ERROR_PERCENT, GOAL_OVERHEAD_S, GOAL_CPU = 0.30, 6.0, 3.0, 0.01


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nf", action="append", help="network function, repeatable; at least two")
    parser.add_argument("--quick", action="store_true", help="two NFs, six settings, short windows")
    parser.add_argument("--counters", help="'probe' or a counter reader; the first that works here if not given")
    parser.add_argument(
        "--share", type=float, default=0.95, help="share of its core an NF must get for a window to count"
    )
    parser.add_argument("--pairs", type=int, default=4, help="pairs of windows per run, at least")
    parser.add_argument("--every", type=int, help="take one of so many settings; 3 with --quick, else 1")
    parser.add_argument("--json", type=Path, help="write everything to this file")
    return parser.parse_args()


def settings(given: argparse.Namespace) -> HostSettings:
    lenient = {"limit": 10.0} if given.share < 0.9 or given.quick else {}
    if given.quick:
        return HostSettings(
            window_s=0.2,
            pairs=2,
            most_pairs=2,
            probe_pairs=2,
            probe_window_s=0.2,
            minimum_cpu_share=given.share,
            **lenient,
        )
    return HostSettings(
        window_s=0.3,
        pairs=given.pairs,
        most_pairs=2 * given.pairs,
        precision=0.01,
        minimum_cpu_share=given.share,
        attempts=8,
        **lenient,
    )


def competitions(llc_mib: float) -> list[Workload]:
    """Return 20 settings of the competitor that span footprint, access rate, bandwidth and writes."""
    stream, llc_mib = stream_mib(llc_mib), max(llc_mib, _LEAST_CACHE_MIB)
    rows: list[dict[str, Any]] = [{"share": share, "pattern": "random"} for share in (0.25, 0.5, 0.75, 1.0, 1.5, 3.0)]
    rows += [{"share": 1.0, "pattern": "random", "rate_mpps": rate} for rate in (0.15, 0.4, 0.8)]
    rows += [{"share": share, "pattern": "sequential"} for share in (0.5, 1.0, 1.5)]
    rows += [{"data_size_mib": stream, "pattern": "sequential", "rate_mpps": rate} for rate in (0.3, 0.7, 1.5, 0.0)]
    rows += [{"data_size_mib": stream, "pattern": "sequential", "writes_per_packet": writes} for writes in (16, 64)]
    rows += [{"share": share, "pattern": "random", "writes_per_packet": 64} for share in (1.5, 3.0)]
    return [Workload("synthetic", {"reads_per_packet": 64, **_sized(row, llc_mib)}) for row in rows]


def _sized(row: Mapping[str, Any], llc_mib: float) -> dict[str, Any]:
    size = {"data_size_mib": round(row["share"] * llc_mib, 2)} if "share" in row else {}
    return {**{name: value for name, value in row.items() if name != "share"}, **size}


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
    records: dict[str, RunRecord] = field(default_factory=dict)
    overheads_s: list[float] = field(default_factory=list)  # per experiment, besides windows
    name: str = "host"
    exclusive: bool = True

    def run(self, colocation: Colocation, *, seed: int = 0) -> RunRecord:
        """Run, keep the record, say so."""
        started, inside = time.monotonic(), WINDOWS.seconds
        record = self.inner.run(colocation, seed=seed)
        self.overheads_s.append(time.monotonic() - started - (WINDOWS.seconds - inside))
        self.records[colocation.key] = record
        note = f"[{len(self.records)}/{self.total}] {colocation.label}: {record.target.throughput_mpps:.3f} Mpps"
        print(f"{note} ({time.monotonic() - started:.1f} s)", file=sys.stderr)
        return record

    def environment(self) -> Mapping[str, Any]:
        """Return the real testbed's."""
        return self.inner.environment()

    def estimate_s(self, colocation: Colocation) -> float:
        """Return the real testbed's."""
        return self.inner.estimate_s(colocation)


def plan(machine: str, targets: Sequence[Workload], pressures: Sequence[Workload]) -> ExperimentPlan:
    """Return solo runs first, then pressure, then every ordered pair of unlike NFs."""
    solo = [Colocation(machine, target) for target in targets]
    pressed = [Colocation(machine, target, (pressure,)) for target in targets for pressure in pressures]
    pairs = [Colocation(machine, one, (other,)) for one in targets for other in targets if one != other]
    return ExperimentPlan("host-benchmark", (*solo, *pressed, *pairs))


def coarse_calibration(coarse: HostSettings) -> Calibration:
    """Return a calibration good enough to see that everything works; it is not kept."""
    l2_mib, largest_mib = ((cache_mib(level) or (2.0 * level, 0))[0] for level in (2, 3))
    return calibrate(
        host_definition("synthetic"), available_cores(), coarse, l2_mib=l2_mib, largest_llc_mib=largest_mib,
        identity="coarse", shapes=lambda llc_mib: calibration_settings(llc_mib)[::3], sizes_mib=(4, 8, 16, 32, 64),
    )  # fmt: skip


def measure(given: argparse.Namespace) -> tuple[ProfileDataset, Recorder, float]:
    names = tuple(given.nf or (NETWORK_FUNCTIONS[:2] if given.quick else NETWORK_FUNCTIONS))
    machine = this_machine()
    started = time.monotonic()
    coarse = coarse_calibration(settings(given)) if given.quick else None
    testbed = HostTestbed(machine, counters=given.counters, settings=settings(given), calibration=coarse)
    llc_mib = testbed.probe().calibration.llc_mib if testbed.reader is None else (cache_mib(3) or (32.0, 0))[0]
    pressures = competitions(llc_mib)[:: given.every or (3 if given.quick else 1)]
    experiments = plan(machine.name, [Workload(name) for name in names], pressures)
    recorder = Recorder(testbed, len(experiments.colocations))
    print(f"calibrated in {time.monotonic() - started:.0f} s; {len(experiments.colocations)} runs", file=sys.stderr)
    try:
        dataset = run_campaign(experiments, recorder)
    except IncompleteCampaignError as error:
        print(f"note: {error.message}", file=sys.stderr)
        if error.dataset is None:
            raise
        dataset = error.dataset
    finally:
        testbed.close()
    return dataset, recorder, llc_mib


def show_curves(recorder: Recorder) -> float:
    """Print the measured slowdown per NF and competition; return the largest."""
    print("\nmeasured slowdown [%] beside the synthetic competitor (median of pairs +- dispersion of one)")
    worst = 0.0
    for record in recorder.records.values():
        pairs = record.provenance["host"].get("pairs")
        competitor = record.colocation.competitors[0] if record.colocation.competitors else None
        if pairs is None or competitor is None or competitor.nf != "synthetic":
            continue
        assert record.colocation.target is not None
        loss = 1.0 - pairs["ratio"]
        worst = max(worst, loss)
        knobs = ",".join(
            f"{name}={value}" for name, value in competitor.configuration.items() if name != "reads_per_packet"
        )
        print(f"  {record.colocation.target.nf:12s} {100 * loss:6.1f} +-{100 * pairs['dispersion']:4.1f}  {knobs}")
    return worst


def show_costs(recorder: Recorder) -> tuple[float, float]:
    """Print what the harness itself took; return overhead per experiment [s] and its share of a core."""
    overhead, share = statistics.mean(recorder.overheads_s), WINDOWS.cpu_s / WINDOWS.seconds
    print(
        f"\nharness: {overhead:.2f} s per experiment besides windows (worst {max(recorder.overheads_s):.2f} s), "
        f"{100 * share:.2f} % of a core while measuring"
    )
    return overhead, share


def show_pairs(dataset: ProfileDataset, recorder: Recorder) -> tuple[list[dict[str, Any]], Any]:
    """Train without the pairs, predict them, print the table."""
    evaluation = evaluate(train(_without_mixes(dataset)), dataset)
    if MODEL not in evaluation.models:
        raise SystemExit(f"no function could be given a model '{MODEL}': too few settings differ in what probes feel")
    baselines = [name for name in BASELINES if name in evaluation.models]
    table = evaluation.to_frame()
    mixes = dataset.select(plan="mix")
    competitors = [mixes.competitors(row)[0].nf for row in range(len(mixes))]
    noise = {
        (r.colocation.target.nf, r.colocation.competitors[0].nf): r.provenance["host"]["pairs"]["dispersion"]
        for r in recorder.records.values()
        if r.colocation.competitors and r.colocation.target is not None and "pairs" in r.provenance["host"]
    }
    rows = []
    print("\nNFs beside each other, never trained on: throughput [Mpps]")
    print(
        f"  {'target':12s} {'beside':12s} {'measured':>9s} {'noise %':>7s} {MODEL:>9s}   {'90 % interval':17s} error   "
        + "  ".join(baselines)
    )
    for number, row in table[table["model"] == MODEL].reset_index(drop=True).iterrows():
        beside = competitors[int(str(number))]
        others = {
            name: float(table[table["model"] == name]["error_percent"].iloc[int(str(number))]) for name in baselines
        }
        spread = 100.0 * noise.get((row["target"], beside), float("nan"))
        rows.append({**row.to_dict(), "beside": beside, "noise_percent": spread, "baseline_error_percent": others})
        print(
            f"  {row['target']:12s} {beside:12s} {row['measured_mpps']:9.3f} {spread:7.1f} "
            f"{row['predicted_mpps']:9.3f}   {row['low_mpps']:7.3f} .. {row['high_mpps']:7.3f} "
            f"{row['error_percent']:7.1f}   " + "  ".join(f"{others[name]:{len(name)}.1f}" for name in baselines)
        )
    print(
        "\nmean absolute error [%]: "
        + ", ".join(f"{name} {found.mape:.1f}" for name, found in evaluation.models.items())
    )
    print(f"measured throughputs inside their 90 % interval: {evaluation.models[MODEL].coverage:.0f} %")
    return rows, evaluation


def _without_mixes(dataset: ProfileDataset) -> ProfileDataset:
    frame = dataset.frame
    return ProfileDataset(frame[frame["plan"] != "mix"].reset_index(drop=True), dataset.environment)


def keep(path: Path, recorder: Recorder) -> None:
    """Write what was measured, before anything is made of it."""
    made = recorder.inner.probe.made
    document = {
        "calibration": made.calibration.to_dict() if made else None,
        "runs": [record.to_dict() for record in recorder.records.values()],
    }
    path.write_text(json.dumps(document, indent=1, default=float) + "\n")


def main() -> int:
    given = arguments()
    started = time.monotonic()
    dataset, recorder, llc_mib = measure(given)
    print(f"{dataset.environment['settings']['host']['cpu']}, {recorder.inner.source}, usable cache {llc_mib:.1f} MiB")
    if given.json:
        keep(given.json, recorder)
    worst = show_curves(recorder)
    overhead_s, cpu_share = show_costs(recorder)
    rows, evaluation = show_pairs(dataset, recorder)
    noise = summarise([row["noise_percent"] for row in rows if row["noise_percent"] == row["noise_percent"]]).median
    bound = max(GOAL_ERROR_PERCENT, 2.0 * noise)
    error = evaluation.models[MODEL].mape
    print(f"\n{'ok ' if worst >= GOAL_LOSS else 'off'} largest measured loss {100 * worst:.0f} % (goal: 30 % or more)")
    verdict = "ok " if error <= bound else "off"
    print(f"{verdict} mean error of {MODEL} {error:.1f} % (goal: {bound:.1f} %; noise {noise:.1f} %)")
    verdict = "ok " if overhead_s < GOAL_OVERHEAD_S else "off"
    print(f"{verdict} overhead {overhead_s:.2f} s per experiment (goal: below {GOAL_OVERHEAD_S:g} s)")
    print(f"{'ok ' if cpu_share < GOAL_CPU else 'off'} harness {100 * cpu_share:.2f} % of a core (goal: below 1 %)")
    if given.quick or given.share < 0.9:
        print("note: a quick run, or one on a busy machine, shows that everything works; its numbers say nothing")
    print(f"{time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
