"""Predict the throughput of a target beside competitors it was never run with.

SLOMO (SIGCOMM'20) section 4: P = M(compose(V_1 ... V_n)), slowdown = 1 - P / P_solo. Every number comes from the
features that training calibrated on (`slomo.equilibrium.competition`), for one mix as for a hundred thousand; numpy
alone is needed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from slomo.compose.composition import Compat, Composition, compose
from slomo.compose.operators import rule_of
from slomo.compose.saturation import at_limit
from slomo.equilibrium.competition import competitor_vectors, mix_features
from slomo.errors import InvalidValueError, UnsupportedPredictionError
from slomo.models.applicability import Verdict
from slomo.models.base import CompositionKind
from slomo.models.library import ModelLibrary
from slomo.models.nf_model import NFModel
from slomo.prediction.batch import check_cores, check_coverage, half_width_mpps, predict_members
from slomo.prediction.explanation import Explanation
from slomo.prediction.explanation import explain as divide_loss
from slomo.prediction.members import Named, from_indices, from_names
from slomo.prediction.result import Prediction, PredictionBatch, label
from slomo.vocabulary.metrics import METRICS
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Workload

Floats = NDArray[np.float64]


class Predictor:
    """Predicts with the models of one machine.

    Parameters
    ----------
    library : ModelLibrary
        Trained models.
    machine : str, optional
        Where the NFs run; needed where the library has models of several machines.
    model : str
        Which sensitivity model, a name of the registry.
    compat : {"slomo"}, optional
        Contentiousness and composition by the published rule.

    Examples
    --------
    >>> Predictor(ModelLibrary([]), "silver-4110").predict("lpm", ["nat"])
    Traceback (most recent call last):
    slomo.errors.UnknownNameError: unknown machine with models 'silver-4110'
    hint: there are models for none; profile and train on 'silver-4110' first
    """

    def __init__(
        self, library: ModelLibrary, machine: str | None = None, model: str = "slomo-xgb", compat: Compat | None = None
    ) -> None:
        self.library = library
        self.machine = library.machines[0] if machine is None and len(library.machines) == 1 else machine
        self.model = model
        self.compat = compat
        self._known: dict[Named, NFModel] = {}

    @cached_property
    def workloads(self) -> tuple[Workload, ...]:
        """Workloads there are models for on this machine; what the indices of :meth:`predict_batch` count."""
        return tuple(model.workload for model in self._models)

    def predict(
        self,
        target: Named,
        competitors: Sequence[Named] = (),
        coverage: float = 0.9,
        *,
        strict: bool = False,
        explain: bool = True,
    ) -> Prediction:
        """Predict one mix.

        Parameters
        ----------
        target : Workload or str
            Workload, its key, or the name of an NF.
        competitors : sequence of Workload or str
            One entry per instance, in any order.
        coverage : float
            Nominal coverage of the interval, above 0 and below 1.
        strict : bool
            Refuse a prediction that what was measured does not support.
        explain : bool
            Divide the loss over metrics.

        Returns
        -------
        Prediction
            Without competitors, exactly what was measured solo.

        Raises
        ------
        UnknownNameError
            For a target, competitor, machine or model there is none of, with the nearest.
        InvalidValueError
            For a coverage outside 0 to 1, or a mix that needs more cores than the machine has.
        UnsupportedPredictionError
            Where a competitor lacks a metric the model reads; with `strict`, for every unsupported prediction.
        """
        if isinstance(competitors, str):
            raise InvalidValueError(
                f"competitors are the text '{competitors}', needed a list of NFs", hint=f"write ['{competitors}']"
            )
        check_coverage(coverage)
        subject, others = self._find(target), [self._find(name) for name in competitors]
        check_cores(subject, 1 + len(others))
        model = subject.model(self.model)
        asked = _Asked(subject, tuple(other.workload for other in others), coverage, strict, explain)
        if not others:
            return self._alone(asked)
        checked = subject.applicability.feature_names
        if model.composition == "pressure":
            names = (*model.feature_names, *(name for name in checked if name not in model.feature_names))
            row = seen = self._features(subject, others, names, "pressure")
        else:
            names = model.feature_names
            row = self._features(subject, others, names, model.composition)
            seen = dict(zip(checked, self._features(subject, others, checked, "pressure").values(), strict=True))
        composed = None if model.composition == "none" else _composition(row, subject, self.compat)
        own = self._own_values(subject, others, model.feature_names, model.composition) if explain else None
        return self._answer(asked, row, seen, composed, own)

    def predict_vector(
        self,
        target: Named,
        vector: Mapping[str, float],
        traffic: Mapping[str, float] | None = None,
        coverage: float = 0.9,
        *,
        strict: bool = False,
        explain: bool = True,
    ) -> Prediction:
        """Predict beside a competition given by its socket-level vector, as measured tables give it.

        Parameters
        ----------
        target : Workload or str
            As for :meth:`predict`.
        vector : mapping of str to float
            Metric -> value in the vocabulary's unit.
        traffic : mapping of str to float, optional
            Traffic attributes of the target that differ from its own.
        coverage, strict, explain
            As for :meth:`predict`.

        Returns
        -------
        Prediction
            Without competitors' names: only their vector is known.

        Raises
        ------
        MissingMetricError
            Where the vector lacks a metric the model reads.
        """
        check_coverage(coverage)
        subject, given = self._find(target), MetricVector(vector)
        inputs = subject.inputs(self.model, given, traffic)[0].tolist()
        row = dict(zip(subject.model(self.model).feature_names, inputs, strict=True))
        seen = {**subject.traffic, **given, **row}
        composed = Composition(given, dict.fromkeys(given, "given"))
        return self._answer(_Asked(subject, (), coverage, strict, explain), row, seen, composed)

    def predict_batch(
        self,
        targets: Sequence[Named] | NDArray[np.integer],
        mixes: Sequence[Sequence[Named]] | NDArray[np.integer],
        coverage: float = 0.9,
    ) -> PredictionBatch:
        """Predict many mixes in one call; the same numbers as :meth:`predict`.

        Parameters
        ----------
        targets : sequence of Workload or str, or ndarray of int, shape (n,)
            One per mix; integers index :attr:`workloads`.
        mixes : sequence of sequences of Workload or str, or ndarray of int, shape (n, most competitors)
            The competitors of each mix; -1 marks an empty place.
        coverage : float
            Nominal coverage of the intervals, above 0 and below 1.

        Returns
        -------
        PredictionBatch
            Throughput is NaN where a competitor lacks a metric the model reads.

        Raises
        ------
        UnknownNameError, InvalidValueError
            As for :meth:`predict`.
        """
        check_coverage(coverage)
        if isinstance(mixes, np.ndarray) and isinstance(targets, np.ndarray):
            members = from_indices(targets, mixes, self._models)
        else:
            members = from_names(list(targets), list(mixes), self._find)
        return predict_members(members, self.machine or "", self.model, coverage, self.compat)

    @cached_property
    def _models(self) -> tuple[NFModel, ...]:
        keys = self.library.workloads(self.machine) if self.machine is not None else ()
        return tuple(self._find(key) for key in keys)

    def _find(self, name: Named) -> NFModel:
        if name not in self._known:
            self._known[name] = self.library.find(name, self.machine)
        return self._known[name]

    def _features(
        self, subject: NFModel, others: Sequence[NFModel], names: tuple[str, ...], composition: CompositionKind
    ) -> dict[str, float]:
        row = mix_features(
            others,
            np.arange(len(others))[np.newaxis],
            names,
            capacities=subject.capacities,
            composition=composition,
            compat=self.compat,
            traffic=subject.traffic,
        )[0]
        return dict(zip(names, row.tolist(), strict=True))

    def _own_values(
        self, subject: NFModel, others: Sequence[NFModel], names: tuple[str, ...], composition: CompositionKind
    ) -> dict[str, Floats]:
        """Return what each kind of competitor contributes to the composed features, all its instances together."""
        metrics = [i for i, name in enumerate(names) if name in METRICS]
        ordered = sorted(others, key=lambda model: model.workload.key)
        values = competitor_vectors(
            ordered,
            np.arange(len(ordered))[np.newaxis],
            tuple(names[i] for i in metrics),
            capacities=subject.capacities,
            composition=composition,
            compat=self.compat,
        )[0]
        found: dict[str, Floats] = {}
        for model, row in zip(ordered, values, strict=True):
            found.setdefault(label(model.workload), np.zeros(len(names)))[metrics] += row
        return found

    def _alone(self, asked: "_Asked") -> Prediction:
        """Answer with what was measured solo: slowdown exactly 0, nothing uncertain."""
        subject, solo = asked.subject, asked.subject.solo_mpps
        reads = subject.model(self.model).composition != "none"
        return Prediction(
            target=subject.workload,
            competitors=(),
            machine=subject.machine,
            model=self.model,
            solo_mpps=solo,
            throughput_mpps=solo,
            interval=(solo, solo),
            coverage=asked.coverage,
            verdict=Verdict.SUPPORTED,
            explanation=Explanation(0.0, {}, 0.0) if asked.explain else None,
            composition=compose([], subject.capacities, self.compat) if reads else None,
        )

    def _answer(
        self,
        asked: "_Asked",
        row: Mapping[str, float],
        seen: Mapping[str, float],
        composed: Composition | None,
        own: Mapping[str, Floats] | None = None,
    ) -> Prediction:
        """Predict from the values the model reads (`row`) and judge by those the profile covers (`seen`)."""
        subject = asked.subject
        model = subject.model(self.model)
        vector = np.array([row[name] for name in model.feature_names])
        mpps = model.predict_mpps(vector[np.newaxis])
        verdict, reasons = _judged(subject, seen)
        if np.isnan(mpps[0]) or (asked.strict and verdict is Verdict.UNSUPPORTED):
            raise _refused(asked, self.model, reasons, vector)
        width = half_width_mpps(subject, self.model, mpps, asked.coverage)[0]
        return Prediction(
            target=subject.workload,
            competitors=asked.competitors,
            machine=subject.machine,
            model=self.model,
            solo_mpps=subject.solo_mpps,
            throughput_mpps=float(mpps[0]),
            interval=(max(0.0, float(mpps[0] - width)), float(mpps[0] + width)),
            coverage=asked.coverage,
            verdict=verdict,
            reasons=reasons,
            explanation=divide_loss(model.predict_mpps, model.feature_names, vector, subject.solo_mpps, own)
            if asked.explain
            else None,
            composition=composed,
        )


@dataclass(frozen=True)
class _Asked:
    """What a caller wants to know."""

    subject: NFModel
    competitors: tuple[Workload, ...]
    coverage: float
    strict: bool
    explain: bool


def _composition(row: Mapping[str, float], subject: NFModel, compat: Compat | None) -> Composition:
    """Return the composed metrics among `row` as a value for people."""
    vector = MetricVector({name: value for name, value in row.items() if name in METRICS})
    rules = {name: rule_of(name, compat) for name in vector}
    return Composition(vector, rules, () if compat else at_limit(vector, subject.capacities))


def _judged(subject: NFModel, seen: Mapping[str, float]) -> tuple[Verdict, tuple[str, ...]]:
    names = subject.applicability.feature_names
    verdicts, reasons = subject.applicability.check(np.array([[seen.get(name, np.nan) for name in names]]))
    return verdicts[0], reasons[0]


def _refused(asked: _Asked, model: str, reasons: tuple[str, ...], vector: Floats) -> UnsupportedPredictionError:
    names = asked.subject.model(model).feature_names
    gaps = [name for name, value in zip(names, vector, strict=True) if np.isnan(value)]
    why = f"not every competitor reports {', '.join(gaps)}" if gaps else "; ".join(reasons)
    beside = ", ".join(label(workload) for workload in asked.competitors) or "the vector given"
    return UnsupportedPredictionError(
        f"model '{model}' cannot predict '{label(asked.subject.workload)}' beside {beside} "
        f"on {asked.subject.machine}: {why}",
        hint="profile the target under stronger pressure, or with these counters"
        if not gaps
        else "missing is not zero; profile the competitors with these counters",
    )
