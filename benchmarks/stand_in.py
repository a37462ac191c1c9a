"""Can the simulator stand in for this host? Measured slowdown curves beside those of the machine that the doctor wrote.

    slomo doctor --out this-host.yaml
    python benchmarks/host.py --json host.json
    python benchmarks/stand_in.py host.json this-host.yaml

Every co-location with the synthetic competitor that `host.py` measured is simulated on the machine file, and the
slowdown of both compared per network function. The simulated functions are those of the papers, not our programs of
the same kind, so their speeds alone differ; nothing is fitted.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from slomo.records.run import RunRecord
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.machine import Machine, load_machine
from slomo.vocabulary.workload import Workload


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path, help="what host.py --json wrote")
    parser.add_argument("machine", help="what slomo doctor --out wrote")
    parser.add_argument("--curves", action="store_true", help="print every point")
    given = parser.parse_args()
    if not given.measured.is_file():  # on a busy host `host.py` ends without results
        parser.error(f"no file '{given.measured}'; python benchmarks/host.py --json {given.measured} writes it")
    machine = load_machine(given.machine)
    runs = [RunRecord.from_dict(run) for run in json.loads(given.measured.read_text(encoding="utf-8"))["runs"]]
    curves = measured_curves(runs)
    print(f"{'function':12s} {'alone [Mpps]':>21s} {'slowdown [%]':>21s} {'error [points]':>22s} {'rank':>5s}")
    print(f"{'':12s} {'measured':>10s} {'simulated':>10s} {'measured':>10s} {'simulated':>10s} {'mean':>6s} "
          f"{'worst':>7s} {'none':>7s} {'corr':>5s}")  # fmt: skip
    for name, curve in curves.items():
        show(name, curve, machine, given)
    print("mean slowdown over the settings; 'none': the error of predicting no slowdown at all; rank: Spearman")
    return 0


def measured_curves(runs: list[RunRecord]) -> dict[str, dict[str, Any]]:
    """Return, per function, its speed alone [Mpps] and its measured slowdown beside each setting."""
    curves: dict[str, dict[str, Any]] = {}
    for run in runs:
        target, others = run.colocation.target, run.colocation.competitors
        if target is None or (others and others[0].nf != "synthetic"):
            continue
        curve = curves.setdefault(target.nf, {"solo": float("nan"), "target": target, "points": []})
        if others:
            curve["points"].append((others[0], 1.0 - run.provenance["host"]["pairs"]["ratio"]))
        else:
            curve["solo"] = run.target.throughput_mpps
    return curves


def show(name: str, curve: dict[str, Any], machine: Machine, given: argparse.Namespace) -> None:
    testbed = SimulatedTestbed(machine)
    solo = alone(testbed, curve["target"])
    measured = np.array([slowdown for _, slowdown in curve["points"]])
    simulated = np.array([
        1.0 - testbed.run(Colocation(machine.name, curve["target"], (setting,))).target.throughput_mpps / solo
        for setting, _ in curve["points"]
    ])  # fmt: skip
    error = 100.0 * np.abs(simulated - measured)
    print(f"{name:12s} {curve['solo']:10.3f} {solo:10.3f} {100 * measured.mean():10.1f} {100 * simulated.mean():10.1f} "
          f"{error.mean():6.1f} {error.max():7.1f} {100 * np.abs(measured).mean():7.1f} "
          f"{spearman(measured, simulated):5.2f}")  # fmt: skip
    if given.curves:
        for (setting, loss), stood_in in zip(curve["points"], simulated, strict=True):
            print(f"    {100 * loss:6.1f} {100 * stood_in:6.1f}  {setting.key}")


def alone(testbed: SimulatedTestbed, target: Workload) -> float:
    return testbed.run(Colocation(testbed.machine.name, target)).target.throughput_mpps


def spearman(first: "np.ndarray[Any, Any]", second: "np.ndarray[Any, Any]") -> float:
    ranks = [np.argsort(np.argsort(values)) for values in (first, second)]
    return float(np.corrcoef(*ranks)[0, 1])


if __name__ == "__main__":
    sys.exit(main())
