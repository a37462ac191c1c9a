"""A cluster that lives: who is at risk after departures, what updates move, what a failing rack costs.

Departures: requests leave at random and others come; after each, every promise is judged again. Updates: a request is
updated to what it is, or to a promise less; both fit where it runs. N+1: requests that survive a rack, and one fails.
Small searches: `slomo-search` beside trying every way to divide five requests over the sockets of one server.

    python benchmarks/placement/prepare.py DIR --machine silver-4110 --nf maglev --nf snort
    python benchmarks/placement/living.py DIR --seed 2424
    python benchmarks/placement/living.py DIR --seed 2424 --machine benchmarks/placement/machines/ten-cores.yaml

Targets: 0 at risk after 1,000 departures; updates that fit move nobody; every N+1 request keeps its promise; no search
takes two servers, or claims a bound of two, where one does.
"""

import argparse
import itertools
import sys
from pathlib import Path

import numpy as np

from slomo.models.library import ModelLibrary
from slomo.placement.online.placer import Placer
from slomo.placement.policies.search import MixSearch
from slomo.placement.problem.cluster import Cluster, Server
from slomo.placement.problem.request import SLO, Request
from slomo.vocabulary.machine import load_machine


class Bench:
    """Draws requests of one library."""

    def __init__(self, library: ModelLibrary, machine: str, seed: int) -> None:
        self.library, self.machine, self.draw = library, machine, np.random.default_rng(seed)
        keys = library.workloads(load_machine(machine).name)
        self.nfs = sorted({key.split("@")[0] for key in keys if not key.startswith("synthetic")})

    def request(self, name: str, low: int = 70, high: int = 97, **fields: object) -> Request:
        """Return a fresh one, promised a share of solo [%]."""
        share = float(self.draw.integers(low, high)) / 100
        return Request(name, str(self.draw.choice(self.nfs)), SLO(min_share=share), **fields)  # type: ignore[arg-type]

    def departures(self, count: int) -> bool:
        """Let requests leave and come; return whether anybody was at risk."""
        placer, number, worst = Placer(self.library, Cluster.uniform(self.machine, 150)), 300, 0
        placer.place_all([self.request(f"r{i}") for i in range(number)])
        for _ in range(count):
            here = [request.id for request in placer.requests]
            placer.remove(str(self.draw.choice(here)))
            worst = max(worst, len(placer.lifecycle.at_risk()))
            if len(here) < 280 or self.draw.random() < 0.8:
                placer.admit(self.request(f"r{number}"))
                number += 1
        print(f"{count} departures: at most {worst} at risk (target 0){off(worst > 0)}", flush=True)
        return worst > 0

    def updates(self, count: int) -> bool:
        """Update requests to what they are, and to a promise of 5 % less; return whether anybody moved."""
        placer = Placer(self.library, Cluster.uniform(self.machine, 150))
        requests = [self.request(f"u{i}") for i in range(count)]
        placer.place_all(requests)

        def seats() -> dict[str, list[tuple[str, int]]]:
            return {r.id: [(a.server, a.core) for a in placer.decision(r.id).assignments] for r in placer.requests}

        moved, before = 0, seats()
        for factor in (1.0, 0.95):
            for each in requests:
                less = SLO(min_share=round(factor * (each.slo.min_share or 0.0), 3))
                placer.lifecycle.update(Request(each.id, each.chain, less))
            after = seats()
            moved += sum(before[name] != after[name] for name in before)
        print(f"{2 * count} updates that fit in place: {moved} requests moved (target 0){off(moved > 0)}", flush=True)
        return moved > 0

    def survivors(self, draws: int) -> bool:
        """Let a rack fail; return whether a request that survives one lost its promise."""
        asked = lost = 0
        for number in range(draws):
            servers = [Server(f"s{i}", self.machine, labels={"rack": f"r{i % 4}"}) for i in range(60)]
            placer = Placer(self.library, Cluster(tuple(servers)))
            safe = [
                self.request(f"n{i}", 60, 90, replicas=3, min_replicas=2, survives="rack") for i in range(30)
            ]  # fmt: skip
            decisions = placer.place_all([*safe, *(self.request(f"o{i}") for i in range(40))])
            placed = {each.request for each in decisions if each.accepted and each.request.startswith("n")}
            placer.lifecycle.fail_domain("rack", f"r{number % 4}")
            left, risk = {r.id for r in placer.requests}, {each.request for each in placer.lifecycle.at_risk()}
            asked, lost = asked + len(placed), lost + len(placed - left | placed & risk)
        print(f"a rack failed {draws} times: {asked} N+1 requests, {lost} lost their promise (target 0){off(lost > 0)}",
              flush=True)  # fmt: skip
        return lost > 0

    def searches(self, draws: int) -> bool:
        """Search small batches; return whether one took, or claimed, two servers where one does."""
        wrong = one = 0
        for _ in range(draws):
            requests = [self.request(f"q{i}", 80, 97) for i in range(5)]
            placer = Placer(self.library, Cluster.uniform(self.machine, 5, sockets=1), "slomo-search")
            if not all(decision.accepted for decision in placer.place_all(requests)):
                continue
            alone = Placer(self.library, Cluster.uniform(self.machine, 1, sockets=1))
            fits = any(
                all(alone.admit(request).accepted for request in order) or emptied(alone)
                for order in itertools.permutations(requests)
            )
            assert isinstance(placer.policy, MixSearch)
            plan = placer.policy.last
            one += fits
            wrong += fits and (placer.servers_used > 1 or (plan is not None and plan.lower_bound > 1))
        print(f"{draws} small searches: one server does {one} times, missed {wrong} times (target 0){off(wrong > 0)}")
        return wrong > 0


def emptied(placer: Placer) -> bool:
    """Take everybody away."""
    for request in placer.requests:
        placer.remove(request.id)
    return False


def off(missed: bool) -> str:
    return " OFF" if missed else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="what prepare.py wrote")
    parser.add_argument("--machine", help="YAML file of the models' machine, if it is not a shipped one")
    parser.add_argument("--seed", type=int, required=True)
    given = parser.parse_args()
    library = ModelLibrary.load(given.directory / "models")
    bench = Bench(library, given.machine or library.machines[0], given.seed)
    missed = [bench.departures(1000), bench.updates(120), bench.survivors(10), bench.searches(56)]
    return int(any(missed))


if __name__ == "__main__":
    sys.exit(main())
