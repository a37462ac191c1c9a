"""What would help: predicted throughput of every tenant under settings, and the smallest change that keeps all SLOs.

Candidates grow from one lever on one tenant (throttle who was promised nothing, give who suffers ways of its own) to
ways for everybody who was promised something; of those that suffice the one that changes fewest tenants wins, then the
one that leaves the most throughput.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from slomo.equilibrium.partition import Part, Parted, bottleneck, solve_partitions
from slomo.errors import InvalidValueError
from slomo.models.responses.partition import MemoryTraffic, PartitionResponse

#: Throttles that are tried [%], weakest first.
THROTTLES = (70.0, 50.0, 30.0, 20.0, 10.0)
#: A gain of spare throughput that is not worth a change.
HARDLY = 0.005
#: Tenants without a promise that are throttled alone, and portions of the ways that are tried for who suffers.
HEAVIEST, PORTIONS = 3, (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True)
class Setting:
    """What one tenant has.

    Attributes
    ----------
    mask : int
        Cache ways it may fill.
    bandwidth_percent : float
        Memory bandwidth throttle [%]; 100 is none.
    """

    mask: int
    bandwidth_percent: float = 100.0


@dataclass(frozen=True)
class Situation:
    """A socket, its tenants, and what was promised.

    Attributes
    ----------
    responses : mapping of str to PartitionResponse
        Tenant -> response.
    memory : MemoryTraffic
        Of the socket.
    ways : int
        Of its cache.
    settings : mapping of str to Setting
        Tenant -> what it has now.
    promised_mpps : mapping of str to float
        Tenant -> throughput it must have; who is missing was promised nothing.
    offered_mpps : mapping of str to float
        Tenant -> load; who is missing is saturated.
    bias : mapping of str to float
        Tenant -> factor by which predictions of it were wrong lately.
    """

    responses: Mapping[str, PartitionResponse]
    memory: MemoryTraffic
    ways: int
    settings: Mapping[str, Setting]
    promised_mpps: Mapping[str, float] = field(default_factory=dict)
    offered_mpps: Mapping[str, float] = field(default_factory=dict)
    bias: Mapping[str, float] = field(default_factory=dict)

    def parts(self, settings: Mapping[str, Setting]) -> list[Part]:
        """Return the tenants as the solver wants them."""
        return [
            Part(
                response,
                settings[name].mask,
                settings[name].bandwidth_percent,
                self.offered_mpps.get(name),
            )
            for name, response in self.responses.items()
        ]


@dataclass(frozen=True)
class Outlook:
    """What settings are predicted to give.

    Attributes
    ----------
    settings : mapping of str to Setting
        Which.
    throughput_mpps : mapping of str to float
        By tenant.
    parted : Parted
        The solution behind it.
    broken : tuple of str
        Tenants whose promise does not hold, the worst first.
    """

    settings: Mapping[str, Setting]
    throughput_mpps: Mapping[str, float]
    parted: Parted
    broken: tuple[str, ...]

    @property
    def kept(self) -> bool:
        """Whether every promise holds."""
        return not self.broken


def foresee(
    situation: Situation,
    settings: Mapping[str, Setting] | None = None,
    margin: float = 0.0,
) -> Outlook:
    """Predict every tenant under settings; a promise holds with `margin` to spare.

    Raises
    ------
    InvalidValueError
        For a tenant without a setting.
    """
    return foresee_many(situation, [situation.settings if settings is None else settings], margin)[0]


def foresee_many(situation: Situation, settings: Sequence[Mapping[str, Setting]], margin: float = 0.0) -> list[Outlook]:
    """Predict every tenant under many settings at once; see :func:`foresee`."""
    missing = sorted({name for chosen in settings for name in set(situation.responses) - set(chosen)})
    if missing:
        raise InvalidValueError(f"tenant '{missing[0]}' has no setting", hint="name its ways")
    solved = solve_partitions([situation.parts(chosen) for chosen in settings], situation.memory)
    pairs = zip(settings, solved, strict=True)
    return [_outlook(situation, chosen, parted, margin) for chosen, parted in pairs]


def _outlook(situation: Situation, chosen: Mapping[str, Setting], parted: Parted, margin: float) -> Outlook:
    mpps = {
        name: value * situation.bias.get(name, 1.0)
        for name, value in zip(situation.responses, parted.throughput_mpps, strict=True)
    }
    ratios = {
        name: mpps[name] / _needed(situation, name)
        for name in situation.promised_mpps
        if name in mpps and _needed(situation, name) > 0.0
    }
    broken = sorted(
        (name for name, ratio in ratios.items() if ratio < 1.0 + margin),
        key=lambda name: ratios[name],
    )
    return Outlook(chosen, mpps, parted, tuple(broken))


def _needed(situation: Situation, name: str) -> float:
    """Return what a tenant must have: what was promised, or its load where that is less."""
    return min(situation.promised_mpps[name], situation.offered_mpps.get(name, float("inf")))


def advise(situation: Situation, margin: float = 0.02, limit: int = 400) -> Outlook | None:
    """Return the smallest change after which every promise holds; None where none was found.

    Parameters
    ----------
    situation : Situation
        What is.
    margin : float
        Share by which promises are exceeded, for the errors of predictions.
    limit : int
        Candidates tried at most.

    Examples
    --------
    >>> lpm = PartitionResponse("lpm", 5.0, (1.0, 20.0), (0.2, 0.2), (4.0, 0.0), (256.0, 0.0))
    >>> whole = {"a": Setting(0xFFFFF), "b": Setting(0xFFFFF)}
    >>> memory = MemoryTraffic((80.0, 200.0), (0.0, 50.0))
    >>> best = advise(Situation({"a": lpm, "b": lpm}, memory, 20, whole, {"a": 4.5}))
    >>> best.kept, best.settings["a"].mask.bit_count() > 10
    (True, True)
    """
    now = foresee(situation, margin=margin)
    if now.kept:
        return now
    tried = list(itertools.islice(candidates(situation, now), limit))
    kept = [outlook for outlook in foresee_many(situation, tried, margin) if outlook.kept]
    return min(
        kept,
        key=lambda outlook: (
            _changed(situation, outlook),
            -welfare(situation, outlook),
        ),
        default=None,
    )


def best_effort(situation: Situation, margin: float, limit: int) -> Outlook:
    """Return what `advise` would, or where nothing keeps every promise what breaks fewest, and those least.

    Where that is hardly better than what is in force, what is in force is returned.
    """
    now = foresee(situation)
    tried = foresee_many(situation, list(itertools.islice(candidates(situation, now), limit)))
    enough = [outlook for outlook in (now, *tried) if spare(situation, outlook) >= margin]
    if enough:
        return min(
            enough,
            key=lambda outlook: (
                _changed(situation, outlook),
                -welfare(situation, outlook),
            ),
        )
    best = min(
        (now, *tried),
        key=lambda outlook: (len(outlook.broken), -spare(situation, outlook)),
    )
    gained = spare(situation, best) - spare(situation, now)
    return best if len(best.broken) < len(now.broken) or gained > HARDLY else now


def spare(situation: Situation, outlook: Outlook) -> float:
    """Return by which share the promise that is nearest to breaking is exceeded (below 0: missed)."""
    shares = [
        outlook.throughput_mpps[name] / _needed(situation, name) - 1.0
        for name in situation.promised_mpps
        if name in outlook.throughput_mpps
    ]
    return min(shares, default=float("inf"))


def _changed(situation: Situation, outlook: Outlook) -> int:
    return sum(outlook.settings[name] != setting for name, setting in situation.settings.items())


def welfare(situation: Situation, outlook: Outlook) -> float:
    """Return the mean share of its solo throughput (or load) that a tenant has."""
    shares = [
        min(
            1.0,
            mpps
            / min(
                situation.responses[name].solo_mpps,
                situation.offered_mpps.get(name, float("inf")),
            ),
        )
        for name, mpps in outlook.throughput_mpps.items()
    ]
    return sum(shares) / len(shares) if shares else 1.0


def candidates(situation: Situation, now: Outlook) -> Iterator[dict[str, Setting]]:
    """Return settings to try, small changes first."""
    current = dict(situation.settings)
    noisy = _by_traffic(situation, now)
    for percent in THROTTLES:
        yield from ({**current, name: replace(current[name], bandwidth_percent=percent)} for name in noisy[:HEAVIEST])
    for percent in THROTTLES:
        yield {
            **current,
            **{name: replace(current[name], bandwidth_percent=percent) for name in noisy},
        }
    for share in PORTIONS[1:]:
        yield isolated(
            situation,
            {_nearest(situation, now): min(situation.ways - 1, max(1, round(share * situation.ways)))},
        )
    suffering = {name: minimal_ways(situation, name) for name in situation.promised_mpps if name in situation.responses}
    left = situation.ways - 1 - sum(suffering.values())
    for ways in dict.fromkeys(int(share * left / max(1, len(suffering))) for share in PORTIONS) if left >= 0 else ():
        apart = isolated(situation, {name: least + ways for name, least in suffering.items()})
        for percent in (100.0, *THROTTLES):
            throttled = {name: replace(apart[name], bandwidth_percent=percent) for name in noisy}
            yield {**apart, **throttled}


def _nearest(situation: Situation, now: Outlook) -> str:
    """Return the tenant whose promise is nearest to breaking."""
    names = [name for name in situation.promised_mpps if name in now.throughput_mpps]
    return min(names, key=lambda name: now.throughput_mpps[name] / _needed(situation, name))


def isolated(situation: Situation, ways: Mapping[str, int]) -> dict[str, Setting]:
    """Give some tenants ways of their own from below, and all others the rest together."""
    settings: dict[str, Setting] = {}
    first = 0
    for name, count in ways.items():
        settings[name] = replace(situation.settings[name], mask=((1 << count) - 1) << first)
        first += count
    rest = ((1 << (situation.ways - first)) - 1) << first
    return {
        name: settings.get(name) or replace(situation.settings[name], mask=rest or situation.settings[name].mask)
        for name in situation.responses
    }


def minimal_ways(situation: Situation, name: str) -> int:
    """Return the fewest ways with which a tenant keeps its promise where memory is idle."""
    response, idle = situation.responses[name], situation.memory.latency_ns[0]
    needed = _needed(situation, name) / situation.bias.get(name, 1.0)
    fitting = (ways for ways in range(1, situation.ways + 1) if response.mpps(ways, idle) >= needed)
    return next(fitting, situation.ways)


def _by_traffic(situation: Situation, now: Outlook) -> Sequence[str]:
    """Return the tenants that were promised nothing, the heaviest on memory first."""
    names = list(situation.responses)
    moved = {
        name: now.parted.throughput_mpps[i] * situation.responses[name].line(now.parted.ways[i])[2]
        for i, name in enumerate(names)
        if name not in situation.promised_mpps
    }
    return sorted(moved, key=lambda name: -moved[name])


def explain(situation: Situation, outlook: Outlook, name: str) -> tuple[str, Mapping[str, float], str]:
    """Return a tenant's bottleneck, its losses by cause, and the lever that helps against it.

    Examples
    --------
    >>> lpm = PartitionResponse("lpm", 5.0, (1.0, 20.0), (0.2, 0.2), (4.0, 0.0), (256.0, 0.0))
    >>> alone = Situation({"a": lpm}, MemoryTraffic((80.0, 200.0), (0.0, 50.0)), 20, {"a": Setting(1)})
    >>> explain(alone, foresee(alone), "a")[::2]
    ('cache', 'more cache ways')
    """
    index = list(situation.responses).index(name)
    part = situation.parts(outlook.settings)[index]
    cause, losses = bottleneck(part, outlook.parted, index, situation.memory)
    levers = {
        "cache": "more cache ways",
        "memory bandwidth": "throttle the memory bandwidth of its neighbours",
        "throttle": "a weaker throttle",
        "nothing": "none needed",
    }
    return cause, losses, levers[cause]
