"""How well `slomo whatif` predicts partitions, and whether its advice holds in the judge.

Targets: within 3 % (mean) of the simulator over 200 random partitions per machine, half of them with ways of one's own
for each tenant, half with ways shared by all or all but one or two; advice breaks an SLO in the judge in at most 5 % of
the cases. Then mixes whose tenants have their memory on random nodes, with undivided caches. Profiles have the
simulator's default scale; partitions are judged at a scale at which a way holds as many lines as on the E5-2620 v4,
since at coarser scales single tenants of shared narrow ways are up to 12 % off (docs/concepts/simulator.md). Run:
python benchmarks/whatif.py [partitions] [machine ...] [--draw NAME]
"""

import argparse
import random
import time
from collections import Counter
from collections.abc import Iterable
from itertools import repeat

import numpy as np

from slomo.control.situation import Outlook
from slomo.models.partition_profile import PartitionProfile
from slomo.simulator.engine import Tenant, simulate
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.machine import Machine, load_machine
from slomo.vocabulary.network_function import load_network_function
from slomo.vocabulary.packet_buffers import LINE_B
from slomo.vocabulary.server_setting import ServerSetting
from slomo.vocabulary.workload import Workload
from slomo.workflow.acting.partition_profile import (
    learn_partitions,
    predict_partition,
    random_crowd,
    random_partition,
)
from slomo.workflow.acting.whatif import what_if

NFS = ("mazunat", "lpm", "stats", "snort", "ip-router", "maglev", "firewall", "flowstats")
#: Cache lines of one way in the simulations that judge.
LINES_IN_WAY = 16_384


def main(partitions: int, machines: list[str], case: str, cases: int | None = None) -> None:
    for name in machines:
        machine = load_machine(name)
        workloads = [Workload(nf) for nf in NFS]
        start = time.perf_counter()
        knowledge = learn_partitions(SimulatedTestbed(machine), machine, workloads)
        took = time.perf_counter() - start
        draw = random.Random(f"benchmark {name}{case}")  # noqa: S311
        apart = [random_partition(machine, workloads, draw) for _ in range(partitions // 2)]
        crowds = [random_crowd(machine, workloads, draw) for _ in range(partitions - partitions // 2)]
        print(f"{name}: {knowledge.runs} profiling runs ({took:.0f} s)", flush=True)
        scale = max(1, int(machine.llc_mib * 2**20 / LINE_B / machine.llc_ways / LINES_IN_WAY))
        outcomes = judged(SimulatedTestbed(machine, scale=scale), knowledge, apart + crowds)
        tell(name, "ways of its own", [each for shared, *each in outcomes if not shared])
        tell(name, "ways shared", [each for shared, *each in outcomes if shared])
        advice(knowledge, machine, workloads, partitions // 2 if cases is None else cases, case)
        if machine.sockets > 1:
            on_nodes(knowledge, machine, workloads, partitions // 4, case)


def judged(
    testbed: SimulatedTestbed, knowledge: PartitionProfile, colocations: list[Colocation]
) -> list[tuple[bool, float, float]]:
    """Return whether each tenant shares its ways, its relative error, and the half width of its interval."""
    outcomes, models = [], knowledge.models(testbed.machine)
    for number, colocation in enumerate(colocations):
        record = testbed.run(colocation, seed=50_000 + number)
        assert record.beside is not None
        masks = [isolation.llc_way_mask for isolation in colocation.isolation or ()]
        predicted = predict_partition(knowledge, colocation, testbed.machine).throughput_mpps
        for workload, mask, guess, tenant in zip(
            colocation.tenants, masks, predicted, record.beside.tenants, strict=True
        ):
            model, shares = models[workload.key], masks.count(mask) > 1
            width = model.half_width(1.0 - guess / model.response.solo_mpps, shares_ways=shares)
            outcomes.append((shares, guess / tenant.throughput_mpps - 1.0, width))
    return outcomes


def tell(name: str, what: str, outcomes: list[list[float]]) -> None:
    signed, widths = np.array(outcomes).T
    errors = np.abs(signed)
    print(
        f"{name}: {what}: {len(errors)} tenants: mean error {100 * np.mean(errors):.2f} % (target 3)"
        f"{off(np.mean(errors) > 0.03)}, p95 {100 * np.quantile(errors, 0.95):.2f} %, max {100 * max(errors):.1f} %, "
        f"mean too high {100 * np.mean(signed):.2f} %; 90 % interval holds {100 * np.mean(errors <= widths):.1f} %",
        flush=True,
    )


def advice(knowledge: PartitionProfile, machine: Machine, workloads: list[Workload], cases: int, case: str) -> None:
    """Ask for advice in random mixes in which some promise breaks, apply it in the simulator, and count."""
    draw = random.Random(f"advice {machine.name}{case}")  # noqa: S311
    needed = advised = broken = promises = gone = 0
    for number in range(cases):
        mix = [draw.choice(workloads) for _ in range(draw.randint(3, min(7, machine.cores_per_socket)))]
        promised = {place: draw.choice((0.8, 0.9, 0.95)) for place in range(draw.randint(1, 2))}
        answer = what_if([knowledge], mix, machine, slo_share=promised, with_advice=True)
        if answer.kept or answer.situation is None:
            continue
        needed += 1
        if answer.advice is None:
            continue
        advised += 1
        measured = judge(answer.advice, mix, machine, number)
        names = list(answer.situation.responses)
        failures = [p for p in promised if measured[p] < answer.situation.promised_mpps[names[p]]]
        promises += len(promised)
        broken += len(failures)
        gone += bool(failures)
    print(
        f"{machine.name}: {needed} of {cases} mixes break a promise; "
        f"advice for {advised}; it breaks {broken} of {promises} promises in the judge "
        f"({100 * broken / max(1, promises):.1f} %, target 5){off(broken > 0.05 * promises)}, in {gone} mixes",
        flush=True,
    )


def on_nodes(knowledge: PartitionProfile, machine: Machine, workloads: list[Workload], cases: int, case: str) -> None:
    """Put tenants' memory on random nodes, and compare predictions with the simulator."""
    draw = random.Random(f"nodes {machine.name}{case}")  # noqa: S311
    signed, inside, verdicts = [], [], Counter[str]()
    for number in range(cases):
        mix = [draw.choice(workloads) for _ in range(draw.randint(2, min(7, machine.cores_per_socket)))]
        nodes = [draw.randrange(machine.sockets) for _ in mix]
        answer = what_if([knowledge], mix, machine, ServerSetting(nodes=nodes))
        for row, mpps in zip(answer.rows(), simulated(machine, mix, 70_000 + number, nodes=nodes), strict=True):
            signed.append(row["throughput_mpps"] / mpps - 1.0)
            inside.append(row["low_mpps"] <= mpps <= row["high_mpps"])
            verdicts[row["verdict"]] += 1
    errors = np.abs(signed)
    print(
        f"{machine.name}: memory on random nodes: {len(errors)} tenants: mean error {100 * np.mean(errors):.2f} % "
        f"(target 3){off(np.mean(errors) > 0.03)}, p95 {100 * np.quantile(errors, 0.95):.2f} %, "
        f"max {100 * max(errors):.1f} %; 90 % intervals hold {100 * np.mean(inside):.1f} %; {dict(verdicts)}",
        flush=True,
    )


def off(missed: bool | np.bool_) -> str:
    return " OFF" if missed else ""


def judge(advised: Outlook, mix: list[Workload], machine: Machine, seed: int) -> list[float]:
    """Run a mix in the simulator, at its own fidelity, with everything that was advised."""
    settings = advised.settings.values()
    masks, throttles = [each.mask for each in settings], [each.bandwidth_percent for each in settings]
    return simulated(machine, mix, 90_000 + seed, masks=masks, throttles=throttles)


def simulated(
    machine: Machine,
    mix: list[Workload],
    seed: int,
    *,
    masks: Iterable[int | None] = repeat(None),
    throttles: Iterable[float | None] = repeat(None),
    nodes: Iterable[int | None] = repeat(None),
) -> list[float]:
    """Return the throughputs of a mix [Mpps], one tenant a core of the NIC's socket."""
    first = machine.nic_socket * machine.cores_per_socket
    tenants = [
        Tenant(workload, load_network_function(workload.nf), first + place, mask, throttle, node)
        for place, (workload, mask, throttle, node) in enumerate(zip(mix, masks, throttles, nodes, strict=False))
    ]
    return [tenant.throughput_mpps for tenant in simulate(machine, tenants, seed=seed).tenants]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("partitions", type=int, nargs="?", default=200)
    parser.add_argument("machines", nargs="*", default=["e5-2620v4", "silver-4110", "e5-2695v4", "e5-2699v4"])
    parser.add_argument("--cases", type=int, help="mixes in which advice is asked for; half the partitions by default")
    parser.add_argument("--draw", default="", help="another name draws other partitions, mixes and promises")
    given = parser.parse_args()
    main(given.partitions, given.machines, given.draw, given.cases)
