"""Find settings of a socket that keep all promises at the least cost to tenants without a promise (best effort).

Candidates range from one change to one tenant (throttle a tenant without a promise; give a victim exclusive ways, local
memory or more weight) to exclusive ways for every tenant with a promise. They are ranked by kept promises, then by the
throughput of tenants without a promise, then by the number of changes.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from slomo.control.situation import Outlook, Setting, Situation, foresee, foresee_many

#: Throttles to try [%], weakest first.
THROTTLES = (70.0, 50.0, 30.0, 20.0, 10.0)
#: CPU weights to try for a victim on a shared core, as multiples of its present weight.
WEIGHTS = (1.5, 2.0, 4.0, 8.0)
#: Relative step in which headroom and best effort's throughput are compared; smaller gains are not worth a change.
HARDLY = 0.005
#: Number of tenants without a promise that are throttled one by one, and shares of the ways that are tried for a
#: victim.
HEAVIEST, PORTIONS = 3, (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
#: Numbers of cache ways that one step of :func:`divide_further` may move.
WAYS_MOVED = (1, 2, 4)

#: Cost of one round with a broken promise, in rounds without any best effort. It is the ratio of the aims: lose at most
#: 5 % of best effort, and break promises at most 0.5 % of the time.
PRICE = 10.0
#: Number of standard deviations below which 98 % of normal errors are; a margin covers these 98 %.
_QUANTILE = 2.0537

#: Largest number of candidates that :func:`advise` tries.
_MOST_TRIED = 400


def advise(situation: Situation, margin: float = 0.02) -> Outlook | None:
    """Return the settings that keep every promise and leave best effort most throughput; None if no settings do.

    Predicted throughputs must exceed promises by `margin`, which allows for errors of the predictions.

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
    tried = list(itertools.islice(candidates(situation, now), _MOST_TRIED))
    sufficient = [outlook for outlook in foresee_many(situation, tried, margin) if outlook.kept]
    return preferred(situation, sufficient) if sufficient else None


def best_effort(
    situation: Situation,
    now: Outlook,
    margin: float,
    limit: int,
    avoid: Sequence[Mapping[str, Setting]] = (),
    usual: Situation | None = None,
) -> Outlook:
    """Return the settings that `advise` finds or, if no settings keep every promise, those that break fewest.

    If they are hardly better than the present settings (`now`), return the present settings. Settings in `avoid` are
    never returned. If `usual` is given, best effort's throughput is compared at its loads, promises at the loads of
    `situation`.
    """
    fresh = (settings for settings in candidates(situation, now) if settings not in avoid)
    tried = foresee_many(situation, list(itertools.islice(fresh, limit)), margin)
    enough = [outlook for outlook in tried if outlook.kept]
    if enough:
        at = usual or situation
        chosen = preferred(at, foresee_many(at, [outlook.settings for outlook in enough])).settings
        found = next(outlook for outlook in enough if outlook.settings is chosen)
        return divide_further(situation, found, [at], _MOST_TRIED, avoid, together=True)
    best = min((now, *tried), key=lambda outlook: (len(outlook.broken), -outlook.spare))
    gained = best.spare - now.spare
    return best if len(best.broken) < len(now.broken) or gained > HARDLY else now


def divide_further(
    situation: Situation,
    outlook: Outlook,
    usual: Sequence[Situation],
    limit: int,
    avoid: Sequence[Mapping[str, Setting]] = (),
    together: bool = False,
) -> Outlook:
    """Move cache ways step by step as long as this increases best effort's throughput and keeps every promise.

    A step moves ways from one group of tenants with equal masks to another, or a tenant without a promise to another
    group or to ways of its own, and may weaken throttles. Best effort's throughput is the mean over the `usual`
    situations. A division that is best at one load may be worse than sharing at other loads; with `together`, meant for
    few known loads, tenants that share ways stay in one group. At most `limit` settings are predicted. An outlook that
    breaks a promise, or whose masks overlap in part, is returned unchanged.
    """

    def left(tried: Sequence[Outlook]) -> list[float]:
        settings = [each.settings for each in tried]
        rows = [[welfare(one, each) for each in foresee_many(one, settings)] for one in usual]
        return [sum(column) / len(rows) for column in zip(*rows, strict=True)]

    now = left([outlook])
    while outlook.kept and limit > 0:
        divisions = itertools.chain([outlook.settings], _other_divisions(situation, outlook.settings, together))
        steps = (each for settings in divisions for each in _less_throttled(settings) if each not in avoid)
        tried = list(itertools.islice(steps, limit))
        limit -= len(tried)
        kept = [each for each in foresee_many(situation, tried, outlook.margin) if each.kept]
        gains = left(kept)
        if max(gains, default=0.0) <= now[0] + HARDLY:
            break
        outlook, now = kept[gains.index(max(gains))], [max(gains)]
    return outlook


def _less_throttled(settings: Mapping[str, Setting]) -> Iterator[Mapping[str, Setting]]:
    """Yield the settings, and for each throttle level the settings with stronger throttles weakened to that level."""
    yield settings
    strongest = min(setting.bandwidth_percent for setting in settings.values())
    for percent in (100.0, *THROTTLES):
        if percent > strongest:
            yield {
                n: replace(each, bandwidth_percent=max(each.bandwidth_percent, percent)) for n, each in settings.items()
            }


def _other_divisions(
    situation: Situation, settings: Mapping[str, Setting], together: bool
) -> Iterator[Mapping[str, Setting]]:
    """Yield the settings that one step of :func:`divide_further` can reach by changing ways."""
    masks = sorted({setting.mask for setting in settings.values()})
    union = sum(masks)
    if any(one & two for one, two in itertools.combinations(masks, 2)) or union & (union + (union & -union)):
        return  # the masks overlap or leave a gap
    groups = [(tuple(n for n, each in settings.items() if each.mask == mask), mask.bit_count()) for mask in masks]

    def changed(*others: tuple[int, tuple[str, ...], int]) -> dict[str, Setting]:
        after = dict(enumerate(groups)) | {place: (names, count) for place, names, count in others}
        return _laid_out(settings, (after[place] for place in sorted(after)), union & -union)

    for (i, (names, count)), (j, (others, more)) in itertools.permutations(enumerate(groups), 2):
        for moved in WAYS_MOVED:
            if moved < count:
                yield changed((i, names, count - moved), (j, others, more + moved))
    for i, (names, count) in enumerate(() if together else groups):
        for name in (name for name in names if name not in situation.promised_mpps):
            left = tuple(other for other in names if other != name)
            for j, (others, more) in enumerate(groups):
                if j != i:
                    yield changed((i, left, count * bool(left)), (j, (*others, name), more + count * (not left)))
            for moved in WAYS_MOVED:
                if left and moved < count:
                    yield changed((i, left, count - moved), (len(groups), (name,), moved))


def _laid_out(
    settings: Mapping[str, Setting], groups: Iterable[tuple[tuple[str, ...], int]], lowest: int
) -> dict[str, Setting]:
    """Return settings in which each group has its number of ways to itself, in order, from the `lowest` way up."""
    masks: dict[str, int] = {}
    for names, count in groups:
        masks.update(dict.fromkeys(names, lowest * ((1 << count) - 1)))
        lowest <<= count
    return {name: replace(setting, mask=masks[name]) for name, setting in settings.items()}


def least_cost(
    situation: Situation, now: Outlook, margin: float, limit: int, avoid: Sequence[Mapping[str, Setting]] = ()
) -> Outlook:
    """Return the settings with the least cost: the risk of broken promises plus the throughput that best effort loses.

    A promise with headroom of at least `margin` counts as kept. With less headroom, each percent of additional risk
    costs `PRICE` percent of best effort. If the cheapest settings are hardly cheaper than the present ones (`now`),
    return the present ones.
    """
    fresh = (settings for settings in candidates(situation, now) if settings not in avoid)
    tried = foresee_many(situation, list(itertools.islice(fresh, limit)), margin)

    def cost(outlook: Outlook) -> float:
        risk = sum(max(0.0, broken_odds(room, margin) - broken_odds(margin, margin)) for room in outlook.room.values())
        return PRICE * risk - welfare(situation, outlook)

    best = min((now, *tried), key=cost)
    return best if cost(best) < cost(now) - HARDLY else now


def broken_odds(room: float, margin: float) -> float:
    """Return the probability that a promise breaks if predicted throughput exceeds it by the share `room`.

    Examples
    --------
    >>> [round(broken_odds(room, margin=0.03), 3) for room in (-0.03, 0.0, 0.024, 0.03)]
    [0.98, 0.5, 0.05, 0.02]
    """
    return 0.5 * math.erfc(room / margin * _QUANTILE / math.sqrt(2.0))


def preferred(situation: Situation, enough: Iterable[Outlook]) -> Outlook:
    """Return the settings that leave best effort most throughput; among equals, those that change fewest tenants."""

    def rank(outlook: Outlook) -> tuple[float, int, float]:
        changed = sum(outlook.settings[name] != setting for name, setting in situation.settings.items())
        left = welfare(situation, outlook)
        return -round(left / HARDLY), changed, -left

    return min(enough, key=rank)


def welfare(situation: Situation, outlook: Outlook) -> float:
    """Return the mean share of solo throughput (or of the load, if less) that tenants without a promise reach."""
    shares = [
        min(1.0, mpps / possible)
        for name, mpps in outlook.throughput_mpps.items()
        if name not in situation.promised_mpps
        and (possible := min(situation.responses[name].solo_mpps, situation.offered_mpps.get(name, float("inf")))) > 0.0
    ]
    return sum(shares) / len(shares) if shares else 1.0


def candidates(situation: Situation, now: Outlook) -> Iterator[dict[str, Setting]]:
    """Yield settings to try, those with few changes first."""
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
    """Return settings in which some tenants own cache ways and all others share the rest."""
    settings: dict[str, Setting] = {}
    first = 0
    for name, count in ways.items():
        settings[name] = replace(situation.settings[name], mask=((1 << count) - 1) << first)
        first += count
    rest = ((1 << (situation.ways - first)) - 1) << first
    others = {setting: replace(setting, mask=rest or setting.mask) for setting in set(situation.settings.values())}
    return {name: settings.get(name) or others[situation.settings[name]] for name in situation.responses}


def minimal_ways(situation: Situation, name: str) -> int:
    """Return the smallest number of cache ways with which a tenant keeps its promise while memory is idle."""
    response, idle = situation.responses[name], situation.memory.latency_ns[0]
    needed = situation.needed_mpps(name) / situation.bias.get(name, 1.0)
    fitting = (ways for ways in range(1, situation.ways + 1) if response.mpps(ways, idle) >= needed)
    return next(fitting, situation.ways)


def _by_traffic(situation: Situation, now: Outlook) -> Sequence[str]:
    """Return the tenants without a promise, those with most memory traffic first."""
    names = list(situation.responses)
    moved = {
        name: now.parted.throughput_mpps[i] * situation.responses[name].line(now.parted.ways[i])[2]
        for i, name in enumerate(names)
        if name not in situation.promised_mpps
    }
    return sorted(moved, key=lambda name: -moved[name])
