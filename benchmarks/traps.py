"""Planted traps: questions whose answers must not be called supported and be far off.

| Trap | What is planted |
| --- | --- |
| unmeasured axis | a throttle, cache ways or memory of another node, of functions profiled over none of these |
| mean in place | a family that reads no pressure answers |
| thin design | 8 to 30 runs of a profile, the gentlest, and no mixes |
| other traffic | packet sizes and flow counts that were not profiled |
| renamed function | a name that nobody profiled |
| absurd row | rows of a profile with ten times the rate, or counters a thousand times too large |
| carried models | of another machine, 0, 5, 10 runs with own counters 3 times too large, 10 and 12 mixes; crowds, too |
| drifted function | a function that lost 15 to 60 % since; ten readings, then: does its model hold? |

With `--carried`, models are not trained: they are carried from another machine by 10 runs of each function and 24 mixes
(thin design: by 1 to 10 of the gentlest runs of a function, and as many mixes).

Truth is the simulator's. A trap catches where the answer is supported (of a drifted function: where its model is said
to hold) and off by more than twice the stated half width. Goal: none of them.

    python benchmarks/traps.py              about 1,000 traps, ten minutes
    python benchmarks/traps.py --quick      a fifth of them
    python benchmarks/traps.py --carried    of models carried from another machine
"""

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from slomo.drift.monitor import DriftMonitor
from slomo.errors import SlomoError
from slomo.models.applicability import Verdict
from slomo.models.library import ModelLibrary
from slomo.records.catalog import find_dataset
from slomo.records.dataset import ProfileDataset
from slomo.testbed.simulated import SimulatedTestbed
from slomo.training.training import train
from slomo.training.transfer import transfer
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.server_setting import ServerSetting
from slomo.vocabulary.workload import Traffic, Workload
from slomo.workflow.predict import predict

MACHINE, CARRIED_FROM = "e5-2620v4", "silver-4110"
#: Runs of each function, and mixes, by which models are carried.
CARRIED_RUNS, CARRIED_MIXES = 10, 24
FAMILIES = ("slomo-xgb", "slomo-gp", "mean", "none")


@dataclass(frozen=True)
class Trap:
    """One question, and the throughput that is true there [Mpps]; called only where the answer is supported."""

    kind: str
    library: ModelLibrary
    workloads: tuple[Workload | str, ...]
    truth: Callable[[], float]
    setting: ServerSetting | None = None


class World:
    """A shipped profile, models of it, and the machine it was measured on."""

    def __init__(self, seed: int, carried: bool = False) -> None:
        self.dataset, self.testbed = find_dataset(f"slomo-{MACHINE}"), SimulatedTestbed(MACHINE)
        self.before = train(find_dataset(f"slomo-{CARRIED_FROM}"), models=["slomo-smooth"]) if carried else None
        self.draw = np.random.default_rng(seed)
        frame = self.dataset.frame
        self.nfs = [key.partition("@")[0] for key in self.dataset.profiled_targets]
        self.profile = (frame["plan"] != "mix").to_numpy() & frame["offered_mpps"].isna().to_numpy()
        self.mixes = (frame["plan"] == "mix").to_numpy() & frame["offered_mpps"].isna().to_numpy()
        self.rows = self.profile | self.mixes
        if carried:
            beside = self.profile & (frame["competitor_count"] > 0).to_numpy()
            many = frame[beside].sample(frac=1.0, random_state=seed).groupby("target").cumcount() >= CARRIED_RUNS
            measured = self.draw.permutation(frame["run_key"][self.mixes].unique())
            self.rows[many.index[many]] = False
            self.rows &= ~frame["run_key"].isin(measured[CARRIED_MIXES:]).to_numpy()
        self.library = self.learned(self.dataset.rows(self.rows))
        self.nfs = [name for name in self.nfs if any(model.workload.nf == name for model in self.library.values())]

    def learned(self, dataset: ProfileDataset) -> ModelLibrary:
        """Return models of these runs, trained or carried by them."""
        if self.before is None:
            return train(dataset, models=FAMILIES)
        known = {model.workload.nf for model in self.before.values()}
        return transfer(self.before, load_machine(MACHINE), dataset.rows(dataset.frame["nf"].isin(known).to_numpy()))

    def mix(self) -> tuple[str, ...]:
        """Return the names of two to five functions."""
        return tuple(self.draw.choice(self.nfs, int(self.draw.integers(2, 6))).tolist())

    def simulated(self, workloads: tuple[Workload | str, ...]) -> float:
        """Return the throughput of the first of some functions beside the others [Mpps]."""
        tenants = [Workload(each) if isinstance(each, str) else each for each in workloads]
        return float(self.testbed.run(Colocation(MACHINE, tenants[0], tuple(tenants[1:]))).target.throughput_mpps)


def unmeasured(world: World, count: int) -> Iterator[Trap]:
    for number in range(count):
        mix = world.mix()
        setting = (
            ServerSetting(bandwidth_percent=[30.0] * len(mix)),
            ServerSetting(ways=[0x3] * len(mix)),
            ServerSetting(nodes=[1] * len(mix)),
        )[number % 3]
        yield Trap("unmeasured axis", world.library, mix, lambda: 0.0, setting)


def mean_in_place(world: World, count: int) -> Iterator[Trap]:
    for number in range(count):
        mix, family = world.mix(), FAMILIES[2 + number % 2]
        only = {"sensitivity", "calibration"}
        bare = ModelLibrary(
            replace(
                model, response=None, chosen=family, **{name: {family: getattr(model, name)[family]} for name in only}
            )
            for model in world.library.values()
        )
        yield Trap("mean in place", bare, mix, lambda mix=mix: world.simulated(mix))


def thin(world: World, count: int) -> Iterator[Trap]:
    """Yield measured mixes of one function after another whose profile is thin."""
    frame, number, per_profile = world.dataset.frame, 0, 20 if world.before is None else 60
    while number < count:
        key = str(world.draw.choice(world.library.workloads(MACHINE)))
        own = np.flatnonzero(world.profile & (frame["target"] == key).to_numpy())
        mpps = world.dataset.throughput[own]
        kept = own[np.argsort(-mpps)][: int(world.draw.integers(30, 80))]
        runs = (8, 31) if world.before is None else (1, CARRIED_RUNS + 1)
        kept = world.draw.choice(kept, int(world.draw.integers(*runs)), replace=False)
        alone = own[(frame["competitor_count"].to_numpy()[own] == 0)]
        chosen = np.isin(np.arange(len(frame)), np.concatenate([kept, alone]))
        if world.before is not None:
            chosen |= world.rows & ~(world.profile & (frame["target"] == key).to_numpy())
        library = world.library.merge(world.learned(world.dataset.rows(chosen)))
        for row in world.draw.permutation(np.flatnonzero(world.mixes & (frame["target"] == key).to_numpy()))[
            :per_profile
        ]:
            others = [each.key for each in world.dataset.competitors(int(row))]
            number += 1
            yield Trap("thin design", library, (key, *others),
                       lambda row=row: float(world.dataset.throughput[row]))  # fmt: skip


def other_traffic(world: World, count: int) -> Iterator[Trap]:
    sizes, flows = (64, 128, 512, 1500), (1_000, 50_000, 85_000, 110_000, 119_000, 400_000)
    for _ in range(count):
        target, *others = world.mix()
        traffic = Traffic(packet_size_b=int(world.draw.choice(sizes)), flow_count=int(world.draw.choice(flows)))
        mix = (Workload(target, {}, traffic), *others)
        yield Trap("other traffic", world.library, mix, lambda mix=mix: world.simulated(mix))


def renamed(world: World, count: int) -> Iterator[Trap]:
    for _ in range(count):
        target, *others = world.mix()
        yield Trap("renamed function", world.library, (f"{target}2", *others), lambda: 0.0)


def absurd(world: World, count: int) -> Iterator[Trap]:
    frame = world.dataset.frame.copy()
    rows = np.flatnonzero(world.rows & world.profile & (frame["competitor_count"] > 0).to_numpy())
    for row in rows[:: 40 if world.before is None else 5]:
        if row % 2:
            frame.loc[frame.index[row], "throughput_mpps"] *= 10.0
        else:
            columns = [name for name in frame if str(name).startswith(("competition.L", "beside.L"))]
            frame.loc[frame.index[row], columns] *= 1000.0
    library = world.learned(ProfileDataset(frame, world.dataset.environment).rows(world.rows))
    for _ in range(count):
        mix = world.mix()
        yield Trap("absurd row", library, mix, lambda mix=mix: world.simulated(mix))


def carried(world: World, count: int) -> Iterator[Trap]:
    """Yield mixes on a machine to which models were carried, by runs in which what a function presses with is wrong.

    The intervals of one library in four are calibrated on twelve measured mixes, little more than the least.
    """
    frame = world.dataset.frame.copy()
    frame[["own.L3OCC", "own.LMB"]] *= 3.0
    pressure = np.flatnonzero(world.profile & (frame["competitor_count"] > 0).to_numpy())
    alone = np.flatnonzero(world.profile & (frame["competitor_count"] == 0).to_numpy())
    order = frame["target"].iloc[pressure].groupby(frame["target"].iloc[pressure]).cumcount().to_numpy()
    before = train(find_dataset(f"slomo-{CARRIED_FROM}"), models=["slomo-smooth"])
    spoilt, machine = ProfileDataset(frame, world.dataset.environment), load_machine(MACHINE)
    few = frame["run_key"][world.mixes].unique()[:12]
    mixes = np.flatnonzero(world.mixes & frame["run_key"].isin(few).to_numpy())
    libraries = []
    for runs, beside in ((0, mixes[:0]), (5, mixes[:0]), (10, mixes[:0]), (10, mixes)):
        chosen = np.isin(np.arange(len(frame)), [*pressure[order < runs], *alone, *beside])
        libraries.append(transfer(before, machine, spoilt.rows(chosen) if runs else None))
    known = [key.partition("@")[0] for key in libraries[0].workloads(MACHINE)]
    for number in range(count):
        size = int(world.draw.integers(2, 6) if number % 2 else world.draw.integers(6, 9))
        mix = tuple(world.draw.choice(known, size).tolist())
        yield Trap("carried models", libraries[number // 2 % 4], mix, lambda mix=mix: world.simulated(mix))


def drifted(world: World, count: int) -> Counter[str]:
    """Return how many functions that lost 15 to 60 % are said to hold after ten readings."""
    found: Counter[str] = Counter()
    models = list(world.library.values())
    for _ in range(count):
        monitor, share = DriftMonitor(models), float(world.draw.uniform(0.4, 0.85))
        target = str(world.draw.choice(world.nfs))
        for _ in range(10):
            others = world.mix()[1:]
            reading = share * predict(target, others, world.library, machine=MACHINE).throughput_mpps
            keys = [world.library.find(each, MACHINE).workload.key for each in (target, *others)]
            monitor.observe(keys[0], keys[1:], reading * float(1.0 + 0.01 * world.draw.standard_normal()))
        report = monitor.report()
        found["asked"] += 1
        found["supported"] += report.holds
        found["caught"] += report.holds
    return found


KINDS = {
    unmeasured: 0.1, mean_in_place: 0.1, thin: 0.35, other_traffic: 0.2, renamed: 0.05, absurd: 0.15, carried: 0.12,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traps", type=int, default=1000)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=23)
    parser.add_argument("--carried", action="store_true", help="traps for carried models")
    parser.add_argument("--kind", action="append", choices=[each.__name__ for each in KINDS], help="repeatable")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    total = given.traps // 5 if given.quick else given.traps
    world, off = World(given.seed, given.carried), 0
    print("{:<18}{:>7}{:>10}{:>11}{:>9}{:>8}".format("trap", "asked", "refused", "supported", "unknown", "caught"))
    for plant, share in KINDS.items():
        if (given.kind and plant.__name__ not in given.kind) or (given.carried and plant is mean_in_place):
            continue
        counts = asked(plant(world, round(share * total)))
        off += shown(plant.__name__.replace("_", " "), counts)
    if not given.kind:
        off += shown("drifted function", drifted(world, max(round(0.05 * total), 5)))
    print("ok: nothing caught" if not off else f"OFF: {off} traps catch")
    return 0


def shown(name: str, counts: Counter[str]) -> int:
    print(f"{name:<18}{counts['asked']:>7}{counts['refused']:>10}{counts['supported']:>11}{counts['unknown']:>9}"
          f"{counts['caught']:>8}", flush=True)  # fmt: skip
    return counts["caught"]


def asked(traps: Iterator[Trap]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for trap in traps:
        counts["asked"] += 1
        try:
            prediction = predict(
                trap.workloads[0], trap.workloads[1:], trap.library, machine=MACHINE, setting=trap.setting
            )
        except SlomoError:
            counts["refused"] += 1
            continue
        counts["unknown"] += prediction.verdict is Verdict.UNKNOWN
        if prediction.verdict is not Verdict.SUPPORTED:
            continue
        counts["supported"] += 1
        (low, high), truth, mpps = prediction.interval, trap.truth(), prediction.throughput_mpps
        beyond = abs(truth - mpps) > high - low  # twice half the width
        counts["caught"] += beyond
        if beyond:
            print(f"  caught: {trap.workloads} {mpps:.3f} [{low:.3f}, {high:.3f}], true {truth:.3f}",
                  file=sys.stderr)  # fmt: skip
    return counts


if __name__ == "__main__":
    sys.exit(main())
