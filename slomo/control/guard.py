"""The guard: keeps promised throughput by the change that is predicted to help and to cost best effort least.

Watching is cheap: throughput and loads. Where a promise breaks, or is predicted to break at the loads that are coming,
the plant is asked for a probe, which costs more and tells more exactly what the tenants do; then candidates are tried
in a what-if, the best is applied, looked at in the next round, and taken back where it did not help. What holds with
room to spare is loosened later. Pairs of prediction and outcome correct the predictions (`slomo.drift.correction`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from slomo.control.advice import best_effort
from slomo.control.observation import ControlDecision, MachineReading
from slomo.control.situation import Outlook, Setting, Situation, foresee, foresee_many, with_bias
from slomo.drift.correction import OnlineCorrection

#: Room over the margin before a change is loosened, and rounds it must hold.
LOOSE_MARGIN, LOOSE_ROUNDS = 0.04, 6
#: Candidates that are tried in one round.
CANDIDATES = 100
#: Settings that did not help, of which so many are not tried again while the promise they were tried for is at risk.
REMEMBERED = 8


@dataclass(frozen=True)
class GuardMemory:
    """What the guard remembers."""

    #: What is in force.
    settings: Mapping[str, Setting]
    #: What was before the last change, until it was looked at.
    before: Mapping[str, Setting] | None = None
    #: Rounds without suspicion.
    calm: int = 0
    #: Biases.
    correction: OnlineCorrection = field(default_factory=lambda: OnlineCorrection(weight=0.4))
    #: Loads of the round before.
    loads_mpps: Mapping[str, float] = field(default_factory=dict)
    #: What was tried lately and did not help.
    vain: tuple[Mapping[str, Setting], ...] = ()


class GuardController:
    """Keeps promises by ways, throttles and weights.

    Parameters
    ----------
    server : str
        Name for the plan.
    initial : Situation
        Responses, memory and ways; its settings are in force at first, all open where it has none.
    margin : float
        Share by which predictions must exceed promises.
    """

    name = "guard"

    def __init__(self, server: str, initial: Situation, margin: float = 0.03) -> None:
        self.server, self.initial, self.margin = server, initial, margin
        self._first = dict(initial.settings) or initial.open_settings

    def decide(self, observation: MachineReading, memory: Any) -> ControlDecision:
        """Return what would help most; see `Controller`."""
        state = memory if isinstance(memory, GuardMemory) else GuardMemory(self._first)
        situation = self._situation(observation, state)
        now = foresee(situation)
        correction = _learned(observation, now, state.correction)
        loads = {name: r.offered_mpps for name, r in observation.tenants.items() if r.offered_mpps is not None}
        situation = replace(situation, bias=correction.factors)
        now = with_bias(situation, now, correction.factors, self.margin)
        if (observation.broken or not now.kept) and not observation.probed:
            return ControlDecision(memory=state, probe=True)
        state = replace(state, loads_mpps=loads)
        if state.before is not None and self._in_vain(observation, situation, state, state.before):
            return self._back(situation, state, state.before)  # what was wrong there says nothing of other settings
        state = replace(state, correction=correction, before=None)
        if observation.broken or not now.kept:
            return self._tighten(situation, now, state, observation)
        return self._loosen(situation, state)

    def _in_vain(
        self, observation: MachineReading, situation: Situation, state: GuardMemory, before: Mapping[str, Setting]
    ) -> bool:
        """Return whether a promise is missed by no less than it would be now had the last change not been made.

        What was seen before the change corrects that prediction whole, not within the bound of what is trusted.
        """
        shortfall = _shortfall(observation)
        as_seen = {name: bias.ratio for name, bias in state.correction.biases.items()}
        return shortfall > 0.0 and shortfall >= -foresee(replace(situation, bias=as_seen), before).spare - 1e-9

    def _back(self, situation: Situation, state: GuardMemory, before: Mapping[str, Setting]) -> ControlDecision:
        vain = (*state.vain, state.settings)[-REMEMBERED:]
        back = replace(state, settings=before, before=None, calm=0, vain=vain)
        plan = situation.plan(self.server, before)
        return ControlDecision(plan, back, ("what was tried did not help",), urgent=True)

    def _tighten(
        self, situation: Situation, now: Outlook, state: GuardMemory, observation: MachineReading
    ) -> ControlDecision:
        best = best_effort(situation, now, self.margin, CANDIDATES, state.vain)
        if dict(best.settings) == dict(state.settings):
            plan = situation.plan(self.server, state.settings)
            return ControlDecision(plan, replace(state, calm=0), ("nothing helps more",), observation.broken)
        changed = [name for name, setting in best.settings.items() if setting != state.settings[name]]
        reasons = (f"{', '.join(observation.broken) or 'a promise'} at risk: change {', '.join(changed)}",)
        fresh = replace(state, settings={**state.settings, **best.settings}, before=state.settings, calm=0)
        return ControlDecision(situation.plan(self.server, best.settings), fresh, reasons)

    def _loosen(self, situation: Situation, state: GuardMemory) -> ControlDecision:
        state = replace(state, calm=state.calm + 1)
        if dict(state.settings) == self._first:
            return ControlDecision(None, state)
        if state.calm >= LOOSE_ROUNDS:
            state = replace(state, calm=0, vain=())
            weaker = list(self._weaker(situation))
            for looser in foresee_many(situation, weaker, self.margin + LOOSE_MARGIN):
                if looser.kept:
                    fresh = replace(state, settings={**state.settings, **looser.settings})
                    return ControlDecision(
                        situation.plan(self.server, looser.settings), fresh, ("less is enough",), loosens=True
                    )
        return ControlDecision(situation.plan(self.server, situation.settings), state)

    def _weaker(self, situation: Situation) -> list[Mapping[str, Setting]]:
        """Return settings that restrict less: nothing at all, no throttle, throttles half as strong."""
        first = {name: self._first[name] for name in situation.responses}
        free = {name: replace(s, bandwidth_percent=100.0) for name, s in situation.settings.items()}
        halved = {
            name: replace(s, bandwidth_percent=min(100.0, 2.0 * s.bandwidth_percent))
            for name, s in situation.settings.items()
        }
        return [each for each in (first, free, halved) if each != situation.settings]

    def _situation(self, observation: MachineReading, state: GuardMemory) -> Situation:
        """Return what is, at the loads of the next round if they go on as they did."""
        seen = {name: reading for name, reading in observation.tenants.items() if name in self.initial.responses}
        offered = {}
        for name, reading in seen.items():
            if reading.offered_mpps is not None:
                before = state.loads_mpps.get(name, reading.offered_mpps)
                offered[name] = max(reading.offered_mpps, 2.0 * reading.offered_mpps - before)
        return replace(
            self.initial,
            responses={name: self.initial.responses[name] for name in seen},
            settings={name: state.settings[name] for name in seen},
            promised_mpps={name: r.target_mpps for name, r in seen.items() if r.target_mpps is not None},
            offered_mpps=offered,
        )


def _learned(observation: MachineReading, now: Outlook, correction: OnlineCorrection) -> OnlineCorrection:
    """Take the pairs of tenants that were not limited by their load: there prediction and outcome can differ."""
    for name, possible in zip(now.settings, now.parted.capacity_mpps, strict=True):
        reading = observation.tenants[name]
        if reading.offered_mpps is None or reading.throughput_mpps < 0.98 * reading.offered_mpps:
            correction = correction.seen(name, predicted_mpps=possible, measured_mpps=reading.throughput_mpps)
    return correction


def _shortfall(observation: MachineReading) -> float:
    """Return the largest share by which a promise is missed."""
    missing = [
        1.0 - reading.throughput_mpps / reading.needed_mpps
        for reading in observation.tenants.values()
        if reading.broken and reading.needed_mpps
    ]
    return max(missing, default=0.0)
