"""Learn from functions that were measured together without counters: a hidden pressure and sensitivity for each.

The logarithm of the share that a target keeps is the product of its sensitivity and the sum of its competitors'
pressures (Bubble-Up, MICRO'11, section 3, with unobserved pressures). Both are fitted alternately by ridge regression,
shrunk towards the mean of all functions, so that a rarely measured function counts as average, or towards a straight
line over hints of probes or counters (`slomo.training.hints`). If functions of the machine were profiled, the pairs
that their profiles predict are fitted like measured pairs. Held-out runs choose rank, strength, line, and whether to
use predicted pairs. Of a co-location with all rates known, every member is used as target. Residuals of measured
competitions are stored with the model.
Intervals are conformal, from held-out runs; those of measured competitions are from repeated runs, if there are enough:
each is compared with the mean of those before it.
"""

import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from slomo.equilibrium.mixes import MixRows
from slomo.equilibrium.server import solve_joint
from slomo.models.applicability import applicability
from slomo.models.base import Floats
from slomo.models.contentiousness import constant_profile
from slomo.models.error_shape import ErrorShape
from slomo.models.evidence import DOUBTS
from slomo.models.intervals import ConformalCalibration
from slomo.models.neighbourhood import beside
from slomo.models.nf_model import SCHEMA_VERSION, NFModel
from slomo.models.responses.latent import MOST_IDENTITY, PAIRS, REPEATS, LatentSensitivity
from slomo.records.dataset import ProfileDataset
from slomo.records.rows import competitors_from_cell
from slomo.training.calibration import mix_rows
from slomo.training.conformal_fit import HeldOutMixes, fit_calibrations
from slomo.training.cross_validation import folds, held_out
from slomo.training.hints import Hints, hints_of
from slomo.units import plural
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector

#: Candidate ranks and ridge strengths, from which held-out runs choose; strengths are numbers of an average function's
#: rows.
_RANKS, _STRENGTHS = (1, 2), (0.08, 0.25, 0.8, 2.5)
_TURNS, _FOLDS = 25, 5
#: Number of folds whose errors set the width of intervals; each fit uses nearly all runs.
_MORE_FOLDS = 10
#: Source of a solo throughput that was neither measured nor stated.
_BEST = "best measured beside others"
#: Lower limit of a kept share of solo throughput.
_LEAST_SHARE = 0.01
#: Least number of rows for a fit.
FEWEST = 12


@dataclass(frozen=True, eq=False)
class _Rows:
    """Runs as arrays for the fit: target, counts of competitors, logarithm of the loss, weight."""

    target: NDArray[np.int64]
    counts: Floats
    loss: Floats
    weight: Floats

    def chosen(self, mask: NDArray[np.bool_]) -> "_Rows":
        return _Rows(*(getattr(self, name)[mask] for name in self.__dataclass_fields__))


@dataclass(frozen=True, eq=False)
class _Latent:
    """Hidden sensitivity and pressure of every function, shape ``(functions, rank)``."""

    weights: Floats
    pressure: Floats

    def losses(self, rows: _Rows) -> Floats:
        losses: Floats = (self.weights[rows.target] * (rows.counts @ self.pressure)).sum(axis=1)
        return losses


class _Choice(NamedTuple):
    """What gives the smallest error in held-out runs."""

    #: Rank, strength of the shrinkage.
    rank: int
    strength: float
    #: Source of the hints (`slomo.training.hints`).
    source: str
    #: Whether to fit pairs of profiled functions, as predicted, like measured ones.
    with_predicted: bool


def with_pairs(dataset: ProfileDataset, fitted: Sequence[NFModel], *, everything: bool = True) -> list[NFModel]:
    """Return models of measured groups, for functions that were not profiled under pressure.

    Rows of plan ``mix`` are fitted on machines that have such functions; profiled functions keep their models, and get
    one that answers beside functions known by name. Functions that were never run solo have no model yet. Other traffic
    of a profiled function is no function known by name: its models are adapted (`slomo.adaptation`). `everything`:
    whether all functions of the dataset were to be fitted; if not, profiled machines get no others.
    """
    result = []
    for machine in dict.fromkeys([*(model.machine for model in fitted), *dataset.machines]):
        models = [model for model in fitted if model.machine == machine]
        profiled = {model.workload.nf for model in models if model.knows_pressure}
        adapted = [model for model in models if model.workload.nf in profiled and not model.knows_pressure]
        others = _of_others(dataset, machine, models) if everything or not profiled else []
        alone = [model for model in others if model.workload.nf not in profiled]
        everybody = [*(model for model in models if model not in adapted), *alone]
        by_name = np.array([*(not model.knows_pressure for model in everybody), False])
        rows = mix_rows(dataset, everybody, machine).saturated()
        groups = np.sort(np.column_stack([rows.target, rows.members]), axis=1)
        asked = np.logical_or.reduce(by_name[groups], axis=1)
        several = all(len(np.unique(each[asked], axis=0)) > 1 for each in (rows.target, groups))
        if several and asked.sum() >= FEWEST:  # repeats of a single group leave nothing to hold out
            size = (rows.members >= 0).sum(axis=1)
            near = size <= size[asked].max()  # larger groups of profiled functions say less about few
            rows, asked = rows.chosen(near), asked[near]
            hints, predicted = hints_of(dataset, machine, everybody), _by_profiles(everybody)
            models = [*fit_pairs(everybody, (rows, predicted), asked, hints), *adapted]
        result += models
    return result


def _of_others(dataset: ProfileDataset, machine: str, models: Sequence[NFModel]) -> list[NFModel]:
    """Return models for functions that have none.

    Their solo throughput is measured, stated, or the highest one that they reached beside others.
    """
    every = dataset.frame[dataset.frame["machine"] == machine]
    frame = every[(every["plan"] == "mix") & every["offered_mpps"].isna()]
    workloads = {key: dataset.workload(str(key)) for key in frame["target"].unique()}
    for cell in frame["competitors"].unique():
        workloads |= {each.saturated.key: each.saturated for each in competitors_from_cell(str(cell))}
    profiled = set(every.loc[every["plan"].isin(["pressure", "imported"]), "target"])
    known, stated = {model.workload.key for model in models} | profiled, dataset.environment.get("stated_solo_mpps", {})
    best = frame.groupby("target")["throughput_mpps"].max()
    alone = every[every["plan"] == "solo"].groupby("target")["throughput_mpps"].median()
    sources = {"measured": alone, "stated": stated, _BEST: best}
    source = {key: next((name for name, mpps in sources.items() if key in mpps), _BEST) for key in workloads}
    nothing = constant_profile(MetricVector({}, scope=Scope.CORE))
    empty = applicability((), np.zeros((1, 0)))
    return [
        NFModel(
            workload=workload,
            machine=machine,
            capacities=models[0].capacities if models else None,
            solo_mpps=(solo := float(sources[source[key]].get(key, 1.0))),
            solo_vector=nothing.solo,
            sensitivity={},
            contentiousness=nothing,
            calibration={},
            applicability=empty,
            manifest={
                "schema_version": SCHEMA_VERSION,
                "workload": key,
                "machine": machine,
                "solo_mpps": solo,
                "solo_source": source[key],
                "environment": dataset.environment,
            },
        )
        for key, workload in sorted(workloads.items())
        if key not in known
    ]


def _by_profiles(models: Sequence[NFModel]) -> MixRows:
    """Return all pairs of profiled functions, with the rates that the equilibrium predicts."""
    profiled = [number for number, model in enumerate(models) if model.response is not None]
    pairs = np.array([*itertools.product(range(len(profiled)), repeat=2)], dtype=np.int64).reshape(-1, 2)
    if len({response.pressure_names for number in profiled if (response := models[number].response) is not None}) != 1:
        return MixRows(pairs[:0, 0], pairs[:0, 1:], np.zeros(0))
    joint = solve_joint([models[number] for number in profiled], pairs, first_only=True)
    numbers = np.array(profiled)[pairs[joint.converged]]
    return MixRows(numbers[:, 0], numbers[:, 1:], joint.throughput_mpps[joint.converged, 0])


def fit_pairs(
    models: Sequence[NFModel], runs: tuple[MixRows, MixRows], asked: NDArray[np.bool_], hints: Hints
) -> list[NFModel]:
    """Return one machine's models of family ``pairs``, with errors in held-out runs.

    `runs`: runs at full load, and pairs of profiled functions as predicted (:func:`_by_profiles`); `models` are those
    of every function in them. `asked`: runs with a function known by name alone, whose errors count.
    """
    rows = runs[0]
    solo = np.array([model.solo_mpps for model in models])
    read, predicted = (_rows(each, solo, len(models)) for each in runs)
    run = np.unique(np.sort(np.column_stack([rows.target, rows.members]), axis=1), axis=0, return_inverse=True)[1]
    fold = folds(run.ravel().astype(np.int64), 0, _FOLDS)
    uses = (False, True) if len(predicted.loss) else (False,)
    # of each function a sensitivity and a pressure: rank 2 needs as many runs as it has such numbers
    ranks = [rank for rank in _RANKS if rank == 1 or len(read.loss) >= 2 * len(models) * rank]
    choices = [_Choice(*each) for each in itertools.product(ranks, _STRENGTHS, hints, uses)]
    shares = [_held_out(read, predicted, fold, hints, each) for each in choices]
    errors = [float(np.abs(each - np.exp(-read.loss))[asked].mean()) for each in shares]
    chosen = choices[int(np.argmin(errors))]
    latent = _fit(read, predicted, hints, chosen)
    share = _held_out(read, predicted, folds(run.ravel(), 1, _MORE_FOLDS), hints, chosen)
    held = HeldOutMixes(
        rows.mpps, share * solo[rows.target], solo[rows.target], rows.target, beside(rows.members), run.ravel()
    )
    calibration = fit_calibrations(held.rows(asked), len(models))
    repeats = _repeats(read)
    identity = [_identity(model.workload.key) for model in models]
    pressing = read.counts.sum(axis=0) > 0
    if len(read.loss) < (unknown := 2 * len(models) * chosen.rank):
        functions = plural(len(models), "function")
        doubts = {PAIRS: f"{plural(len(read.loss), 'run')} for {plural(unknown, 'number')} of {functions}"}
    else:
        doubts = {}
    result = []
    for number, model in enumerate(models):
        own = read.target == number
        family = _sensitivity(model, latent, read.chosen(own), number, np.array(identity, dtype=float), pressing)
        names, pressure_on = family.feature_names[:-1], read.counts[own] @ latent.pressure
        covered = applicability(names, np.vstack([np.zeros((1, len(names))), pressure_on]))
        summary: dict[str, object] = {
            "rank": chosen.rank,
            "strength": chosen.strength,
            "drawn_to": chosen.source or "mean",
            "with_predicted": chosen.with_predicted,
            "error_percent_of_solo": round(100.0 * min(errors), 3),
            "measured": int(own.sum()),
            "next": _next(latent, read, models, number),
        }
        doubt = {} if own.any() else {PAIRS: f"'{model.workload.nf}' was never measured beside another function"}
        manifest = {**model.manifest, PAIRS: summary, DOUBTS: {**model.manifest.get(DOUBTS, {}), **doubts, **doubt}}
        known = {**model.calibration, PAIRS: calibration[number]} | ({REPEATS: repeats} if repeats.count else {})
        answering: dict[str, Any] = {}
        if model.knows_pressure:
            family = replace(family, covered=covered)
        else:  # of a table without counters, families that need counters are not told as missing
            manifest, answering = {**manifest, "left_out": {}}, {"applicability": covered, "chosen": PAIRS}
        sensitivity = {**model.sensitivity, PAIRS: family}
        result.append(replace(model, sensitivity=sensitivity, calibration=known, manifest=manifest, **answering))
    return result


def _rows(rows: MixRows, solo: Floats, functions: int) -> _Rows:
    counts = np.zeros((len(rows.mpps), functions + 1))
    for place in rows.members.T:
        np.add.at(counts, (np.arange(len(place)), place), 1.0)
    share = np.clip(rows.mpps / solo[rows.target], _LEAST_SHARE, None)
    # the error of the share matters: an error of its logarithm counts less if little is kept
    return _Rows(rows.target, counts[:, :-1], -np.log(share), np.minimum(share, 1.0))


def _held_out(rows: _Rows, predicted: _Rows, fold: NDArray[np.int64], hints: Hints, choice: _Choice) -> Floats:
    """Return predictions for held-out runs, as shares of solo throughput."""

    def fit(seen: NDArray[np.bool_]) -> Callable[[NDArray[np.bool_]], Floats]:
        latent = _fit(rows.chosen(seen), predicted, hints, choice)
        return lambda out: np.exp(-np.maximum(latent.losses(rows.chosen(out)), 0.0))

    return held_out(fit, fold)


def _repeats(rows: _Rows) -> ConformalCalibration:
    """Return the differences between repeated runs and the mean of the earlier runs, as known errors.

    Differences are relative to the throughput and pooled over all functions. If several instances of a function run
    together, they have several rates in one run; these are not repeats and are left out.
    """
    cell = np.unique(np.column_stack([rows.target, rows.counts]), axis=0, return_inverse=True)[1].ravel()
    cell[rows.counts[np.arange(len(cell)), rows.target] > 0] = -1
    away = [np.zeros(0)]
    for number in np.flatnonzero(np.bincount(cell[cell >= 0]) > 1):
        loss = rows.loss[cell == number]
        away.append(np.cumsum(loss)[:-1] / np.arange(1, len(loss)) - loss[1:])
    errors = np.sort(np.expm1(np.concatenate(away)))
    shape = ErrorShape(np.array([0.0, 1.0]), np.zeros(2), np.array([1.0, _LEAST_SHARE]))
    return ConformalCalibration(errors, REPEATS, shape)


def _expected(values: Floats, hint: Floats) -> Floats:
    """Return what each function's value is drawn to: a straight line over its hints, else the mean of all."""
    if not hint.any():
        return np.broadcast_to(values.mean(axis=0), values.shape)
    design = np.column_stack([np.ones(len(hint)), hint])
    line: Floats = design @ np.linalg.lstsq(design, values, rcond=None)[0]
    return line


def _fit(rows: _Rows, predicted: _Rows, hints: Hints, choice: _Choice) -> _Latent:
    """Return hidden sensitivities and pressures, fitted in turn by ridge regression."""
    if choice.with_predicted:
        both = zip(vars(rows).values(), vars(predicted).values(), strict=True)
        rows = _Rows(*map(np.concatenate, both))
    return _turns(rows, hints[choice.source], choice.strength, _start(rows, hints, choice))


def _start(rows: _Rows, hints: Hints, choice: _Choice) -> _Latent:
    """Return where the fit begins: rank 1 with equal functions, rank 2 with rank 1's fit and its largest residuals.

    From random starts, rank 2 ended in one of two minima, depending on the order of the functions.
    """
    neighbours = np.maximum(rows.counts.sum(axis=1), 1.0)
    if choice.rank == 1:
        level = np.sqrt(max(float(np.average(rows.loss / neighbours, weights=rows.weight)), 1e-4))
        return _Latent(*(np.full((rows.counts.shape[1], 1), level) for _ in range(2)))
    first = choice._replace(rank=1)
    latent = _turns(rows, hints[choice.source], choice.strength, _start(rows, hints, first))
    left = (rows.loss - latent.losses(rows)) * rows.weight / neighbours
    table = np.zeros((rows.counts.shape[1],) * 2)
    np.add.at(table, rows.target, left[:, None] * rows.counts)
    targets, size, others = np.linalg.svd(table)
    root = np.sqrt(max(float(size[0]), 1e-9))
    return _Latent(
        np.column_stack([latent.weights, root * targets[:, 0]]),
        np.column_stack([latent.pressure, root * others[0]]),
    )


def _turns(rows: _Rows, hints: Floats, strength: float, latent: _Latent) -> _Latent:
    """Return the fit from a start, after a fixed number of turns (:data:`_TURNS`)."""
    weights, pressure, (suffers, presses) = latent.weights, latent.pressure, hints.transpose(1, 0, 2)
    functions, rank = weights.shape
    eye = np.eye(rank)
    for _ in range(_TURNS):
        mean, pressure_on = _expected(weights, suffers), rows.counts @ pressure
        away, scaled = rows.loss - (pressure_on * mean[rows.target]).sum(axis=1), pressure_on * rows.weight[:, None]
        gram, right = np.zeros((functions, rank, rank)), np.zeros((functions, rank))
        np.add.at(gram, rows.target, scaled[:, :, None] * pressure_on[:, None, :])
        np.add.at(right, rows.target, scaled * away[:, None])
        ridge = strength * float(np.square(pressure).mean()) * eye
        weights = mean + np.linalg.solve(gram + ridge, right[:, :, None])[:, :, 0]
        mean = _expected(pressure, presses)
        design = (rows.counts[:, :, None] * weights[rows.target][:, None, :]).reshape(len(rows.loss), -1)
        away = rows.loss - design @ mean.ravel()
        scaled = design * rows.weight[:, None]
        ridge = strength * float(np.square(weights).mean()) * np.eye(design.shape[1])
        pressure = mean + np.linalg.solve(scaled.T @ design + ridge, scaled.T @ away).reshape(functions, rank)
        size = np.sqrt(np.square(weights).mean(axis=0) / np.maximum(np.square(pressure).mean(axis=0), 1e-18))
        weights, pressure = weights / np.sqrt(size), pressure * np.sqrt(size)
    return _Latent(weights, pressure)


def _sensitivity(
    model: NFModel, latent: _Latent, own: _Rows, number: int, identity: Floats, pressing: NDArray[np.bool_]
) -> LatentSensitivity:
    """Return one function's model, with its deviations for measured groups."""
    left, codes = own.loss - latent.losses(own), own.counts @ identity
    known, place = np.unique(codes, return_inverse=True)
    residuals = np.bincount(place.ravel(), left, len(known)) / np.maximum(
        np.bincount(place.ravel(), None, len(known)), 1
    )
    return LatentSensitivity(
        PAIRS,
        model.solo_mpps,
        latent.weights[number],
        latent.pressure[number] if pressing[number] else np.zeros(0),
        int(identity[number]),
        known,
        residuals,
        int(own.counts.sum(axis=1).max(initial=0.0)),
    )


def _next(latent: _Latent, rows: _Rows, models: Sequence[NFModel], number: int) -> str | None:
    """Return the neighbour to measure next, the one whose effect is most uncertain.

    The criterion is the variance of the predicted product for unmeasured pairs, in units of the ridge's posterior: that
    of the target's sensitivity times the other's pressure, plus the reverse.
    """
    own = rows.target == number
    measured = rows.counts[own & (rows.counts.sum(axis=1) == 1)].sum(axis=0) > 0
    whole = np.square(rows.counts[own] @ latent.pressure).sum()
    pressed = (np.square(latent.weights[rows.target]).sum(axis=1)[:, None] * (rows.counts > 0)).sum(axis=0)
    size = float(np.square(latent.weights).mean())
    least = 0.25 * max(size, 1e-12)
    variance = np.square(latent.pressure).sum(axis=1) / (whole + least)
    variance += float(np.square(latent.weights[number]).sum()) / (pressed + least)
    variance[measured] = -np.inf
    best = int(np.argmax(variance))
    return models[best].workload.key if np.isfinite(variance[best]) else None


def _identity(key: str) -> int:
    """Return a number for a workload that is the same on every machine and in every training."""
    return 1 + int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) % (MOST_IDENTITY - 1)
