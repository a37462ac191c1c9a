"""The loop: observe, decide, compare, apply, keep the receipt; and give the machine back, however it ends.

Changes are at least a dwell apart. After several failed steps the machine is given back (the safe state is the state it
was found in). A loop that is killed leaves its receipt, from which `slomo enforce undo` restores the machine.
"""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from slomo.control.observation import ControlDecision, Controller, MachineReading, Patience
from slomo.enforce.change import Backend
from slomo.enforce.executor import apply, undo
from slomo.enforce.plan import EnforcementPlan
from slomo.errors import SlomoError, TestbedError
from slomo.host.journal import Receipt


class Plant(Protocol):
    """A machine under control, on real or simulated time."""

    @property
    def backend(self) -> Backend:
        """Who enforces on it."""
        ...

    def observe(self) -> MachineReading:
        """Measure all tenants.

        Raises
        ------
        SlomoError
            If that fails.
        """
        ...

    def probe(self) -> MachineReading:
        """Measure all tenants more exactly, at more cost; `probed` is set in the reading.

        Raises
        ------
        SlomoError
            If that fails.
        """
        ...

    def now_s(self) -> float:
        """Return the time [s]."""
        ...

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        ...


@dataclass(frozen=True)
class Step:
    """What one round of the loop did.

    Attributes
    ----------
    observation : MachineReading or None
        What was seen; None where observing failed.
    decision : ControlDecision
        What was wanted.
    changes : int
        Knobs that were changed.
    decided_s : float
        Time the controller took [s].
    probed : bool
        Whether it asked for a probe.
    fault : str or None
        What failed.
    """

    observation: MachineReading | None
    decision: ControlDecision
    changes: int = 0
    decided_s: float = 0.0
    probed: bool = False
    fault: str | None = None


class ControlLoop:
    """Runs one controller on one machine.

    Parameters
    ----------
    plant : Plant
        The machine.
    controller : Controller
        Who decides.
    settings : Patience
        How patiently.
    receipts : path, optional
        Folder of receipts.
    on_escalation : callable, optional
        Told the tenants that this machine cannot serve, once each time they change.
    """

    def __init__(
        self,
        plant: Plant,
        controller: Controller,
        settings: Patience | None = None,
        *,
        receipts: Path | None = None,
        on_escalation: Callable[[tuple[str, ...]], None] | None = None,
    ) -> None:
        self.plant, self.controller, self.settings = plant, controller, settings or Patience()
        self.receipt: Receipt | None = None
        self.plan: EnforcementPlan | None = None
        self._receipts, self._on_escalation = receipts, on_escalation
        self._memory: Any = None
        self._faults = 0
        self._free_from_s = float("-inf")
        self._escalated: tuple[str, ...] = ()

    def step(self) -> Step:
        """Do one round.

        Raises
        ------
        TestbedError
            After too many failed rounds; the machine is given back.
        """
        try:
            observation = self.plant.observe()
            decision, took = self._asked(observation)
            if decision.probe:
                observation = self.plant.probe()
                decision, again = self._asked(observation)
                took += again
            changes = self._enforce(decision)
        except SlomoError as problem:
            return self._failed(problem)
        self._faults = 0
        if changes or decision.plan is None or decision.plan == self.plan:
            # What could not be changed yet was not decided either: the controller is asked again.
            self._memory = decision.memory
        if decision.escalated != self._escalated:
            self._escalated = decision.escalated
            if self._on_escalation is not None and decision.escalated:
                self._on_escalation(decision.escalated)
        return Step(observation, decision, changes, took, observation.probed)

    def _asked(self, observation: MachineReading) -> tuple[ControlDecision, float]:
        begun = time.perf_counter()
        decision = self.controller.decide(observation, self._memory)
        return decision, time.perf_counter() - begun

    def _enforce(self, decision: ControlDecision) -> int:
        now = self.plant.now_s()
        if decision.plan is None or decision.plan == self.plan:
            return 0
        if now < self._free_from_s and not decision.urgent:
            return 0
        self.receipt = apply(decision.plan, self.plant.backend, receipts=self._receipts, receipt=self.receipt)
        self.plan = decision.plan
        pause = self.settings.cool_down_s if decision.urgent else self.settings.dwell_s
        self._free_from_s = now + pause
        return len(self.receipt.made)

    def _failed(self, problem: SlomoError) -> Step:
        self._faults += 1
        if self._faults >= self.settings.faults:
            self.close()
            raise TestbedError(
                f"control by '{self.controller.name}' ended after {self._faults} failed steps, the machine is given "
                f"back: {problem.message}",
                hint=problem.hint,
            ) from None
        return Step(None, ControlDecision(), fault=problem.message)

    def run(self, steps: int | None = None, told: Callable[[Step], None] | None = None) -> int:
        """Do rounds until told to stop (SIGTERM, SIGINT) or so many were done; give the machine back.

        Returns
        -------
        int
            Rounds done.
        """
        done = 0
        try:
            with _stoppable() as stopped:
                while not stopped() and (steps is None or done < steps):
                    step = self.step()
                    done += 1
                    if told is not None:
                        told(step)
                    if not stopped() and (steps is None or done < steps):
                        self.plant.wait(self.settings.period_s)
        finally:
            self.close()
        return done

    def close(self) -> None:
        """Give the machine back; doing it again does nothing."""
        if self.receipt is not None:
            undo(self.receipt, self.plant.backend)
        self.receipt, self.plan = None, None

    def forget(self) -> None:
        """Let the controller begin anew, for instance because tenants came or went."""
        self._memory = None


@contextlib.contextmanager
def _stoppable() -> Iterator[Callable[[], bool]]:
    """Turn SIGTERM and SIGINT into a question; the round that runs is ended first."""
    signals_received: list[int] = []

    def ask(number: int, _: FrameType | None) -> None:
        signals_received.append(number)

    try:
        old = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    except ValueError:  # not the main thread: whoever runs this thread stops it
        old = {}
    try:
        yield lambda: bool(signals_received)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
