"""Predict: what a network function loses beside others.

SLOMO (SIGCOMM'20) section 4.2.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

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

    predictor = Predictor(opened(library), machine, model, compat)
    return predictor.predict(
        named(target)[0], [item for text in competitors for item in named(text)], coverage, strict=strict
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
