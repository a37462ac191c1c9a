"""A socket with its tenants and their promises, and predictions of throughput under given settings.

A promise holds if the tenant's possible throughput beside its neighbours reaches the promise. While a tenant's load is
below its promise, its served throughput does not show the headroom.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from slomo.enforce.plan import EnforcementPlan, MemoryBandwidth, TenantSetting
from slomo.equilibrium.partition import Parted, Partitions, bottleneck, solve_partitions
from slomo.errors import InvalidValueError
from slomo.models.responses.memory_traffic import MemoryTraffic
from slomo.models.responses.partition import PartitionResponse
from slomo.prediction.answers import answers_on
from slomo.prediction.options import PredictionOptions
from slomo.prediction.tenants import TenantModels

_PLAIN = PredictionOptions(explain=False)
#: Bottleneck -> remedy.
LEVERS = {
    "cache": "more cache ways",
    "memory bandwidth": "throttle the memory bandwidth of its neighbours",
    "throttle": "a weaker throttle",
    "remote memory": "its memory on the node of its core",
    "shared core": "a larger CPU weight, or a core of its own",
    "nothing": "none needed",
}


@dataclass(frozen=True)
class Setting:
    """Cache ways, memory throttle, memory node and CPU weight of one tenant."""

    #: Mask of the cache ways that the tenant may fill.
    mask: int
    #: Memory bandwidth throttle [%]; 100 means unthrottled.
    bandwidth_percent: float = 100.0
    #: CPU weight on a shared core, above 0.
    weight: float = 1.0
    #: Whether the tenant's memory is on another node than its core.
    remote: bool = False


@dataclass(frozen=True)
class Situation:
    """A socket, its tenants, and the promises to them."""

    #: Tenant -> its response to cache ways, throttles and neighbours.
    responses: Mapping[str, PartitionResponse]
    #: Memory of the socket.
    memory: MemoryTraffic
    #: Number of ways of the socket's cache.
    ways: int
    #: Tenant -> its present setting.
    settings: Mapping[str, Setting] = field(default_factory=dict)
    #: Tenant -> promised throughput; tenants not listed have no promise.
    promised_mpps: Mapping[str, float] = field(default_factory=dict)
    #: Tenant -> load; tenants not listed are saturated.
    offered_mpps: Mapping[str, float] = field(default_factory=dict)
    #: Tenant -> factor that corrects its predicted throughput, from recent measurements.
    bias: Mapping[str, float] = field(default_factory=dict)
    #: Tenant -> core, shared by tenants with the same number; a tenant that is missing here has a core of its own.
    cores: Mapping[str, int] = field(default_factory=dict)
    #: Tenant -> number of its last-level cache, on sockets with several.
    llcs: Mapping[str, int] = field(default_factory=dict)
    #: Additional latency of another node's memory [ns].
    remote_ns: float = 0.0
    #: Share by which predictions of tenants that share ways are lowered before they are compared with promises.
    shared_doubt: float = 0.0
    #: The tenants' models, in the same order, with their cores and port. If nothing is divided, these models predict,
    #: as in `slomo predict`.
    server: TenantModels | None = None
    #: How these models predict.
    how: PredictionOptions = _PLAIN

    def set_on(self, server: TenantModels, settings: Mapping[str, Setting]) -> TenantModels:
        """Return a server with the same tenants under other settings; cores and port stay the same."""
        chosen = [settings[name] for name in self.responses]
        setting = replace(
            server.setting,
            ways=tuple(each.mask for each in chosen),
            bandwidth_percent=tuple(each.bandwidth_percent for each in chosen),
            weights=tuple(each.weight for each in chosen),
            nodes=tuple(socket + each.remote for each, socket in zip(chosen, server.sockets, strict=True)),
        )
        return replace(server, setting=setting)

    def shares_ways(self, settings: Mapping[str, Setting], name: str) -> bool:
        """Return whether a tenant shares at least one cache way with another."""
        mine, llc = settings[name].mask, self.llcs.get(name)
        return any(s.mask & mine for key, s in settings.items() if key != name and self.llcs.get(key) == llc)

    @property
    def open_settings(self) -> dict[str, Setting]:
        """Return settings with all ways for every tenant and no throttle."""
        return dict.fromkeys(self.responses, Setting((1 << self.ways) - 1))

    def partitions(self, settings: Sequence[Mapping[str, Setting]]) -> Partitions:
        """Return the tenants under each of many settings, in the form that the solver takes."""
        names, shape = list(self.responses), (len(settings), len(self.responses))
        every = [chosen[name] for chosen in settings for name in names]
        remote = np.array([each.remote for each in every], dtype=bool).reshape(shape)
        return Partitions(
            list(self.responses.values()),
            np.array([each.mask for each in every], dtype=np.int64).reshape(shape),
            None,
            np.array([each.bandwidth_percent for each in every]).reshape(shape),
            np.array([self.offered_mpps.get(name, np.inf) for name in names]),
            np.array([self.cores.get(name, -1) for name in names]),
            np.array([each.weight for each in every]).reshape(shape),
            np.where(remote, self.remote_ns, 0.0),
            np.array([[self.llcs.get(name, 0) for name in names]]),
        )

    @cached_property
    def best_effort_mpps(self) -> dict[str, float]:
        """Tenants without a promise -> solo throughput (or the load, if less), if above 0."""
        offered = self.offered_mpps
        most = {name: min(each.solo_mpps, offered.get(name, math.inf)) for name, each in self.responses.items()}
        return {name: mpps for name, mpps in most.items() if name not in self.promised_mpps and mpps > 0.0}

    def needed_mpps(self, name: str) -> float:
        """Return a tenant's required throughput: its promise or, if less, its load."""
        return min(self.promised_mpps[name], self.offered_mpps.get(name, math.inf))

    def plan(self, server: str, settings: Mapping[str, Setting]) -> EnforcementPlan:
        """Return settings as a plan that can be applied."""
        return EnforcementPlan(server, tuple(self._enforced(name, setting) for name, setting in settings.items()))

    def _enforced(self, name: str, setting: Setting) -> TenantSetting:
        throttled = setting.bandwidth_percent < 100.0
        return TenantSetting(
            name,
            llc_way_mask=None if setting.mask == (1 << self.ways) - 1 else setting.mask,
            memory_bandwidth=MemoryBandwidth(setting.bandwidth_percent) if throttled else None,
            cpu_weight=setting.weight if name in self.cores else None,
        )


@dataclass(frozen=True)
class Outlook:
    """Predicted throughput of every tenant under some settings, and its relative headroom above the promise."""

    #: The settings.
    settings: Mapping[str, Setting]
    #: Predicted throughput by tenant.
    throughput_mpps: Mapping[str, float]
    #: Tenant with a promise -> possible throughput divided by required throughput, minus 1; negative if the promise
    #: breaks.
    room: Mapping[str, float]
    #: The solver's result for these settings.
    parted: Parted
    #: Headroom that a promise needs to count as kept.
    margin: float = 0.0

    @property
    def broken(self) -> tuple[str, ...]:
        """Tenants whose promise is predicted to break, worst first."""
        return tuple(sorted((n for n, room in self.room.items() if room < self.margin), key=lambda n: self.room[n]))

    @property
    def kept(self) -> bool:
        """Whether every promise is predicted to be kept."""
        return self.spare >= self.margin

    @property
    def spare(self) -> float:
        """Smallest relative headroom above any promise; infinite if there are no promises."""
        return min(self.room.values(), default=math.inf)


def foresee(situation: Situation, settings: Mapping[str, Setting] | None = None, margin: float = 0.0) -> Outlook:
    """Predict every tenant under some settings; a promise is kept if throughput exceeds it by `margin`."""
    return foresee_many(situation, [situation.settings if settings is None else settings], margin)[0]


def foresee_many(situation: Situation, settings: Sequence[Mapping[str, Setting]], margin: float = 0.0) -> list[Outlook]:
    """Predict every tenant under many settings at once; see :func:`foresee`."""
    try:
        partitions = situation.partitions(settings)
    except KeyError as missing:
        raise InvalidValueError(f"tenant '{missing.args[0]}' has no setting", hint="name its ways") from None
    solved = solve_partitions(partitions, situation.memory)
    pairs = zip(settings, solved, strict=True)
    return [judged(situation, chosen, _undivided(situation, chosen, parted), margin) for chosen, parted in pairs]


def foresee_loads(situations: Sequence[Situation]) -> list[Outlook]:
    """Predict the present settings of situations that differ in loads, in promises or in bias, all at once."""
    same = situations[0].partitions([each.settings for each in situations])
    names = list(situations[0].responses)
    loads = np.array([[each.offered_mpps.get(name, np.inf) for name in names] for each in situations])
    solved = zip(situations, solve_partitions(replace(same, offered_mpps=loads), situations[0].memory), strict=True)
    return [judged(each, each.settings, _undivided(each, each.settings, parted)) for each, parted in solved]


def _undivided(situation: Situation, chosen: Mapping[str, Setting], parted: Parted) -> Parted:
    """Replace the prediction by that of the tenants' ordinary models, which apply where nothing is divided."""
    server = situation.server and situation.set_on(situation.server, chosen)
    if server is None or server.is_divided:
        return parted
    answers, places = answers_on(server, situation.how), range(len(server.tenants))
    mpps = tuple(answers.prediction(place).throughput_mpps for place in places)
    return replace(parted, throughput_mpps=mpps, capacity_mpps=tuple(answers.possible_mpps(place) for place in places))


def judged(situation: Situation, chosen: Mapping[str, Setting], parted: Parted, margin: float = 0.0) -> Outlook:
    """Compare predicted throughputs with the promises, after correcting biases known from measurements."""
    bias, offered, room = situation.bias, situation.offered_mpps, {}
    most = {
        name: possible * bias.get(name, 1.0)
        for name, possible in zip(situation.responses, parted.capacity_mpps, strict=True)
    }
    mpps = {name: min(possible, offered[name]) if name in offered else possible for name, possible in most.items()}
    for name in situation.promised_mpps:
        if name in most:
            needed, doubt = situation.needed_mpps(name), situation.shared_doubt
            doubt *= bool(doubt) and situation.shares_ways(chosen, name)
            room[name] = most[name] * (1.0 - doubt) / needed - 1.0 if needed > 0.0 else math.inf
    return Outlook(chosen, mpps, room, parted, margin)


def explain(situation: Situation, outlook: Outlook, name: str) -> tuple[str, Mapping[str, float], str]:
    """Return the main cause of a tenant's loss of throughput, the loss by each cause, and a remedy.

    >>> lpm = PartitionResponse("lpm", 5.0, (1.0, 20.0), (0.2, 0.2), (4.0, 0.0), (256.0, 0.0))
    >>> alone = Situation({"a": lpm}, MemoryTraffic((80.0, 200.0), (0.0, 50.0)), 20, {"a": Setting(1)})
    >>> explain(alone, foresee(alone), "a")[::2]
    ('cache', 'more cache ways')
    """
    index = list(situation.responses).index(name)
    cause, losses = bottleneck(situation.partitions([outlook.settings]), outlook.parted, index, situation.memory)
    return cause, losses, LEVERS[cause]
