"""The guard: keeps promised throughput with the smallest change that is predicted to help.

Watching is cheap. Where a promise breaks, or is predicted to break at the loads seen, candidates are tried in a
what-if; the best is applied, looked at in the next round, and taken back where it did not help. What holds with room to
spare is loosened later. Pairs of prediction and outcome correct the predictions (`slomo.drift.correction`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from slomo.control.advice import (
    Outlook,
    Setting,
    Situation,
    best_effort,
    foresee,
    spare,
)
from slomo.control.observation import ControlDecision, MachineReading
from slomo.drift.correction import OnlineCorrection
from slomo.enforce.plan import EnforcementPlan, MemoryBandwidth, TenantSetting
from slomo.models.responses.partition import MemoryTraffic, PartitionResponse

#: Room to spare before a change is loosened, and rounds it must hold.
LOOSE_MARGIN, LOOSE_ROUNDS = 0.06, 6
#: Candidates that are tried in one round.
CANDIDATES = 100


@dataclass(frozen=True)
class GuardMemory:
    """What the guard remembers.

    Attributes
    ----------
    settings : mapping of str to Setting
        What is in force.
    before : mapping of str to Setting or None
        What was before the last change, until it was looked at.
    calm : int
        Rounds without suspicion.
    correction : OnlineCorrection
        Biases.
    """

    settings: Mapping[str, Setting]
    before: Mapping[str, Setting] | None = None
    calm: int = 0
    correction: OnlineCorrection = field(default_factory=OnlineCorrection)


class GuardController:
    """Keeps promises by ways and throttles.

    Parameters
    ----------
    server : str
        Name for the plan.
    responses : mapping of str to PartitionResponse
        Tenant -> response.
    memory : MemoryTraffic
        Of the socket.
    ways : int
        Of its cache.
    margin : float
        Share by which predictions must exceed promises.
    """

    name = "guard"

    def __init__(
        self,
        server: str,
        responses: Mapping[str, PartitionResponse],
        memory: MemoryTraffic,
        ways: int,
        margin: float = 0.03,
    ) -> None:
        self.server, self.responses, self.memory = server, dict(responses), memory
        self.ways, self.margin = ways, margin

    def decide(self, observation: MachineReading, memory: Any) -> ControlDecision:
        """Return what would help most; see `Controller`."""
        open_ = {name: Setting((1 << self.ways) - 1) for name in self.responses}
        state = memory if isinstance(memory, GuardMemory) else GuardMemory(open_)
        situation = self._situation(observation, state)
        now = foresee(situation)
        state = replace(state, correction=self._learn(observation, now, state))
        shortfall = _shortfall(observation)
        if state.before is not None and shortfall > 0.0 and shortfall >= self._without(situation, state):
            back = replace(state, settings=state.before, before=None, calm=0)
            return ControlDecision(
                self._plan(back.settings),
                back,
                ("what was tried did not help",),
                urgent=True,
            )
        state = replace(state, before=None)
        situation = replace(situation, bias=state.correction.factors)
        suspicious = foresee(situation, margin=self.margin / 2)
        if observation.broken or suspicious.broken:
            return self._tighten(situation, state, observation)
        return self._loosen(situation, state, open_)

    def _without(self, situation: Situation, state: GuardMemory) -> float:
        """Return the share by which a promise would be missed now had the last change not been made."""
        return -spare(situation, foresee(situation, state.before))

    def _tighten(self, situation: Situation, state: GuardMemory, observation: MachineReading) -> ControlDecision:
        best = best_effort(situation, self.margin, CANDIDATES)
        if dict(best.settings) == dict(state.settings):
            gone = tuple(observation.broken)
            return ControlDecision(
                self._plan(state.settings),
                replace(state, calm=0),
                ("nothing helps more",),
                gone,
            )
        changed = [name for name, setting in best.settings.items() if setting != state.settings[name]]
        reasons = (f"{', '.join(observation.broken) or 'a promise'} at risk: change {', '.join(changed)}",)
        fresh = replace(
            state,
            settings=best.settings,
            before=state.settings,
            calm=0,
        )
        return ControlDecision(self._plan(best.settings), fresh, reasons)

    def _loosen(self, situation: Situation, state: GuardMemory, open_: Mapping[str, Setting]) -> ControlDecision:
        state = replace(state, calm=state.calm + 1)
        if state.calm < LOOSE_ROUNDS or dict(state.settings) == dict(open_):
            return ControlDecision(
                self._plan(state.settings) if dict(state.settings) != dict(open_) else None,
                state,
            )
        if foresee(situation, open_, LOOSE_MARGIN).kept:
            fresh = replace(state, settings=dict(open_), calm=0)
            return ControlDecision(self._plan(open_), fresh, ("no partition is needed any more",))
        return ControlDecision(self._plan(state.settings), replace(state, calm=0))

    def _situation(self, observation: MachineReading, state: GuardMemory) -> Situation:
        seen = {name: reading for name, reading in observation.tenants.items() if name in self.responses}
        promised = {name: r.target_mpps for name, r in seen.items() if r.target_mpps is not None}
        offered = {name: r.offered_mpps for name, r in seen.items() if r.offered_mpps is not None}
        responses = {name: self.responses[name] for name in seen}
        settings = {name: state.settings[name] for name in seen}
        return Situation(responses, self.memory, self.ways, settings, promised, offered)

    def _learn(self, observation: MachineReading, now: Outlook, state: GuardMemory) -> OnlineCorrection:
        """Take the pairs of tenants that were not limited by their load: there prediction and outcome can differ."""
        correction = state.correction
        for name, predicted in now.throughput_mpps.items():
            reading = observation.tenants[name]
            if reading.offered_mpps is None or reading.throughput_mpps < 0.98 * reading.offered_mpps:
                correction = correction.seen(
                    name,
                    predicted_mpps=predicted,
                    measured_mpps=reading.throughput_mpps,
                )
        return correction

    def _plan(self, settings: Mapping[str, Setting]) -> EnforcementPlan:
        full = (1 << self.ways) - 1
        return EnforcementPlan(
            self.server,
            tuple(
                TenantSetting(
                    name,
                    llc_way_mask=None if setting.mask == full else setting.mask,
                    memory_bandwidth=None
                    if setting.bandwidth_percent >= 100.0
                    else MemoryBandwidth(setting.bandwidth_percent),
                )
                for name, setting in settings.items()
            ),
        )


def _shortfall(observation: MachineReading) -> float:
    """Return the largest share by which a promise is missed."""
    missing = [
        1.0 - reading.throughput_mpps / reading.needed_mpps
        for reading in observation.tenants.values()
        if reading.broken and reading.needed_mpps
    ]
    return max(missing, default=0.0)
