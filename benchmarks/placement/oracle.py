"""How few servers there could be: packing with the simulator itself as predictor, which no orchestrator has.

First fit and best fit, each with the requests in order of demand, ascending and descending; the fewest servers of all
is the oracle's. Every mix is run once and remembered. On a mixed cluster each order of the kinds of servers is tried.

    python benchmarks/placement/oracle.py --machine e5-2620v4 --seed 7 --requests 40
"""

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Sequence

import numpy as np

from slomo.placement.problem.request import SLO, Request
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.machine import Machine, load_machine
from slomo.vocabulary.workload import Workload

#: Measured throughput spreads by up to this share from seed to seed, as the judge has it.
TOLERANCE = 0.005
#: A kind of server: machine, cores.
Kind = tuple[str, int]


class Truth:
    """Runs mixes and remembers."""

    def __init__(self, seed: int = 0, machines: Sequence[Machine] = (), tolerance: float = TOLERANCE) -> None:
        self.tolerance = tolerance
        self._seed, self._own = seed, {machine.name: machine for machine in machines}
        self._beds: dict[str, SimulatedTestbed] = {}
        self._seen: dict[tuple[str, tuple[str, ...]], dict[str, list[tuple[float, float]]]] = {}

    @property
    def runs(self) -> int:
        """Different mixes run."""
        return len(self._seen)

    def rates(self, machine: str, mix: Sequence[Workload]) -> dict[str, float]:
        """Return the least throughput of each workload of a mix [Mpps]."""
        return {key: min(mpps for mpps, _ in readings) for key, readings in self._run(machine, mix).items()}

    def means(self, machine: str, mix: Sequence[Workload]) -> dict[str, tuple[float, float]]:
        """Return the mean throughput of the equal tenants of each workload, and its standard error [Mpps].

        Equal tenants of a mix serve the same; what they differ by in one run is the run's scatter.
        """
        found = {}
        for key, readings in self._run(machine, mix).items():
            mpps, errors = np.transpose(readings)
            found[key] = float(mpps.mean()), float(np.sqrt((errors**2).sum()) / len(errors))
        return found

    def _run(self, machine: str, mix: Sequence[Workload]) -> dict[str, list[tuple[float, float]]]:
        """Return throughput and standard error of every tenant, by workload [Mpps]."""
        ordered = tuple(sorted(mix, key=lambda item: item.key))
        key = (machine, tuple(item.key for item in ordered))
        if key not in self._seen:
            host = self._own.get(machine) or load_machine(machine)
            bed = self._beds.setdefault(machine, SimulatedTestbed(host))
            full = len(ordered) >= host.cores_per_socket
            record = bed.run(
                Colocation(machine, ordered[0] if full else None, ordered[1:] if full else ordered), seed=self._seed
            )
            phase = record.beside if full else record.alone
            readings: dict[str, list[tuple[float, float]]] = {}
            for item, sample in zip(ordered, phase.tenants, strict=True):
                error = sample.standard_errors["throughput_mpps"]
                readings.setdefault(item.key, []).append((sample.throughput_mpps, error))
            self._seen[key] = readings
        return self._seen[key]

    def solo(self, machine: str, workload: Workload) -> float:
        """Return solo throughput [Mpps]."""
        full = workload.saturated
        return self.rates(machine, [full])[full.key]

    def holds(self, machine: str, mix: Sequence[tuple[Workload, float]]) -> bool:
        """Say whether everybody has what it needs."""
        rates = self.rates(machine, [workload for workload, _ in mix])
        return all(rates[workload.key] >= needed * (1.0 - self.tolerance) for workload, needed in mix)


def oracle(truth: Truth, requests: Sequence[Request], kinds: dict[Kind, int], needs: Callable) -> int:
    """Return the fewest servers that any of the packings needs.

    Parameters
    ----------
    truth : Truth
        Runs mixes.
    requests : sequence of Request
        Single network functions, one instance each.
    kinds : dict
        Machine and cores -> how many servers there are.
    needs : callable
        Machine, request -> what it needs there [Mpps].
    """
    fewest = sum(kinds.values()) + 1
    for order in itertools.permutations(kinds):
        for fit, up in itertools.product(("first", "best"), (False, True)):
            used = _packed(truth, requests, [(kind, kinds[kind]) for kind in order], needs, fit, up)
            fewest = min(fewest, used or fewest)
    return fewest


def _packed(truth: Truth, requests: Sequence[Request], kinds: list, needs: Callable, fit: str, up: bool) -> int | None:
    machine = kinds[0][0][0]
    queue = sorted(
        requests, key=lambda r: (needs(machine, r) / truth.solo(machine, r.chain[0]), r.label), reverse=not up
    )
    servers: list[tuple[Kind, list[tuple[Workload, float]]]] = []
    left = dict(kinds)
    for request in queue:
        places = range(len(servers))
        if fit == "best":
            places = sorted(places, key=lambda i: (-len(servers[i][1]), i))
        for number in places:
            (machine, cores), mix = servers[number]
            grown = [*mix, (request.chain[0], needs(machine, request))]
            if len(grown) <= cores and truth.holds(machine, grown):
                servers[number] = (servers[number][0], grown)
                break
        else:
            kind = next((kind for kind, _ in kinds if left[kind]), None)
            if kind is None:
                return None
            left[kind] -= 1
            servers.append((kind, [(request.chain[0], needs(kind[0], request))]))
    return len(servers)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", default="e5-2620v4")
    parser.add_argument("--nf", action="append", help="network function, repeatable")
    parser.add_argument("--cores", type=int, help="per server; all by default")
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--share", type=float, default=0.9, help="of solo throughput")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    truth = Truth()
    nfs = given.nf or ["lpm", "stats", "firewall", "mazunat", "ipsec"]
    drawn = np.random.default_rng(given.seed).choice(nfs, size=given.requests)
    requests = [Request(f"r{i}", str(nf), SLO(min_share=given.share)) for i, nf in enumerate(drawn)]
    kind = (given.machine, given.cores or load_machine(given.machine).cores_per_socket)
    used = oracle(
        truth, requests, {kind: len(requests)}, lambda machine, r: given.share * truth.solo(machine, r.chain[0])
    )
    print(
        json.dumps({"servers": used, "mixes_run": truth.runs}) if given.json else f"{used} servers, {truth.runs} runs"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
