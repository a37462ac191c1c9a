"""The simulated scheduler held against this machine's kernel: the same chains as processes, and simulated.

Called by `benchmarks/nfvnice.py --against-host`. Measured on the host, and told to the simulator: what each function
costs per packet when it has the core to itself, and how long the manager takes between two looks and per packet
(`slomo.workflow.chains.shared_core.rules_of`). Nothing of what functions do together is told. The kernel's times
(slice, tick, quantum) are read from it. Others slow the core meanwhile: right before and after each run a function of
250 cycles is run alone, and what is simulated is as much slower as that was.

A cell holds if goodput is within 20 % of the processes', and the share of work wasted within 20 % or two points of it;
how many hold for every function of a cell is told, too.
"""

import platform
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from nfvnice_host import CAPACITY, LINE_RATE_MPPS, chain_of, side_by_side

from slomo.simulator.sharing.result import ChainSimulation
from slomo.simulator.sharing.settings import Manager, Scheduler
from slomo.testbed.host.chains.looks import HostChainResult
from slomo.testbed.host.chains.plan import ChainRunSettings
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.service_chains import ChainSystem
from slomo.workflow.chains.on_host import run_chains_on_host
from slomo.workflow.chains.shared_core import rules_of
from slomo.workflow.chains.simulate import simulate_chains

#: Shipped machine most like the hosts that this is run on; what a function costs comes from the host.
Key = TypeVar("Key")
MACHINE = "epyc-7543"
WITHIN, POINTS = 0.2, 0.02
#: Cost of the function that tells how fast the core is at the moment [cycles].
REFERENCE = (250.0,)
SETUPS: Mapping[str, ChainSystem] = {
    "250/250/250 apart, 5/5/5": side_by_side((250, 250, 250), (5.0, 5.0, 5.0)),
    "250/250/250 apart, 6/6/3": side_by_side((250, 250, 250), (6.0, 6.0, 3.0)),
    "500/250/50 apart, 5/5/5": side_by_side((500, 250, 50), (5.0, 5.0, 5.0)),
    "500/250/50 apart, 6/6/3": side_by_side((500, 250, 50), (6.0, 6.0, 3.0)),
    "chain 120/270/550": chain_of([(120,), (270,), (550,)]),
    "chain of random costs": chain_of([(120, 270, 550)] * 3),
}
#: Name -> policy on the host and its scheduler there, policy simulated.
WAYS = {"normal": ("cfs", None), "batch": ("batch", None), "rr": ("rr", None), "nfvnice": ("nfvnice", "cfs")}


@dataclass(frozen=True)
class Cell:
    """One set-up under one scheduler: goodput of each chain [Mpps], share of work wasted, on the host and simulated.

    `slower` is the reference's time per packet beside the cell's runs over that of the readings.
    """

    setup: str
    way: str
    slower: float
    host_mpps: tuple[float, ...]
    host_range_mpps: tuple[float, float]
    host_wasted: float
    simulated_mpps: tuple[float, ...]
    simulated_wasted: float

    @property
    def error(self) -> float:
        """Largest relative error of a chain's goodput."""
        pairs = zip(self.simulated_mpps, self.host_mpps, strict=True)
        return max(abs(one - other) / max(other, 1e-9) for one, other in pairs)

    @property
    def total_error(self) -> float:
        """Relative error of the goodput of all."""
        return abs(sum(self.simulated_mpps) / max(sum(self.host_mpps), 1e-9) - 1.0)

    @property
    def waste_holds(self) -> bool:
        """Say whether the share of work wasted is like the host's."""
        return abs(self.simulated_wasted - self.host_wasted) <= max(POINTS, WITHIN * self.host_wasted)

    @property
    def holds(self) -> bool:
        """Say whether goodput and waste are like the host's."""
        return self.total_error <= WITHIN and self.waste_holds

    @property
    def holds_each(self) -> bool:
        """Say whether they are for every function."""
        return self.error <= WITHIN and self.waste_holds


@dataclass(frozen=True)
class HostReadings:
    """What is told of the host: time per packet of each cost alone [ns], and how its manager and kernel take turns."""

    time_ns: Mapping[tuple[float, ...], float]
    reference_ns: float
    scheduler: Scheduler
    manager: Manager


def fair_kind() -> str:
    """Return the fair scheduler of this kernel: CFS up to 6.5, EEVDF since."""
    major, minor = (int(part) for part in platform.release().split(".")[:2])
    return "eevdf" if (major, minor) >= (6, 6) else "cfs"


def time_per_packet_ns(result: HostChainResult) -> float:
    """Return the processor time per packet of the only function [ns]."""
    stage = result.stages[0]
    return 1e9 * stage.processor_share * result.seconds / stage.served


def run_reference(seconds: float = 0.15) -> float:
    """Return the time per packet of the reference function, now [ns]."""
    settings = ChainRunSettings(seconds=seconds, warm_up_ms=50.0)
    return time_per_packet_ns(run_chains_on_host(chain_of([REFERENCE], LINE_RATE_MPPS), "cfs", settings=settings))


@dataclass(frozen=True)
class HostRun:
    """A run and the reference's time per packet right before and after it [ns]."""

    reference_ns: float
    result: HostChainResult


def run_between(
    systems: Mapping[Key, Sequence[Any]], rounds: int, seconds: float, seed: int
) -> dict[Key, list[HostRun]]:
    """Run systems (each with policy and scheduler) on the host, in a new order each round, between references."""
    runs: dict[Key, list[HostRun]] = {key: [] for key in systems}
    draw = random.Random(seed)  # noqa: S311
    before = run_reference()
    for _ in range(rounds):
        for key in draw.sample(list(systems), len(systems)):
            system, policy, scheduler = systems[key]
            settings = ChainRunSettings(seconds=seconds * (2.0 if policy == "rr" else 1.0))
            result = run_chains_on_host(system, policy, scheduler=scheduler, settings=settings)
            after = run_reference()
            runs[key].append(HostRun(0.5 * (before + after), result))
            before = after
    return runs


def read_host(rounds: int, seconds: float) -> HostReadings:
    """Run every cost alone on its core; times are those of a core as fast as it ever was, its manager undisturbed."""
    costs = sorted({stage.cycles for system in SETUPS.values() for stage in system.stages})
    alone = {cost: (chain_of([cost], LINE_RATE_MPPS), "cfs", None) for cost in costs}
    runs = run_between(alone, rounds, seconds, 0)
    every = [run for each in runs.values() for run in each]
    best = min(run.reference_ns for run in every)
    times = {
        cost: statistics.median(time_per_packet_ns(run.result) * best / run.reference_ns for run in each)
        for cost, each in runs.items()
    }
    quiet = sorted(every, key=lambda run: run.reference_ns)[: max(len(costs), len(every) // 2)]
    rules = rules_of([run.result for run in quiet], CAPACITY)
    quantum = float(Path("/proc/sys/kernel/sched_rr_timeslice_ms").read_text())
    scheduler = Scheduler(quantum_ms=quantum, base_slice_ms=rules.slice_us / 1e3, tick_ms=rules.tick_us / 1e3)
    return HostReadings(times, best, scheduler, Manager(scan_us=rules.pause_us, carry_ns=1e3 * rules.per_packet_us))


def simulated_system(system: ChainSystem, cycles: Mapping[tuple[float, ...], tuple[float, ...]]) -> ChainSystem:
    """Return a set-up for the simulator: its machine, and costs that take as long alone as on the host."""
    stages = tuple(replace(stage, core=0, cycles=cycles[stage.cycles]) for stage in system.stages)
    return replace(system, stages=stages, machine=MACHINE)


def cycles_like(readings: HostReadings) -> dict[tuple[float, ...], tuple[float, ...]]:
    """Return the cycles of simulated work with which a function alone takes as long per packet as on the host."""
    found = {}
    for cost, wanted_ns in readings.time_ns.items():
        alone = replace(chain_of([cost], LINE_RATE_MPPS), machine=MACHINE)
        stage = replace(alone.stages[0], core=0)
        played = simulate_chains(
            replace(alone, stages=(stage,)), fair_kind(), scheduler=replace(readings.scheduler, kind=fair_kind()),
            manager=readings.manager, duration_ms=20.0, warm_ms=5.0,
        )  # fmt: skip
        ghz = load_machine(MACHINE).frequency_ghz
        more = wanted_ns * ghz - played.stages[stage.name].cycles_per_packet
        found[cost] = tuple(each + more for each in cost)
    return found


def wasted_share(result: ChainSimulation) -> float:
    """Return the share of the packets worked on that were lost afterwards."""
    lost = sum(chain.wasted_mpps for chain in result.chains.values())
    worked = lost + sum(chain.throughput_mpps for chain in result.chains.values())
    return lost / worked if worked else 0.0


def simulate_cell(setup: str, way: str, readings: HostReadings, slower: float, duration_ms: float) -> ChainSimulation:
    """Simulate a set-up as the host runs it, on a core so much slower than when the host was read."""
    fair = fair_kind()
    kind = {"normal": fair, "nfvnice": fair, "batch": "batch" if fair == "cfs" else "eevdf-batch", "rr": "rr"}[way]
    now = replace(readings, time_ns={cost: slower * time_ns for cost, time_ns in readings.time_ns.items()})
    return simulate_chains(
        simulated_system(SETUPS[setup], cycles_like(now)), "nfvnice" if way == "nfvnice" else kind,
        scheduler=replace(readings.scheduler, kind=kind),
        manager=replace(readings.manager, carry_ns=slower * readings.manager.carry_ns),
        duration_ms=duration_ms * (2.0 if way == "rr" else 1.0), warm_ms=300.0,
    )  # fmt: skip


def compare(rounds: int, seconds: float, duration_ms: float, seed: int = 0) -> list[Cell]:
    """Read the host, run every cell on it, and simulate each."""
    readings = read_host(rounds, min(seconds, 0.5))
    told = ", ".join(f"{'|'.join(f'{c:g}' for c in cost)}: {ns:.0f} ns" for cost, ns in readings.time_ns.items())
    print(f"alone per packet {told}\n{readings.manager}\n{readings.scheduler}", flush=True)
    cells = []
    systems = {(setup, way): (SETUPS[setup], *WAYS[way]) for setup in SETUPS for way in WAYS}
    for (setup, way), made in run_between(systems, rounds, seconds, seed).items():
        runs = sorted(made, key=lambda run: run.reference_ns)[: (len(made) + 1) // 2]  # when others disturbed least
        reference_ns = statistics.median(run.reference_ns for run in runs)
        slower = reference_ns / readings.reference_ns
        mpps = [[chain.delivered_mpps * run.reference_ns / reference_ns for chain in run.result.chains] for run in runs]
        sums = sorted(map(sum, mpps))
        played = simulate_cell(setup, way, readings, slower, duration_ms)
        cells.append(
            Cell(
                setup, way, slower, tuple(statistics.median(values) for values in zip(*mpps, strict=True)),
                (sums[0], sums[-1]), statistics.median(run.result.wasted for run in runs),
                tuple(chain.throughput_mpps for chain in played.chains.values()), wasted_share(played),
            )
        )  # fmt: skip
        show(cells[-1])
    return cells


def show(cell: Cell) -> None:
    """Print a cell."""
    host, simulated = (" ".join(f"{each:5.2f}" for each in values) for values in (cell.host_mpps, cell.simulated_mpps))
    least, most = cell.host_range_mpps
    print(
        f"{cell.setup:26} {cell.way:8} x{cell.slower:.2f} host {host:18} (all {least:.2f}..{most:.2f}) simulated "
        f"{simulated:18} off {cell.error:5.0%}, all {cell.total_error:4.0%}; "
        f"wasted {cell.host_wasted:4.0%} {cell.simulated_wasted:4.0%} {'' if cell.holds else 'OFF'}",
        flush=True,
    )


def against_host(rounds: int = 5, seconds: float = 1.0, duration_ms: float = 300.0) -> list[Cell]:
    """Run, simulate and print all cells."""
    print(f"kernel {platform.release()}: {fair_kind()}; the other fair scheduler is simulated only (not possible here)")
    cells = compare(rounds, seconds, duration_ms)
    holds = sum(cell.holds for cell in cells)
    each = sum(cell.holds_each for cell in cells)
    print(f"{holds} of {len(cells)} cells within 20 %, {each} of them for every function")
    return cells
