"""A loop whose sensors, controller or clock fail: what protects stays, an alarm is given, the loop goes on."""

import math
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from slomo.control.loop import ControlLoop, Step
from slomo.control.observation import ControlDecision, MachineReading, Patience, TenantReading
from slomo.control.plants import SimulatedTime
from slomo.control.throttle import ThrottleController
from slomo.enforce.backends.simulated import Occupant, SimulatedBackend, SimulatedServer
from slomo.enforce.plan import EnforcementPlan, TenantSetting
from slomo.errors import TestbedError
from slomo.host.notify import notify
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.workload import Workload


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


class Scripted(SimulatedTime):
    """A server whose sensors show what a test says; `fail` changes a reading or raises."""

    def __init__(self) -> None:
        super().__init__()
        machine = load_machine("e5-2620v4")
        self.server = SimulatedServer(
            machine, [Occupant("victim", Workload("lpm")), Occupant("hog", Workload("stats"))]
        )
        self.backend = SimulatedBackend(self.server)
        self.fail: Callable[[MachineReading], MachineReading] = lambda reading: reading
        self.rate, self._looks = 0.8, 0

    def observe(self) -> MachineReading:
        self._looks += 1
        wobble = 1e-6 * self._looks
        seen = {"victim": TenantReading(self.rate + wobble, 1.0), "hog": TenantReading(3.0 + wobble)}
        return self.fail(MachineReading(self.time_s, seen))

    def probe(self) -> MachineReading:
        return replace(self.observe(), probed=True)


class Protecting:
    """Masks the hog once the victim suffers, and frees it as soon as all is well."""

    name = "protecting"

    def decide(self, observation: MachineReading, memory: object) -> ControlDecision:
        mask = 0x3 if observation.broken else 0xFF
        return ControlDecision(
            EnforcementPlan("s", (TenantSetting("hog", llc_way_mask=mask),)), memory, loosens=not observation.broken
        )


def seen_as(**fields: float) -> Callable[[MachineReading], MachineReading]:
    """Return what makes a sensor of the victim show something else."""

    def show(reading: MachineReading) -> MachineReading:
        victim = replace(reading.tenants["victim"], **fields)
        return replace(reading, tenants={**reading.tenants, "victim": victim})

    return show


def silent(_: MachineReading) -> MachineReading:
    raise TestbedError("the counters are gone")


def broken_code(_: MachineReading) -> MachineReading:
    raise ZeroDivisionError("a sensor's own fault")


def refusing(_: ControlDecision) -> int:
    raise TestbedError("the machine refuses")


FROZEN = MachineReading(0.0, {"victim": TenantReading(5.0, 1.0), "hog": TenantReading(1.0)})
FAULTS: dict[str, Callable[[MachineReading], MachineReading]] = {
    "silent": silent,
    "its own code fails": broken_code,
    "not a number": seen_as(throughput_mpps=math.nan),
    "infinite": seen_as(throughput_mpps=math.inf),
    "1e300": seen_as(throughput_mpps=1e300),
    "negative": seen_as(throughput_mpps=-1.0),
    "load is not a number": seen_as(offered_mpps=math.nan),
    "victim missing": lambda reading: replace(reading, tenants={"hog": reading.tenants["hog"]}),
    "nobody there": lambda reading: replace(reading, tenants={}),
    "frozen at a healthy value": lambda reading: replace(FROZEN, time_s=reading.time_s),
    "clock backwards": lambda reading: replace(reading, time_s=-reading.time_s),
    "clock absurd": lambda reading: replace(reading, time_s=math.nan),
    "late": lambda reading: replace(reading, time_s=reading.time_s - 60.0),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_protection_is_held_and_an_alarm_given(fault: str, tmp_path: Path) -> None:
    """However a sensor fails, what was in force stays so, an alarm comes within three rounds, and the loop goes on."""
    plant, told = Scripted(), []
    plant.time_s = 100.0
    loop = ControlLoop(plant, Protecting(), Patience(1.0, 0.0, 0.0), receipts=tmp_path, on_alarm=told.append)
    turn(loop, plant, 3)
    assert plant.server.knobs["ways:hog"] == "3"

    plant.fail = FAULTS[fault]
    steps = turn(loop, plant, 40)

    assert plant.server.knobs["ways:hog"] == "3"
    assert any(step.alarm for step in steps[:3])
    assert all(step.alarm for step in steps[3:])
    assert loop.alarms == 1
    assert len(told) == 1

    plant.fail, plant.rate = lambda reading: reading, 2.0
    plant.time_s += 200.0
    assert turn(loop, plant, 4)[-1].fault is None
    assert told[1:] == [""]
    assert plant.server.knobs["ways:hog"] == "ff"
    loop.close()
    assert plant.server.knobs["ways:hog"] is None


def test_sensors_that_are_silent_from_the_start_find_protection_in_force(tmp_path: Path) -> None:
    """A controller that knows before the first reading what protects sets it first, and again until that succeeds."""

    class Knowing(Protecting):
        tries = 0

        def start(self) -> ControlDecision:
            self.tries += 1
            mask = 0x3 if self.tries > 1 else 0
            return ControlDecision(EnforcementPlan("s", (TenantSetting("hog", llc_way_mask=mask),)))

    plant, controller = Scripted(), Knowing()
    plant.fail = silent
    loop = ControlLoop(plant, controller, Patience(1.0, 0.0, 0.0), receipts=tmp_path)
    steps = turn(loop, plant, 5)

    assert steps[-1].alarm
    assert (controller.tries, plant.server.knobs["ways:hog"]) == (2, "3")
    loop.close()
    assert plant.server.knobs["ways:hog"] is None


@pytest.mark.parametrize("able", [True, False])
def test_a_controller_may_protect_more_once_an_alarm_begins(able: bool, tmp_path: Path) -> None:
    """It is asked once per alarm; if it fails, the loop keeps what is in force, says why, and asks again."""

    class Careful(Protecting):
        asked = 0

        def protect(self, memory: object) -> ControlDecision:
            self.asked += 1
            if not able:
                raise KeyError("a tenant it does not know")
            return ControlDecision(EnforcementPlan("s", (TenantSetting("hog", llc_way_mask=0x1),)), memory, urgent=True)

    plant, controller, told = Scripted(), Careful(), []
    loop = ControlLoop(plant, controller, Patience(1.0, 9.0, 9.0), receipts=tmp_path, on_alarm=told.append)
    turn(loop, plant, 2)

    plant.fail = silent
    steps = turn(loop, plant, 6)

    assert steps[-1].alarm
    assert (controller.asked, plant.server.knobs["ways:hog"]) == ((1, "1") if able else (5, "3"))
    why = "" if able else "; protecting promises failed: KeyError: 'a tenant it does not know'"
    assert [*told, steps[-1].fault] == ["the counters are gone" + why] * 2


def test_protection_that_could_not_be_applied_is_applied_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision is made once in an alarm; a machine that refuses it gets it again in the next round."""

    class Careful(Protecting):
        asked = 0

        def protect(self, memory: object) -> ControlDecision:
            self.asked += 1
            return ControlDecision(EnforcementPlan("s", (TenantSetting("hog", llc_way_mask=0x1),)), memory, urgent=True)

    plant, controller = Scripted(), Careful()
    loop = ControlLoop(plant, controller, Patience(1.0, 9.0, 9.0), receipts=tmp_path)
    turn(loop, plant, 2)
    plant.fail = silent
    with monkeypatch.context() as locked:
        locked.setattr(loop, "_enforce", refusing)
        steps = turn(loop, plant, 3)
    assert "protecting promises failed: the machine refuses" in str(steps[-1].fault)

    assert turn(loop, plant, 1)[-1].fault == "the counters are gone"
    assert (controller.asked, plant.server.knobs["ways:hog"]) == (1, "1")


def test_what_was_loosened_and_not_seen_to_hold_is_taken_back(tmp_path: Path) -> None:
    """Sensors that fail right after a change that protects less: the state before it is the last safe one."""
    plant = Scripted()
    loop = ControlLoop(plant, Protecting(), Patience(1.0, 0.0, 0.0), receipts=tmp_path)
    turn(loop, plant, 2)
    plant.rate = 2.0
    turn(loop, plant, 1)
    assert plant.server.knobs["ways:hog"] == "ff"

    plant.fail = silent
    turn(loop, plant, 2)

    assert plant.server.knobs["ways:hog"] == "3"


def test_a_controller_that_fails_leaves_what_protects(tmp_path: Path) -> None:
    """The loop outlives its controller, too."""
    plant = Scripted()
    controller = Protecting()
    loop = ControlLoop(plant, controller, Patience(1.0, 0.0, 0.0), receipts=tmp_path)
    turn(loop, plant, 2)

    def fails(observation: MachineReading, memory: object) -> ControlDecision:
        raise KeyError("a tenant it does not know")

    controller.decide = fails  # type: ignore[method-assign]
    assert turn(loop, plant, 5)[-1].alarm
    assert plant.server.knobs["ways:hog"] == "3"


@pytest.mark.parametrize("rate", [math.nan, math.inf, -1.0, 1e300])
def test_an_absurd_rate_is_no_kept_promise(rate: float) -> None:
    """What no sensor can show says nothing of a promise: it counts as broken."""
    assert TenantReading(rate, 1.0).broken


def test_packets_that_take_too_long_break_a_promise() -> None:
    """Latency counts beside throughput, also alone; an absurd one is a sensor's fault."""
    assert TenantReading(1.0, 1.0, latency_us=9.0, latency_limit_us=5.0).broken
    assert TenantReading(1.0, latency_us=9.0, latency_limit_us=5.0).broken
    assert not TenantReading(1.0, 1.0, latency_us=4.0, latency_limit_us=5.0).broken
    assert TenantReading(1.0, latency_us=math.nan).fault == "latency is nan us"


def test_the_throttle_holds_while_a_victim_is_not_seen() -> None:
    """Quotas do not grow while one who was promised something is missing."""
    throttle, memory = ThrottleController("s", {"hog": TenantSetting("hog", process_ids=(7,))}), None
    short = MachineReading(0.0, {"v": TenantReading(0.5, 1.0), "hog": TenantReading(1.0)}, probed=True)
    memory = throttle.decide(short, memory).memory

    for _ in range(30):
        decision = throttle.decide(MachineReading(1.0, {"hog": TenantReading(1.0)}), memory)
        memory = decision.memory

    assert decision.plan is not None
    assert decision.plan.tenants[0].cpu_quota == 0.5


def test_a_step_costs_the_same_however_many_went_before(tmp_path: Path) -> None:
    """The journal holds what is in force, not what was: it does not grow with the steps."""

    class Alternating:
        name = "alternating"

        def decide(self, observation: MachineReading, memory: object) -> ControlDecision:
            count = memory if isinstance(memory, int) else 0
            plan = EnforcementPlan("s", (TenantSetting("hog", llc_way_mask=3 if count % 2 else 12),))
            return ControlDecision(plan, count + 1)

    plant = Scripted()
    loop = ControlLoop(plant, Alternating(), Patience(1.0, 0.0, 0.0), receipts=tmp_path)
    turn(loop, plant, 3)
    assert loop.receipt is not None
    before = [len(loop.receipt.layers()), len(loop.receipt.journal.receipts())]
    turn(loop, plant, 60)

    assert [len(loop.receipt.layers()), len(loop.receipt.journal.receipts())] == before
    loop.close()


def test_systemd_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ready, alive each round, stopping: as sd_notify(3) sends it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        ControlLoop(Scripted(), Protecting(), Patience(1.0, 0.0, 0.0), receipts=tmp_path).run(2)
        heard = [listener.recv(64).decode() for _ in range(4)]

    assert heard == ["READY=1", "WATCHDOG=1", "WATCHDOG=1", "STOPPING=1"]
    monkeypatch.delenv("NOTIFY_SOCKET")
    assert not notify("WATCHDOG=1")


def turn(loop: ControlLoop, plant: Scripted, rounds: int) -> list[Step]:
    """Do rounds, a second apart."""
    steps = []
    for _ in range(rounds):
        steps.append(loop.step())
        plant.wait(1.0)
    return steps
