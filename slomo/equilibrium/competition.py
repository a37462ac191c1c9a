"""Compute the vector that a sensitivity model reads from a mix's competitors; training and prediction share this code.

SLOMO (SIGCOMM'20) section 6 composes contentiousness measured per number of competitors. Here each competitor's vector
is its contentiousness under the pressure of the *other* competitors, solved for all of them by a damped fixed point.
The target is not part of it, as V is measured before the target starts.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from slomo.compose.composition import compose_arrays
from slomo.equilibrium.kernel import competition_rounds
from slomo.equilibrium.tables import shared_socket
from slomo.errors import ConfigurationError
from slomo.models.base import TRAFFIC_PREFIX, CompositionKind, Floats, SensitivityModel
from slomo.models.contentiousness import ContentiousnessProfile, basis_size, pressure_basis
from slomo.models.nf_model import NFModel
from slomo.models.responses.latent import latent_rows
from slomo.vocabulary.capacities import Capacities
from slomo.vocabulary.metrics import metric

#: Damped rounds of the fixed point; each halves the remaining distance, which is second order from the start.
ROUNDS = 4
#: Number of mixes from which the compiled loop pays.
KERNEL_MIXES = 8_192
_CHUNK_MIXES = 2_048
#: Number of mixes from which repeated competitions are looked for, and the share of different ones above which that
#: does not pay.
_REPEATING, _MANY = 1_024, 0.8
#: Largest number of possible competitions per mix for a lookup table.
_TABLE = 32
#: PCM does not count L2 references; the vocabulary derives them from these.
_EXTRA_WEIGHTS = {"L2REF": ("L2MISS", "L2HIT")}


def mix_features(
    models: Sequence[NFModel],
    members: NDArray[np.integer],
    names: Sequence[str],
    *,
    capacities: Capacities | None = None,
    composition: CompositionKind = "pressure",
    compat: str | None = None,
    traffic: Mapping[str, float] | None = None,
) -> Floats:
    """Return the composed features of many mixes.

    Parameters
    ----------
    models : sequence of NFModel
        The distinct competitors.
    members : ndarray of int, shape (mixes, places)
        Index into `models` per place; -1 for an empty place. The order of places does not matter, to the last bit.
    names : sequence of str
        Metrics wanted, and ``traffic.*`` attributes of the target.
    capacities : Capacities, optional
        Caps of the machine.
    composition : {"pressure", "solo", "none", "latent"}
        Vectors under mutual pressure, solo vectors, or pressures that nobody measured.
    compat : {"published"}, optional
        Published medians per number of competitors, composed by the published rule.
    traffic : mapping of str to float, optional
        The target's traffic attributes.

    Returns
    -------
    ndarray, shape (mixes, names)
        NaN where a competitor did not report a metric. A mix without competitors has 0 for whatever adds up.
    """
    if composition == "latent":
        return _added(latent_rows(models, len(names)), np.asarray(members, dtype=np.int64))
    ranked = sorted(range(len(models)), key=lambda i: models[i].workload.key)
    rank = np.empty(len(models) + 1, dtype=np.int64)
    rank[ranked], rank[-1] = np.arange(len(models)), -1
    sorted_models = [models[i] for i in ranked]
    canonical = np.ascontiguousarray(np.sort(rank[np.asarray(members, dtype=np.int64)], axis=1))
    metrics = tuple(name for name in names if not name.startswith(TRAFFIC_PREFIX))
    needed = _with_weights(metrics)
    distinct, back = distinct_mixes(canonical, len(models))
    values = competitor_vectors(
        sorted_models, distinct, needed, capacities=capacities, composition=composition, compat=compat
    )
    composed = compose_arrays(values, needed, capacities, compat, distinct >= 0)  # type: ignore[arg-type]
    result = np.empty((len(distinct), len(names)))
    for column, name in enumerate(names):
        traffic_value = (traffic or {}).get(name, np.nan)
        result[:, column] = traffic_value if name.startswith(TRAFFIC_PREFIX) else composed[:, needed.index(name)]
    return result if back is None else np.take(result, back, axis=0)


def features_for(
    subject: NFModel,
    family: SensitivityModel,
    models: Sequence[NFModel],
    members: NDArray[np.integer],
    compat: str | None = None,
) -> Floats:
    """Return the inputs of a family of `subject` for many mixes, as :func:`mix_features` has them."""
    return mix_features(
        models,
        members,
        family.feature_names,
        capacities=subject.capacities,
        composition=family.composition,
        compat=compat,
        traffic=subject.traffic,
    )


def features_of_one(
    competitors: Sequence[NFModel],
    names: tuple[str, ...],
    *,
    capacities: Capacities | None = None,
    composition: CompositionKind = "pressure",
    compat: str | None = None,
    traffic: Mapping[str, float] | None = None,
) -> tuple[list[float], Floats]:
    """Return the features of one mix, equal to :func:`mix_features`, and the vectors that they are composed of.

    Competitors are in the order of their keys. The competitors' own vectors have shape ``(competitors, metrics)``; the
    first columns are the metrics among `names`.
    """
    if composition == "latent":
        rows = latent_rows(competitors, len(names))
        everybody = np.arange(len(competitors))[np.newaxis]
        return _added(rows, everybody)[0].tolist(), rows
    metrics = tuple([name for name in names if not name.startswith(TRAFFIC_PREFIX)])
    needed, members = _with_weights(metrics), np.arange(len(competitors))[np.newaxis]
    values = competitor_vectors(
        competitors, members, needed, capacities=capacities, composition=composition, compat=compat
    )
    composed = compose_arrays(values, needed, capacities, compat)[0].tolist()  # type: ignore[arg-type]
    if len(metrics) == len(names):
        return composed[: len(names)], values[0]
    given = {**(traffic or {}), **dict(zip(needed, composed, strict=True))}
    return [given.get(name, np.nan) for name in names], values[0]


def _added(rows: Floats, members: NDArray[np.int64]) -> Floats:
    """Return the sum over the members of each mix, smallest numbers first: equal bits in any order."""
    each = np.where((members >= 0)[:, :, None], rows[members], 0.0) if len(rows) else np.zeros((*members.shape, 1))
    total: Floats = np.add.accumulate(np.sort(each, axis=1), axis=1)[:, -1]
    return total


def distinct_mixes(members: NDArray[np.int64], kinds: int) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """Return each distinct mix once, and its index for every row; None if hardly any mix occurs twice.

    Rows are in canonical order, with -1 for an empty place. Targets share competitions, as V is measured before the
    target starts: of 100 000 mixes of 4 out of 24 kinds, 17 550 competitions differ.
    """
    places, space = members.shape[1], (kinds + 1) ** members.shape[1]
    if len(members) < _REPEATING or space > 2**62:
        return members, None
    code = (members + 1) @ (kinds + 1) ** np.arange(places)
    if space > _TABLE * len(members):
        _, first, back = np.unique(code, return_index=True, return_inverse=True)
    else:  # few enough possible ones for a table, which is several times faster than sorting
        seen = np.full(space, -1, dtype=np.int64)
        seen[code] = np.arange(len(code))
        occurring = np.flatnonzero(seen >= 0)
        first = seen[occurring]
        seen[occurring] = np.arange(len(first))
        back = seen[code]
    return (members, None) if len(first) > _MANY * len(members) else (members[first], back)


def competitor_vectors(
    models: Sequence[NFModel],
    members: NDArray[np.int64],
    names: tuple[str, ...],
    *,
    capacities: Capacities | None = None,
    composition: CompositionKind = "pressure",
    compat: str | None = None,
) -> Floats:
    """Return each competitor's core-level vector, shape ``(mixes, places, len(names))``; NaN if not reported.

    Parameters are those of :func:`mix_features`; `members` indexes `models`. Empty places hold 0.
    """
    if not models or members.shape[1] == 0:
        return np.zeros((*members.shape, len(names)))
    if composition == "pressure" and compat is None:
        return _at_equilibrium(models, members, names, capacities)
    present = members >= 0
    table = np.array([_tabulated(model, names, members.shape[1], compat) for model in models])
    count = np.broadcast_to(present.sum(axis=1)[:, None], members.shape)
    # published: contentiousness is measured beside n - 1 competitors plus the target, that is, beside n
    chosen = table[members, count if compat is not None else np.zeros_like(count)]
    return np.where(present[:, :, None], chosen, 0.0)


def _tabulated(model: NFModel, names: tuple[str, ...], places: int, compat: str | None) -> Floats:
    """Return a model's solo vector (row 0) and published medians beside 1 to `places` competitors."""
    rows = [model.solo_vector.to_array(names)]
    if compat is not None:
        rows += [model.contentiousness.at_count(count).to_array(names) for count in range(1, places + 1)]
    return np.array(rows)


@functools.lru_cache(maxsize=1024)
def _with_weights(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return `names` and the metrics that weigh them when they compose."""
    needed = list(dict.fromkeys(names))
    for name in names:
        for part in (metric(name).weight or "").split("/"):
            needed += [extra for extra in _EXTRA_WEIGHTS.get(part, (part,)) if extra and extra not in needed]
    return tuple(needed)


@dataclass(frozen=True, eq=False)
class _Stack:
    """Contentiousness of several NFs in common arrays, whose first axis is the NF."""

    start: Floats
    scale: Floats
    limit: Floats
    weight: Floats
    low: Floats
    high: Floats
    outer_weight: Floats
    outer_low: Floats
    outer_high: Floats

    @classmethod
    def of(cls, rows: Floats, pressures: int, names: int) -> "_Stack":
        """Take rows of :func:`_row` apart."""
        terms = basis_size(pressures)
        sizes = (*(pressures,) * 3, terms * pressures, pressures, pressures, terms * names, names, names)
        ends = tuple(accumulate(sizes))
        parts = [rows[..., end - size : end] for size, end in zip(sizes, ends, strict=True)]
        for at, answers in ((3, pressures), (6, names)):
            parts[at] = parts[at].reshape(*rows.shape[:-1], terms, answers)
        return cls(*parts)


def _at_equilibrium(
    models: Sequence[NFModel], members: NDArray[np.int64], names: tuple[str, ...], capacities: Capacities | None
) -> Floats:
    pressures = _common_pressures(models)
    rows = np.array([_row(model.contentiousness, pressures, names) for model in models])
    caps = shared_socket(pressures, capacities).caps
    if len(members) >= KERNEL_MIXES:
        every = _Stack.of(rows, len(pressures), len(names))
        stack = _Stack(*(np.ascontiguousarray(getattr(every, name)) for name in _Stack.__dataclass_fields__))
        if not np.isnan(stack.outer_weight).any():
            out = np.zeros((*members.shape, len(names)))
            inner = (stack.start, stack.scale, stack.limit, stack.weight, stack.low, stack.high)
            outer = (stack.outer_weight, stack.outer_low, stack.outer_high)
            if competition_rounds(members, inner, caps, ROUNDS, outer, out):
                return out
    chunks = [members[i : i + _CHUNK_MIXES] for i in range(0, len(members), _CHUNK_MIXES)]
    parts = [_solve(_Stack.of(rows[chunk], len(pressures), len(names)), chunk, caps) for chunk in chunks]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.zeros((*members.shape, len(names)))


def _solve(stack: _Stack, members: NDArray[np.int64], caps: Floats) -> Floats:
    """Solve the fixed point of a chunk of mixes with numpy; the stack has the NF of each place."""
    present = (members >= 0)[:, :, None]
    full = bool(present.all())
    limit = np.minimum(stack.limit, caps)
    alone = present.sum(axis=1, keepdims=True) == 1
    lonely = bool(alone.any())
    vector = stack.start if full else np.where(present, stack.start, 0.0)

    def felt() -> Floats:
        """Return the basis of each place's pressure from the others."""
        pressure = np.add.reduce(vector, axis=1, keepdims=True) - vector
        return pressure_basis(np.where(alone, 0.0, pressure) if lonely else pressure, stack.scale, limit)

    for _ in range(ROUNDS):
        answer = np.minimum(np.maximum(_apply(felt(), stack.weight), stack.low), stack.high)
        vector = 0.5 * (vector + answer)
        vector = vector if full else np.where(present, vector, 0.0)
    final = np.minimum(np.maximum(_one_by_one(felt(), stack.outer_weight), stack.outer_low), stack.outer_high)
    return final if full else np.where(present, final, 0.0)


def _apply(basis: Floats, weight: Floats) -> Floats:
    """Multiply each place's basis by its own weights."""
    answer: Floats = np.matmul(basis[:, :, None, :], weight)[:, :, 0, :]
    return answer


def _one_by_one(basis: Floats, weight: Floats) -> Floats:
    """Do the same with terms added in order: the result for a metric does not depend on which others are asked for."""
    if weight.shape[-1] == 0:
        return np.zeros((*basis.shape[:2], 0))
    answer: Floats = np.add.accumulate(basis[:, :, :, None] * weight, axis=2)[:, :, -1]
    return answer


def _common_pressures(models: Sequence[NFModel]) -> tuple[str, ...]:
    """Return the pressure metrics that the models share; NFs that respond to none (solo profiles) fit any set."""
    pressure_sets = {model.contentiousness.pressure_names for model in models if model.contentiousness.pressure_names}
    if len(pressure_sets) > 1:
        shown = "; ".join(sorted(", ".join(names) for names in pressure_sets))
        raise ConfigurationError(
            f"these NFs were profiled with different pressure metrics: {shown}",
            hint="train them from datasets that report the same metrics",
        )
    return next(iter(pressure_sets), ())


@functools.lru_cache(maxsize=4096)
def _row(profile: ContentiousnessProfile, pressures: tuple[str, ...], names: tuple[str, ...]) -> Floats:
    """Arrange one NF's profile in a row; cached per profile, as this takes longer than solving one mix."""
    scale = profile.scale if profile.pressure_names else np.ones(len(pressures))
    limit = profile.limit if profile.pressure_names else np.zeros(len(pressures))
    inner, outer = _columns(profile, pressures, len(pressures)), _columns(profile, names, len(pressures))
    # a pressure metric that a competitor does not report contributes nothing
    start = np.nan_to_num(profile.solo.to_array(pressures))
    return np.concatenate(
        [start, scale, limit, *(np.nan_to_num(p).ravel() for p in inner), *(p.ravel() for p in outer)]
    )


def _columns(profile: ContentiousnessProfile, names: tuple[str, ...], pressures: int) -> tuple[Floats, Floats, Floats]:
    """Return weights, low and high of the metrics `names`; NaN if the NF did not report one."""
    place = {name: i for i, name in enumerate(profile.metric_names)}
    weight = np.full((basis_size(pressures), len(names)), np.nan)
    low, high = np.full(len(names), np.nan), np.full(len(names), np.nan)
    for column, name in enumerate(names):
        if name in place:
            weight[:, column] = 0.0
            weight[: len(profile.weights), column] = profile.weights[:, place[name]]
            low[column], high[column] = profile.low[place[name]], profile.high[place[name]]
    return weight, low, high
