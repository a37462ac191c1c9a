"""Predict: what a network function loses beside others.

SLOMO (SIGCOMM'20) section 4.2.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from slomo.errors import UnsupportedPredictionError
from slomo.vocabulary.workload import Workload
from slomo.workflow.learn import opened
from slomo.workflow.names import DEFAULT_MODEL, named

if TYPE_CHECKING:
    from slomo.models.library import ModelLibrary
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

    Raises
    ------
    UnknownNameError
        For a name there is none of, with the nearest.
    InvalidValueError
        For a mix larger than the machine, or a coverage out of range.
    UnsupportedPredictionError
        Where no prediction can be made; with `strict`, where none is supported.
    """
    from slomo.prediction.predictor import Predictor

    asked, others = named(target)[0], [item for text in competitors for item in named(text)]
    if method != "slomo":
        from slomo.prediction.equilibrium import solve_server

        options: dict[str, Any] = {"method": method, "model": model, "compat": compat, "coverage": coverage}
        found = solve_server(opened(library), [asked, *others], machine, **options).prediction(0)
        if strict:
            require_supported(found)
        return found
    predictor = Predictor(opened(library), machine, model, compat)
    return predictor.predict(asked, others, coverage, strict=strict)


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
