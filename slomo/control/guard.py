"""The controller `guard` keeps promises by the change that is predicted to cost other tenants least.

Loads change faster than a loop reacts. Settings must therefore keep promises under the worst loads, in which all
promised throughput is offered and best effort is saturated. This also holds before the first reading, since sensors may
be silent from the start. If no settings achieve this, the highest recent loads are used instead.

Observing throughput, loads and latency is cheap. If a promise breaks or is predicted to break, the plant is probed,
which costs more and measures tenants more exactly. The guard then predicts candidate settings and applies the best
ones. It checks them in the next round, and undoes them if they did not help. Settings with enough headroom are loosened
later. Differences between predictions and outcomes correct later predictions (`slomo.drift.correction`).
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from slomo.control.advice import best_effort, candidates, has_room, least_cost
from slomo.control.observation import ControlDecision, MachineReading
from slomo.control.situation import Outlook, Setting, Situation, foresee, foresee_loads, foresee_many, judged
from slomo.drift.correction import OnlineCorrection

#: Share by which predictions must exceed promises.
MARGIN = 0.03
#: Headroom above the margin that is required to loosen settings, and the number of quiet rounds before that.
LOOSE_MARGIN, LOOSE_ROUNDS = 0.04, 6
#: Largest number of candidates predicted in one round.
CANDIDATES = 100
#: Factor by which a load's remembered peak decays per round, and rounds until the worst loads are tried again.
FADING, AGAIN = 0.97, 30
#: Number of remembered settings that did not help; they are not tried again while the same promise is at risk.
REMEMBERED = 8


@dataclass(frozen=True)
class GuardMemory:
    """The guard's state between rounds."""

    #: Settings in force.
    settings: Mapping[str, Setting]
    #: Settings before the last change, until its effect was checked.
    before: Mapping[str, Setting] | None = None
    #: Number of rounds since a promise was last at risk.
    calm: int = 0
    #: Corrections of predictions, learned from outcomes.
    correction: OnlineCorrection = field(default_factory=lambda: OnlineCorrection(weight=0.4))
    #: The highest recent load of each tenant.
    loads_mpps: Mapping[str, float] = field(default_factory=dict)
    #: Number of rounds for which recent peak loads are still used, since no settings keep promises under the worst
    #: loads.
    short: int = 0
    #: Recently tried settings that did not help.
    vain: tuple[Mapping[str, Setting], ...] = ()


class GuardController:
    """Keeps promises by changing cache ways, throttles and CPU weights, chosen by predictions.

    `server`: name of the server in plans. `initial`: its settings are in force at first; a tenant without a setting has
    all ways and no throttle. Its promises are kept before the first reading.
    """

    name = "guard"

    def __init__(self, server: str, initial: Situation) -> None:
        self.server, self.initial = server, initial
        self._first = dict(initial.settings) or initial.open_settings

    def start(self) -> ControlDecision:
        """Return settings that keep promises under the worst loads, before the first reading."""
        known = replace(self._promised(), settings=self._first)
        known = replace(known, offered_mpps=known.promised_mpps)
        best = foresee(known, margin=MARGIN)
        if not best.kept:
            best = best_effort(known, best, MARGIN, CANDIDATES)
        if dict(best.settings) == self._first:
            return ControlDecision(memory=GuardMemory(self._first))
        state = GuardMemory({**self._first, **best.settings})
        return ControlDecision(self.initial.plan(self.server, state.settings), state, ("before the first reading",))

    def protect(self, memory: Any) -> ControlDecision:
        """Return settings that leave promises most headroom while sensors fail; see `Cautious`.

        Settings that were chosen for the worst loads stay. Those chosen for recent loads give way to the ones with most
        headroom at loads halfway to the worst, whatever they cost best effort.
        """
        state = memory if isinstance(memory, GuardMemory) else GuardMemory(self._first)
        if not state.short:
            return ControlDecision(memory=state)
        known = replace(self._promised(), settings=state.settings, bias=state.correction.factors)
        known = halfway(replace(known, offered_mpps=state.loads_mpps))
        now = foresee(known, margin=MARGIN)
        tried = foresee_many(known, list(itertools.islice(candidates(known, now), CANDIDATES)), MARGIN)
        best = max((now, *tried), key=lambda outlook: outlook.spare)
        state = replace(state, settings={**state.settings, **best.settings}, before=None)
        return ControlDecision(self.initial.plan(self.server, state.settings), state, ("sensors failed",), urgent=True)

    def _promised(self) -> Situation:
        """Return the initial situation with those promises whose tenants have a response."""
        promised = {n: mpps for n, mpps in self.initial.promised_mpps.items() if n in self.initial.responses}
        return replace(self.initial, promised_mpps=promised)

    def decide(self, observation: MachineReading, memory: Any) -> ControlDecision:
        """Return the settings for the next round, with a change if a promise is at risk; see `Controller`."""
        state = memory if isinstance(memory, GuardMemory) else GuardMemory(self._first)
        seen = self._situation(observation, state)
        state = replace(state, loads_mpps=_peaks(observation, state.loads_mpps), short=max(state.short - 1, 0))
        late = replace(seen, offered_mpps=state.loads_mpps)
        expected, now = foresee_loads([seen, late if state.short else whatever_comes(late)])
        correction = _learned(observation, expected, state.correction)
        late = replace(late, bias=correction.factors)
        situation = late if state.short else whatever_comes(late)
        now = judged(situation, now.settings, now.parted, MARGIN)
        if (observation.broken or not now.kept) and not observation.probed:
            return ControlDecision(memory=state, probe=True)
        if state.before is not None and self._in_vain(observation, seen, state, state.before):
            return self._back(situation, state, state.before)  # without correcting predictions for other settings
        state = replace(state, correction=correction, before=None)
        if observation.broken or not now.kept:
            return self._tighten(situation, late, now, state, observation)
        return self._loosen(halfway(late) if state.short else situation, state)

    def _in_vain(
        self, observation: MachineReading, situation: Situation, state: GuardMemory, before: Mapping[str, Setting]
    ) -> bool:
        """Return whether the last change did not help: promises are missed by as much as predicted without it."""
        shortfall = _shortfall(observation)
        as_seen = {name: bias.ratio for name, bias in state.correction.biases.items()}
        return shortfall > 0.0 and shortfall >= -foresee(replace(situation, bias=as_seen), before).spare - 1e-9

    def _back(self, situation: Situation, state: GuardMemory, before: Mapping[str, Setting]) -> ControlDecision:
        vain = (*state.vain, state.settings)[-REMEMBERED:]
        back = replace(state, settings=before, before=None, calm=0, vain=vain)
        plan = situation.plan(self.server, before)
        return ControlDecision(plan, back, ("what was tried did not help",), urgent=True)

    def _tighten(
        self, situation: Situation, late: Situation, now: Outlook, state: GuardMemory, observation: MachineReading
    ) -> ControlDecision:
        best = now
        if not state.short and has_room(situation, MARGIN):
            best = best_effort(situation, now, MARGIN, CANDIDATES, state.vain, late)
        if not best.kept and not state.short:
            state, situation, best = replace(state, short=AGAIN), late, foresee(late, margin=MARGIN)
        if state.short and (observation.broken or not best.kept):
            best = least_cost(late, best, MARGIN, CANDIDATES, state.vain)
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
            for looser in foresee_many(situation, weaker, MARGIN + LOOSE_MARGIN):
                if looser.kept:
                    fresh = replace(state, settings={**state.settings, **looser.settings})
                    return ControlDecision(
                        situation.plan(self.server, looser.settings), fresh, ("less is enough",), loosens=True
                    )
        return ControlDecision(situation.plan(self.server, situation.settings), state)

    def _weaker(self, situation: Situation) -> list[Mapping[str, Setting]]:
        """Return looser settings to try: the initial settings, no throttles, throttles half as strong."""
        first = {name: self._first[name] for name in situation.responses}
        free = {name: replace(s, bandwidth_percent=100.0) for name, s in situation.settings.items()}
        halved = {
            name: replace(s, bandwidth_percent=min(100.0, 2.0 * s.bandwidth_percent))
            for name, s in situation.settings.items()
        }
        return [each for each in (first, free, halved) if each != situation.settings]

    def _situation(self, observation: MachineReading, state: GuardMemory) -> Situation:
        """Return the situation with the present settings and the observed loads."""
        seen = {name: reading for name, reading in observation.tenants.items() if name in self.initial.responses}
        return replace(
            self.initial,
            responses={name: self.initial.responses[name] for name in seen},
            settings={name: state.settings[name] for name in seen},
            promised_mpps={name: r.target_mpps for name, r in seen.items() if r.target_mpps is not None},
            offered_mpps={name: r.offered_mpps for name, r in seen.items() if r.offered_mpps is not None},
        )


def whatever_comes(situation: Situation) -> Situation:
    """Return the situation at the worst loads: all promised throughput is offered, and best effort is saturated.

    >>> loads = {"promised": 0.5, "best effort": 0.1}
    >>> dict(whatever_comes(Situation({}, None, 1, {}, {"promised": 1.0}, loads)).offered_mpps)
    {'promised': 1.0}
    """
    offered = situation.offered_mpps
    promised = {name: max(mpps, offered[name]) for name, mpps in situation.promised_mpps.items() if name in offered}
    return replace(situation, offered_mpps=promised)


def halfway(situation: Situation) -> Situation:
    """Return the situation with loads halfway between the observed and the worst ones.

    >>> loads = {"promised": 0.5, "best effort": 0.1}
    >>> dict(halfway(Situation({}, None, 1, {}, {"promised": 1.0}, loads)).offered_mpps)
    {'promised': 0.75, 'best effort': 0.1}
    """
    worst = whatever_comes(situation).offered_mpps
    between = {name: (mpps + worst.get(name, mpps)) / 2.0 for name, mpps in situation.offered_mpps.items()}
    return replace(situation, offered_mpps=between)


def _peaks(observation: MachineReading, before: Mapping[str, float]) -> dict[str, float]:
    """Return the highest recent load of each tenant."""
    return {
        name: max(reading.offered_mpps, FADING * before.get(name, 0.0))
        for name, reading in observation.tenants.items()
        if reading.offered_mpps is not None
    }


def _learned(observation: MachineReading, now: Outlook, correction: OnlineCorrection) -> OnlineCorrection:
    """Correct predictions by the measured throughput of tenants that is not limited by their load."""
    for name, possible in zip(now.settings, now.parted.capacity_mpps, strict=True):
        reading = observation.tenants[name]
        if reading.offered_mpps is None or reading.late or reading.throughput_mpps < 0.98 * reading.offered_mpps:
            correction = correction.seen(name, predicted_mpps=possible, measured_mpps=reading.throughput_mpps)
    return correction


def _shortfall(observation: MachineReading) -> float:
    """Return the largest relative shortfall of any tenant's throughput below its promise."""
    missing = [
        1.0 - reading.throughput_mpps / reading.needed_mpps
        for reading in observation.tenants.values()
        if reading.broken and reading.needed_mpps
    ]
    return max(missing, default=0.0)
