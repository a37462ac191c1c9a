"""What would help: the settings of a socket that keep all promises and leave best effort the most.

Candidates grow from one lever on one tenant (throttle who was promised nothing, give who suffers ways of its own, bring
its memory home, raise its weight) to ways for everybody who was promised something. Promises come first, then what is
left to tenants without one, then few changes.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from slomo.control.situation import Outlook, Setting, Situation, foresee, foresee_many

#: Throttles that are tried [%], weakest first.
THROTTLES = (70.0, 50.0, 30.0, 20.0, 10.0)
#: CPU weights that are tried for who suffers on a shared core, over what it has.
WEIGHTS = (1.5, 2.0, 4.0, 8.0)
#: A gain of room that is not worth a change; best effort's welfare is compared in steps of it.
HARDLY = 0.005
#: Tenants without a promise that are throttled alone, and portions of the ways that are tried for who suffers.
HEAVIEST, PORTIONS = 3, (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def advise(situation: Situation, margin: float = 0.02, limit: int = 400) -> Outlook | None:
    """Return the settings under which every promise holds and best effort has most; None where none was found.

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
    >>> from slomo.models.responses.partition import MemoryTraffic, PartitionResponse
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
    return preferred(situation, kept) if kept else None


def best_effort(
    situation: Situation,
    now: Outlook,
    margin: float,
    limit: int,
    avoid: Sequence[Mapping[str, Setting]] = (),
    usual: Situation | None = None,
) -> Outlook:
    """Return what `advise` would, or where nothing keeps every promise what breaks fewest, and those least.

    Where that is hardly better than what is in force (`now`), what is in force is returned; settings to `avoid` never.
    Where the loads that promises are kept for are not the `usual` ones, best effort's welfare is compared at those.
    """
    fresh = (settings for settings in candidates(situation, now) if settings not in avoid)
    tried = foresee_many(situation, list(itertools.islice(fresh, limit)), margin)
    enough = [outlook for outlook in tried if outlook.kept]
    if enough and usual is not None:
        fares = foresee_many(usual, [outlook.settings for outlook in enough])
        chosen = preferred(usual, fares).settings
        return next(outlook for outlook in enough if outlook.settings is chosen)
    if enough:
        return preferred(situation, enough)
    best = min((now, *tried), key=lambda outlook: (len(outlook.broken), -outlook.spare))
    gained = best.spare - now.spare
    return best if len(best.broken) < len(now.broken) or gained > HARDLY else now


def preferred(situation: Situation, enough: Iterable[Outlook]) -> Outlook:
    """Return the one that leaves best effort most; of those that leave as much, the one that changes fewest tenants."""

    def rank(outlook: Outlook) -> tuple[float, int, float]:
        changed = sum(outlook.settings[name] != setting for name, setting in situation.settings.items())
        left = welfare(situation, outlook)
        return -round(left / HARDLY), changed, -left

    return min(enough, key=rank)


def welfare(situation: Situation, outlook: Outlook) -> float:
    """Return the mean share of its solo throughput (or load) that a tenant without a promise has; 1 without any."""
    shares = [
        min(1.0, mpps / possible)
        for name, mpps in outlook.throughput_mpps.items()
        if name not in situation.promised_mpps
        and (possible := min(situation.responses[name].solo_mpps, situation.offered_mpps.get(name, float("inf")))) > 0.0
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
    if not situation.promised_mpps:
        return
    nearest = min(now.room, key=lambda name: now.room[name])
    if current[nearest].remote:
        current = {**current, nearest: replace(current[nearest], remote=False)}
        yield current
        situation = replace(situation, settings=current)
    for factor in WEIGHTS if nearest in situation.cores else ():
        yield {**current, nearest: replace(current[nearest], weight=factor * current[nearest].weight)}
    for share in PORTIONS[1:]:
        yield isolated(situation, {nearest: min(situation.ways - 1, max(1, round(share * situation.ways)))})
    suffering = {name: minimal_ways(situation, name) for name in situation.promised_mpps if name in situation.responses}
    left = situation.ways - 1 - sum(suffering.values())
    for ways in dict.fromkeys(int(share * left / max(1, len(suffering))) for share in PORTIONS) if left >= 0 else ():
        apart = isolated(situation, {name: least + ways for name, least in suffering.items()})
        for percent in (100.0, *THROTTLES):
            throttled = {name: replace(apart[name], bandwidth_percent=percent) for name in noisy}
            yield {**apart, **throttled}


def isolated(situation: Situation, ways: Mapping[str, int]) -> dict[str, Setting]:
    """Give some tenants ways of their own from below, and all others the rest together."""
    settings: dict[str, Setting] = {}
    first = 0
    for name, count in ways.items():
        settings[name] = replace(situation.settings[name], mask=((1 << count) - 1) << first)
        first += count
    rest = ((1 << (situation.ways - first)) - 1) << first
    others = {setting: replace(setting, mask=rest or setting.mask) for setting in set(situation.settings.values())}
    return {name: settings.get(name) or others[situation.settings[name]] for name in situation.responses}


def minimal_ways(situation: Situation, name: str) -> int:
    """Return the fewest ways with which a tenant keeps its promise where memory is idle."""
    response, idle = situation.responses[name], situation.memory.latency_ns[0]
    needed = situation.needed_mpps(name) / situation.bias.get(name, 1.0)
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
