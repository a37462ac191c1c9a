"""One NF beside the composed vectors of the others, memory alone considered.

SLOMO (SIGCOMM'20) section 4: P = M(compose(V_1 ... V_n)), slowdown = 1 - P / P_solo. The features are those that
training calibrated on (`slomo.equilibrium.competition`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slomo.compose.composition import Composition, compose
from slomo.compose.operators import rule_of
from slomo.compose.saturation import at_limit
from slomo.equilibrium.competition import competitor_vectors, mix_features
from slomo.errors import UnsupportedPredictionError
from slomo.models.applicability import Verdict
from slomo.models.base import CompositionKind, Floats
from slomo.models.intervals import ConformalCalibration, ends_mpps
from slomo.models.neighbourhood import UNKNOWN, neighbourhood
from slomo.models.nf_model import NFModel
from slomo.prediction.explanation import Explanation
from slomo.prediction.explanation import explain as divide_loss
from slomo.prediction.manner import Manner
from slomo.prediction.result import Prediction, label
from slomo.prediction.tenants import TenantModels
from slomo.vocabulary.metrics import METRICS
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Workload


def composed(server: TenantModels, number: int, manner: Manner) -> Prediction:
    """Predict tenant `number` at full load, beside the others of its socket at full load.

    Parameters
    ----------
    server : Server
        Who runs there.
    number : int
        The tenant asked about.
    manner : Manner
        Model, rule and coverage.

    Raises
    ------
    UnknownNameError
        For a model that was not trained.
    UnsupportedPredictionError
        Where a competitor lacks a metric that the model reads.
    """
    subject = server.tenants[number].model
    others = [tenant.model for tenant in server.beside(number)]
    case = Case(subject, tuple(other.workload for other in others), manner)
    family = subject.model(manner.model)
    if not others:
        return _alone(case)
    checked = subject.applicability.feature_names
    if family.composition == "pressure":
        names = (*family.feature_names, *(name for name in checked if name not in family.feature_names))
        row = seen = _features(case, others, names, "pressure")
    else:
        row = _features(case, others, family.feature_names, family.composition)
        seen = dict(zip(checked, _features(case, others, checked, "pressure").values(), strict=True))
    reads = family.composition != "none"
    vector = _composition(row, subject, manner) if reads and manner.explain else None
    own = _own_values(case, others, family.feature_names, family.composition) if manner.explain else None
    return read(case, row, seen, vector, own)


@dataclass(frozen=True, eq=False)
class Case:
    """One NF, what runs beside it, and how it is asked about."""

    subject: NFModel
    competitors: tuple[Workload, ...]
    manner: Manner


def read(
    case: Case,
    row: Mapping[str, float],
    seen: Mapping[str, float],
    composition: Composition | None,
    own: Mapping[str, Floats] | None = None,
) -> Prediction:
    """Predict from the values the model reads (`row`) and judge by those the profile covers (`seen`)."""
    subject, manner = case.subject, case.manner
    family = subject.model(manner.model)
    vector = np.array([row[name] for name in family.feature_names])
    mpps = family.predict_mpps(vector[np.newaxis])
    verdict, reasons = _judged(subject, seen)
    if np.isnan(mpps[0]):
        raise _refused(case, reasons, vector)
    low, high = interval_mpps(subject, manner.model, mpps, manner.coverage, _kind(case.competitors))
    return Prediction(
        target=subject.workload,
        competitors=case.competitors,
        machine=subject.machine,
        model=subject.named(manner.model),
        solo_mpps=subject.solo_mpps,
        throughput_mpps=float(mpps[0]),
        interval=(float(low[0]), float(high[0])),
        coverage=manner.coverage,
        verdict=verdict,
        reasons=reasons,
        explanation=divide_loss(family.predict_mpps, family.feature_names, vector, subject.solo_mpps, own)
        if manner.explain
        else None,
        composition=composition,
    )


def interval_mpps(
    subject: NFModel,
    model: str,
    predicted_mpps: Floats,
    coverage: float,
    kind: NDArray[np.int64] | int = UNKNOWN,
) -> tuple[Floats, Floats]:
    """Return both ends of each interval [Mpps]; solo throughput to either side for a model without calibration."""
    calibration = subject.calibration.get(subject.named(model)) or ConformalCalibration(np.zeros(0), "none")
    return calibration.interval_mpps(predicted_mpps, subject.solo_mpps, coverage, kind)


def measured_alone_mpps(solo_mpps: Floats) -> tuple[Floats, Floats]:
    """Return both ends of the interval of an NF without neighbours [Mpps]: repeats of its run differ a little."""
    return ends_mpps(solo_mpps, solo_mpps, 1.0, (np.zeros(1), np.zeros(1)))


def _kind(competitors: Sequence[Workload]) -> int:
    """Return the kind of neighbourhood; unknown where only a vector was given."""
    if not competitors:
        return UNKNOWN
    most = max(Counter(workload.key for workload in competitors).values())
    return int(neighbourhood(np.array([len(competitors)]), np.array([most]))[0])


def _alone(case: Case) -> Prediction:
    """Answer with what was measured solo: slowdown exactly 0, and hardly anything uncertain."""
    subject, manner = case.subject, case.manner
    low, high = measured_alone_mpps(np.array([subject.solo_mpps]))
    reads = subject.model(manner.model).composition != "none"
    return Prediction(
        target=subject.workload,
        competitors=(),
        machine=subject.machine,
        model=subject.named(manner.model),
        solo_mpps=subject.solo_mpps,
        throughput_mpps=subject.solo_mpps,
        interval=(float(low[0]), float(high[0])),
        coverage=manner.coverage,
        verdict=Verdict.SUPPORTED,
        explanation=Explanation(0.0, {}, 0.0) if manner.explain else None,
        composition=compose([], subject.capacities, manner.compat) if reads and manner.explain else None,
    )


def _features(
    case: Case, others: Sequence[NFModel], names: tuple[str, ...], composition: CompositionKind
) -> dict[str, float]:
    row = mix_features(
        others,
        np.arange(len(others))[np.newaxis],
        names,
        capacities=case.subject.capacities,
        composition=composition,
        compat=case.manner.compat,
        traffic=case.subject.traffic,
    )[0]
    return dict(zip(names, row.tolist(), strict=True))


def _own_values(
    case: Case, others: Sequence[NFModel], names: tuple[str, ...], composition: CompositionKind
) -> dict[str, Floats]:
    """Return what each kind of competitor contributes to the composed features, all its instances together."""
    metrics = [i for i, name in enumerate(names) if name in METRICS]
    ordered = sorted(others, key=lambda model: model.workload.key)
    values = competitor_vectors(
        ordered,
        np.arange(len(ordered))[np.newaxis],
        tuple(names[i] for i in metrics),
        capacities=case.subject.capacities,
        composition=composition,
        compat=case.manner.compat,
    )[0]
    shares: dict[str, Floats] = {}
    for model, row in zip(ordered, values, strict=True):
        shares.setdefault(label(model.workload), np.zeros(len(names)))[metrics] += row
    return shares


def _composition(row: Mapping[str, float], subject: NFModel, manner: Manner) -> Composition:
    """Return the composed metrics among `row` as a value for people."""
    vector = MetricVector({name: value for name, value in row.items() if name in METRICS})
    rules = {name: rule_of(name, manner.compat) for name in vector}
    return Composition(vector, rules, () if manner.compat else at_limit(vector, subject.capacities))


def _judged(subject: NFModel, seen: Mapping[str, float]) -> tuple[Verdict, tuple[str, ...]]:
    names = subject.applicability.feature_names
    verdicts, reasons = subject.applicability.check(np.array([[seen.get(name, np.nan) for name in names]]))
    return verdicts[0], reasons[0]


def _refused(case: Case, reasons: tuple[str, ...], vector: Floats) -> UnsupportedPredictionError:
    subject, model = case.subject, case.subject.named(case.manner.model)
    gaps = [name for name, value in zip(subject.model(model).feature_names, vector, strict=True) if np.isnan(value)]
    why = f"not every competitor reports {', '.join(gaps)}" if gaps else "; ".join(reasons)
    beside = ", ".join(label(workload) for workload in case.competitors) or "the vector given"
    return UnsupportedPredictionError(
        f"model '{model}' cannot predict '{label(subject.workload)}' beside {beside} on {subject.machine}: {why}",
        hint="profile the target under stronger pressure, or with these counters"
        if not gaps
        else "missing is not zero; profile the competitors with these counters",
    )
