"""NFVnice's experiments (SIGCOMM'17) on simulated cores, beside what the paper found, and chains over two NUMA nodes.

    python benchmarks/nfvnice.py                 # everything, about a quarter of an hour on one core
    python benchmarks/nfvnice.py --only chain    # one part: schedulers chain cores sharing orders random tcp nodes ...
    python benchmarks/nfvnice.py --against-host  # the simulated scheduler beside processes of this machine, ten minutes
    python benchmarks/nfvnice.py --hop           # what handing a packet on costs a process of this machine

Every line names its range before it is run; `OFF` is printed where a figure is not in it, and the command then ends
with 1. Costs are cycles of work per packet; a packet's lines, rings, switches and the cache come on top, as simulated.
The machine has the clock of an E5-2695 v4 (2.1 GHz; the paper's E5-2697 has 2.6 to 2.7), so rates compare as ratios.
"""

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from slomo.simulator.sharing.result import ChainSimulation
from slomo.simulator.sharing.settings import Scheduler
from slomo.vocabulary.chain_file import DEFAULT_CAPACITY
from slomo.vocabulary.service_chains import ChainStage, ChainSystem, ServiceChain, parse_chains
from slomo.workflow.chains.simulate import simulate_chains

MACHINE = "e5-2695v4"
SCHEDULERS = ("cfs", "batch", "eevdf", "rr")
#: 10 Gbit/s of 64 B packets, what the paper's generator sends [Mpps].
LINE_RATE_MPPS = 14.88
COSTS = (120.0, 270.0, 550.0)
#: What the last NF that two chains share (300 cycles) serves when it is never idle [Mpps].
SATURATED_MPPS = 6.54
#: Work of three like NFs in a chain over two nodes, to see what the loss depends on; no evidence for the paper's.
NODE_COSTS = (30.0, 60.0, 120.0, 240.0)
NODES_MACHINE, SHIPPED = "e5-2620v4", ("flowstats", "ip-router", "l2fwd")
#: What a function that only hands packets on takes per packet, ring and packet included: `--hop`, on a Xeon of 3.1 GHz
#: (family 6, model 167) with Linux 6.18, 26.5 ns where a cycle of further work took .32 [cycles].
HOP_CYCLES = 82.0
#: Of OpenNetVM's rings [packets], NF_QUEUE_RINGSIZE in onvm_common.h.
OPENNETVM_RING = 16384
#: Of every simulation; papers.py draws several.
SEED = 0


@dataclass(frozen=True)
class Check:
    """One figure, the range it must be in, and what the paper says of it."""

    name: str
    value: float
    least: float
    most: float
    paper: str

    @property
    def holds(self) -> bool:
        """Say whether the figure is in its range."""
        return self.least <= self.value <= self.most


def one_core(costs: Sequence[float], rates: Sequence[float]) -> ChainSystem:
    """Return NFs on one core, each with its own traffic."""
    stages = tuple(ChainStage(f"nf{i + 1}", 0, cycles=(cost,)) for i, cost in enumerate(costs))
    chains = tuple(ServiceChain(f"to-nf{i + 1}", (f"nf{i + 1}",), mpps=rate) for i, rate in enumerate(rates))
    return ChainSystem(stages, chains, machine=MACHINE)


def chain_of(costs: Sequence[tuple[float, ...]], cores: Sequence[int], mpps: float) -> ChainSystem:
    """Return one chain of NFs on the cores given."""
    stages = tuple(
        ChainStage(f"nf{i + 1}", core, cycles=cost) for i, (cost, core) in enumerate(zip(costs, cores, strict=True))
    )
    chain = ServiceChain("chain", tuple(stage.name for stage in stages), mpps=mpps)
    return ChainSystem(stages, (chain,), machine=MACHINE)


def jain(values: Sequence[float]) -> float:
    """Return Jain's index of fairness: 1 where all are equal, 1/n where one has all."""
    return sum(values) ** 2 / (len(values) * sum(value**2 for value in values))


def played(system: ChainSystem, kind: str, nice: bool, *, duration_ms: float = 150.0) -> ChainSimulation:
    """Simulate under a scheduler, with NFVnice or without; round robin needs a turn of three quanta."""
    length = max(duration_ms, 300.0) if kind == "rr" else duration_ms
    return simulate_chains(
        system, "nfvnice" if nice else kind, scheduler=kind, duration_ms=length, warm_ms=60.0, seed=SEED
    )


def show(name: str, result: ChainSimulation) -> None:
    """Print throughput, drops, CPU shares and context switches of a run."""
    chains = " ".join(f"{chain.throughput_mpps:6.3f}" for chain in result.chains.values())
    wasted = sum(chain.wasted_mpps for chain in result.chains.values())
    stages = " ".join(
        f"{100 * stage.cpu_share:3.0f}%/{stage.voluntary_per_s + stage.involuntary_per_s:.0f}"
        for stage in result.stages.values()
    )
    print(f"  {name:44} Mpps {chains}  wasted {wasted:6.3f}  CPU/switches per s {stages}", flush=True)


def schedulers() -> Iterator[Check]:
    """Run three NFs on one core, of equal and of unlike cost, under even and uneven load."""
    for label, costs in (("equal costs", (250.0,) * 3), ("500/250/50", (500.0, 250.0, 50.0))):
        for load, rates in (("even", (5.0, 5.0, 5.0)), ("uneven", (6.0, 6.0, 3.0))):
            for kind in SCHEDULERS:
                for nice in (False, True):
                    result = played(one_core(costs, rates), kind, nice)
                    ratios = [chain.throughput_mpps / chain.offered_mpps for chain in result.chains.values()]
                    name = f"{label}, {load}, {kind}{' + nfvnice' if nice else ''}"
                    show(name, result)
                    if nice:
                        yield Check(f"Jain's index of output over input, {name}", jain(ratios), 0.99, 1.0, "about 1")


def chain() -> Iterator[Check]:
    """Run a chain of 120, 270 and 550 cycles on one core."""
    system = chain_of([(cost,) for cost in COSTS], (0, 0, 0), LINE_RATE_MPPS)
    plain, nice = {}, {}
    for kind in SCHEDULERS:
        plain[kind], nice[kind] = played(system, kind, False), played(system, kind, True)
        show(f"120/270/550 on one core, {kind}", plain[kind])
        show(f"120/270/550 on one core, {kind} + nfvnice", nice[kind])
    best = max(result.chains["chain"].throughput_mpps for result in plain.values())
    for kind in SCHEDULERS:
        rate = nice[kind].chains["chain"].throughput_mpps
        yield Check(f"chain: nfvnice under {kind} over the best plain scheduler", rate / best, 1.0, 9.0, "above each")
        before, after = plain[kind].chains["chain"].wasted_mpps, nice[kind].chains["chain"].wasted_mpps
        yield Check(f"chain: wasted work under {kind}, times less", before / max(after, 1e-6), 10.0, 1e9, ">= 10")


def cores() -> Iterator[Check]:
    """Run a chain of 550, 2200 and 4500 cycles on three cores."""
    system = chain_of([(550.0,), (2200.0,), (4500.0,)], (0, 1, 2), LINE_RATE_MPPS)
    plain, nice = played(system, "cfs", False), played(system, "cfs", True)
    show("550/2200/4500 on three cores, cfs", plain)
    show("550/2200/4500 on three cores, cfs + nfvnice", nice)
    before, after = plain.chains["chain"], nice.chains["chain"]
    yield Check("three cores: throughput kept", after.throughput_mpps / before.throughput_mpps, 0.98, 9.0, "the same")
    yield Check("three cores: wasted work, times less", before.wasted_mpps / max(after.wasted_mpps, 1e-6), 10, 1e9, "")
    yield Check("three cores: CPU of NF1", nice.stages["nf1"].cpu_share, 0.0, 0.5, "falls from all to some 10 %")


def sharing() -> Iterator[Check]:
    """Run two chains on four cores that share the first and the last NF."""
    text = """
    machine: {machine}
    stages:
      nf1: {{cycles: 270, core: 0}}
      nf2: {{cycles: 120, core: 1}}
      nf3: {{cycles: 4500, core: 2}}
      nf4: {{cycles: 300, core: 3}}
    chains:
      cheap: {{stages: [nf1, nf2, nf4], mpps: {rate}}}
      costly: {{stages: [nf1, nf3, nf4], mpps: {rate}}}
    """
    for rate in (5.0, LINE_RATE_MPPS / 2):
        both = parse_chains(text.format(machine=MACHINE, rate=rate))
        alone = ChainSystem(both.stages, both.chains[:1], machine=MACHINE)
        own = played(alone, "cfs", False).chains["cheap"].throughput_mpps
        plain, nice = played(both, "cfs", False), played(both, "cfs", True)
        show(f"two chains of {rate:.2f} Mpps, cfs", plain)
        show(f"two chains of {rate:.2f} Mpps, cfs + nfvnice", nice)
        cheap, costly = (chain.throughput_mpps for chain in nice.chains.values())
        print(
            f"  cheap chain alone {own:.3f} Mpps, of which nfvnice keeps {cheap / own:.3f}, cfs "
            f"{plain.chains['cheap'].throughput_mpps / own:.2f}"
        )
        # the costly chain's slowest NF has a core of its own, and the cheap one alone fills NF4 at the higher rate
        attainable = min(own, SATURATED_MPPS - plain.chains["costly"].throughput_mpps)
        yield Check(f"cheap chain at {rate:.2f} Mpps keeps of attainable", cheap / attainable, 0.95, 1.05, "within 5 %")
        kept_share = costly / plain.chains["costly"].throughput_mpps
        yield Check(f"costly chain at {rate:.2f} Mpps keeps", kept_share, 0.9, 1.05, "keeps its own")


def orders() -> Iterator[Check]:
    """Run all orders of the chain."""
    worst = dict.fromkeys(SCHEDULERS, float("inf"))
    for order in itertools.permutations(COSTS):
        system = chain_of([(cost,) for cost in order], (0, 0, 0), LINE_RATE_MPPS)
        name = "/".join(f"{cost:g}" for cost in order)
        for kind in SCHEDULERS:
            plain, nice = (played(system, kind, flag, duration_ms=100.0) for flag in (False, True))
            show(f"{name}, {kind}", plain)
            show(f"{name}, {kind} + nfvnice", nice)
            gain = nice.chains["chain"].throughput_mpps / max(plain.chains["chain"].throughput_mpps, 1e-6)
            worst[kind] = min(worst[kind], gain)
    for kind, gain in worst.items():
        yield Check(f"orders: least gain of nfvnice under {kind}", gain, 1.0, 1e9, "never below the plain scheduler")


def random() -> Iterator[Check]:
    """Draw costs per packet."""
    system = chain_of([COSTS, COSTS, COSTS], (0, 0, 0), LINE_RATE_MPPS)
    for kind in SCHEDULERS:
        plain, nice = played(system, kind, False), played(system, kind, True)
        show(f"random costs, {kind}", plain)
        show(f"random costs, {kind} + nfvnice", nice)
        gain = nice.chains["chain"].throughput_mpps / plain.chains["chain"].throughput_mpps
        yield Check(f"random costs: gain of nfvnice under {kind}", gain, 1.0, 1e9, "above the plain scheduler")


def tcp() -> Iterator[Check]:
    """Run one TCP-like flow of 4 Gbit/s through two NFs beside ten constant flows that go on to a third, slow one."""
    stages = (
        ChainStage("nf1", 0, cycles=(120.0,)),
        ChainStage("nf2", 0, cycles=(270.0,)),
        ChainStage("nf3", 1, cycles=(4500.0,)),
    )
    own_mpps = 4e3 / (8 * 1520)
    flow = ServiceChain("tcp", ("nf1", "nf2"), mpps=own_mpps, packet_size_b=1500, responsive=True)
    others = tuple(ServiceChain(f"udp{i}", ("nf1", "nf2", "nf3"), mpps=1.0) for i in range(10))
    alone = played(ChainSystem(stages, (flow,), machine=MACHINE), "cfs", False).chains["tcp"].gbps
    system = ChainSystem(stages, (flow, *others), machine=MACHINE)
    rates = {}
    for nice in (False, True):
        result = played(system, "cfs", nice)
        rates[nice] = result.chains["tcp"].gbps
        slow = sum(item.gbps for name, item in result.chains.items() if name != "tcp")
        print(f"  TCP {rates[nice]:.2f} Gbit/s (alone {alone:.2f}), ten UDP {slow:.3f}, {'nfvnice' if nice else 'cfs'}")
    yield Check("TCP beside UDP without nfvnice keeps", rates[False] / alone, 0.0, 0.5, "falls by orders of magnitude")
    yield Check("TCP beside UDP with nfvnice keeps", rates[True] / alone, 0.9, 1.05, ">= 0.9 asked, paper 3.3 of 4")


def over_nodes(
    stages_at: Callable[[Sequence[int]], str],
    size_b: int,
    name: str,
    *,
    manager: bool = False,
    nodes: Sequence[tuple[int, ...]] = ((0, 0, 0), (1, 1, 1), (1, 0, 1)),
    capacity: int = DEFAULT_CAPACITY,
) -> dict[tuple[int, ...], float]:
    """Return the share lost by a chain that is not on the card's node, by the nodes of its stages; the first are local.

    With `manager` two threads of OpenNetVM's manager, on the card's node, are the chain's first and last stage: one
    takes packets from the card, one gives them back (onvm_mgr, ``rx_thread_main`` and ``tx_thread_main``).
    """
    rates = {}
    for nodes_of in nodes:
        every = (0, *nodes_of, 0) if manager else nodes_of
        cores = [8 * node + every[:place].count(node) for place, node in enumerate(every)]
        names = ", ".join(f"s{place}" for place in range(len(every)))
        text = f"machine: {NODES_MACHINE}\nstages: {stages_at(cores)}\n"
        text += f"chains: {{c: {{stages: [{names}], packet_size_b: {size_b}}}}}\nqueue: {{capacity: {capacity}}}"
        warm_ms = max(4.0, capacity / 1e3)  # all buffers of the pool were used
        result = simulate_chains(parse_chains(text), "nfvnice", duration_ms=3.0, warm_ms=warm_ms, seed=SEED)
        rates[nodes_of] = result.chains["c"].throughput_mpps
        show(f"{name} {nodes_of}, {size_b} B", result)
    lost = {nodes_of: 1.0 - rate / rates[nodes[0]] for nodes_of, rate in rates.items() if any(nodes_of)}
    print(f"  lost: {', '.join(f'{key} {100 * value:.0f} %' for key, value in lost.items())}; paper 22 and 52 %")
    return lost


def of_shipped(*functions: str, size_b: int) -> Callable[[Sequence[int]], str]:
    """Return what writes shipped functions as stages on the cores given."""

    def stages(cores: Sequence[int]) -> str:
        pairs = enumerate(zip(functions, cores, strict=True))
        return "{" + ", ".join(f"s{i}: {{nf: '{nf}@{size_b}B', core: {core}}}" for i, (nf, core) in pairs) + "}"

    return stages


def of_work(cycles: float) -> Callable[[Sequence[int]], str]:
    """Return what writes stages of pure work on the cores given."""
    return lambda cores: "{" + ", ".join(f"s{i}: {{cycles: {cycles}, core: {c}}}" for i, c in enumerate(cores)) + "}"


def work_of_a_hop() -> float:
    """Return the work with which a lone simulated stage takes as many cycles per packet as a hop on the host."""
    text = f"machine: {NODES_MACHINE}\nstages: {of_work(1.0)([0])}\nchains: {{c: {{stages: [s0]}}}}"
    alone = simulate_chains(parse_chains(text), "nfvnice", duration_ms=2.0, warm_ms=2.0, seed=SEED)
    return HOP_CYCLES - alone.stages["s0"].cycles_per_packet + 1.0


def nodes() -> Iterator[Check]:
    """Run a monitor, a router and a forwarder over two NUMA nodes (NUMASFP, COMSNETS'22).

    OpenNetVM's own examples count, compare an address, and do nothing: what they cost is handing a packet on. Ours of
    the same names, which count 100 000 flows and look up 131 072 routes, are not the talk's: `node_costs`.
    """
    hop = of_work(round(work_of_a_hop(), 1))
    kinds = {
        "three that hand on, as OpenNetVM's examples": over_nodes(hop, 64, "examples", capacity=OPENNETVM_RING),
        "the same behind the manager's two threads": over_nodes(
            hop, 64, "and manager", manager=True, capacity=OPENNETVM_RING
        ),
    }
    for kind, lost in kinds.items():
        for nodes_of, paper in (((1, 1, 1), 0.22), ((1, 0, 1), 0.52)):
            name = f"lost at {nodes_of}, {kind}: %"
            yield Check(name, 100 * lost[nodes_of], round(67 * paper), round(133 * paper), f"{100 * paper:.0f}")


def node_costs() -> Iterator[Check]:
    """Show on what the loss over two nodes depends: the work of like functions, packets' size, and the manager's rings.

    The talk's machines run one function of OpenNetVM at 9 Gbit/s beside the card, at 4.5 on the other node, and at 7
    with rings of 65536 (github.com/sdnfv/openNetVM/issues/285).
    """
    for cycles in NODE_COSTS:
        over_nodes(of_work(cycles), 64, f"three of {cycles:g} cycles")
    for size_b in (64, 1500):
        over_nodes(of_shipped(*SHIPPED, size_b=size_b), size_b, "shipped")
    hop = of_work(round(work_of_a_hop(), 1))
    of_one, of_three = ((0,), (1,)), ((0, 0, 0), (1, 1, 1), (1, 0, 1))
    for capacity, places in itertools.product((OPENNETVM_RING, 65536), (of_one, of_three)):
        over_nodes(hop, 64, f"hops, manager, rings of {capacity}", manager=True, nodes=places, capacity=capacity)
    yield from ()


def tuning() -> Iterator[Check]:
    """Show what a ring's marks change for the chain on one core, and a priority beside a like function."""
    chain_system = chain_of([(cost,) for cost in COSTS], (0, 0, 0), LINE_RATE_MPPS)
    for high, low in itertools.product((0.6, 0.8, 0.95), (0.2, 0.4, 0.55)):
        result = played(replace(chain_system, high_water=high, low_water=low), "cfs", nice=True)
        show(f"marks at {high:g} and {low:g}, p99 {result.chains['chain'].latency_us['p99']:.0f} us", result)
    for priority in (1.0, 2.0, 4.0):
        pair = one_core((250.0, 250.0), (8.0, 8.0))
        stages = (replace(pair.stages[0], priority=priority), *pair.stages[1:])
        show(f"priority {priority:g} beside 1", played(replace(pair, stages=stages), "cfs", nice=True))
    yield from ()


def causes() -> Iterator[Check]:
    """Show what docs/papers.md and docs/concepts/chains.md say of rings, slices, and how much costs matter."""
    unlike = one_core((500.0, 250.0, 50.0), (5.0, 5.0, 5.0))
    for capacity, slice_ms in ((DEFAULT_CAPACITY, 2.8), (OPENNETVM_RING, 2.8), (DEFAULT_CAPACITY, 0.7)):
        result = simulate_chains(
            replace(unlike, queue_capacity=capacity), "nfvnice", scheduler=Scheduler("eevdf", base_slice_ms=slice_ms),
            duration_ms=150.0, warm_ms=60.0, seed=SEED,
        )  # fmt: skip
        ratio = jain([chain.throughput_mpps for chain in result.chains.values()])
        show(f"eevdf + nfvnice, rings {capacity}, slices {slice_ms:g} ms: Jain {ratio:.4f}", result)
    for factor in (0.77, 0.9, 1.0, 1.1):
        result = played(
            one_core((500.0 * factor, 250.0 * factor, 50.0 * factor), (5.0, 5.0, 5.0)), "eevdf-batch", False
        )
        show(f"500/250/50 times {factor:g}, eevdf-batch", result)
    for more in ((0.0, 0.0, 0.0), (0.0, 60.0, 95.0)):
        system = chain_of([tuple(cost + extra for cost in COSTS) for extra in more], (0, 0, 0), LINE_RATE_MPPS)
        show(f"random costs and {'/'.join(f'{each:g}' for each in more)}, eevdf", played(system, "eevdf", False))
    yield from ()


def measure_hop() -> None:
    """Print what handing a packet on costs a process of this machine, the least of three runs."""
    from nfvnice_against import time_per_packet_ns  # takes a C compiler
    from nfvnice_host import chain_of

    from slomo.testbed.host.chains.plan import ChainRunSettings
    from slomo.workflow.chains.on_host import run_chains_on_host

    settings, took_ns = ChainRunSettings(seconds=0.4, warm_up_ms=50.0), {}
    for cycles in (1.0, 120.0):
        runs = [run_chains_on_host(chain_of([(cycles,)], LINE_RATE_MPPS), "cfs", settings=settings) for _ in range(3)]
        took_ns[cycles] = min(time_per_packet_ns(run) for run in runs)
    cycle_ns = (took_ns[120.0] - took_ns[1.0]) / 119.0
    print(f"a hop takes {took_ns[1.0]:.1f} ns, a cycle of work {cycle_ns:.3f}: {took_ns[1.0] / cycle_ns:.0f} cycles")


PARTS = {
    part.__name__: part
    for part in (schedulers, chain, cores, sharing, orders, random, tcp, nodes, node_costs, tuning, causes)
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--against-host", action="store_true", help="simulated and as processes, side by side")
    parser.add_argument("--hop", action="store_true", help="measure what handing a packet on costs on this machine")
    arguments, checks = parser.parse_args(), []
    if arguments.hop:
        measure_hop()
        return 0
    if arguments.against_host:
        from nfvnice_against import against_host  # takes a C compiler and the right to make control groups

        cells = against_host()
        return 0 if 24 * sum(cell.holds for cell in cells) >= 20 * len(cells) else 1
    for name in arguments.only:
        print(f"{name}: {PARTS[name].__doc__}")
        checks += list(PARTS[name]())
    if checks:
        print(f"\n{'figure':72} {'value':>9} {'range':>18}")
    for item in checks:
        most = "" if item.most >= 9 else f"{item.most:.2f}"
        span = f"{item.least:.2f} to {most}" if most else f">= {item.least:.2f}"
        print(f"{item.name:72} {item.value:9.3f} {span:>18} {'' if item.holds else 'OFF'}  paper: {item.paper}")
    return 0 if all(item.holds for item in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
