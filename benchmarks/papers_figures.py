"""Every figure and table of the five papers: what is claimed, and which benchmark's lines answer it; see papers.py."""

import os
import statistics
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import msgspec
import nfvnice
import numasfp_allocation
import numpy as np
import phenomena
import phenomena_runs
import yaml
from phenomena_runs import ANY, Line

from slomo.enforce.backends.simulated import Occupant, SimulatedServer
from slomo.models.library import ModelLibrary
from slomo.records.catalog import find_dataset
from slomo.training.metric_ranking import RankedMetric, rank_metrics
from slomo.training.training import train
from slomo.vocabulary.chain_file import DEFAULT_CAPACITY
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.workload import Workload
from slomo.workflow.acting.noisy_neighbour import read_noisy_neighbour_file, run_noisy_neighbour

HERE = Path(__file__).resolve().parent
NOISY = HERE.parent / "docs" / "examples" / "noisy-neighbour" / "test.yaml"
SLOMO, RESQ, NFVNICE = "SLOMO (SIGCOMM'20)", "ResQ (NSDI'18)", "NFVnice (SIGCOMM'17)"
NUMASFP, RMD = "NUMASFP (COMSNETS'22)", "RMD and VSPERF (OSS EU'18)"
#: Candidates of SLOMO's table in section 5; its QPI is UPI here. The table has no metric of the packets' cache.
CANDIDATES = (
    "IPC", "INST", "L3MISS", "L3MPI", "L3HIT", "L3OCC", "LMB", "L2HIT", "L2MPI", "L2MISS", "READ", "WRITE",
    "LLCMISSLAT", "RMB", "UPI", "FREQ",
)  # fmt: skip
#: Metrics of each source of contention that these candidates can tell: occupancy of the LLC, references to it, memory.
SOURCES = (("L3OCC",), ("L2MISS", "L2MPI", "L2HIT"), ("READ", "WRITE", "LMB", "L3MISS"))
#: Where all memory is on another socket: occupancy, references, its memory, the link.
LINK_SOURCES = (*SOURCES[:2], ("READ", "WRITE", "L3MISS", "LLCMISSLAT"), ("RMB", "UPI"))
_MODELS: list[Path] = []


@dataclass(frozen=True)
class Figure:
    """A figure or table: its place in the paper, what it shows, and what measures it, or why nothing can here.

    What is measured `here` takes this machine for itself: no other process, no other machine.
    """

    name: str
    paper: str
    label: str
    title: str
    lines: Callable[[int], Iterator[Line]] | None = None
    impossible: str | None = None
    takes_models: bool = False
    most_seeds: int = 100
    here: bool = False


def use_models(folder: Path | None) -> None:
    """Let figures that take models find them there."""
    _MODELS[:] = [] if folder is None else [folder]


def phenomenon(name: str) -> Callable[[int], Iterator[Line]]:
    """Return what plays a figure of `benchmarks/phenomena.py`."""

    def lines(seed: int) -> Iterator[Line]:
        phenomena_runs.reseed(seed)
        return phenomena.FIGURES[name]()

    return lines


def schedulers(name: str) -> Callable[[int], Iterator[Line]]:
    """Return what plays figure 8 or 9 of ResQ with models."""

    def lines(seed: int) -> Iterator[Line]:
        from importlib import import_module

        from schedulers import Compared

        return import_module(name).lines(Compared(_MODELS[0], seed))

    return lines


def nfvnice_part(name: str) -> Callable[[int], Iterator[Line]]:
    """Return what plays a part of `benchmarks/nfvnice.py`."""

    def lines(seed: int) -> Iterator[Line]:
        nfvnice.SEED = seed
        for check in nfvnice.PARTS[name]():
            yield Line(name, check.name, check.paper or "-", check.value, check.least, check.most)

    return lines


def nfvnice_against(seed: int) -> Iterator[Line]:
    """Hold the simulated scheduler against this machine's kernel."""
    from nfvnice_against import compare

    cells = compare(3, 0.5, 300.0, seed)
    for what, count, least in (
        ("cells whose goodput and waste are within 20 % of processes, of 24", sum(c.holds for c in cells), 20),
        ("cells where that holds for every function, of 24", sum(c.holds_each for c in cells), 20),
    ):
        yield Line("host", what, "-", count, least, 24)


def nfvnice_processes(seed: int) -> Iterator[Line]:
    """Run NFVnice on processes of this machine beside the kernel's schedulers alone."""
    import nfvnice_host as host

    given = SimpleNamespace(rounds=3, seconds=1.0, seed=seed, build="portable")
    for costs in ((120, 270, 550), (550, 2200, 4500)):
        ways = [host.ALONE[0], host.NICE[0]]
        runs = host.alternate(host.chain_of([(cost,) for cost in costs]), ways, given)
        name = "/".join(map(str, costs))
        gain = sorted(runs.ratios(ways[1], ways[0], host.goodput))[given.rounds // 2]
        yield Line("host", f"{name} on one core: goodput over the kernel's scheduler", "above 1", gain, 1.2, 1e9)
        wasted = 100 * runs.median(ways[1], lambda result: result.wasted)
        yield Line("host", f"{name}: % of work wasted", "0", wasted, 0, 5)
    runs = host.alternate(host.chain_of([(120, 270, 550)] * 3), [host.ALONE[0], host.NICE[0]], given)
    gain = sorted(runs.ratios(host.NICE[0], host.ALONE[0], host.goodput))[given.rounds // 2]
    yield Line("host", "random costs: goodput over the kernel's scheduler", "above 1", gain, 1.0, 1e9)
    even, uneven = ((250, 250, 250), (6.0, 6.0, 3.0)), ((500, 250, 50), (5.0, 5.0, 5.0))
    for (costs, rates), way, capacity in (
        (even, host.NICE[0], host.CAPACITY),
        (uneven, host.NICE[0], host.CAPACITY),
        (uneven, host.NICE[0], host.OPENNETVM_CAPACITY),
        (uneven, host.NICE[2], host.OPENNETVM_CAPACITY),
    ):
        runs = host.alternate(host.side_by_side(costs, rates, capacity), [way], given)
        jain = runs.median(way, lambda result: result.fairness)
        name = f"{'/'.join(map(str, costs))} apart, offered {'/'.join(f'{r:g}' for r in rates)} Mpps"
        yield Line("host", f"{name}, {way.name}, rings of {capacity}: Jain's index", "about 1", jain, 0.99, 1.0)
    runs = host.alternate(host.chain_of([(120,), (270,), (550,)]), [host.NICE[0]], given)
    control = 100 * runs.median(host.NICE[0], lambda result: result.control_share)
    yield Line("host", "control: % of a core", "small", control, 0, 1)


def nfvnice_kernel_tcp(seed: int) -> Iterator[Line]:  # noqa: ARG001 (what differs is the machine's noise)
    """Send the kernel's TCP through processes beside ten UDP flows, in one ring per function, as in OpenNetVM."""
    import nfvnice_host as host

    kernel, _, nice = host.TCP_WAYS  # without ECN: docs/guides/chains.md, there is no range for it
    what = "one ring per function, TCP of 4 Gbit/s, UDP from 15 to 40 s"
    other = min(os.sched_getaffinity(0))  # the paper: "on a separate core"
    before, beside, after = host.udp_comes(nice, other)
    share = 100 * beside / before
    yield Line("host", f"{what}, third function on another core, NFVnice keeps: %", "82", share, 80, 105)
    yield Line("host", f"{what}, NFVnice after: % of before", "all", 100 * after / before, 90, 110)
    before, beside, _ = host.udp_comes(kernel, other)
    share = 100 * beside / before
    yield Line(
        "host", f"{what}, third function on another core, the kernel's scheduler: %", "next to nothing", share, 0, 50
    )


def nfvnice_costs(seed: int) -> Iterator[Line]:  # noqa: ARG001 (what differs is the machine's noise)
    """Run two functions on processes for 40 s, of which one's cost triples from 15 to 30 s."""
    import nfvnice_host as host

    for way, span in ((host.NICE[0], (0.99, 1.0)), (host.ALONE[0], (0.0, 0.9))):
        result = host.costs_change(way)
        for when, times in (("before", (5, 15)), ("with three times the cost", (16, 30)), ("after", (31, 40))):
            one, other = (host.mean_rate(result, chain, *times) for chain in (0, 1))
            jain = (one + other) ** 2 / (2 * (one**2 + other**2))
            if way == host.NICE[0] or when.startswith("with"):
                name = "NFVnice" if way == host.NICE[0] else "the kernel's scheduler"
                yield Line("host", f"{name}, {when}: Jain's index of output over input", "-", jain, *span)
        if way == host.NICE[0]:
            after_s = host.settled_s(result, 15.0)
            yield Line("host", "NFVnice, rates equal again after: s", "-", after_s, 0, 1)


def nfvnice_two_cores(seed: int) -> Iterator[Line]:
    """Run two chains that share their first and last function as processes on two cores; the paper has four."""
    import nfvnice_host as host

    given = SimpleNamespace(rounds=3, seconds=1.0, seed=seed, build="portable")
    placed = next(each for each in host.two_chains_placed() if each.name == "two cores")
    what = f"chains of {placed.cheap_mpps:g} Mpps each, the slow function on a core apart"
    for way, name, span in ((host.NICE[0], "NFVnice", (95, 105)), (host.ALONE[0], "the kernel's scheduler", ANY)):
        kept, beside, _ = host.cheap_keeps(placed, way, given)
        yield Line("host", f"{what}, {name}: cheap chain keeps: %", "-", 100 * statistics.median(kept), *span)
        wasted = 100 * beside.median(way, lambda result: result.wasted)
        span = (0, 5) if way == host.NICE[0] else ANY
        yield Line("host", f"{what}, {name}: % of work wasted", "-", wasted, *span)


def nfvnice_disk(seed: int) -> Iterator[Line]:
    """Write 64 bytes of each packet to a real file, asynchronously and blocking."""
    import nfvnice_host as host

    given = SimpleNamespace(rounds=3, seconds=1.0, seed=seed, build="portable")
    for kib in (64, 1024):
        gain = statistics.median(host.disk_gain(kib, given)[0])
        yield Line("host", f"buffers of {kib} KiB: goodput over blocking writes", "above 1", gain, 1.0, 1e9)


def numasfp_firewall(seed: int) -> Iterator[Line]:
    """Run a firewall beside memory hogs: nothing, its ways, its ways and bandwidth."""
    _, lost = numasfp_allocation.losses("e5-2620v4", "stateless-firewall", seed)
    spans = (("unmanaged", -45, -55, -35), ("ways of its own", -20, -25, -15), ("ways and memory bandwidth", 0, -5, 1))
    for (what, paper, low, high), share in zip(spans, lost, strict=True):
        yield Line("firewall", f"firewall beside hogs, {what}: % of throughput", f"{paper}", 100 * share, low, high)


def numasfp_anat(seed: int) -> Iterator[Line]:
    """Place a draw of five chains by NUMASFP and its rivals, and judge each on a whole server of two sockets.

    The talk has no rates of these chains: those of its run of two, 1 to 10 Gbit/s, are offered once and up to twice,
    and a rival's lag is read where it serves 77.5 % of what is offered, the middle of 70 to 85.
    """
    import numasfp

    served = {
        load: numasfp_served(seed, directory=_MODELS[0], intervals=3, ms=1.5, packet=256, load=load)
        for load in sorted(numasfp.LOADS, reverse=True)
    }
    yield from lead_lines(served[1.0])
    for name, paper in numasfp.PAPER.items():
        theirs = [each[name] for each in served.values()]
        ahead = [100 * (each["numasfp"] / each[name] - 1) for each in served.values()]
        what = f"where {name} serves 77.5 % of what is offered: NUMASFP ahead by %"
        yield Line("ANAT", what, f"{paper}", float(np.interp(77.5, theirs, ahead)), 10, 1e9)
        load = float(np.interp(77.5, theirs, list(served)))
        yield Line("ANAT", f"load at which {name} serves 77.5 %, times 1 to 10 Gbit/s", "-", load, *ANY)


def numasfp_manager(seed: int) -> Iterator[Line]:
    """Do so with OpenNetVM's examples behind its manager's two threads: the platform that NUMASFP is built on.

    With packets of 64, 128 and 256 B all policies serve 43, 74 and 100 % of what is offered (concepts/placement.md).
    """
    import numasfp

    served = numasfp_served(
        seed, intervals=2, ms=4.0, packet=128, hop=numasfp.HOP_WORK_CYCLES, manager=True, machine="e5-2695v4", cores=10,
        ring=nfvnice.OPENNETVM_RING,
    )  # fmt: skip
    where = "OpenNetVM's examples and manager: "
    yield from lead_lines(served, where)
    for name in numasfp.PAPER:
        yield Line("ANAT", f"{where}{name} serves of what is offered: %", "-", served[name], 70, 85)


def numasfp_served(seed: int, **given: object) -> dict[str, float]:
    """Return what each policy serves of what a draw offers [%]."""
    import numasfp

    defaults = {
        "directory": None, "servers": 1, "change": "drift", "handover": "simulated", "move_s": None, "hop": None,
        "manager": False, "ring": DEFAULT_CAPACITY, "machine": numasfp.MACHINE, "cores": None, "hogs": 0,
        "load": 1.0,
    }  # fmt: skip
    settings = Namespace(**defaults | given)
    return {name: 100 * numasfp.run(name, settings, seed).anat for name in ("numasfp", *numasfp.PAPER)}


def metric_lines(
    figure: str, place: str, ranked: Mapping[str, RankedMetric], sources: Sequence[Sequence[str]]
) -> Iterator[Line]:
    """Compare the metrics selected with those of the rivals alone, and count the sources of contention they cover.

    All metrics are judged by one kind of model here. The paper's "2-5x" is of whole predictors: `slomo_errors`. Its
    lower end is asked for here, too; how section 5.1 selects could not be read, so forward selection does.
    """
    best = min(item.error for item in ranked.values())
    for name, rival in (("L2MISS", "Dobrescu's"), ("L3OCC", "Bubble-Up's")):
        what = f"{place}: error with {rival} metric alone ({name}) over that with those selected"
        yield Line(figure, what, "-", ranked[name].alone / best, 2, 1e9)
    useful = [name for name, item in ranked.items() if item.gain > 0.0]
    covered = sum(any(name in useful for name in names) for names in sources)
    what = f"{place}: sources of contention among metrics that lower the error, of {len(sources)}"
    paper = "all" if sources is SOURCES else "-"  # it has no memory on the other socket
    yield Line(figure, what, paper, covered, len(sources), len(sources))


def slomo_errors(seed: int) -> Iterator[Line]:
    """Predict 70 mixes by SLOMO, Dobrescu and Bubble-Up, each as published: the abstract's "2-5x"."""
    from slomo.evaluation.evaluate import evaluate
    from slomo.profiling.campaign.run import run_campaign
    from slomo.profiling.plans.basic import mixes_plan
    from slomo.testbed.simulated import SimulatedTestbed

    rivals = {"dobrescu": "Dobrescu's", "bubbleup": "Bubble-Up's"}
    for machine in ("e5-2620v4", "silver-4110"):
        shipped = find_dataset(f"slomo-{machine}")
        functions = tuple(shipped.workload(key).nf for key in shipped.targets)
        plan = mixes_plan(functions, machine, 70, stream="test", seed=seed)
        mixes = run_campaign(plan, SimulatedTestbed(machine), jobs=1)
        library = train(shipped, models=["slomo-gbr", *rivals], seed=seed)
        ours = evaluate(library, mixes, ["slomo-gbr"], compat="published").models["slomo-gbr"].mape
        errors = {name: each.mape for name, each in evaluate(library, mixes, ["slomo-gbr", *rivals]).models.items()}
        for name, whose in rivals.items():
            what = f"{machine}: error of {whose} predictor over that of SLOMO as published"
            yield Line("errors", what, "2-5", errors[name] / ours, 2, 5)
        what = f"{machine}: error of Dobrescu's predictor over that of SLOMO's models composed by slomo's rule"
        yield Line("errors", what, "-", errors["dobrescu"] / errors["slomo-gbr"], *ANY)


def slomo_metrics(seed: int) -> Iterator[Line]:
    """Select among the paper's metrics (section 5.1) on both shipped datasets, and compare with one metric alone.

    The seed draws which settings are left out together; the datasets are what they are.
    """
    from slomo.records.dataset import ProfileDataset

    names = {f"competition.{name}" for name in CANDIDATES}
    for machine in ("e5-2620v4", "silver-4110"):
        found = find_dataset(f"slomo-{machine}")
        others = [name for name in found.frame if str(name).startswith("competition.") and name not in names]
        drawn = ProfileDataset(found.frame.drop(columns=others), found.environment)
        ranked = {item.name: item for item in rank_metrics(drawn, seed=seed)}
        yield from metric_lines("metrics", machine, ranked, SOURCES)


def slomo_link(seed: int) -> Iterator[Line]:
    """Draw a profile with all memory on the other socket, and select metrics on it, the link's and misses' among them.

    Nothing is cached for the card there, so the packets' cache is no source.
    """
    from slomo.records.dataset import ProfileDataset
    from slomo.workflow.profile import profile

    functions = ["ip-router", "flowstats", "maglev", "stateless-firewall"]
    for machine in ("e5-2620v4", "silver-4110"):
        drawn = profile(functions, machine=machine, plan="pressure", design="link", runs=60, seed=seed, jobs=1)
        ranked = {item.name: item for item in rank_metrics(drawn, seed=seed)}
        best = min(item.error for item in ranked.values())
        place = f"{machine}, memory on the other socket"
        yield from metric_lines("link", place, ranked, LINK_SOURCES)
        others = drawn.frame.drop(columns=["competition.UPI", "competition.LLCMISSLAT"])
        without = min(item.error for item in rank_metrics(ProfileDataset(others, drawn.environment), seed=seed))
        what = f"{place}: error without the link's use and misses' latency over that with them"
        yield Line("link", what, "-", without / best, 1.1, 1e9)


@cache
def shipped_models(machine: str) -> ModelLibrary:
    """Return the default models of a shipped dataset."""
    return train(find_dataset(f"slomo-{machine}"))


def slomo_utilisation(seed: int) -> Iterator[Line]:
    """Admit a draw of requests with SLOMO's predictor and its rivals at equal safety, and judge what was admitted."""
    import utilisation

    library = shipped_models(utilisation.MACHINE)
    found = utilisation.compared(library, utilisation.drawn(library, seed))
    ours = found["slomo, equilibrium"].requests
    published, beyond = ("slomo, composed", "6-14", 14.0), ("slomo, equilibrium", "-", 1e9)
    for (predictor, paper, most), (name, rival) in product(
        (published, beyond), (("Dobrescu's", "dobrescu"), ("Bubble-Up's", "bubbleup"))
    ):
        ahead = 100 * (found[predictor].requests / found[rival].requests - 1)
        what = f"requests admitted by {predictor}, ahead of {name} predictor at equal safety: %"
        yield Line("use", what, paper, ahead, 6, most)
    first_fit = found["dobrescu first fit"].requests
    yield Line("use", "requests admitted, ahead of Dobrescu's first fit: %", "-", 100 * (ours / first_fit - 1), 6, 1e9)
    yield Line("use", "requests admitted per exclusive server", "-", ours / utilisation.SERVERS, *ANY)
    broken = 100 * found["slomo, equilibrium"].broken  # at most 1: the confidence was chosen so
    yield Line("use", "share of admitted promises that break: %", "-", broken, *ANY)


def slomo_beside_e2(seed: int) -> Iterator[Line]:
    """Admit the same draw by E2, on as many cores of a server as are as safe."""
    import utilisation

    library, judge = shipped_models(utilisation.MACHINE), utilisation.make_judge()
    requests = utilisation.drawn(library, seed)
    ours = utilisation.by_predictor({"": library}, requests, ("default",), "equilibrium", judge).requests
    _, equal = utilisation.by_e2(library, requests, judge)
    yield Line(
        "use", "requests admitted, ahead of E2 at equal safety: %", "-", 100 * (ours / equal.requests - 1), 6, 1e9
    )
    yield Line("use", "cores of eight that E2 may use then", "-", equal.cores, *ANY)


def lead_lines(served: Mapping[str, float], where: str = "") -> Iterator[Line]:
    """Return NUMASFP's lead over each rival in one draw, from what each serves of what is offered [%]."""
    import numasfp

    for name, paper in numasfp.PAPER.items():
        ahead = 100 * (served["numasfp"] / served[name] - 1)
        yield Line("ANAT", f"{where}NUMASFP ahead of {name}: %", f"{paper}", ahead, 10, 1e9)


def noisy_neighbour(seed: int) -> Iterator[Line]:
    """Run the talk's L2-forwarding VM beside noise, without and with a policy."""
    read = read_noisy_neighbour_file(NOISY)
    test = replace(
        read, settings=msgspec.structs.replace(read.settings, policies=("none", "pools", "burstable")), seed=seed
    )
    rows = {(row.noise, row.policy): row.throughput_mpps for row in run_noisy_neighbour(test)}
    alone, level = rows[0, "none"], max(noise for noise, _ in rows)
    lost = {policy: 100 * (1 - rows[level, policy] / alone) for policy in test.settings.policies}
    back = 100 * (rows[level, "pools"] / rows[level, "none"] - 1)
    yield Line("talk", "L2-forwarding VM at 64 B beside noise: % lost", "over 33", lost["none"], 30, 45)
    yield Line("talk", "a guaranteed LLC policy wins back: % of throughput", "about 40", back, 30, 50)
    kept = 100 - lost["pools"]  # both of the talk's figures together: 1.4 times what is left of 100 after a loss of 33
    yield Line("talk", "throughput with a guaranteed LLC policy, of that without noise: %", "94", kept, 90, 105)
    kept = 100 - lost["burstable"]
    yield Line("talk", "throughput in the burstable pool, shared with a noisy VM, of that: %", "-", kept, *ANY)


def root_group(seed: int) -> Iterator[Line]:
    """Run a guaranteed tenant beside a VM that nobody manages: the root group with all ways, and shrunk as by pools."""
    machine, own = load_machine("e5-2699v4"), 0x18000
    noise = Workload("synthetic", {"data_size_mib": 64, "reads_per_packet": 1000})
    rest = {"all ways": machine.full_way_mask, "shrunk": (own & -own) - 1}
    for name in ("lpm", "mazunat"):
        served = {}
        for root in ("alone", *rest):
            seats = [Occupant("gold", Workload(name)), Occupant("vm", noise)][: 1 if root == "alone" else 2]
            server = SimulatedServer(machine, seats)
            server.knobs["ways:gold"] = f"{own:x}"
            if root != "alone":
                server.knobs["ways:vm"] = f"{rest[root]:x}"
            served[root] = server.simulate(seed).tenants[0].throughput_mpps
        what = f"{name} with 2 guaranteed ways beside an unmanaged VM: % lost"
        yield Line("root", f"{what}, root group with all ways", "-", 100 * (1 - served["all ways"] / served["alone"]))
        yield Line("root", what, "-", 100 * (1 - served["shrunk"] / served["alone"]), -1, 2)


def vsperf(seed: int) -> Iterator[Line]:
    """Search throughput by MLRsearch with the real Pktgen before a DPDK function behind virtio."""
    from vsperf import lines

    return lines(seed)


FIGURES: tuple[Figure, ...] = (
    *(
        Figure(name, SLOMO, name.replace("slomo-f", "F").replace("g", "g. "), "see the rows", phenomenon(name))
        for name in ("slomo-fig5", "slomo-fig6", "slomo-fig7")
    ),
    Figure("slomo-errors", SLOMO, "abstract", "errors of three predictors", slomo_errors),
    Figure("slomo-metrics", SLOMO, "section 5.1", "metrics selected", slomo_metrics),
    Figure("slomo-link", SLOMO, "section 5.1", "metrics selected, memory on the other socket", slomo_link),
    Figure("slomo-utilisation", SLOMO, "utilisation", "requests admitted", slomo_utilisation),
    Figure("slomo-utilisation-e2", SLOMO, "utilisation", "beside E2", slomo_beside_e2),
    *(
        Figure(
            f"resq-{name}", RESQ, name.replace("fig", "Fig. ").replace("table", "Table "), "see the rows",
            phenomenon(f"resq-{name}"),
        )
        for name in phenomena.RESQ_FIGURES
    ),
    Figure("resq-fig7-one", RESQ, "Fig. 7", "without batches", phenomenon("resq-fig7-one")),
    Figure("resq-fig8", RESQ, "Fig. 8", "SLOs broken without isolation", schedulers("fig8"), takes_models=True),
    Figure("resq-fig9", RESQ, "Fig. 9", "servers of each scheduler", schedulers("fig9"), takes_models=True),
    Figure("nfvnice-schedulers", NFVNICE, "three functions", "three functions on one core", nfvnice_part("schedulers")),
    Figure("nfvnice-chain", NFVNICE, "one core", "a chain of 120/270/550 cycles", nfvnice_part("chain")),
    Figure("nfvnice-cores", NFVNICE, "three cores", "a chain of 550/2200/4500 cycles", nfvnice_part("cores")),
    Figure("nfvnice-sharing", NFVNICE, "two chains", "two chains share functions", nfvnice_part("sharing")),
    Figure("nfvnice-random", NFVNICE, "variable cost", "costs drawn per packet", nfvnice_part("random")),
    Figure("nfvnice-orders", NFVNICE, "heterogeneity", "all orders of the chain", nfvnice_part("orders")),
    Figure("nfvnice-tcp", NFVNICE, "isolation", "TCP beside ten UDP flows", nfvnice_part("tcp")),
    Figure("nfvnice-processes", NFVNICE, "on processes", "NFVnice on this host", nfvnice_processes, most_seeds=5,
           here=True),
    Figure("nfvnice-against-host", NFVNICE, "simulated, real", "the scheduler held", nfvnice_against, most_seeds=5,
           here=True),
    Figure("nfvnice-kernel-tcp", NFVNICE, "isolation, real", "kernel TCP through processes with ECN",
           nfvnice_kernel_tcp, most_seeds=5, here=True),
    Figure("nfvnice-costs", NFVNICE, "dynamic costs, real", "a cost triples for 15 s of 40", nfvnice_costs,
           most_seeds=5, here=True),
    Figure("nfvnice-disk", NFVNICE, "asynchronous I/O, real", "disk writes of a process with and without",
           nfvnice_disk, most_seeds=5, here=True),
    Figure("nfvnice-two-cores", NFVNICE, "two chains on two cores, real", "processes on two cores",
           nfvnice_two_cores, most_seeds=5, here=True),
    Figure("nfvnice-four-cores", NFVNICE, "two chains on four cores, real", "processes on four cores",
           impossible="two cores here"),
    Figure("numasfp-firewall", NUMASFP, "memory bandwidth", "a firewall beside hogs", numasfp_firewall),
    Figure("numasfp-nodes", NUMASFP, "placement", "a chain over two nodes", nfvnice_part("nodes")),
    Figure("numasfp-anat", NUMASFP, "ANAT of all servers", "five chains under each policy", numasfp_anat,
           takes_models=True),
    Figure("numasfp-manager", NUMASFP, "ANAT, OpenNetVM", "the same behind a manager's threads", numasfp_manager),
    Figure("numasfp-migration", NUMASFP, "migration", "a function moves between nodes",
           impossible="one memory node here; in an emulated guest numasfp moves functions as rates change "
                      "(make numa-guest), untimed"),
    Figure("rmd-noisy-neighbour", RMD, "noisy neighbour", "the talk's VM", noisy_neighbour),
    Figure("rmd-root-group", RMD, "guaranteed", "beside a VM that nobody manages", root_group),
    Figure("rmd-vsperf", RMD, "VSPERF", "RFC 2544 with the real Pktgen", vsperf, most_seeds=5, here=True),
)  # fmt: skip


def play(part: tuple[str, int, Path | None]) -> list[Line]:
    """Play a figure, by name, under a seed, with models: the same lines in whichever process."""
    name, seed, models = part
    use_models(models)
    (lines,) = (figure.lines for figure in FIGURES if figure.name == name)
    return [line for line in lines(seed) if line.low is not None]


#: Start of a line -> why it is off, where that was tested, and the command that shows it.
CAUSES = {
    start: f"{known['cause']} (`{known['command']}`)"
    for known in yaml.safe_load((HERE / "papers_causes.yaml").read_text(encoding="utf-8"))
    for start in known["lines"]
}

sys.path += [str(HERE / "resq"), str(HERE / "placement")]
