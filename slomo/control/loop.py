"""The control loop: observe, decide, apply, record; keep settings if sensors fail; restore the machine at the end.

Changes are at least one dwell time apart. The loop survives faults: if readings are implausible, or the controller or
the machine fails, protective settings stay in force, an alarm is raised, and the loop continues until it is stopped. A
killed loop leaves its receipt, from which `slomo enforce undo` restores the machine.

A silent, frozen or implausible sensor never counts as healthy. Real rates vary from window to window, so exactly equal
numbers mean a frozen sensor, unless no load is offered.
"""

import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from slomo.control.observation import (
    Cautious,
    ControlDecision,
    Controller,
    Foresighted,
    MachineReading,
    Patience,
    TenantReading,
)
from slomo.enforce.change import Backend
from slomo.enforce.executor import apply, undo
from slomo.enforce.plan import EnforcementPlan
from slomo.errors import SlomoError, TestbedError
from slomo.host.journal import Receipt
from slomo.host.notify import notify


class Plant(Protocol):
    """The machine under control, real or simulated (the plant, in terms of control theory)."""

    @property
    def backend(self) -> Backend:
        """Backend by which the machine's settings are changed."""
        ...

    def observe(self) -> MachineReading:
        """Measure all tenants. Raises SlomoError if that fails."""
        ...

    def probe(self) -> MachineReading:
        """Measure all tenants longer and more exactly. Raises SlomoError if that fails."""
        ...

    def now_s(self) -> float:
        """Return the machine's present time [s], real or simulated."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait for a time, real or simulated."""
        ...


@dataclass(frozen=True)
class Step:
    """Readings, decision and faults of one round of the loop."""

    #: Readings; None if observing failed.
    observation: MachineReading | None
    #: The controller's decision.
    decision: ControlDecision
    #: Number of knobs that were changed.
    changes: int = 0
    #: Whether the controller asked for a probe.
    probed: bool = False
    #: Description of the failure; None without one.
    fault: str | None = None
    #: Whether several rounds in a row failed. The loop then keeps the settings in force without knowing whether they
    #: suffice.
    alarm: bool = False


class ControlLoop:
    """Runs one controller on one machine, the `plant`.

    `settings`: times and limits of the loop. `receipts`: folder of receipts. `on_alarm`: called with the failure when
    an alarm begins, and with an empty text when it ends.
    """

    def __init__(
        self,
        plant: Plant,
        controller: Controller,
        settings: Patience | None = None,
        *,
        receipts: Path | None = None,
        on_alarm: Callable[[str], None] | None = None,
    ) -> None:
        self.plant, self.controller, self.settings = plant, controller, settings or Patience()
        self.receipt: Receipt | None = None
        self.plan: EnforcementPlan | None = None
        self._receipts = receipts
        self.alarms, self.blind_rounds = 0, 0
        self._on_alarm = on_alarm
        self._health = SensorHealth(self.settings.period_s)
        self._memory: Any = None
        self._started = False
        self._faults = 0
        #: Plan and memory before a change that protects less; kept until promises are observed to hold after the
        #: change.
        self._unproven: tuple[EnforcementPlan | None, Any] | None = None
        #: The controller's decision while sensors fail; made once in an alarm, since no loads are read meanwhile.
        self._protection: ControlDecision | None = None
        self._free_from_s = float("-inf")

    def step(self) -> Step:
        """Run one round; a failure does not raise but becomes part of the result."""
        try:
            self._start()
            observation = self._believed(self.plant.observe())
            if not observation.broken:
                self._unproven = None
            decision = self.controller.decide(observation, self._memory)
            if decision.probe:
                observation = self._believed(self.plant.probe())
                decision = self.controller.decide(observation, self._memory)
            changes = self._enforce(decision)
        except Exception as problem:
            return self._failed(problem)
        if self._faults >= self.settings.faults and self._on_alarm is not None:
            self._on_alarm("")
        self._faults, self._protection = 0, None
        if changes or decision.plan is None or decision.plan == self.plan:
            # if a decision could not be applied, the controller's memory stays as before, and it decides again
            self._memory = decision.memory
        return Step(observation, decision, changes, observation.probed)

    def _start(self) -> None:
        """Apply protective settings before the first reading, if the controller can choose them."""
        if not self._started and isinstance(self.controller, Foresighted):
            decision = self.controller.start()
            self._enforce(decision)
            self._memory = decision.memory
        self._started = True

    def _believed(self, reading: MachineReading) -> MachineReading:
        faults = self._health.faults(reading, self.plant.now_s())
        if faults:
            listed_faults = "; ".join(f"{name} {why}" for name, why in sorted(faults.items())[:3])
            raise TestbedError(f"readings are implausible: {listed_faults}", hint="check the sensors")
        return reading

    def _enforce(self, decision: ControlDecision) -> int:
        now = self.plant.now_s()
        if decision.plan is None or decision.plan == self.plan:
            return 0
        if now < self._free_from_s and not decision.urgent:
            return 0
        before = self.plan, self._memory
        self.receipt = apply(decision.plan, self.plant.backend, receipts=self._receipts, receipt=self.receipt)
        self._unproven = before if decision.loosens else None
        self.plan = decision.plan
        pause = self.settings.cool_down_s if decision.urgent else self.settings.dwell_s
        self._free_from_s = now + pause
        return len(self.receipt.made)

    def _failed(self, problem: Exception) -> Step:
        """Keep the settings after a failed round; after several, raise an alarm, and protect promises from any load."""
        reasons = [_reason(problem)]
        self._faults += 1
        self.blind_rounds += 1
        changes, alarm = 0, self._faults >= self.settings.faults
        safeguards = ("undoing the last change", self._take_back), ("protecting promises", self._protect)
        for what, safeguard in safeguards if alarm else ():
            try:
                changes += safeguard()
            except Exception as another:  # the loop outlives its controller, too, and tries again in the next round
                reasons.append(f"{what} failed: {_reason(another)}")
        if self._faults == self.settings.faults:
            self.alarms += 1
            if self._on_alarm is not None:
                self._on_alarm("; ".join(reasons))
        return Step(None, ControlDecision(), changes, fault="; ".join(reasons), alarm=alarm)

    def _take_back(self) -> int:
        """Undo a change that protects less and was never observed to suffice; return the number of changes."""
        plan, memory = self._unproven or (None, None)
        changes = 0
        if plan is not None:
            self.receipt = apply(plan, self.plant.backend, receipts=self._receipts, receipt=self.receipt)
            self.plan, self._memory, changes = plan, memory, len(self.receipt.made)
        self._unproven = None
        return changes

    def _protect(self) -> int:
        """Let the controller protect promises against any load; return the number of changes."""
        if not isinstance(self.controller, Cautious):
            return 0
        self._protection = self._protection or self.controller.protect(self._memory)
        changes = self._enforce(self._protection)
        self._memory = self._protection.memory
        return changes

    def run(self, steps: int | None = None, on_step: Callable[[Step], None] | None = None) -> int:
        """Run rounds until SIGTERM, SIGINT or a given number of them; restore the machine and return their number."""
        done = 0
        try:
            notify("READY=1")
            with _stoppable() as stopped:
                while not stopped() and (steps is None or done < steps):
                    step = self.step()
                    notify("WATCHDOG=1")  # systemd ends a round that hangs; protective settings stay in force
                    done += 1
                    if on_step is not None:
                        on_step(step)
                    if not stopped() and (steps is None or done < steps):
                        self.plant.wait(self.settings.period_s)
        finally:
            notify("STOPPING=1")
            self.close()
        return done

    def close(self) -> None:
        """Restore the machine; a second call does nothing."""
        if self.receipt is not None:
            undo(self.receipt, self.plant.backend)
        self.receipt, self.plan = None, None


@contextlib.contextmanager
def _stoppable() -> Iterator[Callable[[], bool]]:
    """Convert SIGTERM and SIGINT to a flag, so that the present round is finished first."""
    signals_received: list[int] = []

    def ask(number: int, _: FrameType | None) -> None:
        signals_received.append(number)

    try:
        old = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    except ValueError:  # signals reach only the main thread; the owner of another thread stops it
        old = {}
    try:
        yield lambda: bool(signals_received)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _reason(problem: Exception) -> str:
    return problem.message if isinstance(problem, SlomoError) else f"{type(problem).__name__}: {problem}"


#: Age above which a reading is late: in periods, but at least this age [s].
LATE_PERIODS, LATE_S = 3.0, 3.0


@dataclass
class SensorHealth:
    """Keeps the last readings and checks new ones against them.

    >>> health = SensorHealth(1.0)
    >>> health.faults(MachineReading(0.0, {"a": TenantReading(1.0)}), 0.0)
    {}
    >>> health.faults(MachineReading(1.0, {"a": TenantReading(float("nan"))}), 1.0)
    {'a': 'absurd: throughput is nan Mpps'}
    """

    #: Time between readings.
    period_s: float
    #: The last reading with a plausible time.
    last: MachineReading | None = None
    #: Tenants reported so far; a tenant that is no longer reported counts as missing.
    known: set[str] = field(default_factory=set)
    _clock_s: float = float("-inf")

    def faults(self, reading: MachineReading, now_s: float) -> dict[str, str]:
        """Return the faults by tenant at the plant's time `now_s`; ``"clock"`` holds a fault of the reading's time."""
        faults = self._clock(reading, now_s)
        before: Mapping[str, TenantReading] = {} if self.last is None else self.last.tenants
        for name, seen in reading.tenants.items():
            if seen.fault:
                faults[name] = f"absurd: {seen.fault}"
            elif seen == before.get(name) and seen.offered_mpps != 0.0:
                faults[name] = "frozen: exactly what it was before"
        faults.update((name, "missing") for name in self.known - set(reading.tenants))
        self.known |= set(reading.tenants)
        self.last = reading
        return faults

    def _clock(self, reading: MachineReading, now_s: float) -> dict[str, str]:
        if not abs(reading.time_s) < float("inf"):
            return {"clock": f"absurd: {reading.time_s:g} s"}
        latest, self._clock_s = self._clock_s, reading.time_s
        if reading.time_s < latest:
            return {"clock": f"went back by {latest - reading.time_s:g} s"}
        if now_s - reading.time_s > max(LATE_S, LATE_PERIODS * self.period_s):
            return {"clock": f"late: {now_s - reading.time_s:g} s old"}
        return {}
