"""Predict one NF from the composed counters of its competitors, as SLOMO does; only cache and memory are shared.

SLOMO (SIGCOMM'20) section 4: P = M(compose(V_1 ... V_n)), slowdown = 1 - P / P_solo. The features are those of
calibration in training (`slomo.equilibrium.competition`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from slomo.compose.composition import Composition, compose
from slomo.compose.operators import rule_of
from slomo.compose.saturation import at_limit
from slomo.equilibrium.competition import features_of_one
from slomo.errors import UnsupportedPredictionError
from slomo.models.applicability import Applicability, Verdict, worst
from slomo.models.base import CompositionKind, Floats, SensitivityModel
from slomo.models.evidence import Evidence, VerdictErrors, caution, doubt, evidence_of
from slomo.models.interval_ends import ends_mpps, stretched
from slomo.models.intervals import ConformalCalibration
from slomo.models.neighbourhood import UNKNOWN, kind_of
from slomo.models.nf_model import NFModel
from slomo.models.responses.latent import REPEATS, LatentSensitivity
from slomo.prediction.explanation import Explanation
from slomo.prediction.explanation import explain as divide_loss
from slomo.prediction.options import PredictionOptions
from slomo.prediction.result import Prediction, label
from slomo.prediction.tenants import TenantModels
from slomo.units import plural
from slomo.vocabulary.defaults import COMPOSED
from slomo.vocabulary.metrics import METRICS
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Workload

#: Name of this method in options.
NAME = "composed"
#: Half-width of the interval of an uncalibrated model, as a share of solo throughput.
_UNCALIBRATED = ConformalCalibration(np.zeros(0), "none")


class Composed:
    """The NFs of a server, each predicted from the composed vectors of the others on its socket, all at full load.

    `options`: model, composition rule, coverage. `loads`: offered load of each tenant [Mpps]; None saturates it.
    `fallback`: function that returns why another, requested method cannot predict a tenant. Raises UnknownNameError for
    a model that was not trained; UnsupportedPredictionError if a competitor lacks a metric that the model needs.
    """

    def __init__(
        self,
        server: TenantModels,
        options: PredictionOptions,
        loads: Sequence[float | None],
        fallback: Callable[[int], str | None],
    ) -> None:
        self.server, self.options, self.loads, self.fallback = server, options, loads, fallback

    def vector(self, number: int) -> None:
        """Return None, since this method does not compute counters beside the other NFs."""

    def possible_mpps(self, number: int) -> float:
        """Return the throughput that a tenant would reach if it were saturated [Mpps]."""
        return self._at_full_load(number, replace(self.options, explain=False)).throughput_mpps

    def prediction(self, number: int) -> Prediction:
        """Return a tenant's prediction at full load; its `reasons` include the limits of the method "composed"."""
        prediction = self._at_full_load(number, self.options)
        reasons = [] if (why := self.fallback(number)) is None else [why]
        reduced = zip(self.server.tenants, self.loads, strict=True)
        names = {tenant.workload.nf for tenant, load in reduced if load is not None}
        if names and prediction.competitors:
            reasons.append(f"method '{NAME}' knows full load only; reduced here: {', '.join(sorted(names))}")
        if not reasons:
            return prediction
        verdict = worst((prediction.verdict, Verdict.EXTRAPOLATED))
        return replace(prediction, reasons=(*prediction.reasons, *reasons), verdict=verdict)

    def _at_full_load(self, number: int, options: PredictionOptions) -> Prediction:
        tenant = self.server.tenants[number]
        subject = tenant.model
        others = sorted([self.server.tenants[other].model for other in self.server.beside(number)], key=_key)
        if (name := subject.named_beside(options.model, others)) != options.model:
            options = replace(options, method=COMPOSED, model=name)
        keys = [other.workload.key for other in others]
        kind = kind_of(len(keys), max(map(keys.count, keys))) if keys else UNKNOWN
        case = Case(subject, tenant.workload, self.server.competitors(number), kind, options)
        if not others:
            return _alone(case)
        family = family_of(subject, options.model)
        composition = family.model.composition
        values, vectors = _features(case, others, family.names, composition)
        if composition in ("pressure", "latent"):
            seen = [values[at] if at >= 0 else math.nan for at in family.checked]
        else:
            seen = _features(case, others, subject.applicability.feature_names, "pressure")[0]
        inputs = values[: len(family.model.feature_names)]
        if not options.explain:
            return read(case, inputs, seen, None)
        vector = _composition(family.names, values, subject, options) if composition != "none" else None
        return read(case, inputs, seen, vector, _own_values(case, others, family.names, vectors))


def _key(model: NFModel) -> str:
    return model.workload.key


class TrainedFamily(NamedTuple):
    """A trained family of one NF."""

    #: Name in the registry, model, and known errors.
    name: str
    model: SensitivityModel
    calibration: ConformalCalibration
    #: Counters to compose: the model's inputs; then those that the verdict checks, if they are composed alike.
    names: tuple[str, ...]
    #: Index in `names` of each counter that the verdict checks; -1 for others.
    checked: tuple[int, ...]
    #: Range of pressures to which it was fitted.
    covered: Applicability


@lru_cache(maxsize=4096)
def family_of(subject: NFModel, model: str) -> TrainedFamily:
    """Return a trained family; cached, since every prediction needs it."""
    name, family = subject.named(model), subject.model(model)
    own = family.covered if isinstance(family, LatentSensitivity) else None
    covered = own or subject.applicability
    names, checked = family.feature_names, covered.feature_names
    if family.composition == "pressure":
        names = tuple(dict.fromkeys((*names, *checked)))
    at = tuple(names.index(each) if each in names else -1 for each in checked)
    return TrainedFamily(name, family, calibration_of(subject, name), names, at, covered)


def calibration_of(subject: NFModel, model: str) -> ConformalCalibration:
    """Return a model family's known errors; without any, the interval reaches solo throughput on both sides."""
    return subject.calibration.get(subject.named(model)) or _UNCALIBRATED


@dataclass(frozen=True, eq=False)
class Case:
    """One NF to predict, its competitors, and the options of the prediction."""

    subject: NFModel
    #: Workload as requested, adaptations and load included.
    target: Workload
    competitors: tuple[Workload, ...]
    #: Kind of the NF's neighbourhood (`slomo.models.neighbourhood`).
    kind: int
    options: PredictionOptions


def read(
    case: Case,
    inputs: Sequence[float],
    seen: Sequence[float],
    composition: Composition | None,
    own: Mapping[str, Floats] | None = None,
) -> Prediction:
    """Predict from the model's inputs; the verdict considers all profiled metrics (`seen`), NaN if unknown."""
    subject, options = case.subject, case.options
    name, family, calibration, *_, covered = family_of(subject, options.model)
    rows = np.array([inputs])
    mpps, vector = float(family.predict_mpps(rows)[0]), rows[0]
    verdict, reasons = _judged(covered, seen)
    measured = isinstance(family, LatentSensitivity) and bool(family.were_measured(rows)[0])
    repeats = repeats_of(subject, options.coverage) if measured else None
    if repeats is not None:
        calibration = repeats
    if isinstance(family, LatentSensitivity):
        verdict, reasons = (Verdict.SUPPORTED, ()) if measured else _by_name(family, len(case.competitors), verdict)
    if math.isnan(mpps):
        raise _refused(case, reasons, vector)
    kind = case.kind
    held_out = None
    if calibration.count and not measured:  # held-out errors are for neighbourhoods that were not measured
        held_out = VerdictErrors(calibration.usual_error(max(1.0 - mpps / subject.solo_mpps, 0.0), kind))
    if (why := caution(calibration, held_out)) and verdict is Verdict.SUPPORTED:
        verdict, reasons = Verdict.EXTRAPOLATED, (*reasons, why)
    if repeats is None and (why := doubt_of(subject, name, options.coverage)):
        verdict, reasons = Verdict.UNKNOWN, (why, *reasons)
    ends = calibration.one_interval_mpps(mpps, subject.solo_mpps, options.coverage, kind)
    if isinstance(family, LatentSensitivity) and (factor := family.stretch(len(case.competitors))) > 1.0:
        low, high = stretched(np.array(mpps), (np.array(ends[0]), np.array(ends[1])), factor, subject.solo_mpps)
        ends = float(low), float(high)
    if verdict is not Verdict.UNKNOWN and ends[0] <= 0.0 and ends[1] >= subject.solo_mpps:
        why = f"the interval of {100.0 * options.coverage:g} % spans everything from 0 to solo throughput"
        verdict, reasons = Verdict.UNKNOWN, (why, *reasons)
    return Prediction(
        target=case.target,
        competitors=case.competitors,
        machine=subject.machine,
        model=name,
        solo_mpps=subject.solo_mpps,
        throughput_mpps=mpps,
        interval=ends,
        coverage=options.coverage,
        verdict=verdict,
        reasons=reasons,
        explanation=divide_loss(family.predict_mpps, family.feature_names, vector, subject.solo_mpps, own)
        if options.explain
        else None,
        composition=composition,
        noise=subject.noise,
        unit=subject.throughput_unit,
        evidence=_evidence(case, mpps, seen, calibration) if options.explain else None,
    )


def _by_name(family: LatentSensitivity, count: int, verdict: Verdict) -> tuple[Verdict, tuple[str, ...]]:
    """Return verdict and reasons if neighbours are known only by name and the target was not measured beside them."""
    more = (f"beside {plural(count, 'other')}, measured beside {family.most} at most",) if count > family.most else ()
    if verdict is Verdict.SUPPORTED:
        return Verdict.EXTRAPOLATED if more else verdict, more
    return verdict, more or (
        "not measured beside these, and their pressure, estimated from other rates, is outside what was measured",
    )


def _evidence(case: Case, mpps: float, seen: Sequence[float], calibration: ConformalCalibration) -> Evidence:
    subject, name = case.subject, case.subject.named(case.options.model)
    covered = family_of(subject, case.options.model).covered, np.array(seen)
    return evidence_of(name, calibration, case.kind, max(1.0 - mpps / subject.solo_mpps, 0.0), covered)


@lru_cache(maxsize=4096)
def doubt_of(subject: NFModel, family: str, coverage: float) -> str | None:
    """Return why a family has too few known errors for a verdict beside neighbours; None if it has enough."""
    return doubt(subject, family, calibration_of(subject, family), coverage)


@lru_cache(maxsize=4096)
def repeats_of(subject: NFModel, coverage: float) -> ConformalCalibration | None:
    """Return how repeated runs differ from the mean of earlier runs of the same NFs; None if too few for `coverage`."""
    repeats = subject.calibration.get(REPEATS)
    return None if repeats is None or repeats.missing(coverage) else repeats


def interval_mpps(
    subject: NFModel,
    model: str,
    predicted_mpps: Floats,
    coverage: float,
    kind: NDArray[np.int64] | int = UNKNOWN,
) -> tuple[Floats, Floats]:
    """Return lower and upper bound of each interval [Mpps], from the errors of :func:`calibration_of`."""
    return calibration_of(subject, model).interval_mpps(predicted_mpps, subject.solo_mpps, coverage, kind)


def measured_alone_mpps(solo_mpps: Floats, reach: Floats | float) -> tuple[Floats, Floats]:
    """Return lower and upper bound for an NF without neighbours [Mpps]; `reach`: that of its noise (`alone_reach`)."""
    return ends_mpps(solo_mpps, solo_mpps, (-np.asarray(reach), reach))


def _alone(case: Case) -> Prediction:
    """Return the prediction for an NF without neighbours: its measured solo throughput, with slowdown exactly 0."""
    subject, options = case.subject, case.options
    low, high = measured_alone_mpps(np.array([subject.solo_mpps]), subject.alone_reach(options.coverage))
    reads = subject.model(options.model).composition != "none"
    return Prediction(
        target=case.target,
        competitors=(),
        machine=subject.machine,
        model=subject.named(options.model),
        solo_mpps=subject.solo_mpps,
        throughput_mpps=subject.solo_mpps,
        interval=(float(low[0]), float(high[0])),
        coverage=options.coverage,
        verdict=Verdict.UNKNOWN if subject.solo_is_carried else Verdict.SUPPORTED,
        reasons=("it was never measured alone on this machine",) if subject.solo_is_carried else (),
        explanation=Explanation(0.0, {}, 0.0) if options.explain else None,
        composition=compose([], subject.capacities, options.compat) if reads and options.explain else None,
        noise=subject.noise,
        unit=subject.throughput_unit,
        evidence=Evidence("solo run", "none" if subject.solo_is_carried else "measured") if options.explain else None,
    )


def _features(
    case: Case, others: Sequence[NFModel], names: tuple[str, ...], composition: CompositionKind
) -> tuple[list[float], Floats]:
    """Return the composed counters that the model needs, and each competitor's contribution to them."""
    return features_of_one(
        others,
        names,
        capacities=case.subject.capacities,
        composition=composition,
        compat=case.options.compat,
        traffic=case.subject.traffic,
    )


def _own_values(
    case: Case, others: Sequence[NFModel], composed_names: tuple[str, ...], vectors: Floats
) -> dict[str, Floats]:
    """Return each competing workload's contribution to the composed counters, summed over its instances."""
    metrics = [name for name in composed_names if name in METRICS]
    names = family_of(case.subject, case.options.model).model.feature_names
    own = np.column_stack([vectors[:, : len(metrics)], np.zeros(len(others))])
    values = own[:, [metrics.index(name) if name in metrics else -1 for name in names]]
    shares: dict[str, Floats] = {}
    for model, row in zip(others, values, strict=True):
        key = label(model.workload)
        shares[key] = shares[key] + row if key in shares else row
    return shares


def _composition(
    names: Sequence[str], values: Sequence[float], subject: NFModel, options: PredictionOptions
) -> Composition:
    """Return composed counters as a `Composition`, for display."""
    vector = MetricVector({name: value for name, value in zip(names, values, strict=True) if name in METRICS})
    rules = {name: rule_of(name, options.compat) for name in vector}
    return Composition(vector, rules, () if options.compat else at_limit(vector, subject.capacities))


def _judged(covered: Applicability, seen: Sequence[float]) -> tuple[Verdict, tuple[str, ...]]:
    if covered.covers(seen):
        return Verdict.SUPPORTED, ()
    verdicts, reasons = covered.check(np.array([seen]))
    return verdicts[0], reasons[0]


def _refused(case: Case, reasons: tuple[str, ...], vector: Floats) -> UnsupportedPredictionError:
    subject, model = case.subject, case.subject.named(case.options.model)
    gaps = [name for name, value in zip(subject.model(model).feature_names, vector, strict=True) if np.isnan(value)]
    why = f"not every competitor reports {', '.join(gaps)}" if gaps else "; ".join(reasons)
    beside = ", ".join(sorted(map(label, case.competitors))) or "the vector given"
    return UnsupportedPredictionError(
        f"model '{model}' cannot predict '{label(subject.workload)}' beside {beside} on {subject.machine}: {why}",
        hint="profile the target under stronger pressure, or with these counters"
        if not gaps
        else "missing is not zero; profile the competitors with these counters",
    )
