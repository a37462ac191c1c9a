"""Find settings of a socket that keep all promises at the least cost to tenants without a promise (best effort).

Candidates range from one change to one tenant (throttle a tenant without a promise; give a victim exclusive ways, local
memory or more weight) to exclusive ways for every tenant with a promise. They are ranked by kept promises, then by the
throughput of tenants without a promise, then by the number of changes.
"""

import itertools
import math
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from slomo.control.situation import Outlook, Setting, Situation, foresee, foresee_many
from slomo.models.responses.partition import STEPS
from slomo.vocabulary.way_masks import way_block

#: Throttles to try [%], weakest first.
THROTTLES = (70.0, 50.0, 30.0, 20.0, 10.0)
#: CPU weights to try for a victim on a shared core, as multiples of its present weight.
WEIGHTS = (1.5, 2.0, 4.0, 8.0)
#: Relative step in which headroom and best effort's throughput are compared; smaller gains are not worth a change.
HARDLY = 0.005
#: Number of tenants without a promise that are throttled one by one, and shares of the ways that are tried for a
#: victim.
HEAVIEST, PORTIONS = 3, (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

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
        chosen = preferred(at, foresee_many(at, _least_throttled(enough))).settings
        return next(outlook for outlook in enough if outlook.settings is chosen)
    best = min((now, *tried), key=lambda outlook: (len(outlook.broken), -outlook.spare))
    gained = best.spare - now.spare
    return best if len(best.broken) < len(now.broken) or gained > HARDLY else now


def _least_throttled(enough: Sequence[Outlook]) -> list[Mapping[str, Setting]]:
    """Return settings without those that differ from an earlier one only in stronger throttles."""
    kinds: dict[tuple[object, ...], list[tuple[tuple[float, ...], Mapping[str, Setting]]]] = {}
    for settings in (outlook.settings for outlook in enough):
        chosen = settings.values()
        weakest = kinds.setdefault(tuple((each.mask, each.weight, each.remote) for each in chosen), [])
        percents = tuple(each.bandwidth_percent for each in chosen)
        if not any(all(map(operator.le, percents, others)) for others, _ in weakest):
            weakest.append((percents, settings))
    return [settings for weakest in kinds.values() for _, settings in weakest]


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
    mpps = outlook.throughput_mpps
    shares = [min(1.0, mpps[name] / possible) for name, possible in situation.best_effort_mpps.items()]
    return sum(shares) / len(shares) if shares else 1.0


def candidates(situation: Situation, now: Outlook) -> Iterator[dict[str, Setting]]:
    """Yield settings to try, those with few changes first."""
    current = dict(situation.settings)
    noisy = _by_traffic(situation, now)
    for percent in THROTTLES:
        yield from ({**current, name: replace(current[name], bandwidth_percent=percent)} for name in noisy[:HEAVIEST])
    yield from throttled(current, noisy, THROTTLES)
    if not situation.promised_mpps:
        return
    nearest = min(now.room, key=lambda name: now.room[name])
    if current[nearest].remote:
        current = {**current, nearest: replace(current[nearest], remote=False)}
        yield current
        situation = replace(situation, settings=current)
    for factor in WEIGHTS if nearest in situation.cores else ():
        yield {**current, nearest: replace(current[nearest], weight=factor * current[nearest].weight)}
    for share in PORTIONS:
        yield isolated(situation, {nearest: min(situation.ways - 1, max(1, round(share * situation.ways)))})
    for ways in divisions(situation, now.margin):
        yield from throttled(isolated(situation, ways), noisy, (100.0, *THROTTLES))


def throttled(
    settings: Mapping[str, Setting], names: Sequence[str], percents: Sequence[float]
) -> Iterator[dict[str, Setting]]:
    """Yield settings in which some tenants are under the same memory throttle, for each throttle."""
    under = {name: settings[name] for name in names}
    before = set(under.values())
    for percent in percents:
        after = {setting: replace(setting, bandwidth_percent=percent) for setting in before}
        yield {**settings, **{name: after[setting] for name, setting in under.items()}}


def isolated(situation: Situation, ways: Mapping[str, int]) -> dict[str, Setting]:
    """Return settings in which some tenants own cache ways and the others in the same caches share the rest."""
    kinds = {name: (situation.llcs.get(name, 0), situation.settings[name]) for name in situation.responses}
    own: dict[str, Setting] = {}
    used = Counter[int]()
    for name, count in ways.items():
        llc, setting = kinds[name]
        own[name] = replace(setting, mask=way_block(count, used[llc]))
        used[llc] += count
    rest = {llc: way_block(situation.ways - first, first) for llc, first in used.items()}
    others = {
        (llc, setting): replace(setting, mask=rest.get(llc) or setting.mask) for llc, setting in {*kinds.values()}
    }
    return {name: own.get(name) or others[kind] for name, kind in kinds.items()}


def divisions(situation: Situation, margin: float = 0.0) -> Iterator[dict[str, int]]:
    """Yield numbers of own cache ways for all tenants with a promise and company in their cache, fewest first.

    The first division just suffices while memory is idle. Each further one gives a way to the tenant whose promise, and
    `margin` above it, breaks at the lowest memory latency, until no latency breaks one, or no way is left for others.
    """
    lasting = _highest_latencies(situation, margin)
    ways, full = _least_ways(situation, _highest_latencies(situation, 0.0)), situation.memory.latency_ns[-1]
    while ways and all(sum(own) < situation.ways for own in _by_cache(situation, ways)):
        yield dict(ways)
        nearest = min(ways, key=lambda name: lasting[name][ways[name] - 1])
        if lasting[nearest][ways[nearest] - 1] >= full:
            return
        ways[nearest] += 1


def has_room(situation: Situation, margin: float = 0.0) -> bool:
    """Return whether every cache has as many ways as its tenants' promises need while memory is idle.

    If not, no setting keeps all promises. A tenant may hold parts of ways, so one way less than it needs may be enough.
    """
    ways = _least_ways(situation, _highest_latencies(situation, margin))
    return all(sum(own) - len(own) < situation.ways for own in _by_cache(situation, ways))


def _least_ways(situation: Situation, lasting: Mapping[str, Sequence[float]]) -> dict[str, int]:
    """Return the fewest own ways with which each promise is kept while memory is idle; all ways if none suffice.

    A tenant alone in its cache needs none.
    """
    idle, tenants = situation.memory.latency_ns[0], Counter(situation.llcs.get(name, 0) for name in situation.responses)
    return {
        name: next((n for n, ns in enumerate(highest, 1) if ns >= idle), situation.ways)
        for name, highest in lasting.items()
        if tenants[situation.llcs.get(name, 0)] > 1
    }


def _by_cache(situation: Situation, ways: Mapping[str, int]) -> list[list[int]]:
    """Return the numbers of own ways in each last-level cache that has any."""
    llcs = {situation.llcs.get(name, 0) for name in ways}
    return [[count for name, count in ways.items() if situation.llcs.get(name, 0) == llc] for llc in llcs]


def _highest_latencies(situation: Situation, margin: float) -> dict[str, list[float]]:
    """Return the highest memory latency [ns] at which each promise is kept, for 1, 2, ... own ways."""
    lasting = {}
    for name in (name for name in situation.promised_mpps if name in situation.responses):
        packet_us = situation.bias.get(name, 1.0) / max(situation.needed_mpps(name) * (1.0 + margin), 1e-12)
        lines = situation.responses[name].table(100.0, situation.ways)[STEPS::STEPS].tolist()
        lasting[name] = [1e3 * (packet_us - start) / max(slope, 1e-12) for start, slope, *_ in lines]
    return lasting


def _by_traffic(situation: Situation, now: Outlook) -> Sequence[str]:
    """Return the tenants without a promise, those with most memory traffic first."""
    names = list(situation.responses)
    moved = {
        name: now.parted.throughput_mpps[i] * situation.responses[name].line(now.parted.ways[i])[2]
        for i, name in enumerate(names)
        if name not in situation.promised_mpps
    }
    return sorted(moved, key=lambda name: -moved[name])
