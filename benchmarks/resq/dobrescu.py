"""Why ResQ's (NSDI'18) Fig. 9 has 48 and 128 servers for Dobrescu's predictor: two readings of its first fit.

Section 6.2: each function's curve over competing references is measured beside synthetic competitors, references are
those of solo runs; an instance goes on the first server "whose existing SLOs do not get affected", and a second one is
packed "if the predicted throughput is below the target". The paper does not say when the SLO of a term with two
instances is affected: where the sum of both is no longer enough, or where one serves less than it was placed for.
Nor does it say if "this predictor" still has the 19.5 MB of Fig. 10 or the whole cache. Curves are those of fig10.py,
without an interval; nothing is simulated after placing.

    python benchmarks/resq/dobrescu.py CURVES.json      # measures the curves if the file is not there; a minute
    python benchmarks/resq/dobrescu.py CURVES9.json 9   # in nine of 20 ways, the 19.5 MB of Fig. 10
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import fig10
import numpy as np
from beside_paper import RESQ, TABLE_1, solo

from slomo.placement.workloads import RESQ_FAMILIES, RESQ_REPLICAS, resq_requests
from slomo.vocabulary.machine import load_machine

CORES, TARGET, TERMS = 9, 0.9, 200


@dataclass
class Instance:
    """One instance of a term, and the share of the term's solo throughput that it was placed for."""

    term: int
    nf: str
    part: float


@dataclass
class FirstFit:
    """Places terms one after the other; `apart`: each instance keeps its part, else a term keeps the sum."""

    curves: dict[str, dict[str, list]]
    apart: bool
    servers: list[list[Instance]] = field(default_factory=list)

    def share(self, server: Sequence[Instance], at: int) -> float:
        """Return the predicted share of solo throughput of one instance."""
        competing = sum(self.curves[each.nf]["car"] for number, each in enumerate(server) if number != at)
        return 1 - float(np.interp(competing, *self.curves[server[at].nf]["curve"])) / 100

    def holds(self, server: list[Instance], newest: Instance) -> bool:
        """Return whether nobody's SLO on a server is affected by its newest instance."""
        others = [number for number, each in enumerate(server) if each is not newest]
        if self.apart:
            return all(self.share(server, number) >= server[number].part - 1e-9 for number in others)
        return all(self.served(server[number].term) >= TARGET for number in others)

    def served(self, term: int) -> float:
        """Return the predicted shares of a term's instances together."""
        places = ((server, at) for server in self.servers for at, each in enumerate(server) if each.term == term)
        return sum(self.share(server, at) for server, at in places)

    def place(self, term: int, nf: str) -> None:
        """Pack instances of a term until it has its target."""
        left, used = TARGET, []
        for _ in range(RESQ_REPLICAS):
            new = Instance(term, nf, 0.0)
            server = self._first(new, used)
            new.part = min(left, self.share(server, len(server) - 1))
            used.append(server)
            left -= new.part
            if left <= 1e-9:
                return

    def _first(self, new: Instance, used: list[list[Instance]]) -> list[Instance]:
        for server in self.servers:
            if len(server) < CORES and not any(server is each for each in used):
                server.append(new)
                if self.holds(server, new):
                    return server
                server.pop()
        self.servers.append([new])
        return self.servers[-1]


def measured(ways: int) -> dict[str, dict[str, list]]:
    """Return each function's solo access rate, and its curve beside competitors in the same ways."""
    fig10.WAYS = (1 << ways) - 1
    return {
        name: {"car": solo(name, 64, fig10.WAYS).tenants[0].vector["L2MISS"], "curve": fig10.trained(name)}
        for name in TABLE_1
    }


def lines(curves: dict[str, dict[str, list]]) -> Iterator[str]:
    for family in RESQ_FAMILIES:
        for apart in (False, True):
            placed = []
            for seed in range(1, 6):
                packing = FirstFit(curves, apart)
                for number, request in enumerate(resq_requests(family, TERMS, seed=seed)):
                    packing.place(number, request.chain[0].nf)
                placed.append(packing)
            counts = [len(packing.servers) for packing in placed]
            spread = np.std(counts, ddof=1) / len(counts) ** 0.5
            rule = "each instance keeps its part" if apart else "a term keeps its sum"
            yield f"{family:12} {rule:30} {np.mean(counts):6.1f} +- {spread:.1f} servers {counts}"
            sizes = Counter(len(server) for server in placed[0].servers)
            split = Counter(each.nf for server in placed[0].servers for each in server)
            split.subtract(request.chain[0].nf for request in resq_requests(family, TERMS, seed=1))
            yield f"{'':12} seed 1: servers by instances {dict(sorted(sizes.items()))}, second ones {dict(+split)}"


def main() -> int:
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    path = Path(sys.argv[1])
    if not path.exists():
        ways = int(sys.argv[2]) if len(sys.argv) == 3 else load_machine(RESQ).llc_ways
        path.write_text(json.dumps(measured(ways)) + "\n")
    for line in lines(json.loads(path.read_text())):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
