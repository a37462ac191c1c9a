"""Controllers on fresh servers whose loads wander and burst, and the guard while its sensors fail.

Every server draws three to seven tenants, one or two of them promised what they are offered, up to 60 to 85 % of solo.
A load is an autoregressive process (AR(1)) with bursts of two to six rounds. Controllers see throughput, load and the
95th percentile of latency, and set cache ways and memory bandwidth. The simulator judges every round.

    python benchmarks/controllers.py --seed 4711
    python benchmarks/controllers.py --seed 4711 --servers 5 --faults

| Controller | What it is |
| --- | --- |
| none | nothing is set |
| parties | PARTIES (Chen, Delimitrou, Martinez, ASPLOS'19) |
| heracles | Heracles (Lo et al., ISCA'15); of several promised tenants the one with the least slack is its service |
| guard | `slomo.control.guard` |
| prepared | as the oracle, but promised tenants may offer all that they are promised in any round |
| oracle | knows the next loads, tries settings in the simulator itself, the best for best effort first |

Every controller sets what it begins with before the first round. The latency target of PARTIES and Heracles
(`rival_controllers.py`) is the knee of each function: its 95th percentile alone at 97 % of solo.

Targets: broken at most 0.5 % of the time with best effort at least 0.95 of the oracle's; with faults broken at most 1.5
times as long, an alarm within two rounds.
"""

import argparse
import json
import math
import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from rival_controllers import Heracles, Parties

from slomo.control.advice import candidates, welfare
from slomo.control.guard import GuardController
from slomo.control.loop import ControlLoop
from slomo.control.observation import Controller, MachineReading, Patience
from slomo.control.plants import SimulatedPlant
from slomo.control.situation import Setting, Situation, foresee, foresee_many
from slomo.enforce.backends.simulated import Occupant, SimulatedServer
from slomo.errors import TestbedError
from slomo.models.partition_profile import PartitionProfile, load_profiles, save_profiles
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.workload import Workload
from slomo.workflow.acting.partition_profile import profile_partitions

MACHINE = load_machine("e5-2620v4")
NFS = ("lpm", "stats", "mazunat", "ip-router", "maglev", "flowstats")
#: Of the AR(1) process: memory and standard deviation; of a burst: chance per round, length, size as shares of solo.
MEMORY, SPREAD, BURST, LENGTH, SIZE = 0.9, 0.08, 0.03, (2, 6), (0.15, 0.4)
#: Of a round, and rounds in which sensors fail: five minutes [s].
PERIOD_S, FAILING = 5.0, (15, 75)
#: What the oracle tries in the simulator, at most, in one round.
TRIED = 8


@dataclass(frozen=True)
class Fresh:
    """A server that nothing was set on: workloads, what is promised, and the loads of every round, all in Mpps."""

    seed: int
    workloads: dict[str, Workload]
    solo: dict[str, float]
    targets: dict[str, float]
    loads: list[dict[str, float]]

    def plant(self) -> SimulatedPlant:
        """Return the server, offered these loads."""
        server = SimulatedServer(MACHINE, [Occupant(name, w) for name, w in self.workloads.items()])

        def offer(server: SimulatedServer, time_s: float) -> None:
            now = self.loads[min(int(time_s / PERIOD_S), len(self.loads) - 1)]
            for name, workload in self.workloads.items():
                server.offer(name, workload.offered(now[name]))

        return SimulatedPlant(server, self.targets, offer, seed=1000 * self.seed)


def drawn(seed: int, profile: PartitionProfile, rounds: int) -> Fresh:
    """Draw a server."""
    draw = random.Random(seed)  # noqa: S311
    workloads = {f"t{n}": Workload(draw.choice(NFS)) for n in range(draw.randint(3, 7))}
    solo = {name: profile.responses[w.key].solo_mpps for name, w in workloads.items()}
    targets = {f"t{n}": draw.uniform(0.6, 0.85) * solo[f"t{n}"] for n in range(draw.randint(1, 2))}
    most = {name: targets.get(name, 1.05 * solo[name]) for name in workloads}
    means = {name: draw.uniform(0.5, 0.9) * most[name] for name in workloads}
    away, burst = dict.fromkeys(workloads, 0.0), dict.fromkeys(workloads, (0, 0.0))
    loads = []
    for _ in range(rounds):
        now = {}
        for name in workloads:
            away[name] = MEMORY * away[name] + math.sqrt(1.0 - MEMORY**2) * draw.gauss(0.0, SPREAD)
            left, size = burst[name]
            if not left and draw.random() < BURST:
                left, size = draw.randint(*LENGTH), draw.uniform(*SIZE)
            burst[name] = max(left - 1, 0), size
            load = means[name] + (away[name] + size * bool(left)) * solo[name]
            now[name] = round(min(max(load, 0.05 * solo[name]), most[name]), 4)
        loads.append(now)
    return Fresh(seed, workloads, solo, targets, loads)


@dataclass
class Outcome:
    """Rounds in which a promise broke, of all; what best effort had, of what it was offered."""

    broken: int = 0
    rounds: int = 0
    welfare: float = 0.0

    def add(self, fresh: Fresh, reading: MachineReading) -> None:
        """Count a round."""
        self.rounds += 1
        self.broken += bool(reading.broken)
        self.welfare += served(fresh, reading)


def served(fresh: Fresh, reading: MachineReading) -> float:
    """Return the mean share of its load (or of solo, where that is less) that best effort was served."""
    shares = [
        min(1.0, seen.throughput_mpps / min(seen.offered_mpps or math.inf, fresh.solo[name]))
        for name, seen in reading.tenants.items()
        if name not in fresh.targets
    ]
    return sum(shares) / len(shares) if shares else 1.0


def controlled(fresh: Fresh, controller: Controller | None, fault: Callable | None = None) -> tuple[Outcome, dict]:
    """Run a server under a controller; what was seen before it acts counts."""
    plant, outcome = fresh.plant(), Outcome()
    honest = plant.observe
    seen: list[MachineReading] = []

    def observe(times: int = 1) -> MachineReading:
        reading = honest(times)
        if times > 1:  # a probe
            return reading
        seen.append(reading)
        return reading if fault is None else fault(reading)

    plant.observe = observe  # type: ignore[method-assign]
    notes: dict = {"alarm": None, "changes": 0}
    loop = None
    if controller is not None:
        loop = ControlLoop(plant, controller, Patience(PERIOD_S, 0.0, 3 * PERIOD_S), receipts=Path(tempfile.mkdtemp()))
    for number in range(len(fresh.loads)):
        if loop is None:
            observe()
        else:
            step = loop.step()
            notes["changes"] += bool(step.changes)
            if step.alarm and notes["alarm"] is None:
                notes["alarm"] = number
        outcome.add(fresh, seen[-1])
        plant.wait(PERIOD_S)
    if loop is not None:
        loop.close()
    return outcome, notes


def oracle(fresh: Fresh, situation: Situation, foresight: bool = True) -> Outcome:
    """Try settings in the simulator with the loads of the round, those with the best prospects first.

    Without `foresight` what counts are the loads that promised tenants may offer: what they are promised.
    """
    loads = fresh.loads if foresight else [{**now, **fresh.targets} for now in fresh.loads]
    plant, trial, outcome = fresh.plant(), replace(fresh, loads=loads).plant(), Outcome()
    for now, judged in zip(fresh.loads, loads, strict=True):
        known = replace(situation, settings=situation.open_settings, promised_mpps=fresh.targets, offered_mpps=judged)
        usual = replace(known, offered_mpps=now)
        open_now = foresee(known)
        tried = [dict(known.settings), *candidates(known, open_now)]
        fares = dict(enumerate(welfare(usual, each) for each in foresee_many(usual, tried)))
        outlooks = foresee_many(known, tried, 0.0)
        order = [outlooks[n] for n in sorted(fares, key=lambda n: (outlooks[n].spare < -0.03, -fares[n]))]
        best: MachineReading | None = None
        for outlook in order[:TRIED]:
            enforce(trial, outlook.settings)
            reading = trial.observe()
            rank = (len(reading.broken), -served(fresh, reading))
            if best is None or rank < (len(best.broken), -served(fresh, best)):
                best = reading
                setting = outlook.settings
            if not reading.broken:
                break
        assert best is not None
        if not foresight:
            enforce(plant, setting)
            best = plant.observe()
        outcome.add(fresh, best)
        trial.wait(PERIOD_S)
        plant.wait(PERIOD_S)
    return outcome


def enforce(plant: SimulatedPlant, settings: dict[str, Setting]) -> None:
    for name, setting in settings.items():
        whole, free = setting.mask == MACHINE.full_way_mask, setting.bandwidth_percent >= 100.0
        plant.server.knobs[f"ways:{name}"] = None if whole else f"{setting.mask:x}"
        plant.server.knobs[f"bandwidth:{name}"] = None if free else f"{setting.bandwidth_percent:g}"


def knees(fresh: Fresh) -> dict[str, float]:
    """Return the 95th percentile of each promised tenant's latency [us] alone at 97 % of solo."""
    found = {}
    for name in fresh.targets:
        workload = fresh.workloads[name].offered(round(0.97 * fresh.solo[name], 4))
        found[name] = SimulatedServer(MACHINE, [Occupant(name, workload)]).simulate(5).tenants[0].latency_us["p95"]
    return found


def fault_kinds(seed: int) -> dict[str, Callable[[], Callable[[MachineReading], MachineReading]]]:
    """Return sensors that fail, by name; every call makes a fresh one."""

    def missing() -> Callable[[MachineReading], MachineReading]:
        draw = random.Random(seed)  # noqa: S311

        def show(reading: MachineReading) -> MachineReading:
            if draw.random() < 0.5:
                raise TestbedError("no reading")
            return reading

        return show

    def during(change: Callable[[MachineReading, MachineReading], MachineReading]) -> Callable:
        """Fail for five minutes."""

        def made() -> Callable[[MachineReading], MachineReading]:
            seen: list[MachineReading] = []

            def show(reading: MachineReading) -> MachineReading:
                seen.append(reading)
                return change(reading, seen[FAILING[0] - 1]) if FAILING[0] < len(seen) <= FAILING[1] else reading

            return show

        return made

    def rate(value: float) -> Callable[[MachineReading, MachineReading], MachineReading]:
        def change(reading: MachineReading, _: MachineReading) -> MachineReading:
            absurd = {name: replace(seen, throughput_mpps=value) for name, seen in reading.tenants.items()}
            return replace(reading, tenants=absurd)

        return change

    return {
        "half missing": missing,
        "frozen": during(lambda reading, first: replace(first, time_s=reading.time_s)),
        "not a number": during(rate(math.nan)),
        "1e300": during(rate(1e300)),
        "clock backwards": during(lambda reading, _: replace(reading, time_s=-reading.time_s)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True, help="of the first server")
    parser.add_argument("--servers", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=120, help="of five seconds; most faults last to round 75")
    parser.add_argument("--faults", action="store_true", help="the guard alone, with each fault of its sensors")
    parser.add_argument("--fault", action="append", help="one of them, repeatable; all by default")
    parser.add_argument("--controller", action="append", help="repeatable; all by default")
    parser.add_argument("--profile", type=Path, help="keeps the profile over cache ways between runs")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    profile = measured(given.profile)
    rounds = given.rounds
    rows: dict[str, list[dict]] = {}
    for seed in range(given.seed, given.seed + given.servers):
        fresh = drawn(seed, profile, rounds)
        for name, (outcome, notes) in each_of(fresh, profile, given):
            row = {
                "server": seed, "broken": outcome.broken / rounds, "welfare": outcome.welfare / rounds, **notes,
            }  # fmt: skip
            rows.setdefault(name, []).append(row)
            print(f"server {seed}: {name:16} broken {100 * row['broken']:5.1f} %  best effort {row['welfare']:.3f}",
                  flush=True)  # fmt: skip
        if given.json:
            given.json.write_text(json.dumps({"seed": given.seed, "rounds": rounds, "rows": rows}, indent=1) + "\n")
    told(rows)
    return 0


def measured(path: Path | None) -> PartitionProfile:
    """Return the profile over cache ways, measured once."""
    if path is not None and path.exists():
        return load_profiles(path)[0]
    testbed = SimulatedTestbed(MACHINE, scale=32, accesses=60_000)
    profile = profile_partitions(testbed, MACHINE, [Workload(nf) for nf in NFS])
    if path is not None:
        save_profiles([profile], path)
    return profile


def each_of(fresh: Fresh, profile: PartitionProfile, given: argparse.Namespace):
    """Yield what each controller did."""
    responses = {name: profile.responses[workload.key] for name, workload in fresh.workloads.items()}
    situation = Situation(responses, profile.memory, MACHINE.llc_ways, promised_mpps=fresh.targets)
    if given.faults:
        yield "guard", controlled(fresh, GuardController("s", situation))
        kinds = fault_kinds(fresh.seed)
        for name, fault in kinds.items() if given.fault is None else [(name, kinds[name]) for name in given.fault]:
            yield name, controlled(fresh, GuardController("s", situation), fault())
        return
    names = given.controller or ["none", "parties", "heracles", "guard", "prepared", "oracle"]
    latency = knees(fresh)
    makers: dict[str, Callable[[], Controller | None]] = {
        "none": lambda: None,
        "parties": lambda: Parties(situation, latency),
        "heracles": lambda: Heracles(situation, latency, MACHINE.usable_memory_gb_s),
        "guard": lambda: GuardController("s", situation),
    }
    for name in names:
        knowing = {"oracle": True, "prepared": False}.get(name)
        yield name, controlled(fresh, makers[name]()) if knowing is None else (oracle(fresh, situation, knowing), {})


def told(rows: dict[str, list[dict]]) -> None:
    """Print a line per controller or fault."""
    mean = {
        name: tuple(sum(row[what] for row in found) / len(found) for what in ("broken", "welfare"))
        for name, found in rows.items()
    }
    best = mean.get("oracle", (0.0, 0.0))[1]
    print(f"\n{'':16} {'broken':>8} {'best effort':>12} {'of oracle':>10} {'changes':>8} {'alarm after':>12}")
    for name, (broken, left) in mean.items():
        found = rows[name]
        changes = sum(row.get("changes", 0) for row in found) / len(found)
        alarms = [row["alarm"] - FAILING[0] + 1 for row in found if row.get("alarm") is not None]
        against = f"{left / best:.3f}" if best else ""
        late = f"{max(alarms)}" if alarms and name != "half missing" else f"{len(alarms)} of {len(found)}"
        print(f"{name:16} {100 * broken:7.2f}% {left:12.3f} {against:>10} {changes:8.1f} {late:>12}")


if __name__ == "__main__":
    sys.exit(main())
