"""A model for a workload that was not profiled: between profiles of one NF, or a little beyond a single one.

Packet size, flow count and every numeric setting (the size of a rule set, a match density) are coordinates. Between
profiles, time per packet is interpolated along one of them, or along two where all four corners were profiled; cheap
solo runs in between say where on the way the NF slows down. Next to a single profile, SLOMO (SIGCOMM'20) extrapolates
flow counts by up to 20 %. The answer says which was done and how far it reached; anything else is refused.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np

from slomo.adaptation.axes import FLOWS, SIZE, Position, Profiled, by_logarithm, comparable, position_of, scaled
from slomo.adaptation.extrapolation import shifted
from slomo.adaptation.interpolation import InterpolationPath, blend
from slomo.errors import UnknownNameError, UnsupportedPredictionError
from slomo.models.base import TRAFFIC_PREFIX
from slomo.models.library import ModelLibrary, nf_of
from slomo.models.nf_model import NFModel
from slomo.vocabulary.workload import Setting, Workload

#: SLOMO's reach: a flow count at most this share away from the profiled one.
REACH = 0.20
#: Solo times per packet nearer than this say nothing about the way between two profiles.
_FLAT = 0.02
#: Models made for workloads that were not profiled are kept with their library, this many at a time.
_KEPT = 256


@dataclass(frozen=True)
class Adapted:
    """A model for the workload asked about.

    Attributes
    ----------
    model : NFModel
        As profiled, interpolated, or extrapolated.
    way : str
        ``"profiled"``, ``"interpolated"`` or ``"extrapolated"``.
    reasons : tuple of str
        What was done and how far it reached; empty where the workload was profiled.
    """

    model: NFModel
    way: str
    reasons: tuple[str, ...] = ()


def at_workload(library: ModelLibrary, workload: Workload, machine: str | None = None) -> Adapted:
    """Return a model for a workload whose traffic and settings need not have been profiled.

    Parameters
    ----------
    library : ModelLibrary
        Trained models; several profiles of an NF allow interpolation.
    workload : Workload
        NF, configuration and traffic. Its offered load is no matter here.
    machine : str, optional
        Needed where the library has models of several machines.

    Raises
    ------
    UnknownNameError
        For an NF, or a setting that is no number, that was not profiled at all.
    UnsupportedPredictionError
        For traffic or settings that no profile reaches.

    References
    ----------
    SLOMO (SIGCOMM'20), extrapolation of traffic attributes.
    """
    asked = workload.saturated
    found: Adapted | None = library.made.get((asked, machine))
    if found is None:
        found = _adapted(library, asked, machine)
        if len(library.made) >= _KEPT:
            library.made.clear()
        library.made[asked, machine] = found
    return found


def _adapted(library: ModelLibrary, asked: Workload, machine: str | None) -> Adapted:
    position = position_of(asked)
    exact, missing = _exact(library, asked, machine)
    if exact is not None and exact.workload.key != asked.key:
        return Adapted(_as_asked(exact, asked), "profiled")
    if exact is not None and Profiled(exact, position).answers:
        return Adapted(exact, "profiled")
    known = comparable(_of(library, asked.nf, machine), position)
    able = [item for item in known if item.answers]
    if exact is not None and not able:
        return Adapted(exact, "profiled")
    if missing is not None and not known:
        raise missing
    same = next((item for item in able if not item.position.differs_in(position)), None)
    found = Adapted(same.model, "profiled") if same else _between(known, asked, position) or _near(known, asked)
    if found is not None:
        return found
    profiled = "; ".join(item.model.workload.key for item in known)
    raise UnsupportedPredictionError(
        f"no profile reaches {asked.key}: profiled are {profiled}",
        hint=f"profile it there, on both sides of it, or with a flow count within {100 * REACH:g} %",
    )


#: The same for traffic alone, by its older name.
at_traffic = at_workload


def _as_asked(model: NFModel, asked: Workload) -> NFModel:
    """Return the model of a table that varies over traffic, at the traffic asked about.

    Only what it reads can be honoured; whether it was measured there is the verdict's to say.
    """
    own = model.workload
    given: dict[str, Setting] = {**asked.configuration, **_attributes(asked)}
    known: dict[str, Setting] = {**own.configuration, **_attributes(own)}
    changed = {TRAFFIC_PREFIX + name: value for name, value in given.items() if known.get(name) != value}
    unread = [name.removeprefix(TRAFFIC_PREFIX) for name in changed if name not in model.traffic]
    if unread or asked.traffic.flow_distribution != own.traffic.flow_distribution:
        raise UnsupportedPredictionError(
            f"the model of '{own.key}' does not read {', '.join(unread) or 'how flows are drawn'}, "
            f"so that it cannot answer about {asked.key}",
            hint=f"it reads {', '.join(model.traffic)}; profile the rest, or import it as a feature",
        )
    return replace(model, workload=asked, traffic={**model.traffic, **{n: float(v) for n, v in changed.items()}})


def _attributes(workload: Workload) -> dict[str, Setting]:
    return {SIZE: workload.traffic.packet_size_b, FLOWS: workload.traffic.flow_count}


def _exact(
    library: ModelLibrary, asked: Workload, machine: str | None
) -> tuple[NFModel | None, UnknownNameError | None]:
    try:
        return library.find(asked, machine), None
    except UnknownNameError as missing:
        return None, missing


def _of(library: ModelLibrary, nf: str, machine: str | None) -> Iterator[NFModel]:
    keys = [key for key in library if nf_of(key[1]) == nf and (machine is None or key[0] == machine)]
    found = (library[key] for key in keys)
    return (model for model in found if model.workload.traffic.offered_mpps is None)


def _between(known: Sequence[Profiled], asked: Workload, position: Position) -> Adapted | None:
    """Interpolate along one coordinate, else along two."""
    names = [name for name in position.numbers if any(name in item.position.differs_in(position) for item in known)]
    for name in names:
        found = _along(known, asked, position, name)
        if found is not None:
            return Adapted(found.model, "interpolated", (found.reason,))
    pairs = (_across(known, asked, position, pair) for pair in permutations(names, 2))
    return next((found for found in pairs if found is not None), None)


@dataclass(frozen=True, eq=False)
class _Step:
    """A model found along one coordinate, and the profiles on both sides."""

    model: NFModel
    low: float
    high: float
    reason: str


def _along(known: Sequence[Profiled], asked: Workload, position: Position, name: str) -> _Step | None:
    """Interpolate between the nearest profiles below and above; both must be able to answer."""
    line = [item for item in known if set(item.position.differs_in(position)) <= {name}]
    able = [item for item in line if item.answers] if any(item.answers for item in known) else line
    value = position.numbers[name]
    exact = next((item for item in able if item.position.numbers[name] == value), None)
    if exact is not None:
        return _Step(exact.model, value, value, "")
    below = [item for item in able if item.position.numbers[name] < value]
    above = [item for item in able if item.position.numbers[name] > value]
    if not below or not above:
        return None
    able.sort(key=lambda item: item.position.numbers[name])
    way = _way(line, able, name, value)
    ends = (able[way.below].position.numbers[name], able[way.below + 1].position.numbers[name])
    reason = f"{name} {value:g} interpolated between profiles at {ends[0]:g} and {ends[1]:g}"
    return _Step(blend([item.model for item in able], way, asked), *ends, reason)


def _way(line: Sequence[Profiled], able: Sequence[Profiled], name: str, value: float) -> InterpolationPath:
    """Return how to get to a value; runs alone in between show where on the way the NF slows down."""
    alone = sorted((item.position.numbers[name], 1.0 / item.model.solo_mpps) for item in line)
    *at, asked = scaled(name, [*(number for number, _ in alone), value])
    times = [time for _, time in alone]
    numbers = [number for number, _ in alone]
    places = [numbers.index(item.position.numbers[name]) for item in able]
    way = InterpolationPath(
        tuple(at[place] for place in places),
        tuple(times[place] for place in places),
        asked,
        float(np.interp(asked, at, times)),
        0.0,
        curved=by_logarithm(name, [*numbers, value]),
    )
    low, high = places[way.below], places[way.below + 1]
    share = (asked - at[low]) / (at[high] - at[low])
    if high - low > 1 and abs(times[high] - times[low]) > _FLAT * times[low]:
        share = min(max((way.alone_us - times[low]) / (times[high] - times[low]), 0.0), 1.0)
    return replace(way, share=share)


def _across(known: Sequence[Profiled], asked: Workload, position: Position, names: tuple[str, str]) -> Adapted | None:
    """Interpolate along the first coordinate on both sides of the second, then along the second."""
    first, second = names
    value = position.numbers[second]
    levels = sorted({item.position.numbers[second] for item in known})
    sides: list[_Step] = []
    for near in (sorted((v for v in levels if v < value), reverse=True), [v for v in levels if v > value]):
        steps = ((level, _along(known, asked, position.at(second, level), first)) for level in near)
        found = next(((level, step) for level, step in steps if step is not None), None)
        if found is None:
            return None
        sides.append(replace(found[1], low=found[0], high=found[0]))
    low, high = sides
    share = _share_across(known, position, names, low, high)
    reason = f"{second} {value:g} interpolated between profiles at {low.low:g} and {high.low:g}"
    model = blend([low.model, high.model], _way_across(second, low, high, value, share), asked)
    reasons = tuple(text for text in dict.fromkeys((low.reason, high.reason, reason)) if text)
    return Adapted(model, "interpolated", reasons)


def _way_across(name: str, low: _Step, high: _Step, value: float, share: float) -> InterpolationPath:
    at, solo = scaled(name, [low.low, high.low, value]), (1.0 / low.model.solo_mpps, 1.0 / high.model.solo_mpps)
    alone = (1.0 - share) * solo[0] + share * solo[1]
    return InterpolationPath((at[0], at[1]), solo, at[2], alone, share, curved=by_logarithm(name, [low.low, high.low]))


def _share_across(
    known: Sequence[Profiled], position: Position, names: tuple[str, str], low: _Step, high: _Step
) -> float:
    """Return the way along the second coordinate: the mean over the lines that were profiled on both sides."""
    first, second = names
    shares = []
    for level in sorted({item.position.numbers[first] for item in known}):
        edge = position.at(first, level)
        line = [item for item in known if set(item.position.differs_in(edge)) <= {second}]
        ends = [item for item in line if item.answers and item.position.numbers[second] in (low.low, high.low)]
        if len(ends) == 2:
            ends.sort(key=lambda item: item.position.numbers[second])
            here, there = scaled(first, [level, position.numbers[first]])
            way = _way(line, ends, second, position.numbers[second])
            shares.append((abs(here - there), way.share))
    nearest = sorted(shares)[:2]
    if not nearest:  # the two sides were profiled at different values of the first coordinate
        asked, below, above = scaled(second, [position.numbers[second], low.low, high.low])
        return (asked - below) / (above - below)
    total = sum(distance for distance, _ in nearest)
    if len(nearest) < 2 or total <= 0.0:
        return nearest[0][1]
    return sum(share * (total - distance) for distance, share in nearest) / total


def _near(known: Sequence[Profiled], asked: Workload) -> Adapted | None:
    """Extrapolate as SLOMO does, where a profile's flow count is near enough."""
    position = position_of(asked)
    fitting = [item for item in known if item.answers and set(item.position.differs_in(position)) <= {FLOWS}]
    if not fitting:
        return None
    wanted = asked.traffic.flow_count
    nearest = min(fitting, key=lambda item: abs(item.position.numbers[FLOWS] / wanted - 1.0))
    base = nearest.model.workload.traffic.flow_count
    away = wanted / base - 1.0
    if abs(away) > REACH + 1e-9:
        return None
    reason = (
        f"flow_count {wanted} extrapolated from a profile at {base}, {100 * away:+.0f} % away (reach {100 * REACH:g} %)"
    )
    model = shifted(nearest.model, asked, 1.0 + away)
    return Adapted(model, "extrapolated", (reason, "solo throughput taken as unchanged"))
