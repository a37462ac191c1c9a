"""Check the simulator against the figures of ResQ (NSDI'18) and SLOMO (SIGCOMM'20): paper's number, ours, ok or off.

One parameter set for all figures. Run ``python benchmarks/phenomena.py`` (about two minutes on one core), or name the
figures wanted: ``table1 unisolated cat buffers fig5 fig6 fig7 dobrescu``.
"""

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from slomo.simulator.engine import SimulationResult, Tenant, simulate
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.network_function import load_network_function
from slomo.vocabulary.workload import Traffic, Workload

RESQ, SLOMO = "e5-2695v4", "e5-2620v4"
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


@dataclass(frozen=True)
class Line:
    """One line of the table: what, the paper's number, ours, and whether ours is in the range asked for."""

    figure: str
    what: str
    paper: str
    ours: float
    low: float
    high: float

    @property
    def ok(self) -> bool:
        return self.low <= self.ours <= self.high

    def __str__(self) -> str:
        return f"{self.figure:10} {self.what:46} {self.paper:>12} {self.ours:10.3f}  {'ok' if self.ok else 'OFF'}"


def traffic(size_b: int, port_gbps: float | None = None) -> Traffic:
    """Saturating traffic, or what a port of `port_gbps` can carry."""
    offered = None if port_gbps is None else port_gbps * 1e3 / (8 * (size_b + 20))
    return Traffic(packet_size_b=size_b, offered_mpps=offered)


def tenant(name: str, core: int, size_b: int = 64, *, port: float | None = None, mask: int | None = None, **knobs: float | str) -> Tenant:
    return Tenant(Workload(name, knobs, traffic(size_b, port)), load_network_function(name), core, mask)


def run(machine: str, tenants: Sequence[Tenant], seed: int = 1) -> SimulationResult:
    return simulate(load_machine(machine), tenants, seed=seed)


@functools.cache
def solo(name: str, size_b: int, mask: int | None = None, buffers: int = 2048) -> SimulationResult:
    return run(RESQ, [tenant(name, 0, size_b, mask=mask, packet_buffers=buffers)])


@functools.cache
def shared(name: str, competitor: str, size_b: int, isolated: bool, buffers: int = 2048) -> SimulationResult:
    target = tenant(name, 0, size_b, mask=1 if isolated else None, packet_buffers=buffers)
    rest = load_machine(RESQ).full_way_mask & ~1 if isolated else None
    port = COMPETITOR_PORT_GBPS if size_b > 1000 else None  # small packets never fill the port
    others = [tenant(competitor, 1 + i, size_b, port=port, mask=rest, packet_buffers=buffers) for i in range(COMPETITORS)]
    return run(RESQ, [target, *others])


def loss(name: str, competitor: str, size_b: int, isolated: bool, buffers: int = 2048) -> float:
    """Throughput lost beside 11 instances of a competitor, in percent."""
    alone = solo(name, size_b, 1 if isolated else None, buffers).tenants[0].throughput_mpps
    return 100.0 * (1.0 - shared(name, competitor, size_b, isolated, buffers).tenants[0].throughput_mpps / alone)


def worst(name: str, size_b: int, isolated: bool, buffers: int = 2048) -> tuple[float, str]:
    return max((loss(name, other, size_b, isolated, buffers), other) for other in TABLE_1 if other != name)


def table1() -> Iterator[Line]:
    for name, (mpps, ipc, references, hit) in TABLE_1.items():
        ours = solo(name, 64).tenants[0]
        for what, paper, value in (
            ("Mpps", mpps, ours.throughput_mpps),
            ("IPC", ipc, ours.vector["IPC"]),
            ("L3 references/packet", references, ours.l3_references_per_packet),
        ):
            yield Line("Table 1", f"{name}: {what}", f"{paper:g}", value, 0.95 * paper, 1.05 * paper)
        yield Line("Table 1", f"{name}: L3 hit %", f"{hit:g}", 100 * ours.vector["L3HIT"], hit - 0.5, hit + 0.5)


def unisolated() -> Iterator[Line]:
    for size_b in (64, 1518):
        losses = {name: worst(name, size_b, False) for name in TABLE_1}
        for name, (value, other) in losses.items():
            yield Line("Fig. 2", f"{name} {size_b} B, worst beside 11 x {other}: % lost", "0-44.3", value, -1, 55)
        most = max(value for value, _ in losses.values())
        many = sum(value > 10 for value, _ in losses.values())
        yield Line("Fig. 2", f"worst of all at {size_b} B: % lost", "44.3", most, 35, 55)
        yield Line("Fig. 2", f"NFs that lose more than 10 % at {size_b} B", "7", many, 7 if size_b == 64 else 5, 9)


def cat() -> Iterator[Line]:
    for size_b, paper, low, high in ((64, "<3", -1, 3), (1518, "14.7", 8, 20)):
        losses = {name: worst(name, size_b, True) for name in TABLE_1}
        name = max(losses, key=lambda key: losses[key][0])
        result = shared(name, losses[name][1], size_b, True)
        for each, (value, other) in losses.items():
            yield Line("CAT", f"{each} {size_b} B, beside 11 x {other}: % lost", "", value, -1, high)
        yield Line("CAT", f"worst at {size_b} B ({name}): % lost", paper, losses[name][0], low, high)
        used = result.sockets[0]["READ"] + result.sockets[0]["WRITE"]
        yield Line("Table 2", f"memory bandwidth used then at {size_b} B, GB/s", "", used, 0, 80)


def buffers() -> Iterator[Line]:
    machine = load_machine(RESQ)
    sized = int(machine.capacities().ddio_kib * 1024 / 1600) // (COMPETITORS + 1)
    for size_b in (64, 1518):
        value, name, other = max((*worst(name, size_b, True, sized), name)[::1] for name in TABLE_1)[::1][0:3]
        yield Line("Fig. 5 RQ", f"{sized} buffers each, {size_b} B, worst ({other} beside {name}): % lost", "<3", value, -1, 3)


FIGURES: dict[str, Callable[[], Iterator[Line]]] = {"table1": table1, "unisolated": unisolated, "cat": cat, "buffers": buffers}


def main(wanted: Sequence[str]) -> int:
    off = 0
    print(f"{'figure':10} {'what':46} {'paper':>12} {'ours':>10}")
    for name in wanted or FIGURES:
        for line in FIGURES[name]():
            print(line, flush=True)
            off += not line.ok
    print(f"{off} off")
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
