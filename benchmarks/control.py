"""Controllers in closed loop on the simulator: max-min demands, the guard over a drifting hour, decision times.

Targets: feasible demands of four mazunat met within 10 steps, infeasible ones fair within one way; the guard's
broken-SLO time at most a fifth of no control's and 1.5 times an oracle's; decisions under 10 ms for 20 tenants. Run:
python benchmarks/control.py [servers] [steps] [first seed]
python benchmarks/control.py --host [repetitions]: NFs of this host, victims beside noise that reads at random on the
other core.
"""

import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from slomo.control.advice import advise
from slomo.control.guard import GuardController
from slomo.control.host_plant import HostPlant
from slomo.control.loop import ControlLoop, Step
from slomo.control.max_min import MaxMinController
from slomo.control.observation import MachineReading, Patience, TenantReading
from slomo.control.plants import SimulatedPlant
from slomo.control.situation import Setting, Situation
from slomo.control.throttle import ThrottleController
from slomo.enforce.backends.cgroup import CgroupBackend
from slomo.enforce.backends.simulated import Occupant, SimulatedServer
from slomo.host.cores import available_cores
from slomo.models.partition_profile import PartitionProfile
from slomo.testbed.host.nf.definition import host_definition
from slomo.testbed.host.run import Run
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.workload import Traffic, Workload
from slomo.workflow.acting.partition_profile import profile_partitions

MACHINE = load_machine("e5-2620v4")
NFS = ("lpm", "stats", "mazunat", "ip-router")
PERIOD_S = 30.0
RECEIPTS = Path(tempfile.mkdtemp())
#: On a host: tables that fit a cache which is shared with the other core, and noise that reads at random.
VICTIMS = (
    Workload("synthetic", {"data_size_mib": 1.0, "pattern": "random", "reads_per_packet": 64}),
    Workload("synthetic", {"data_size_mib": 3.0, "pattern": "random", "reads_per_packet": 64}),
    Workload("flowstats", traffic=Traffic(flow_count=16_000)),
)
NOISE = Workload("synthetic", {"data_size_mib": 128, "pattern": "random"})


def max_min() -> None:
    """Four mazunat on demand, with targets that a division can meet, and with targets that none can."""
    machine = load_machine("e5-2695v4")
    names = [f"m{n}" for n in range(4)]
    occupants = [Occupant(name, Workload("mazunat")) for name in names] + [Occupant("s", Workload("stats"))]
    server = SimulatedServer(machine, occupants)
    for name, mask in zip([*names, "s"], ("3f", "7c0", "3800", "1c000", "e0000"), strict=True):
        server.knobs[f"ways:{name}"] = mask
    possible = server.simulate(7).tenants
    server.knobs.update({f"ways:{name}": None for name in [*names, "s"]})
    feasible = {name: 0.97 * t.throughput_mpps for name, t in zip(names, possible, strict=False)}
    for label, targets in (("feasible", feasible), ("infeasible", dict.fromkeys(names, 3.0))):
        plant = SimulatedPlant(server, targets)
        controller = MaxMinController("s", machine.llc_ways, machine.llc_mib * 1024 / machine.llc_ways)
        loop = ControlLoop(plant, controller, Patience(1, 1), receipts=RECEIPTS)
        steps = []
        for _ in range(20):
            steps.append(loop.step())
            plant.wait(1.0)
        told = list(dict.fromkeys(step.decision.escalated for step in steps if step.decision.escalated))
        met = next((n for n, s in enumerate(steps) if s.observation and not s.observation.broken), None)
        late = sum(bool(step.changes) for step in steps[10:])
        ways = [bin(t.llc_way_mask or 0).count("1") for t in (loop.plan.tenants if loop.plan else ()) if t.exclusive]
        missed = label == "feasible" and (met is None or met > 10)
        print(
            f"max_min, {label}: all met at step {met} (target 10){off(missed)}, ways {ways}, escalated {told}, "
            f"{late} changes late"
        )
        loop.close()


def off(missed: bool) -> str:
    return " OFF" if missed else ""


class Drift:
    """Loads of one server over time: slow waves, and phases of noise that come and go."""

    def __init__(self, seed: int, profile: PartitionProfile) -> None:
        draw = random.Random(seed)  # noqa: S311
        count = draw.randint(3, 7)
        self.workloads = {f"t{n}": Workload(draw.choice(NFS)) for n in range(count)}
        self.solo = {name: profile.responses[w.key].solo_mpps for name, w in self.workloads.items()}
        self.promised = [f"t{n}" for n in range(draw.randint(1, 2))]
        self.targets = {name: draw.uniform(0.7, 0.9) * self.solo[name] for name in self.promised}
        self.waves = {
            name: (draw.uniform(0.5, 0.8), draw.uniform(0.15, 0.4), draw.uniform(900, 3600), draw.uniform(0, 6.3))
            for name in self.workloads
        }

    def load(self, name: str, time_s: float) -> float:
        """Return the load of a tenant [Mpps]."""
        middle, swing, period, phase = self.waves[name]
        return max(0.05, middle + swing * math.sin(2 * math.pi * time_s / period + phase)) * self.solo[name]

    def __call__(self, server: SimulatedServer, time_s: float) -> None:
        """Offer every tenant its load."""
        for name, workload in self.workloads.items():
            server.offer(name, workload.offered(self.load(name, time_s)))

    def server(self) -> SimulatedServer:
        """Return a server with these tenants."""
        return SimulatedServer(MACHINE, [Occupant(name, w) for name, w in self.workloads.items()], accesses=100_000)


def broken_share(drift: Drift, steps: int, act: Callable[[SimulatedPlant, int], MachineReading]) -> float:
    plant = SimulatedPlant(drift.server(), drift.targets, drift, seed=11)
    broken = 0
    for number in range(steps):
        broken += len(act(plant, number).broken)
        plant.wait(PERIOD_S)
    return broken / (steps * len(drift.promised))


def guard(servers: int, steps: int, first: int) -> None:
    """Run every server without control, with the guard, and with an oracle."""
    testbed = SimulatedTestbed(MACHINE, scale=32, accesses=100_000)
    profile = profile_partitions(testbed, MACHINE, [Workload(nf) for nf in NFS])
    totals = {"none": 0.0, "guard": 0.0, "oracle": 0.0}
    changes = probes = 0
    for seed in range(first, first + servers):
        drift = Drift(seed, profile)
        responses = {name: profile.responses[w.key] for name, w in drift.workloads.items()}
        none = broken_share(drift, steps, lambda plant, _: plant.observe())
        plant = SimulatedPlant(drift.server(), drift.targets, drift, seed=11)
        controller = GuardController("s", Situation(responses, profile.memory, MACHINE.llc_ways))
        loop = ControlLoop(plant, controller, Patience(PERIOD_S, PERIOD_S, 3 * PERIOD_S), receipts=RECEIPTS)
        broken = done = 0
        for _ in range(steps):
            step = loop.step()
            broken += len(step.observation.broken) if step.observation else len(drift.promised)
            done += bool(step.changes)
            probes += step.probed
            plant.wait(PERIOD_S)
        loop.close()
        guarded = broken / (steps * len(drift.promised))
        best = broken_share(drift, steps, lambda plant, _, d=drift, r=responses: oracle(plant, d, r, profile))  # type: ignore[misc]
        for name, share in (("none", none), ("guard", guarded), ("oracle", best)):
            totals[name] += share / servers
        changes += done
        print(
            f"server {seed}: broken {100 * none:.1f} % -> {100 * guarded:.1f} %, oracle {100 * best:.1f} %, {done}",
            flush=True,
        )
    hours = servers * steps * PERIOD_S / 3600
    ratio = totals["guard"] / max(totals["none"], 1e-9)
    against = totals["guard"] / totals["oracle"] if totals["oracle"] else math.inf
    print(
        f"guard: broken-SLO time {100 * totals['none']:.2f} % without, {100 * totals['guard']:.2f} % with "
        f"({ratio:.2f} of it, target 0.2){off(ratio > 0.2)}, oracle {100 * totals['oracle']:.2f} % "
        f"(ratio {against:.2f}, target 1.5){off(against > 1.5)}, "
        f"{changes / hours:.1f} changes and "
        f"{probes / hours:.1f} probes per server and hour"
    )


def oracle(plant: SimulatedPlant, drift: Drift, responses: dict, profile: PartitionProfile) -> MachineReading:  # type: ignore[type-arg]
    """Know the loads, try settings in the simulator itself, keep the first under which nothing breaks."""
    now = plant.now_s()
    offered = {name: drift.load(name, now) for name in drift.workloads}
    whole = {name: Setting(MACHINE.full_way_mask) for name in drift.workloads}
    situation = Situation(responses, profile.memory, MACHINE.llc_ways, whole, drift.targets, offered)
    seen = []
    for margin in (None, 0.0, 0.02, 0.05, 0.1):
        chosen = whole if margin is None else getattr(advise(situation, margin), "settings", whole)
        for name, setting in chosen.items():
            full = setting.mask == MACHINE.full_way_mask
            plant.server.knobs[f"ways:{name}"] = None if full else f"{setting.mask:x}"
            plant.server.knobs[f"bandwidth:{name}"] = (
                None if setting.bandwidth_percent >= 100 else f"{setting.bandwidth_percent:g}"
            )
        reading = plant.observe()
        if not reading.broken:
            return reading
        seen.append(reading)
    return min(seen, key=lambda reading: len(reading.broken))


def decisions(profile: PartitionProfile) -> None:
    """Time one decision of each controller for 20 tenants."""
    tenants = {f"t{n}": profile.responses[Workload(NFS[n % len(NFS)]).key] for n in range(20)}
    for label, share in (("calm", 0.2), ("tightening", 0.7)):
        seen = MachineReading(
            0.0,
            {
                name: TenantReading(0.5 * r.solo_mpps, share * r.solo_mpps if n < 4 else None, None, 900.0, 9.0)
                for n, (name, r) in enumerate(tenants.items())
            },
            probed=True,
        )
        for controller in (
            GuardController("s", Situation(tenants, profile.memory, MACHINE.llc_ways)),
            MaxMinController("s", MACHINE.llc_ways, 1024.0),
        ):
            times = []
            for _ in range(9):
                begun, used = time.perf_counter(), time.process_time()
                controller.decide(seen, None)
                times.append((1e3 * (time.process_time() - used), 1e3 * (time.perf_counter() - begun)))
            cpu, wall = (statistics.median(column) for column in zip(*times, strict=True))
            print(
                f"{controller.name}, {label}, 20 tenants: {cpu:.2f} ms of CPU, {wall:.2f} ms of time (target 10)",
                off(cpu > 10.0),
            )


def on_host(repetitions: int, share: float = 0.9) -> None:
    """Promise victims a share of their solo throughput beside noise; without and with the throttle."""
    before = set(CgroupBackend().root.glob("**/slomo/*/"))
    for number in range(repetitions):
        for victim in VICTIMS:
            print(f"host {number}: {held(victim, share)}", flush=True)
    left = len(set(CgroupBackend().root.glob("**/slomo/*/")) - before)
    print(f"left behind: {left} control groups{off(left > 0)}")


def held(victim: Workload, share: float) -> str:
    """Run a victim and noise on two cores; tell in how many windows its promise held, without and with the throttle."""
    first, second = available_cores()[:2]
    with Run() as run:
        tenants = {
            "victim": run.start(host_definition(victim.nf), victim, (first,)),
            "noise": run.start(host_definition("synthetic"), NOISE, (second,)),
        }
        alone = HostPlant(tenants, {}, CgroupBackend())
        solo = statistics.median(alone.solo_mpps("victim") for _ in range(3))
        plant = HostPlant(tenants, {"victim": share * solo}, CgroupBackend())
        free = [plant.observe() for _ in range(12)]
        loop = ControlLoop(plant, ThrottleController("here", {"noise": plant.settings()["noise"]}), Patience(0, 0, 0))
        steps: list[Step] = []
        loop.run(36, steps.append)
        after = statistics.median(alone.solo_mpps("victim") for _ in range(3))
    late = [step.observation for step in steps if step.observation][12:]
    kept = [100 * sum(not reading.broken for reading in some) / len(some) for some in (free, late)]
    did = {
        name: [statistics.median(reading.tenants[name].throughput_mpps for reading in some) for some in (free, late)]
        for name in tenants
    }
    return (
        f"{victim.key}: {did['victim'][0] / solo:.2f} of solo beside noise, {share:g} kept in {kept[0]:.0f} % of "
        f"windows; with the throttle {did['victim'][1] / solo:.2f}, kept in {kept[1]:.0f} % after the first twelve "
        f"(goal 90){off(kept[1] < 90.0)}; noise keeps {did['noise'][1] / did['noise'][0]:.2f}, "
        f"{sum(bool(step.changes) for step in steps)} changes; solo afterwards {after / solo:.2f}"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--host"]:
        sys.exit(on_host(int(sys.argv[2]) if len(sys.argv) > 2 else 5))
    max_min()
    quick = SimulatedTestbed(MACHINE, scale=64, accesses=20_000)
    decisions(profile_partitions(quick, MACHINE, [Workload(nf) for nf in NFS]))
    numbers = [int(word) for word in sys.argv[1:]]
    guard(*numbers, *(10, 120, 0)[len(numbers) :])
