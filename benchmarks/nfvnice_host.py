"""NFVnice on real processes of this machine, beside the kernel's schedulers alone: ratios within one run.

NFVnice (SIGCOMM'17), section 4, as far as one core for stages and one for the manager allow. Every case is run under
all policies in turn, in a new order each round, so that whatever else the machine does falls on all of them; a ratio is
that of two runs of one round, quoted as its median, least and most.

    python benchmarks/nfvnice_host.py            # about five minutes
    python benchmarks/nfvnice_host.py --quick    # one
"""

import argparse
import itertools
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from slomo.report.acting_figures import chains_over_time
from slomo.testbed.host.chains.looks import HostChainResult
from slomo.testbed.host.chains.plan import ChainRunSettings
from slomo.vocabulary.chain_file import DEFAULT_CAPACITY
from slomo.vocabulary.service_chains import ChainStage, ChainSystem, ServiceChain, StorageWrites
from slomo.vocabulary.wire import mpps_of_gbps
from slomo.workflow.chains.on_host import run_chains_on_host

CORE = max(os.sched_getaffinity(0))
CAPACITY = DEFAULT_CAPACITY  # NFVnice's own: CLIENT_QUEUE_RINGSIZE, github.com/nfvnice/NFVnice_Source, onvm_init.h
OPENNETVM_CAPACITY = 16384  # NF_QUEUE_RINGSIZE of later versions of OpenNetVM, which NFVnice is built on
LINE_RATE_MPPS = 14.88  # 10 Gbit/s of 64 B, as in the paper
#: What another program does on the core of the slow function: nothing beyond registers, or copies in L2 and in memory.
_COPY = "import numpy; one, other = numpy.zeros({0}), numpy.zeros({0})\nwhile True: numpy.copyto(one, other)"
OTHER_WORK = {"a loop": "while True: pass", "a copy in L2": _COPY.format(40_000), "in memory": _COPY.format(16 << 20)}
GOAL_GAIN, GOAL_WASTED, GOAL_JAIN, GOAL_OVERHEAD, GOAL_KEPT, GOAL_TCP = 1.2, 0.05, 0.99, 0.01, 0.95, 0.8


@dataclass(frozen=True)
class Way:
    """A policy, what it works on, and how costs are sampled."""

    policy: str
    scheduler: str | None = None
    without: tuple[str, ...] = ()
    sample_us: float = 1000.0

    @property
    def name(self) -> str:
        """What the tables call it."""
        return (
            self.policy + (f"-{self.scheduler}" if self.scheduler else "") + "".join(f" no {p}" for p in self.without)
        )


ALONE = [Way("cfs"), Way("batch"), Way("rr")]
NICE = [Way("nfvnice", "cfs"), Way("nfvnice", "batch"), Way("nfvnice", "rr")]
PARTS = [
    Way("nfvnice", "cfs", ("local",)),
    Way("nfvnice", "cfs", ("shares",)),
    Way("nfvnice", "cfs", ("pressure", "local")),
]


@dataclass
class Runs:
    """All runs of one case: way -> result of each round."""

    results: dict[Way, list[HostChainResult]] = field(default_factory=dict)

    def median(self, way: Way, value: Callable[[HostChainResult], float]) -> float:
        """Return the median over the rounds."""
        return statistics.median(value(result) for result in self.results[way])

    def ratios(self, way: Way, to: Way, value: Callable[[HostChainResult], float]) -> list[float]:
        """Return one way's value over another's, round by round."""
        pairs = zip(self.results[way], self.results[to], strict=True)
        return [value(one) / value(other) for one, other in pairs if value(other)]


def goodput(result: HostChainResult) -> float:
    return result.delivered_mpps


def alternate(system: ChainSystem, ways: Sequence[Way], given: argparse.Namespace) -> Runs:
    """Run all ways in turn, round by round, in an order drawn anew."""
    runs, draw = Runs({way: [] for way in ways}), random.Random(given.seed)  # noqa: S311
    for _ in range(given.rounds):
        for way in draw.sample(list(ways), len(ways)):
            settings = ChainRunSettings(seconds=given.seconds, sample_us=way.sample_us, build=given.build)
            runs.results[way].append(
                run_chains_on_host(system, way.policy, scheduler=way.scheduler, without=way.without, settings=settings)
            )
    return runs


def stage(name: str, *cycles: float) -> ChainStage:
    return ChainStage(name, CORE, cycles=cycles)


def chain_of(costs: Sequence[Sequence[float]], mpps: float = LINE_RATE_MPPS) -> ChainSystem:
    """Return one chain over one core, a stage per cost."""
    stages = tuple(stage(f"s{i}", *cost) for i, cost in enumerate(costs))
    return ChainSystem(
        stages, (ServiceChain("web", tuple(s.name for s in stages), mpps=mpps),), queue_capacity=CAPACITY
    )


def side_by_side(costs: Sequence[float], mpps: Sequence[float], capacity: int = CAPACITY) -> ChainSystem:
    """Return functions that share a core and nothing else: a chain of one stage each."""
    stages = tuple(stage(f"nf{i}", cost) for i, cost in enumerate(costs))
    chains = tuple(ServiceChain(s.name, (s.name,), mpps=rate) for s, rate in zip(stages, mpps, strict=True))
    return ChainSystem(stages, chains, queue_capacity=capacity)


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}..{max(values):.2f})"


def verdict(good: bool) -> str:
    return "ok " if good else "OFF"


def show_functions(given: argparse.Namespace) -> None:
    """Three functions on one core, of like and unlike costs, under like and unlike loads."""
    print(
        "\n# Three functions on one core: rates of each [Mpps] | core shares | switches/s | Jain of output over input"
    )
    for costs, rates in itertools.product(((250, 250, 250), (500, 250, 50)), ((5.0, 5.0, 5.0), (6.0, 6.0, 3.0))):
        print(f"costs {costs} cycles, offered {rates} Mpps")
        runs = alternate(side_by_side(costs, rates), [*ALONE, *NICE], given)
        for way, results in runs.results.items():
            each = [statistics.median(r.chains[i].delivered_mpps for r in results) for i in range(3)]
            share = [statistics.median(r.stages[i].processor_share for r in results) for i in range(3)]
            switches = runs.median(way, switches_per_s)
            jain = runs.median(way, lambda r: r.fairness)
            told = f"{way.name:14s} {numbers(each)} | {numbers(share)} | {switches:6.0f} | {jain:.3f}"
            goal = f"  {verdict(jain >= GOAL_JAIN)} goal {GOAL_JAIN}" if way == NICE[0] else ""
            print(told + goal)


def switches_per_s(result: HostChainResult) -> float:
    return sum(s.voluntary_switches + s.involuntary_switches for s in result.stages) / result.seconds


def numbers(values: Sequence[float]) -> str:
    return " ".join(f"{value:5.2f}" for value in values)


def show_chain(given: argparse.Namespace, costs: Sequence[float], ways: Sequence[Way]) -> None:
    """One chain on one core: goodput as a ratio to CFS, wasted work, and the policies in order."""
    print(f"\n# Chain {'/'.join(f'{cost:g}' for cost in costs)} cycles on one core, {LINE_RATE_MPPS} Mpps offered")
    runs = alternate(chain_of([(cost,) for cost in costs]), ways, given)
    for way in ways:
        gain = runs.ratios(way, ways[0], goodput)
        wasted = runs.median(way, lambda r: r.wasted)
        lost = runs.median(way, lambda r: sum(c.lost_behind for c in r.chains) / r.seconds / 1e6)
        waiting = runs.median(way, lambda r: r.chains[0].p50_us)
        goal = ""
        if way == NICE[0]:
            goal = (
                f"  {verdict(statistics.median(gain) >= GOAL_GAIN)} goal {GOAL_GAIN} x, "
                f"{verdict(wasted < GOAL_WASTED)} wasted below {GOAL_WASTED:.0%}"
            )
        told = f"{way.name:32s} {spread(gain)} x cfs, wasted {wasted:6.1%}, {lost:5.2f} Mpps lost behind"
        print(f"{told}, p50 {waiting:6.0f} us{goal}")
    order = sorted(ways, key=lambda way: -runs.median(way, goodput))
    print("order: " + " > ".join(way.name for way in order))


def show_orders(given: argparse.Namespace) -> None:
    """All orders of the chain, and costs drawn per packet."""
    print("\n# All orders of 120/270/550, and each cost drawn per packet: NFVnice over CFS")
    cases = {
        "/".join(f"{c:g}" for c in costs): [(c,) for c in costs] for costs in itertools.permutations((120, 270, 550))
    }
    cases["random"] = [(120, 270, 550)] * 3
    for name, costs in cases.items():
        runs = alternate(chain_of(costs), [ALONE[0], NICE[0]], given)
        gain, wasted = runs.ratios(NICE[0], ALONE[0], goodput), runs.median(NICE[0], lambda r: r.wasted)
        cfs = runs.median(ALONE[0], lambda r: r.wasted)
        good = verdict(min(gain) > 1.0 and wasted < GOAL_WASTED) + f" above 1, wasted below {GOAL_WASTED:.0%}"
        print(f"{name:12s} {spread(gain)} x, wasted {wasted:.1%} (cfs {cfs:.1%})  {good}")


@dataclass(frozen=True)
class Placed:
    """CPUs of the functions of two chains (first, light, heavy, last), and what the chains are offered [Mpps]."""

    name: str
    cores: Sequence[int]
    cheap_mpps: float
    dear_mpps: float


def two_chains_placed() -> list[Placed]:
    """Return the paper's two chains on four cores, if there are as many and one for the manager, on two and on one."""
    cores = sorted(os.sched_getaffinity(0))
    on_one = [Placed("one core", (CORE,) * 4, rate, 5.0) for rate in (0.1, 0.3)]
    on_two = [Placed("two cores", (CORE, CORE, cores[-2], CORE), 3.0, 3.0)] if len(cores) > 1 else []
    on_four = [Placed("four cores", cores[-4:], LINE_RATE_MPPS / 2, LINE_RATE_MPPS / 2)] if len(cores) > 4 else []
    return [*on_one, *on_two, *on_four]


def two_chains(placed: Placed) -> tuple[ChainSystem, ChainSystem]:
    """Return both chains, and the cheap one alone."""
    names, costs = ("first", "light", "heavy", "last"), (270.0, 120.0, 4500.0, 300.0)
    stages = tuple(ChainStage(*each[:2], cycles=(each[2],)) for each in zip(names, placed.cores, costs, strict=True))
    cheap = ServiceChain("cheap", ("first", "light", "last"), mpps=placed.cheap_mpps)
    dear = ServiceChain("dear", ("first", "heavy", "last"), mpps=placed.dear_mpps)
    both, alone = (ChainSystem(stages, chains, queue_capacity=CAPACITY) for chains in ((cheap, dear), (cheap,)))
    return both, alone


def cheap_keeps(placed: Placed, way: Way, given: argparse.Namespace) -> tuple[list[float], Runs, Runs]:
    """Return what the cheap chain keeps of its throughput alone, by round, and the runs beside the other and alone."""
    beside, by_itself = (alternate(system, [way], given) for system in two_chains(placed))
    pairs = zip(beside.results[way], by_itself.results[way], strict=True)
    kept = [one.chains[0].delivered_mpps / other.chains[0].delivered_mpps for one, other in pairs]
    return kept, beside, by_itself


def show_other_core_busy(placed: Placed, given: argparse.Namespace) -> None:
    """Run the cheap chain alone while a program that shares only the clock, or also the caches, has the other core."""
    rates = {}
    for work, code in OTHER_WORK.items():
        program = subprocess.Popen(["taskset", "-c", str(placed.cores[2]), sys.executable, "-c", code])
        try:
            rates[work] = alternate(two_chains(placed)[1], [NICE[0]], given).median(NICE[0], goodput)
        finally:
            program.kill()
            program.wait()
    told = ", ".join(f"{work} {rate:.2f}" for work, rate in rates.items())
    print(f"  cheap chain alone [Mpps], on the other core {told}")


def dear_share(result: HostChainResult) -> float:
    """Return the share of a core that the costly chain's packets take in the functions that both chains pass."""
    delivered = [chain.delivered_mpps for chain in result.chains]
    return sum(stage.processor_share for stage in (result.stages[0], result.stages[-1])) * delivered[1] / sum(delivered)


def show_shared(given: argparse.Namespace) -> None:
    """Two chains that share their first and last function; the cheap one beside the costly one, and alone."""
    print("\n# Chains 270,120,300 and 270,4500,300 share first and last; the paper has a core for each function")
    for placed in two_chains_placed():
        for way in (ALONE[0], NICE[0]):
            kept, beside, alone = cheap_keeps(placed, way, given)
            dear = beside.median(way, lambda r: r.chains[1].delivered_mpps)
            goal = f"  {verdict(statistics.median(kept) >= GOAL_KEPT)} goal {GOAL_KEPT}" if way == NICE[0] else ""
            offered = f"{placed.name}, {way.name:14s} cheap, offered {placed.cheap_mpps:.3g} Mpps"
            told = f"{offered}, keeps {spread(kept)} of alone, wasted {beside.median(way, lambda r: r.wasted):.1%}"
            print(f"{told}, costly {dear:.2f} of {placed.dear_mpps:.3g} Mpps{goal}")
            busy = alone.median(way, lambda r: sum(stage.processor_share for stage in r.stages))
            rate, taken = alone.median(way, goodput), beside.median(way, dear_share)
            print(
                f"  alone {rate:.2f} Mpps on {busy:.1%} of a core; in first and last the costly one takes {taken:.1%}"
            )
        if placed.name == "two cores":
            show_other_core_busy(placed, given)
    if (cores := len(os.sched_getaffinity(0))) < 5:
        print(f"four cores: not run, as it needs five CPUs, one of them for the manager; this process may use {cores}")


def show_tuning(given: argparse.Namespace) -> None:
    """Run the chain with other marks on its rings, and two like functions with unlike priorities, under NFVnice."""
    print("\n# Chain 120/270/550 by high and low mark: goodput [Mpps], wasted, p99 [us], switches/s")
    system = chain_of([(120,), (270,), (550,)])
    for high, low in itertools.product((0.6, 0.8, 0.95), (0.2, 0.4, 0.55)):
        runs = alternate(replace(system, high_water=high, low_water=low), [NICE[0]], given)
        rate, wasted = runs.median(NICE[0], goodput), runs.median(NICE[0], lambda r: r.wasted)
        p99, switches = runs.median(NICE[0], lambda r: r.chains[0].p99_us), runs.median(NICE[0], switches_per_s)
        print(f"{high:g}, {low:g}: {rate:.2f}, {wasted:.1%}, {p99:.0f}, {switches:.0f}")
    print("# Two functions of 250 cycles, 8 Mpps each, one with priority: its rate over the other's")
    pair = side_by_side((250, 250), (8.0, 8.0))
    for priority in (1.0, 2.0, 4.0):
        stages = (replace(pair.stages[0], priority=priority), pair.stages[1])
        runs = alternate(replace(pair, stages=stages), [NICE[0]], given)
        ratios = [r.chains[0].delivered_mpps / r.chains[1].delivered_mpps for r in runs.results[NICE[0]]]
        print(f"priority {priority:g}: {spread(ratios)}")


def tcp_beside(flows: int, gbps: float) -> ChainSystem:
    """Return a TCP chain over two functions, and UDP flows of 1 Mpps that go on to a third, slow one."""
    stages = (stage("nf1", 120), stage("nf2", 270), stage("nf3", 4500))
    mpps = mpps_of_gbps(gbps, 1500)
    tcp = ServiceChain("tcp", ("nf1", "nf2"), mpps=mpps, packet_size_b=1500, responsive=True)
    others = (ServiceChain(f"udp{i}", ("nf1", "nf2", "nf3"), mpps=1.0) for i in range(flows))
    return ChainSystem(stages, (tcp, *others), queue_capacity=CAPACITY)


def tcp_gbps(result: HostChainResult) -> float:
    assert result.chains[0].tcp is not None
    return result.chains[0].tcp.goodput_gbps


TCP_WAYS = [ALONE[0], Way("nfvnice", "cfs", ("ecn",)), NICE[0]]


def tcp_kept(gbps: float, given: argparse.Namespace) -> tuple[dict[Way, list[float]], Runs]:
    """Return what TCP keeps of its rate alone beside ten UDP flows, by policy and round, and the runs."""
    alone = alternate(tcp_beside(0, gbps), [ALONE[0]], given)
    beside = alternate(tcp_beside(10, gbps), TCP_WAYS, given)
    by_itself = [tcp_gbps(result) for result in alone.results[ALONE[0]]]
    kept = {
        way: [tcp_gbps(one) / other for one, other in zip(results, by_itself, strict=True)]
        for way, results in beside.results.items()
    }
    return kept, beside


def show_tcp(given: argparse.Namespace) -> None:
    """Kernel TCP through two functions beside ten UDP flows that go on to a slow third, all on one core."""
    print("\n# Kernel TCP through 120,270 beside ten UDP flows of 1 Mpps through 120,270,4500: what it keeps of alone")
    for gbps in (1.0, 4.0):
        kept, beside = tcp_kept(gbps, given)
        for way, shares in kept.items():
            again = beside.median(way, lambda r: r.chains[0].tcp.retransmitted if r.chains[0].tcp else 0)
            udp = beside.median(way, lambda r: sum(chain.delivered_mpps for chain in r.chains[1:]))
            goal = f"  {verdict(statistics.median(shares) >= GOAL_TCP)} goal {GOAL_TCP}" if way == NICE[0] else ""
            told = f"{gbps:g} Gbit/s, {way.name:20s} {spread(shares)}, {again:.0f} segments again, UDP {udp:.2f} Mpps"
            print(told + goal)


def mean_rate(result: HostChainResult, chain: int, from_s: float, to_s: float) -> float:
    """Return a chain's mean throughput [Mpps] over a part of the series."""
    looks = [look for look in result.series if from_s <= look.time_s <= to_s]
    return (looks[-1].delivered[chain] - looks[0].delivered[chain]) / (looks[-1].time_s - looks[0].time_s) / 1e6


def run_series(system: ChainSystem, way: Way, seconds: float, *, shared_rings: bool = False) -> HostChainResult:
    """Run with a state every 100 ms, counted from the first packet on."""
    settings = ChainRunSettings(seconds=seconds, warm_up_ms=0.0, series_ms=100.0, shared_rings=shared_rings)
    return run_chains_on_host(system, way.policy, scheduler=way.scheduler, without=way.without, settings=settings)


def costs_change(way: Way) -> HostChainResult:
    """Run two functions of 550 cycles for 40 s; the first one's cost triples from 15 to 30 s."""
    system = side_by_side((550, 550), (5.0, 5.0))
    changing = replace(system.stages[0], cycles_from=((15.0, 1650.0), (30.0, 550.0)))
    return run_series(replace(system, stages=(changing, *system.stages[1:])), way, 40.0)


def settled_s(result: HostChainResult, from_s: float) -> float:
    """Return how long after a change both chains' rates are within a tenth of each other; infinity for never."""
    equal = (at for at, (one, other) in result.rates() if at > from_s and abs(one / other - 1) < 0.1)
    return next(equal, float("inf")) - from_s


@contextmanager
def busy_shares(cpu: int) -> Iterator[list[tuple[float, float]]]:
    """Read every second how busy a CPU was, by the kernel's count: time since the start [s], share."""
    shares: list[tuple[float, float]] = []
    ends, begun = threading.Event(), time.monotonic()

    def ticks() -> tuple[int, int]:
        line = next(each for each in Path("/proc/stat").read_text().splitlines() if each.startswith(f"cpu{cpu} "))
        numbers = [int(number) for number in line.split()[1:9]]
        return sum(numbers), numbers[3] + numbers[4]

    def watch() -> None:
        before = ticks()
        while not ends.wait(1.0):
            now = ticks()
            shares.append((time.monotonic() - begun, 1.0 - (now[1] - before[1]) / (now[0] - before[0])))
            before = now

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield shares
    finally:
        ends.set()
        watcher.join()


def udp_comes(
    way: Way, third_core: int, figure: Path | None = None, *, shared_rings: bool = True
) -> tuple[float, float, float]:
    """Return TCP's throughput [Mpps] before, beside and after ten UDP flows that come from 15 to 40 s, as in the paper.

    There the third function, which only UDP passes, has a core of its own; here it may have what the manager leaves. As
    in OpenNetVM a function has one ring for TCP and UDP; its marks are those that NFVnice's code names for both
    (github.com/nfvnice/NFVnice_Source, onvm_init.h: "For TCP UDP use 70,40", the second a gap).
    """
    system = tcp_beside(10, 4.0)
    tcp, *udp = system.chains
    chains = (tcp, *(replace(chain, from_ms=15_000.0, to_ms=40_000.0) for chain in udp))
    stages = (*system.stages[:2], replace(system.stages[2], core=third_core))
    system = replace(system, stages=stages, chains=chains, high_water=0.7, low_water=0.3)
    result = run_series(system, way, 50.0, shared_rings=shared_rings)
    if figure is not None:
        chains_over_time(result).savefig(figure)
    return mean_rate(result, 0, 5, 15), mean_rate(result, 0, 16, 40), mean_rate(result, 0, 42, 50)


def show_series(given: argparse.Namespace) -> None:
    """Costs that change, and UDP that comes and goes, over 40 and 50 s."""
    print("\n# Two functions of 550 cycles, 5 Mpps each; the first costs 1650 from 15 to 30 s: rates [Mpps]")
    for way in (ALONE[0], NICE[0]):
        result = costs_change(way)
        spans = [[mean_rate(result, chain, *span) for chain in (0, 1)] for span in ((5, 15), (16, 30), (31, 40))]
        print(f"{way.name:14s} " + " | ".join(map(numbers, spans)) + f", equal after {settled_s(result, 15):.1f} s")
        if given.figures:
            chains_over_time(result).savefig(given.figures / f"costs-{way.name}.svg")
    print("\n# TCP of 4 Gbit/s, ten UDP flows from 15 to 40 s: TCP [Mpps] before, beside, after")
    for core in dict.fromkeys((CORE, min(os.sched_getaffinity(0)))):
        for way in (ALONE[0], NICE[0]):
            place = given.figures and given.figures / f"tcp-{way.name}-{core}.svg"
            with busy_shares(min(os.sched_getaffinity(0))) as shares:
                spans = udp_comes(way, core, place, shared_rings=not given.own_rings)
            busy = [
                statistics.fmean(share for at, share in shares if low <= at <= high)
                for low, high in ((5, 15), (18, 40), (43, 50))
            ]
            told = f"{way.name:14s} third function on core {core}: {numbers(spans)}, {spans[1] / spans[0]:.0%} kept"
            print(f"{told}; the manager's CPU is busy {' '.join(f'{share:.0%}' for share in busy)}")


def disk_gain(kib: float, given: argparse.Namespace) -> tuple[list[float], list[float]]:
    """Return goodput with asynchronous over blocking writes to a real file, and over no writes, by round."""
    rates: dict[bool | None, list[float]] = {}
    for blocking in (None, True, False):
        writes = None if blocking is None else StorageWrites(64, blocking, 1024.0 * kib)
        system = side_by_side([270], [5.0])
        system = replace(system, stages=tuple(replace(one, storage=writes) for one in system.stages))
        rates[blocking] = [goodput(result) for result in alternate(system, [NICE[0]], given).results[NICE[0]]]
    over = [[one / other for one, other in zip(rates[False], rates[way], strict=True)] for way in (True, None)]
    return over[0], over[1]


def show_disk(given: argparse.Namespace) -> None:
    """Run a function of 270 cycles that writes 64 bytes of each packet to a file."""
    print("\n# A function of 270 cycles, 5 Mpps offered, writes 64 B per packet to a file of the temporary directory")
    for kib in (64, 1024):
        blocking, none = disk_gain(kib, given)
        print(f"buffers of {kib} KiB: asynchronous {spread(blocking)} x blocking, {spread(none)} x without writes")


def show_overhead(given: argparse.Namespace) -> None:
    """Tell what sampling costs a saturated function, and what control costs a core."""
    print("\n# Overhead")
    often, never = Way("cfs", sample_us=1.0), Way("cfs", sample_us=0.0)
    runs = alternate(side_by_side([120], [LINE_RATE_MPPS]), [never, often], given)
    kept = runs.ratios(often, never, goodput)
    per_second = runs.median(often, lambda r: r.stages[0].samples / r.seconds)
    each_ms = (1.0 - statistics.median(kept)) * 1000 / per_second
    print(
        f"a function of 120 cycles, sampled {per_second:.0f} times a second, keeps {spread(kept)} of its rate: sampled"
    )
    print(f"  each ms it loses {each_ms:.3%}  {verdict(each_ms <= GOAL_OVERHEAD)} goal {GOAL_OVERHEAD:.0%}")
    runs = alternate(chain_of([(120,), (270,), (550,)]), [NICE[0]], given)
    control = [result.control_share for result in runs.results[NICE[0]]]
    good = verdict(statistics.median(control) <= GOAL_OVERHEAD)
    manager = runs.median(NICE[0], lambda r: r.manager_share)
    each = " ".join(f"{share:.2%}" for share in sorted(control))
    print(f"control: {statistics.median(control):.2%} of a core ({each})  {good} goal {GOAL_OVERHEAD:.0%}")
    print(f"the manager, traffic included, takes {manager:.0%} of its core")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--build", choices=["portable", "dpdk"], default="portable")
    parser.add_argument("--quick", action="store_true", help="two rounds of a fifth of a second")
    parser.add_argument(
        "--only",
        choices=["functions", "chain", "orders", "shared", "tuning", "tcp", "series", "disk", "overhead"],
        action="append",
    )
    parser.add_argument("--figures", type=Path, help="folder for the plots of --only series")
    parser.add_argument("--own-rings", action="store_true", help="TCP and UDP of --only series share no ring")
    given = parser.parse_args()
    if given.quick:
        given.rounds, given.seconds = 2, 0.2
    parts = {
        "chain": lambda: show_chain(given, (120, 270, 550), [*ALONE, *NICE, *PARTS]),
        "costly": lambda: show_chain(given, (550, 2200, 4500), [*ALONE, *NICE]),
        "orders": lambda: show_orders(given),
        "functions": lambda: show_functions(given),
        "shared": lambda: show_shared(given),
        "tuning": lambda: show_tuning(given),
        "tcp": lambda: show_tcp(given),
        "series": lambda: show_series(given),
        "disk": lambda: show_disk(given),
        "overhead": lambda: show_overhead(given),
    }
    load = os.getloadavg()[0]
    told = f"stages on core {CORE}, rings of {CAPACITY}, {given.rounds} rounds of {given.seconds:g} s"
    print(f"{told}, load of the machine {load:.1f}")
    for name, part in parts.items():
        if not given.only or name in given.only or (name == "costly" and "chain" in given.only):
            part()
    return 0


if __name__ == "__main__":
    sys.exit(main())
