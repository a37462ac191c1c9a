"""Where servers too many come from: the same search with true rates, with predictions alone, and with their bounds.

The simulator's own rates of every mix take the place of predictions: exactly, and with the half a point that the judge
forgives. What predictions at confidence 0.5 take more is their error; what higher confidences take more is the width of
bounds. "broken" counts servers on which a promise is missed by more than the judge forgives.

    python benchmarks/placement/ablate.py DIR --machine benchmarks/placement/machines/six-cores.yaml --seed 4711

DIR keeps runs and models, as of `knob.py`. With --varied, promises are 70 to 97 % of solo; all are 90 % otherwise.
With --others, policies that know less place the same batch: `first-fit` by CPU requests alone, `dobrescu`, and
`resq-milp` with cache ways of profiles that DIR keeps too; of the last, broken promises are not counted.
"""

import argparse
import sys
from pathlib import Path

import knob
import numpy as np
import prepare
from oracle import TOLERANCE, Truth, oracle

from slomo.models.library import ModelLibrary
from slomo.models.partition_profile import load_profiles
from slomo.placement.feasibility.estimates import ThroughputEstimates
from slomo.placement.online.placer import Placer
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.request import SLO, Request
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.workload_text import parse_workload

CONFIDENCES = (0.5, 0.8, 0.9, 0.95)
OTHERS = ("first-fit", "dobrescu", "resq-milp")


class TrueRates(ThroughputEstimates):
    """Rates that the simulator gives, times a factor."""

    truth: Truth
    factor = 1.0

    def _rates_of(self, machine, members, different):
        del different  # what is true shares no risk
        kinds = self._kinds(machine)
        rates = np.zeros(members.shape)
        for row, who in enumerate(kinds.models_of(members)):
            mix = [kinds.models[number].workload for number in who if number >= 0]
            means = self.truth.means(machine, mix)
            rates[row, : len(mix)] = [self.factor * means[workload.key][0] for workload in mix]
        return rates, rates.copy(), rates.copy()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="keeps runs and models")
    parser.add_argument("--machine", action="append", required=True, help="name or YAML file, repeatable")
    parser.add_argument("--nf", action="append", help="network function, repeatable")
    parser.add_argument("--runs", type=int, default=60, help="per network function")
    parser.add_argument("--mixes", type=int, default=120, help="that calibrate")
    parser.add_argument("--packed-mixes", type=int, default=0, help="further ones, as placement fills servers")
    parser.add_argument("--stream", default="calibration", help="half of all mixes that calibrates")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--varied", action="store_true")
    parser.add_argument("--others", action="store_true", help="policies that know less, too")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(f"{'machine':16}{'rates':>22}{'servers':>9}{'of true':>9}{'broken':>8}", flush=True)
    for machine in given.machine:
        ablated(machine, knob.models(machine, given), given)
    return 0


def ablated(machine: str, library: ModelLibrary, given: argparse.Namespace) -> None:
    """Pack one batch by every kind of rates, and print a line for each."""
    host = load_machine(machine)
    generator, nfs = np.random.default_rng([given.seed, 0x6B6E6F]), list(given.nf or knob.FUNCTIONS)
    drawn = [str(nf) for nf in generator.choice(nfs, given.requests)]
    shares = generator.integers(70, 98, given.requests) / 100.0 if given.varied else np.full(given.requests, 0.9)
    requests = [
        Request(f"p{i}", nf, SLO(min_share=float(s))) for i, (nf, s) in enumerate(zip(drawn, shares, strict=True))
    ]
    truth = Truth(machines=[host], tolerance=0.0)
    TrueRates.truth = truth
    lines = [("true", 0.5, 1.0), ("true, forgiving", 0.5, 1.0 + TOLERANCE)]
    lines += [(f"predicted at {confidence:g}", confidence, None) for confidence in CONFIDENCES]
    true = 0
    for name, confidence, factor in lines:
        placer = Placer(library, Cluster.uniform(machine, given.requests), "predicted", confidence=confidence)
        if factor is not None:
            placer.estimates.__class__, TrueRates.factor = TrueRates, factor
        placer.place_all(requests)
        broken = sum(breaks(truth, host.name, items) for items in placer.layout().values())
        true = true or placer.servers_used
        print(
            f"{host.name:16}{name:>22}{placer.servers_used:9d}{placer.servers_used / true:9.3f}{broken:8d}", flush=True
        )
    ways = given.directory / f"{host.name}-{given.runs}" / "profiles.json"
    if given.others:
        prepare.ways(ways, nfs, machine)
    for name in OTHERS if given.others else ():
        placer = Placer(library, Cluster.uniform(machine, given.requests), name, profiles=load_profiles(ways))
        placer.place_all(requests)
        judged = placer.layout().values() if not placer.policy.needs_profiles else ()
        broken = str(sum(breaks(truth, host.name, items) for items in judged)) if judged else ""
        print(
            f"{host.name:16}{name:>22}{placer.servers_used:9d}{placer.servers_used / true:9.3f}{broken:>8}", flush=True
        )
    kind = {(host.name, host.cores_per_socket): given.requests}
    found = oracle(truth, requests, kind, lambda name, r: r.slo.min_share * truth.solo(name, r.chain[0]))
    print(f"{host.name:16}{'true, first, best fit':>22}{found:9d}{found / true:9.3f}", flush=True)


def breaks(truth: Truth, machine: str, items) -> bool:
    """Say whether a promise of a server is missed by more than the judge forgives."""
    rates = truth.means(machine, [parse_workload(item.workload) for item in items])
    forgiven = 1.0 - TOLERANCE
    return len(items) > 1 and any(rates[item.workload][0] < forgiven * item.needed_mpps for item in items)


if __name__ == "__main__":
    sys.exit(main())
