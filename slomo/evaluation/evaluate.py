"""Compare predictions with measured mixes: errors for every model and NF, and how often intervals hold.

SLOMO (SIGCOMM'20) section 8 judges by mean absolute percentage error of throughput against Dobrescu (NSDI'12) and
Bubble-Up (MICRO'11); Yala (ASPLOS'25) adds the shares within 5 and 10 %. Every tenant of a mix is a target once, and
all models are asked about the same rows; rows that a model does not predict are counted apart.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from slomo.errors import InvalidValueError, MissingMetricError, UnknownNameError
from slomo.evaluation.baselines import beside_baselines
from slomo.evaluation.error_sources import error_sources, reliability
from slomo.files.stored import Stored, stored
from slomo.models.library import ModelLibrary
from slomo.prediction.predictor import Predictor
from slomo.records import schema
from slomo.records.dataset import ProfileDataset
from slomo.units import plural
from slomo.vocabulary.defaults import COMPOSED, DEFAULT_MODEL, EQUILIBRIUM, Compat
from slomo.vocabulary.display import drawn, html_table
from slomo.vocabulary.vector import Floats
from slomo.vocabulary.workload import Workload
from slomo.vocabulary.workload_text import counted

if TYPE_CHECKING:
    from slomo.vocabulary.display import Axes

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Errors(Stored):
    """Mean error, percentiles, bias and coverage of predictions, in percent."""

    #: Number of predictions judged.
    predictions: int
    #: Mean and 95th percentile of the absolute error of throughput, relative to the measured one [%].
    mape: float
    p95: float
    #: Share of predictions at most 5 and 10 % off [%].
    within_5: float
    within_10: float
    #: Mean signed error [%]; above 0 means that predictions promise too much throughput.
    bias: float
    #: Share of measured throughputs inside their interval [%].
    coverage: float
    #: Mean width of the intervals relative to the measured throughput [%].
    width: float


def errors(measured_mpps: Floats, predicted_mpps: Floats, low_mpps: Floats, high_mpps: Floats) -> Errors:
    """Return the mean error, percentiles, bias and coverage of predictions and the ends of their intervals.

    >>> e = errors(np.array([2.0, 4.0]), np.array([2.06, 3.6]), np.array([1.9, 3.5]), np.array([2.1, 3.9]))
    >>> round(e.mape, 2), e.within_5, e.within_10, round(e.bias, 2), e.coverage
    (6.5, 50.0, 100.0, -3.5, 50.0)
    """
    if not len(measured_mpps) or not np.all(measured_mpps > 0.0):
        raise InvalidValueError(
            f"errors relative to {len(measured_mpps)} measured throughputs, some not above 0 Mpps",
            hint="evaluate on mixes in which every tenant forwards packets",
        )
    signed = 100.0 * (predicted_mpps - measured_mpps) / measured_mpps
    size = np.abs(signed)
    inside = (low_mpps <= measured_mpps) & (measured_mpps <= high_mpps)
    # exactly 5 % off counts as within 5 %, despite rounding
    return Errors(
        predictions=len(size),
        mape=float(size.mean()),
        p95=float(np.percentile(size, 95)),
        within_5=float(100.0 * (size <= 5.0 + 1e-9).mean()),
        within_10=float(100.0 * (size <= 10.0 + 1e-9).mean()),
        bias=float(signed.mean()),
        coverage=float(100.0 * inside.mean()),
        width=float(100.0 * ((high_mpps - low_mpps) / measured_mpps).mean()),
    )


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Errors of every model on the same mixes.

    Attributes
    ----------
    machine : str
        Machine on which the mixes ran.
    mixes : int
        Number of different mixes.
    nominal_coverage : float
        Nominal coverage of the intervals, 0 to 1.
    models : mapping of str to Errors
        Model -> errors over all predictions.
    per_nf : mapping of str to mapping
        Target -> model -> errors.
    rows : mapping of str to sequence
        Every prediction, column by column; see :meth:`to_frame`.
    not_predicted : mapping of str to sequence of str
        Model -> why it does not predict a row, one text per such row, as `predict` says it; empty without such rows.
    sources : mapping of str to mapping
        Model -> mean errors by source (`slomo.evaluation.error_sources`), where they were asked for.
    reliability : mapping of str to mapping
        Model -> nominal -> observed coverage of intervals, 0 to 1, where it was asked for.
    """

    machine: str
    mixes: int
    nominal_coverage: float
    models: Mapping[str, Errors]
    per_nf: Mapping[str, Mapping[str, Errors]]
    rows: Mapping[str, Sequence[Any]]
    not_predicted: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    reliability: Mapping[str, Mapping[float, float]] = field(default_factory=dict)

    @property
    def baselines(self) -> dict[str, dict[str, Any]]:
        """Error of each baseline's better form, compared with the default model's (`slomo.evaluation.baselines`).

        Only models that predict every row are compared, so that all errors are of the same rows.
        """
        whole = self.models.keys() - self.not_predicted.keys()
        return beside_baselines({name: errors.mape for name, errors in self.models.items() if name in whole})

    @property
    def predictions(self) -> int:
        """Number of predictions that each model was asked for."""
        return max(
            len(self.not_predicted.get(name, ())) + (self.models[name].predictions if name in self.models else 0)
            for name in {*self.models, *self.not_predicted}
        )

    @property
    def gaps(self) -> tuple[str, ...]:
        """One sentence for each model that does not predict every row: how many, and one of them by name."""
        return tuple(
            f"{name}: {len(reasons)} of {self.predictions} not predicted, the first: {reasons[0]}"
            for name, reasons in self.not_predicted.items()
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping: errors in percent, by model and by target."""
        return {
            "schema_version": SCHEMA_VERSION,
            "machine": self.machine,
            "mixes": self.mixes,
            "predictions": self.predictions,
            "nominal_coverage": 100.0 * self.nominal_coverage,
            "models": stored(self.models),
            "baselines": self.baselines,
            "per_nf": stored(self.per_nf),
            "not_predicted": {name: list(reasons) for name, reasons in self.not_predicted.items()},
            "sources": stored(self.sources),
            "reliability": {
                name: [[level, share] for level, share in sorted(shares.items())]
                for name, shares in self.reliability.items()
            },
        }

    def to_frame(self) -> pd.DataFrame:
        """Return one row per prediction: target, competitors, model, measured, predicted, interval, error."""
        return pd.DataFrame(dict(self.rows))

    def plot(self, ax: "Axes | None" = None, *, model: str | None = None) -> "Axes":
        """Draw predicted over measured slowdown, one point per prediction.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; new axes by default.
        model : str, optional
            Model whose predictions are drawn; by default the first that was evaluated.

        Returns
        -------
        matplotlib Axes
            Where it was drawn.

        Raises
        ------
        UnknownNameError
            For a model that was not evaluated.
        """
        name = next(iter(self.models)) if model is None else model
        if name not in self.models:
            raise UnknownNameError("evaluated model", name, self.models)
        return drawn("scatter", self, name, ax)

    def __repr__(self) -> str:
        errors = ", ".join(f"{model} {accuracy.mape:.2f} %" for model, accuracy in self.models.items())
        return f"Evaluation({plural(self.mixes, 'mix', 'mixes')} on {self.machine}; mean absolute error: {errors})"

    def _repr_html_(self) -> str:
        names = ("mape", "p95", "within_5", "within_10", "bias", "coverage")
        rows = ((model, *(f"{getattr(e, name):.1f}" for name in names)) for model, e in self.models.items())
        return html_table(
            f"{plural(self.mixes, 'mix', 'mixes')} on {self.machine}",
            ("model", *(f"{name} [%]" for name in names)),
            rows,
        )


def evaluate(
    library: ModelLibrary,
    dataset: ProfileDataset,
    models: Sequence[str] | None = None,
    coverage: float = 0.9,
    *,
    compat: Compat | None = None,
    with_sources: bool = False,
) -> Evaluation:
    """Predict every mix of a dataset, all on one machine, with every model, and compare with the measurements.

    The mixes must not be those that intervals were calibrated on. `models`: names of families, which compose;
    ``"equilibrium"``; ``"composed"`` for the family chosen for each target; and ``"default"`` for what answers where
    nothing is named. All but the last by default, where the targets have them; with `compat`, nothing is solved.
    `with_sources`: add sources of errors and reliability, which are known only for slomo's own composition rule.
    """
    machine = _one_machine(dataset)
    mixes = judged_mixes(library, dataset)
    targets = [mixes.workload(key) for key in mixes.targets]
    first = library.find(targets[0], machine)
    workloads, competitors = mixes.tenants
    names = _models_of(library, targets, machine, compat) if models is None else tuple(models)
    parts: dict[str, dict[str, NDArray[Any]]] = {}
    not_predicted: dict[str, list[str]] = {}
    sources: dict[str, dict[str, Any]] = {}
    curves: dict[str, dict[float, float]] = {}
    for name in names:
        predictor = predictor_of(library, machine, name, compat)
        part, reasons = _rows_of(predictor, name, workloads, competitors, mixes.throughput, coverage)
        if reasons:
            not_predicted[name] = reasons
        if not len(part["target"]):
            continue
        parts[name] = part
        if with_sources:
            curves[name] = reliability(predictor, mixes)
            if name not in (EQUILIBRIUM, COMPOSED, DEFAULT_MODEL) and first.model(name).composition == "pressure":
                with suppress(MissingMetricError):  # imported mixes: the competition was not measured alone
                    sources[name] = error_sources(predictor, mixes).to_dict()
    if without := [name for name in names if name not in parts and (models is not None or not parts)]:
        reasons = not_predicted[without[0]]
        raise InvalidValueError(
            f"model '{without[0]}' predicts none of {len(reasons)} rows, the first: {reasons[0]}",
            hint="evaluate a model that predicts them, or mixes of NFs that were profiled with counters",
        )
    listed = list(parts.values())
    rows = {column: np.concatenate([part[column] for part in listed]).tolist() for column in listed[0]}
    by_nf = {
        nf: {name: _errors_of(part, nf) for name, part in parts.items() if nf in part["target"]}
        for nf in sorted({workload.nf for workload in targets})
    }
    return Evaluation(
        machine=machine,
        mixes=int(mixes.frame[schema.RUN_KEY].nunique()),
        nominal_coverage=coverage,
        models=MappingProxyType({name: _errors_of(part) for name, part in parts.items()}),
        per_nf=MappingProxyType({nf: MappingProxyType(errors_of) for nf, errors_of in by_nf.items() if errors_of}),
        rows=MappingProxyType(rows),
        not_predicted=MappingProxyType(not_predicted),
        sources=sources,
        reliability=curves,
    )


def judged_mixes(library: ModelLibrary, dataset: ProfileDataset) -> ProfileDataset:
    """Return the mixes by which models are tested: those whose tenants have profiled traffic and load.

    An NF below saturation serves its offered load whatever the pressure; `solve_server` predicts such mixes.
    """
    mixes = dataset.select(plan="mix")
    frame = mixes.frame
    profiled = _as_profiled(library, mixes)
    if profiled.all():
        return mixes
    if not profiled.any():
        raise InvalidValueError(
            f"evaluation needs mixes at full load, all {frame['run_key'].nunique()} of the dataset are at reduced load",
            hint="run the 'mixes' plan; solve_server predicts tenants at reduced load",
        )
    return mixes.rows(profiled)


def _as_profiled(library: ModelLibrary, mixes: ProfileDataset) -> NDArray[np.bool_]:
    """Return, for each row, whether every tenant with a bounded load has a model for that load."""
    rows = zip(mixes.frame[schema.MACHINE], *mixes.tenants, strict=True)
    return np.array(
        [
            all((machine, item.key) in library for item in (target, *others) if item.traffic.offered_mpps is not None)
            for machine, target, others in rows
        ],
        dtype=bool,
    )


def _one_machine(dataset: ProfileDataset) -> str:
    frame = dataset.frame
    machines = sorted(frame.loc[frame[schema.PLAN] == schema.Plan.MIX, schema.MACHINE].unique())
    if len(machines) != 1:
        available_mixes = f"mixes on {', '.join(machines)}" if machines else f"no mixes among {len(frame)} rows"
        raise InvalidValueError(
            f"evaluation needs mixes on one machine, the dataset has {available_mixes}",
            hint="run the 'mixes' plan, or select one machine of the dataset",
        )
    return str(machines[0])


def _models_of(
    library: ModelLibrary, targets: Sequence[Workload], machine: str, compat: Compat | None
) -> tuple[str, ...]:
    """Return the models common to all targets: the equilibrium, then families in the first target's order."""
    subjects = [library.find(workload, machine) for workload in targets]
    jointly = compat is None and all(subject.response is not None for subject in subjects)
    families = [name for name in subjects[0].sensitivity if all(name in subject.sensitivity for subject in subjects)]
    return (EQUILIBRIUM, COMPOSED, *families) if jointly else (COMPOSED, *families)


def predictor_of(library: ModelLibrary, machine: str, name: str, compat: Compat | None = None) -> Predictor:
    """Return the predictor of a name in an evaluation: a method, the default, or a composing family."""
    if name == DEFAULT_MODEL:
        return Predictor(library, machine, compat=compat)
    if name == COMPOSED:
        return Predictor(library, machine, compat=compat, method=COMPOSED)
    if name == EQUILIBRIUM:
        return Predictor(library, machine, method="equilibrium")
    return Predictor(library, machine, name, compat, method="composed")


def _rows_of(
    predictor: Predictor,
    name: str,
    targets: Sequence[Workload],
    competitors: Sequence[tuple[Workload, ...]],
    measured_mpps: Floats,
    coverage: float,
) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Return the columns that one model predicts, and why it does not predict each of the other rows."""
    batch = predictor.predict_batch(targets, competitors, coverage)
    known = np.isfinite(batch.throughput_mpps)
    columns = {
        "target": np.array([workload.nf for workload in targets], dtype=object),
        "competitors": np.array([counted(sorted(w.nf for w in names)) for names in competitors], dtype=object),
        "competitor_count": np.array([len(names) for names in competitors]),
        "model": np.full(len(targets), name, dtype=object),
        "solo_mpps": batch.solo_mpps,
        "measured_mpps": measured_mpps,
        "predicted_mpps": batch.throughput_mpps,
        "low_mpps": batch.low_mpps,
        "high_mpps": batch.high_mpps,
        "error_percent": 100.0 * (batch.throughput_mpps - measured_mpps) / measured_mpps,
    }
    reasons = ["; ".join(batch.judge(row)[1]) for row in np.flatnonzero(~known).tolist()]
    return {column: values[known] for column, values in columns.items()}, reasons


def _errors_of(rows: Mapping[str, NDArray[Any]], nf: str | None = None) -> Errors:
    keep = slice(None) if nf is None else rows["target"] == nf
    return errors(*(rows[name][keep] for name in ("measured_mpps", "predicted_mpps", "low_mpps", "high_mpps")))
