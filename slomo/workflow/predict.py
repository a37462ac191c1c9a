"""Predict: what a network function loses beside others.

SLOMO (SIGCOMM'20) section 4.2.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from slomo.errors import SlomoError, UnsupportedPredictionError
from slomo.vocabulary.workload import Workload
from slomo.workflow.names import DEFAULT_MODEL, named
from slomo.workflow.train import opened

if TYPE_CHECKING:
    from slomo.adaptation.adapt import Adapted
    from slomo.models.library import ModelLibrary
    from slomo.models.nf_model import NFModel
    from slomo.prediction.result import Prediction


def predict(
    target: Workload | str,
    competitors: Iterable[Workload | str],
    library: "ModelLibrary | str | Path",
    *,
    machine: str | None = None,
    model: str = DEFAULT_MODEL,
    coverage: float = 0.9,
    compat: Literal["slomo"] | None = None,
    strict: bool = False,
    method: Literal["slomo", "equilibrium"] = "slomo",
    offered_mpps: float | None = None,
) -> "Prediction":
    """Predict what a network function loses beside others.

    Parameters
    ----------
    target : Workload or str
        The network function asked about: a workload, its key, or a name.
    competitors : iterable of Workload or str
        One entry per instance; a text may carry a count, ``"stats:3"``.
    library : ModelLibrary or path
        Trained models, or the directory they were saved in.
    machine : str, optional
        Needed where the library has models of several machines.
    model : str
        Name of the sensitivity model.
    coverage : float
        Nominal coverage of the interval, above 0 and below 1.
    compat : {"slomo"}, optional
        Compose by the published rule.
    strict : bool
        Raise instead of returning a verdict of ``unsupported``.
    method : {"slomo", "equilibrium"}
        ``"slomo"`` composes the competitors' vectors; ``"equilibrium"`` solves the whole server, with NFs at less than
        full load and traffic near what was profiled (`slomo.prediction.equilibrium`); then `model` and `compat` only
        matter where it falls back.
    offered_mpps : float, optional
        What arrives at the target [Mpps]; the same as in its name, ``"lpm@64B,100000f,2.1Mpps"``. Throughput is at most
        that, and the answer has the field `latency` (`slomo.prediction.latency`).

    Raises
    ------
    UnknownNameError
        For a name there is none of, with the nearest.
    InvalidValueError
        For a mix larger than the machine, or a coverage or load out of range.
    UnsupportedPredictionError
        Where no prediction can be made; with `strict`, where none is supported.
    """
    from slomo.prediction.equilibrium import solve_server
    from slomo.prediction.latency import predict_latency

    models = opened(library)
    asked, others = named(target)[0], [item for text in competitors for item in named(text)]
    asked = _at_load(asked, offered_mpps, models, machine)
    reduced = [_reduced(item, models, machine) for item in (asked, *others)]
    if method == "slomo" and not any(reduced):
        answer = _composed(models, [asked, *others], machine, (model, compat), coverage, strict=strict)
        return _accelerated(answer, models, [asked, *others], (model, compat))
    options: dict[str, Any] = {"method": method, "model": model, "compat": compat, "coverage": coverage}
    found = solve_server(models, [asked, *others], machine, **options).prediction(0)
    if strict:
        require_supported(found)
    if not reduced[0]:
        return found
    return replace(found, latency=predict_latency(models, asked, others, machine, **options))


def _accelerated(
    found: "Prediction",
    models: "ModelLibrary",
    mix: "list[Workload | str]",
    way: tuple[str, Literal["slomo"] | None],
) -> "Prediction":
    """Add the target's accelerator to a prediction that knows memory only."""
    from slomo.models.library import ModelLibrary
    from slomo.prediction.accelerated import shares_accelerator, with_accelerator
    from slomo.prediction.predictor import Predictor

    known = [_model(models, item, found.machine).model for item in mix]
    if not shares_accelerator(known):
        return found

    def memory_mpps(number: int) -> float:
        workloads = [item.workload for item in known]
        others = [item for i, item in enumerate(workloads) if i != number]
        predictor = Predictor(ModelLibrary(known), found.machine, *way)
        return predictor.predict(workloads[number], others, explain=False).throughput_mpps

    return with_accelerator(found, known, memory_mpps, [None] * len(known))


def _at_load(
    target: Workload | str, offered_mpps: float | None, models: "ModelLibrary", machine: str | None
) -> Workload | str:
    """Return the target with an offered load; a plain name then stands for the workload the library knows by it."""
    if offered_mpps is None:
        return target
    workload = models.find(target, machine).workload if isinstance(target, str) else target
    return workload.with_traffic(replace(workload.traffic, offered_mpps=offered_mpps))


def _reduced(workload: Workload | str, models: "ModelLibrary", machine: str | None) -> bool:
    """Return whether a load is offered that is no part of what was profiled."""
    if isinstance(workload, str) or workload.traffic.offered_mpps is None:
        return False
    try:
        return models.find(workload, machine) is None
    except SlomoError:
        return True


def _composed(
    models: "ModelLibrary",
    mix: "list[Workload | str]",
    machine: str | None,
    way: tuple[str, Literal["slomo"] | None],
    coverage: float,
    *,
    strict: bool,
) -> "Prediction":
    """Predict by composing vectors; what was not profiled is adapted first, and the verdict says so."""
    from slomo.models.library import ModelLibrary
    from slomo.prediction.predictor import Predictor

    found = [_model(models, item, machine) for item in mix]
    why = tuple(dict.fromkeys(reason for item in found for reason in item.reasons))
    workloads = [item.model.workload for item in found]
    if not why:
        return Predictor(models, machine, *way).predict(workloads[0], workloads[1:], coverage, strict=strict)
    known = Predictor(ModelLibrary([item.model for item in found]), found[0].model.machine, *way)
    answer = known.predict(workloads[0], workloads[1:], coverage, strict=strict)
    return _marked(answer, why, found[0].model)


def _model(models: "ModelLibrary", item: Workload | str, machine: str | None) -> "Adapted":
    from slomo.adaptation.adapt import Adapted, at_workload

    if isinstance(item, Workload) and item.traffic.offered_mpps is None:
        return at_workload(models, item, machine)
    return Adapted(models.find(item, machine), "profiled")


def _marked(answer: "Prediction", why: tuple[str, ...], subject: "NFModel") -> "Prediction":
    """Return a prediction with the reasons of what was not profiled; alone, it is no measurement either."""
    import numpy as np

    from slomo.models.applicability import Verdict
    from slomo.prediction.batch import half_width_mpps

    verdict = Verdict.EXTRAPOLATED if answer.verdict is Verdict.SUPPORTED else answer.verdict
    interval = answer.interval
    if not answer.competitors:
        mpps = answer.throughput_mpps
        width = float(half_width_mpps(subject, answer.model, np.array([mpps]), answer.coverage)[0])
        interval = (max(0.0, mpps - width), mpps + width)
    return replace(answer, verdict=verdict, reasons=(*why, *answer.reasons), interval=interval)


def require_supported(prediction: "Prediction") -> None:
    """Refuse a prediction that what was measured does not support.

    Raises
    ------
    UnsupportedPredictionError
        With the reasons.
    """
    from slomo.prediction.result import label

    if str(prediction.verdict) == "unsupported":
        raise UnsupportedPredictionError(
            f"'{label(prediction.target)}' on {prediction.machine} is not supported: {'; '.join(prediction.reasons)}",
            hint="profile the target under stronger pressure",
        )


def predict_vector(
    target: Workload | str,
    vector: Mapping[str, float],
    library: "ModelLibrary | str | Path",
    *,
    traffic: Mapping[str, float] | None = None,
    machine: str | None = None,
    model: str = DEFAULT_MODEL,
    coverage: float = 0.9,
    strict: bool = False,
) -> "Prediction":
    """Predict beside a competition whose socket-level vector is known, for instance from `pcm`.

    Parameters
    ----------
    target, library, machine, model, coverage, strict
        As for :func:`predict`.
    vector : mapping of str to float
        Metric -> value in the vocabulary's unit.
    traffic : mapping of str to float, optional
        Traffic attributes the target was imported with.

    Raises
    ------
    MissingMetricError
        Where the vector lacks a metric the model reads.
    """
    from slomo.prediction.predictor import Predictor

    predictor = Predictor(opened(library), machine, model)
    return predictor.predict_vector(named(target)[0], vector, traffic, coverage, strict=strict)
