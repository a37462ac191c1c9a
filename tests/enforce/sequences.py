"""Random sequences of apply, undo, kill and foreign edit on one machine, and what must hold after each.

Whatever the order: once every receipt is undone, each knob holds what an administrator set last, or what the machine
had; nothing is written outside; what a receipt asked for stays in force until it is undone, set by
another receipt or by somebody else.
"""

import contextlib
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from slomo.enforce.backends import cgroup as backends
from slomo.enforce.backends.cgroup import CgroupBackend
from slomo.enforce.backends.rdt_class import RdtClassBackend
from slomo.enforce.backends.registry import Together
from slomo.enforce.backends.resctrl import ResctrlBackend
from slomo.enforce.backends.scheduler import SchedulerBackend
from slomo.enforce.backends.simulated import Occupant, SimulatedBackend, SimulatedServer
from slomo.enforce.change import Backend
from slomo.enforce.executor import apply, undo
from slomo.enforce.plan import EnforcementPlan, MemoryBandwidth, TenantSetting
from slomo.errors import SlomoError
from slomo.host.journal import Journal, Receipt
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.workload import Workload
from tests.fake_resctrl.files import everything, fake_tree

#: Single backends, and pairs that one receipt holds.
KINDS = (
    "simulated", "resctrl", "rdt-class", "scheduler", "cgroup", "resctrl+rdt-class", "resctrl+cgroup",
    "resctrl+scheduler", "cgroup+scheduler", "cgroup+rdt-class", "scheduler+rdt-class",
)  # fmt: skip


class KilledError(BaseException):
    """Stands for SIGKILL: nothing of ours catches it."""


@dataclass
class Machine:
    """Something to enforce on.

    Attributes
    ----------
    backend : Backend
        Who does it.
    state : callable
        Everything that may change, by name.
    plans : callable
        A random plan.
    foreign : mapping of str to callable
        An administrator's edits: state's name -> sets it, and returns what it then is.
    """

    backend: Backend
    state: Callable[[], dict[str, object]]
    plans: Callable[[random.Random], EnforcementPlan]
    foreign: dict[str, Callable[[], object]] = field(default_factory=dict)


@contextlib.contextmanager
def machine(kind: str, folder: Path) -> Iterator[Machine]:
    """Give a fresh machine of a kind; real processes in it end with it."""
    parts = kind.split("+")
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(backends, "PARENT", f"slomo-{folder.name}"))
        pids = [stack.enter_context(_sleeper()) for _ in range(2)] if {"cgroup", "scheduler"} & {*parts} else []
        made = [_part(name, folder, pids, alone="cgroup" not in parts) for name in parts]
        backend = made[0].backend if len(made) == 1 else Together([part.backend for part in made])

        def state() -> dict[str, object]:
            return {name: value for part in made for name, value in part.state().items()}

        def plans(draw: random.Random) -> EnforcementPlan:
            tenants: dict[str, TenantSetting] = {}
            for part in made:
                for tenant in part.plans(draw).tenants:
                    own = {k: v for k, v in vars(tenant).items() if v not in (None, (), 0, False)}
                    there = vars(tenants[tenant.tenant]) if tenant.tenant in tenants else {}
                    tenants[tenant.tenant] = TenantSetting(**{**there, **own})
            return EnforcementPlan("s", tuple(tenants.values()))

        yield Machine(backend, state, plans, {name: act for part in made for name, act in part.foreign.items()})


@contextlib.contextmanager
def _sleeper() -> Iterator[int]:
    process = subprocess.Popen(["sleep", "600"])
    try:
        yield process.pid
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _part(name: str, folder: Path, pids: list[int], *, alone: bool) -> Machine:
    if name == "resctrl":  # control groups need processes, not cores
        return _resctrl(folder, 0.7 if alone else 0.0)
    return {"simulated": _simulated, "rdt-class": _classes}.get(name, lambda where: _processes(name, where, pids))(
        folder
    )


def _simulated(_: Path) -> Machine:
    server = SimulatedServer(load_machine("e5-2620v4"), [Occupant(n, Workload("lpm")) for n in ("a", "b")])

    def set_ways() -> object:
        server.knobs["ways:a"] = "3e0"
        return "3e0"

    def plans(draw: random.Random) -> EnforcementPlan:
        names = draw.sample(["a", "b"], draw.randint(1, 2))
        return EnforcementPlan("s", tuple(TenantSetting(n, llc_way_mask=draw.choice([1, 3, 7, 15])) for n in names))

    return Machine(SimulatedBackend(server), lambda: dict(server.knobs), plans, {"ways:a": set_ways})


def _resctrl(folder: Path, by_core: float = 0.7) -> Machine:
    tree = fake_tree(folder)
    tree.make_group("theirs")
    tree.write("theirs/schemata", "L3:0=ff")
    tree.write("theirs/cpus_list", "1-2")
    tree.make_group("theirs/mon_groups/counted")
    tree.write("theirs/mon_groups/counted/cpus_list", "1")
    tree.make_group("mon_groups/pod")
    tree.write("mon_groups/pod/tasks", "103")

    def state() -> dict[str, object]:
        cores = {f"core:{core}": tree.control_group_of(core) for core in range(4)}
        files = {name: text for name, text in everything(tree).items() if not name.endswith(("cpus", "cpus_list"))}
        watched = {f"{g}:watched": tree.cpus(g) for c in tree.control_groups() for g in tree.monitoring_groups(c)}
        return {**files, **cores, **watched}

    def plans(draw: random.Random) -> EnforcementPlan:
        tenants, at = [], 0
        for name in draw.sample(["a", "b", "c"], draw.randint(1, 3)):
            ways = draw.randint(1, 3)
            who = {"cores": ({"a": 1, "b": 3, "c": 0}[name],)} if draw.random() < by_core else {}
            who = who or {"process_ids": ({"a": 101, "b": 103, "c": 104}[name],)}
            bandwidth = MemoryBandwidth(draw.choice([20, 50])) if draw.random() < 0.5 else None
            mask = ((1 << ways) - 1) << at
            tenants.append(TenantSetting(name, llc_way_mask=mask, memory_bandwidth=bandwidth, **who))  # type: ignore[arg-type]
            at += ways
        return EnforcementPlan("s", tuple(tenants))

    def take_core() -> object:
        tree.write("theirs/cpus_list", ",".join(map(str, sorted({*tree.cpus("theirs"), 3}))))
        return "theirs"

    def narrow() -> object:
        tree.write("theirs/schemata", "L3:0=f0")
        return everything(tree)["theirs/schemata"]

    return Machine(ResctrlBackend(tree, folder / "etc"), state, plans, {"core:3": take_core, "theirs/schemata": narrow})


def _classes(folder: Path) -> Machine:
    place = folder / "rdt"
    place.mkdir(exist_ok=True)

    def state() -> dict[str, object]:
        return {f"rdt:{path.name}": path.read_text() for path in sorted(place.iterdir())}

    def plans(draw: random.Random) -> EnforcementPlan:
        return EnforcementPlan("s", (TenantSetting("a", pod="n/a", llc_way_mask=draw.choice([1, 3, 7])),))

    def edit() -> object:
        (place / "rdt-classes.yaml").write_text("mine: true\n")
        return "mine: true\n"

    return Machine(RdtClassBackend(place, ways=11), state, plans, {"rdt:rdt-classes.yaml": edit})


def _processes(name: str, folder: Path, pids: list[int]) -> Machine:
    cores = sorted(os.sched_getaffinity(0))
    cgroup, scheduler = CgroupBackend(), SchedulerBackend()

    def state() -> dict[str, object]:
        said: dict[str, object] = {f"affinity:{pid}": sorted(os.sched_getaffinity(pid)) for pid in pids}
        said |= {f"policy:{pid}": os.sched_getscheduler(pid) for pid in pids}
        ours = {"cpu", "cpuset", ""}  # the machine's manager may move processes in other hierarchies
        for pid in pids:
            lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
            said[f"groups:{pid}"] = [line for line in lines if ours & {*line.split(":")[1].split(",")}]
        above = (cgroup.root / cgroup.hierarchy(name) / backends.PARENT for name in ("cpu", "cpuset"))
        mine = {group for parent in above if parent.is_dir() for group in (parent, *parent.glob("*/"))}
        return said | {f"group:{path}": True for path in mine}

    def plans(draw: random.Random) -> EnforcementPlan:
        tenants = []
        for number in draw.sample([0, 1], draw.randint(1, 2)):
            wanted: dict[str, object] = {"cores": (draw.choice(cores),)} if draw.random() < 0.6 else {}
            if name == "cgroup":
                wanted |= {"cpu_weight": draw.choice([0.5, 2.0])} if draw.random() < 0.5 else {"cpu_quota": 0.5}
            else:
                wanted |= {"scheduler": "batch"}
            tenants.append(TenantSetting(f"p-{folder.name}-{number}", process_ids=(pids[number],), **wanted))  # type: ignore[arg-type]
        return EnforcementPlan("s", tuple(tenants))

    def idle() -> object:
        os.sched_setscheduler(pids[0], os.SCHED_IDLE, os.sched_param(0))  # a group without real time takes it, too
        return os.sched_getscheduler(pids[0])

    foreign = {f"policy:{pids[0]}": idle} if name == "scheduler" else {}
    return Machine(cgroup if name == "cgroup" else scheduler, state, plans, foreign)


@dataclass
class Outcome:
    """What a sequence did, and what it broke."""

    done: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)


def play(kind: str, seed: int, folder: Path, length: int = 12) -> Outcome:
    """Play one sequence, undo all that is open, and hold the machine against what it must be."""
    draw, outcome = random.Random(f"{kind} {seed}"), Outcome()
    with machine(kind, folder) as it:
        before, edits, killed = it.state(), {}, set()
        journals = folder / "journal"
        journal = Journal(journals)
        for _ in range(length):
            kind_of_step = draw.choices(["apply", "go on", "undo", "foreign"], [4, 2, 3, 1])[0]
            receipts = journal.receipts(still_open=True)
            if kind_of_step == "foreign":
                if it.foreign:
                    name = draw.choice(sorted(it.foreign))
                    edits[name] = it.foreign[name]()
                    outcome.done["foreign edit"] += 1
                continue
            going_on = draw.choice(receipts) if receipts and kind_of_step != "apply" else None
            dies_at = draw.randint(1, 12) if draw.random() < 0.3 else 0
            try:
                with _dying(it.backend, dies_at):
                    if kind_of_step == "undo" and going_on is not None:
                        undo(going_on, it.backend)
                    else:
                        apply(it.plans(draw), it.backend, receipts=journals, receipt=going_on)
                outcome.done[kind_of_step] += 1
            except KilledError:
                outcome.done["kill"] += 1
                journal = Journal(journals)  # the next process opens the file anew
                killed |= {receipt.identifier for receipt in journal.receipts(still_open=True)}
            except SlomoError as problem:
                outcome.done["refused"] += 1
                if kind_of_step == "undo" and going_on is not None:
                    outcome.broken.append(f"undo refused: {problem.message}")
            outcome.broken += _lost(it, journal, edits, killed)
        for _ in range(3):
            for receipt in draw.sample(left := journal.receipts(still_open=True), len(left)):
                with contextlib.suppress(SlomoError):
                    undo(receipt, it.backend)
        left = Journal(journals).receipts(still_open=True)
        outcome.broken += [f"{receipt.identifier} is left open" for receipt in left]
        expected, after = {**before, **edits}, it.state()
        outcome.broken += [
            f"{name}: {after.get(name)!r}, needed {expected.get(name)!r}"
            for name in sorted({*expected, *after})
            if expected.get(name) != after.get(name)
        ]
    return outcome


def _lost(it: Machine, journal: Journal, edits: dict[str, object], killed: set[str]) -> list[str]:
    """Return what receipts asked for and is not in force, although nobody set it since."""
    lost = []
    for receipt in journal.receipts(still_open=True):
        if receipt.identifier in killed or edits:
            continue
        for layer in receipt.layers():
            if journal.stack(layer.place, layer.knob)[-1].number == layer.number:
                held = it.backend.read(layer.label)
                if held != layer.value:
                    lost.append(f"{receipt.identifier} lost {layer.label}: {held!r}, asked for {layer.value!r}")
    return lost


@contextlib.contextmanager
def _dying(backend: Backend, at: int) -> Iterator[None]:
    """Die before write number `at`, of the journal or of the machine; 0 never."""
    count = 0
    transaction, write = Journal.transaction, type(backend).write

    def one_more() -> None:
        nonlocal count
        count += 1
        if count == at:
            raise KilledError

    def journaling(self: Journal):  # type: ignore[no-untyped-def]
        one_more()
        return transaction(self)

    def writing(self: Backend, knob: str, value: str | None) -> None:
        one_more()
        write(self, knob, value)

    Journal.transaction, type(backend).write = journaling, writing  # type: ignore[method-assign]
    try:
        yield
    finally:
        Journal.transaction, type(backend).write = transaction, write  # type: ignore[method-assign]


def open_ones(folder: Path) -> tuple[Receipt, ...]:
    """Return the receipts that a sequence left open."""
    return Journal(folder / "journal").receipts(still_open=True)
