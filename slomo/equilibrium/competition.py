"""Combine the counters of a mix's competitors into the inputs of a sensitivity model, for training and prediction.

SLOMO (SIGCOMM'20) section 6 composes contentiousness measured per number of competitors. In this module, each
competitor's vector is its contentiousness under the pressure of the *other* competitors, found for all of them by a
damped fixed point. The target is not included, since V is measured before the target starts.
"""

import functools
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from slomo.compose.composition import compose_arrays, plain_limits
from slomo.equilibrium.one_question import compose_one
from slomo.equilibrium.rounds import IterationState
from slomo.equilibrium.server import ranks
from slomo.equilibrium.settling import ServerGroup, distinct_mixes, one_set_of_pressures, run_rounds
from slomo.equilibrium.tables import SharedSocket, Tables, columns, competitor_row, shared_socket
from slomo.models.base import TRAFFIC_PREFIX, CompositionKind, Floats, SensitivityModel
from slomo.models.contentiousness import ContentiousnessProfile, basis_size, pressure_basis
from slomo.models.functions.compilation import loop_for
from slomo.models.nf_model import NFModel
from slomo.models.responses.latent import latent_rows
from slomo.vocabulary.capacities import Capacities
from slomo.vocabulary.metrics import metric

#: Number of damped rounds of the fixed point; each halves the remaining distance, which is of second order from the
#: start.
ROUNDS = 4
#: Number of mixes whose metrics are read together, so that their data stay in a cache.
_CHUNK_MIXES = 128
#: Metrics are computed in rows padded to a multiple of this width, so that the result for a metric does not depend on
#: how many are computed.
_WIDTH = 8
#: Metrics from which the vocabulary derives L2 references, which PCM does not count.
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
    """Return the model's inputs for many mixes, shape (mixes, names).

    The result is NaN if a competitor did not report a metric. For a mix without competitors, metrics that add up are 0.

    `models`: the distinct competitors. `members`, shape (mixes, places): index into `models` per place, -1 for an empty
    place; the order of places does not matter, to the last bit. `names`: wanted metrics, and ``traffic.*`` attributes
    of the target, whose values are in `traffic`. `capacities`: the machine's, which limit the sums. `composition`:
    which vectors to compose: those under mutual pressure, solo vectors, none, or latent pressures, which are not
    measured. `compat`: SLOMO's published rule, medians per number of competitors.
    """
    if composition == "latent":
        return _added(latent_rows(models, len(names)), np.asarray(members, dtype=np.int64))
    rank = ranks(tuple(models))
    sorted_models = [models[i] for i in np.argsort(rank[:-1])]
    canonical = np.sort(rank[np.asarray(members, dtype=np.int64)], axis=1)
    canonical[canonical == len(models)] = -1
    needed = _needed(tuple(names))
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
    """Return the inputs of a model family of `subject` for many mixes."""
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
    """Return the inputs for one mix, and the competitors' counters from which they were computed.

    `competitors` must be in the order of their keys. Their own counters have shape ``(competitors, metrics)``; the
    first columns are the metrics among `names`.
    """
    if composition == "latent":
        rows = latent_rows(competitors, len(names))
        everybody = np.arange(len(competitors))[np.newaxis]
        return _added(rows, everybody)[0].tolist(), rows
    needed = _needed(names)
    swift = _compiled(competitors, needed, capacities) if composition == "pressure" and compat is None else None
    if swift is None:
        values = competitor_vectors(
            competitors, None, needed, capacities=capacities, composition=composition, compat=compat
        )
        swift = compose_arrays(values, needed, capacities, compat)[0].tolist(), values[0]  # type: ignore[arg-type]
    composed, vectors = swift
    if needed[: len(names)] == names:
        return composed[: len(names)], vectors
    given = {**(traffic or {}), **dict(zip(needed, composed, strict=False))}
    return [given.get(name, np.nan) for name in names], vectors


def _compiled(
    competitors: Sequence[NFModel], names: tuple[str, ...], capacities: Capacities | None
) -> tuple[list[float], Floats] | None:
    """Combine the counters of one mix by compiled code; None if it is not loaded, or cannot combine these metrics."""
    width = len(names) + -len(names) % _WIDTH
    limits = plain_limits(names, capacities, width) if competitors and names else None
    if limits is None or (compose := loop_for(0, compose_one)) is None:
        return None
    number: dict[NFModel, int] = {}
    members = np.array([[number.setdefault(each, len(number)) for each in competitors]])
    table, reading = _tables_of(tuple(number), names, capacities)
    state = _iterated(table, members, table.start.take(members, 0))
    vectors, composed = np.empty((len(competitors), width)), np.empty(width)
    compose(table.rows, members[0], reading, state.pressure[0], limits, vectors, composed)
    return composed.tolist(), vectors


def _added(rows: Floats, members: NDArray[np.int64]) -> Floats:
    """Return the sum of the members' rows for each mix.

    Numbers are added in ascending order, so that the result does not depend on the order of the members, to the last
    bit. Without members the sum is 0.
    """
    if not (len(rows) and members.shape[1]):
        return np.zeros((len(members), rows.shape[1]))
    each = np.where((members >= 0)[:, :, None], rows[members], 0.0)
    return np.add.accumulate(np.sort(each, axis=1), axis=1)[:, -1]


def competitor_vectors(
    models: Sequence[NFModel],
    members: NDArray[np.int64] | None,
    names: tuple[str, ...],
    *,
    capacities: Capacities | None = None,
    composition: CompositionKind = "pressure",
    compat: str | None = None,
) -> Floats:
    """Return the counters of each competitor's core, shape ``(mixes, places, len(names))``.

    Parameters are those of :func:`mix_features`; `members` holds indices into `models`, None means a single mix of all
    models. Empty places come last and have 0.
    """
    if composition == "pressure" and compat is None and models and (members is None or members.shape[1]):
        return _at_equilibrium(models, members, names, capacities)
    members = np.arange(len(models))[np.newaxis] if members is None else members
    if not models or members.shape[1] == 0:
        return np.zeros((*members.shape, len(names)))
    present = members >= 0
    counts = range(1, 1 if compat is None else members.shape[1] + 1)
    every = ((model.solo_vector, *map(model.contentiousness.at_count, counts)) for model in models)
    table = np.array([[vector.to_array(names) for vector in vectors] for vectors in every])
    count = np.broadcast_to(present.sum(axis=1)[:, None], members.shape)
    # published rule: contentiousness is measured beside n - 1 competitors and the target, that is, beside n
    chosen = table[members, count if compat is not None else np.zeros_like(count)]
    return np.where(present[:, :, None], chosen, 0.0)


@functools.lru_cache(maxsize=1024)
def _needed(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the metrics among `names`, and further metrics that are their weights in composition."""
    metrics = [name for name in names if not name.startswith(TRAFFIC_PREFIX)]
    needed = list(dict.fromkeys(metrics))
    for name in metrics:
        for part in (metric(name).weight or "").split("/"):
            needed += [extra for extra in _EXTRA_WEIGHTS.get(part, (part,)) if extra and extra not in needed]
    return tuple(needed)


def _at_equilibrium(
    models: Sequence[NFModel],
    members: NDArray[np.int64] | None,
    names: tuple[str, ...],
    capacities: Capacities | None,
) -> Floats:
    """Return the counters `names` of each competitor under the pressure of the others."""
    table, reading = _tables_of(tuple(models), names, capacities)
    if members is None:
        everybody, begin = np.arange(len(models))[np.newaxis], table.start[np.newaxis]
    else:
        everybody, begin = members, np.where((members >= 0)[:, :, None], table.start[members], 0.0)
    state = _iterated(table, everybody, begin)
    low, high, weight = reading[:, 0], reading[:, 1], reading[:, 2:]

    def under(pressure: Floats, who: NDArray[np.int64] | None) -> Floats:
        basis = pressure_basis(pressure, table.scale[who], table.limit[who])
        answers: Floats = np.einsum("npt,nptm->npm", basis, weight[who])
        answers = np.minimum(np.maximum(answers, low[who]), high[who])
        return answers[:, :, : len(names)]

    if members is None:
        return under(state.pressure, None)  # index None adds the axis of mixes
    vectors = np.zeros((*members.shape, len(names)))
    for begin_at in range(0, len(members) if names else 0, _CHUNK_MIXES):
        part = slice(begin_at, begin_at + _CHUNK_MIXES)
        who = members[part]
        vectors[part] = np.where((who >= 0)[:, :, None], under(state.pressure[part], who), 0.0)
    return vectors


def _iterated(table: Tables, members: NDArray[np.int64], begin: Floats) -> IterationState:
    """Run :data:`ROUNDS` rounds without limits of capacity, since V is measured without the target."""
    state = IterationState.beginning(begin)
    if table.pressures:
        group = ServerGroup(table, _unlimited(table.pressures), members, None, np.zeros(len(members)))
        run_rounds(group, state, -1.0, ((0.5, ROUNDS),))
    return state


@functools.lru_cache(maxsize=1024)
def _tables_of(
    models: tuple[NFModel, ...], names: tuple[str, ...], capacities: Capacities | None
) -> tuple[Tables, Floats]:
    """Return the tables for the rounds, and all models' weights of counters, shape (models, 2 + terms, metrics)."""
    profiles = [model.contentiousness for model in models]
    # solo profiles do not respond to pressure, so they fit models with any pressures
    pressures = one_set_of_pressures({profile.pressure_names for profile in profiles} - {()})
    count, socket = len(pressures), shared_socket(pressures, capacities)
    rows = np.concatenate([competitor_row(profile, pressures, socket) for profile in profiles])
    reading = np.concatenate([_reading(profile, names, count) for profile in profiles])
    return Tables(rows.reshape(len(profiles), -1), count), reading.reshape(len(profiles), basis_size(count) + 2, -1)


@functools.lru_cache(maxsize=16)
def _unlimited(pressures: int) -> SharedSocket:
    """Return a socket without limits on cache occupancy and memory traffic."""
    return SharedSocket(np.full(pressures, np.inf), np.zeros(pressures, dtype=bool), None, None, None)


@functools.lru_cache(maxsize=4096)
def _reading(profile: ContentiousnessProfile, names: tuple[str, ...], pressures: int) -> Floats:
    """Return limits and weights of the counters `names` as rows, padded to a multiple of :data:`_WIDTH` columns.

    Metrics are adjacent in memory, since this determines the order in which terms are added.
    """
    weight, low, high = columns(profile, names, pressures)
    reading = np.zeros((len(weight) + 2, len(names) + -len(names) % _WIDTH))
    reading[:, : len(names)] = np.vstack([low, high, weight])
    return reading
