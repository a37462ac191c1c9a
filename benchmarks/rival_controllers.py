"""PARTIES (Chen, Delimitrou, Martinez, ASPLOS'19) and Heracles (Lo et al., ISCA'15), for `benchmarks/controllers.py`.

They are written from their papers with what there is here: cache ways, and bandwidth of best effort in steps of 10 %.
Cores, frequency, disk and network are nobody's to move. "Disabled" best effort keeps one way and 10 % of bandwidth.
Both set what they begin with before the first round.
"""

from dataclasses import dataclass, field, replace

from slomo.control.advice import isolated
from slomo.control.observation import ControlDecision, MachineReading
from slomo.control.situation import Situation


@dataclass
class Division:
    """Ways by promised tenant; all others share the rest, under one throttle [%]."""

    ways: dict[str, int]
    rest: int
    percent: float = 100.0

    def plan(self, situation: Situation) -> ControlDecision:
        """Return it as a decision."""
        everybody = replace(situation, settings=situation.open_settings)
        settings = {
            name: setting if name in self.ways else replace(setting, bandwidth_percent=self.percent)
            for name, setting in isolated(everybody, self.ways).items()
        }
        return ControlDecision(situation.plan("s", {name: settings[name] for name in situation.responses}), self)


def slacks(observation: MachineReading, knees: dict[str, float]) -> dict[str, float]:
    """Return by how much each promised tenant is below its latency target; far below where hardly anything arrives."""
    return {
        name: 1.0 - (reading.latency_us or 0.0) / knees[name]
        for name, reading in observation.tenants.items()
        if name in knees
    }


@dataclass
class Parties:
    """PARTIES: slack below 5 % is upsized, above 20 % for all downsized; one unit of one resource a round."""

    situation: Situation
    knees: dict[str, float]
    name: str = "parties"
    #: Resource that each tenant adjusts now: 0 ways, 1 bandwidth of best effort.
    wheel: dict[str, int] = field(default_factory=dict)
    #: Who was adjusted last, up or down, its latency then, and what was before.
    last: tuple[str, str, float, Division] | None = None
    #: Rounds until something is downsized again, after a violation that it caused.
    frozen: int = 0

    def decide(self, observation: MachineReading, memory: object) -> ControlDecision:
        """Adjust one unit of one resource; see `Controller`."""
        division = memory if isinstance(memory, Division) else self._equal()
        slack, last, self.last = slacks(observation, self.knees), self.last, None
        self.frozen = max(self.frozen - 1, 0)
        if last is not None:
            who, way, before_us, before = last
            if way == "down" and slack[who] < 0.0:  # undone at once, and the next resource is tried later
                self._turn(who)
                self.frozen = 30
                return before.plan(self.situation)
            if way == "up" and (observation.tenants[who].latency_us or 0.0) >= before_us:
                self._turn(who)
        worst, best = min(slack, key=lambda n: slack[n]), max(slack, key=lambda n: slack[n])
        if slack[worst] < 0.05:
            return self._moved(observation, division, worst, "up", slack)
        if slack[best] > 0.2 and min(slack.values()) > 0.2 and not self.frozen:
            return self._moved(observation, division, best, "down", slack)
        return division.plan(self.situation)

    def _moved(
        self, observation: MachineReading, division: Division, who: str, way: str, slack: dict[str, float]
    ) -> ControlDecision:
        for _ in range(2):
            after = self._adjusted(division, who, 1 if way == "up" else -1, slack)
            if after is not None:
                self.last = who, way, observation.tenants[who].latency_us or 0.0, division
                return after.plan(self.situation)
            self._turn(who)
        return division.plan(self.situation)

    def _adjusted(self, division: Division, who: str, by: int, slack: dict[str, float]) -> Division | None:
        if self.wheel.get(who, 0) == 1:
            percent = division.percent - 10.0 * by
            return replace(division, percent=percent) if 10.0 <= percent <= 100.0 else None
        ways = {**division.ways, who: division.ways[who] + by}
        if by < 0:
            return replace(division, ways=ways, rest=division.rest + 1) if ways[who] >= 1 else None
        if division.rest > 1:  # best effort gives first
            return replace(division, ways=ways, rest=division.rest - 1)
        giver = max(slack, key=lambda n: slack[n])
        if giver == who or division.ways[giver] < 2:
            return None
        return replace(division, ways={**ways, giver: ways[giver] - 1})

    def _turn(self, who: str) -> None:
        self.wheel[who] = 1 - self.wheel.get(who, 0)

    def start(self) -> ControlDecision:
        """Begin with equal parts; see `slomo.control.observation.Foresighted`."""
        return self._equal().plan(self.situation)

    def _equal(self) -> Division:
        names, ways = list(self.situation.promised_mpps), self.situation.ways
        share = max(ways // (len(names) + 1), 1)
        return Division(dict.fromkeys(names, share), ways - share * len(names))


@dataclass
class Heracles:
    """Heracles: best effort grows way by way while slack and bandwidth allow, and is disabled where they do not."""

    situation: Situation
    knees: dict[str, float]
    memory_gb_s: float
    name: str = "heracles"
    #: Rounds until best effort may run again; its share of rounds is the paper's (5 minutes in polls of 15 s).
    cooling: int = 0
    enabled: bool = False
    #: Bandwidth moved the round before last [share of the channel], and whether ways grow.
    moved: float = 0.0

    def decide(self, observation: MachineReading, memory: object) -> ControlDecision:
        """Disable, shrink, keep or grow best effort; see `Controller`."""
        division = memory if isinstance(memory, Division) else self._disabled()
        slack = min(slacks(observation, self.knees).values())
        load = max(
            (observation.tenants[n].offered_mpps or 0.0) / target for n, target in self.situation.promised_mpps.items()
        )
        self.cooling = max(self.cooling - 1, 0)
        if slack < 0.0:
            self.enabled, self.cooling = False, 20
        elif load > 0.85:
            self.enabled = False
        elif load < 0.8 and not self.cooling:
            self.enabled = True
        if not self.enabled:
            return self._disabled().plan(self.situation)
        bandwidth = self._bandwidth(observation)
        if bandwidth > 0.9 or slack < 0.05:
            division = replace(division, percent=max(division.percent - 20.0, 10.0))
        elif slack >= 0.1:  # else nothing may grow
            division = self._grown(division, bandwidth)
        self.moved = bandwidth
        return division.plan(self.situation)

    def _grown(self, division: Division, bandwidth: float) -> Division:
        """Grow the cache of best effort until that costs bandwidth, then what it may move."""
        donor = max(division.ways, key=lambda n: division.ways[n])
        if division.ways[donor] > 1 and bandwidth <= self.moved + 0.02:
            ways = {**division.ways, donor: division.ways[donor] - 1}
            return replace(division, ways=ways, rest=division.rest + 1)
        return replace(division, percent=min(division.percent + 10.0, 100.0))

    def _bandwidth(self, observation: MachineReading) -> float:
        misses = sum(reading.misses_m_s or 0.0 for reading in observation.tenants.values())
        return misses * 64.0e-3 / self.memory_gb_s

    def start(self) -> ControlDecision:
        """Begin with best effort disabled; see `slomo.control.observation.Foresighted`."""
        return self._disabled().plan(self.situation)

    def _disabled(self) -> Division:
        names = list(self.situation.promised_mpps)
        share, left = divmod(self.situation.ways - 1, len(names))
        return Division({name: share + (number < left) for number, name in enumerate(names)}, 1, 10.0)
