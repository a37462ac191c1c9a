"""What the phenomena benchmarks share: a line of the table, the runs of ResQ's testbed (NSDI'18, section 4.1)."""

import functools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

from slomo.simulator.engine import SimulationResult, Tenant, simulate
from slomo.simulator.programs import layout
from slomo.vocabulary.machine import Machine, load_machine
from slomo.vocabulary.network_function import load_network_function, load_network_functions
from slomo.vocabulary.workload import Traffic, Workload

RESQ, SLOMO = os.environ.get("RESQ_MACHINE", "e5-2695v4"), os.environ.get("SLOMO_MACHINE", "e5-2620v4")
#: ResQ Table 1: Mpps, IPC, L3 references/packet, L3 hit %.
TABLE_1 = {
    "efficuts": (1.224, 0.63, 10.23, 99.92),
    "endre": (3.770, 1.95, 1.54, 99.95),
    "firewall": (0.366, 0.59, 1.59, 99.44),
    "ipsec": (0.442, 3.31, 5.13, 99.83),
    "lpm": (5.475, 1.92, 3.87, 99.80),
    "mazunat": (2.698, 1.53, 12.14, 99.92),
    "snort": (0.683, 1.94, 25.61, 97.03),
    "stats": (3.685, 1.28, 10.22, 99.92),
    "suricata": (0.205, 1.61, 26.89, 98.36),
}
#: ResQ section 4.1: the target on a 40 Gbit/s port, each competitor on one of 10 Gbit/s.
COMPETITOR_PORT_GBPS = 10.0
COMPETITORS = 11
ANY = (-math.inf, math.inf)
#: Speed of memory at 90 % load that is played instead of the simulator's, as a share of unloaded.
layout.SPEED_AT_KNEE = float(os.environ.get("MEMORY_SPEED", layout.SPEED_AT_KNEE))
#: Functions of files that are played instead of the shipped ones of the same names.
OWN = [load_network_function(path) for path in os.environ.get("FUNCTIONS", "").split()]


@dataclass(frozen=True)
class Line:
    """One line of the table: the paper's number, ours, and the range asked for; without a range it only informs.

    With `ANY` as its range it is a row of docs/papers.md that nothing could miss.

    A figure that a constant of the simulator was set by is `fitted`: no evidence, however close.
    """

    figure: str
    what: str
    paper: str
    ours: float
    low: float | None = None
    high: float | None = None
    fitted: bool = False

    @property
    def ok(self) -> bool | None:
        """Return whether ours is in the range; None without a range."""
        if self.low is None or self.high is None:
            return None
        return self.low <= self.ours <= self.high

    def __str__(self) -> str:
        verdict = {None: "", True: "fitted" if self.fitted else "ok", False: "OFF"}[self.ok]
        return f"{self.figure:10} {self.what:60} {self.paper:>10} {self.ours:9.3f}  {verdict}".rstrip()


def traffic(size_b: int, port_gbps: float | None = None) -> Traffic:
    """Saturating traffic, or what a port of `port_gbps` can carry."""
    offered = None if port_gbps is None else port_gbps * 1e3 / (8 * (size_b + 20))
    return Traffic(packet_size_b=size_b, offered_mpps=offered)


def tenant(
    name: str, core: int, size_b: int = 64, *, port: float | None = None, mask: int | None = None, **knobs: float | str
) -> Tenant:
    function = load_network_functions([name], OWN)[name]
    return Tenant(Workload(name, knobs, traffic(size_b, port)), function, core, mask)


#: Of every run; `phenomena.py --seeds` draws several.
SEED = 1


def reseed(seed: int) -> None:
    """Let all runs from now on draw from another seed."""
    global SEED
    SEED = seed
    solo.cache_clear()
    shared.cache_clear()


def seeds(count: int) -> range:
    """Return seeds of so many runs of the same thing, others for every `reseed`."""
    return range(count * (SEED - 1), count * SEED)


def run(machine: str | Machine, tenants: Sequence[Tenant]) -> SimulationResult:
    return simulate(load_machine(machine), tenants, seed=SEED)


@functools.cache
def solo(name: str, size_b: int, mask: int | None = None, buffers: int = 2048) -> SimulationResult:
    return run(RESQ, [tenant(name, 0, size_b, mask=mask, packet_buffers=buffers)])


@functools.cache
def shared(name: str, competitor: str, size_b: int, isolated: bool, buffers: int = 2048) -> SimulationResult:
    target = tenant(name, 0, size_b, mask=1 if isolated else None, packet_buffers=buffers)
    rest = load_machine(RESQ).full_way_mask & ~1 if isolated else None
    port = COMPETITOR_PORT_GBPS if size_b > 1000 else None  # small packets never fill the port
    others = [
        tenant(competitor, 1 + i, size_b, port=port, mask=rest, packet_buffers=buffers) for i in range(COMPETITORS)
    ]
    return run(RESQ, [target, *others])


def loss(name: str, competitor: str, size_b: int, isolated: bool, buffers: int = 2048) -> float:
    """Throughput lost beside 11 instances of a competitor, in percent."""
    alone = solo(name, size_b, 1 if isolated else None, buffers).tenants[0].throughput_mpps
    return 100.0 * (1.0 - shared(name, competitor, size_b, isolated, buffers).tenants[0].throughput_mpps / alone)


def worst(name: str, size_b: int, isolated: bool, buffers: int = 2048) -> tuple[float, str]:
    return max((loss(name, other, size_b, isolated, buffers), other) for other in TABLE_1 if other != name)
