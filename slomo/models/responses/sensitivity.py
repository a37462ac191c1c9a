"""Trained sensitivity models that need numpy alone: trees, lines and curves over one metric, constants, averages.

SLOMO (SIGCOMM'20) section 4.1 for the trees; Dobrescu et al. (NSDI'12) section 5 and Bubble-Up (MICRO'11) section 4 for
models of one metric.

In the additive model, time per packet beside competitors is the solo time plus a term for each resource's pressure, as
times of independent stalls add up (Dobrescu et al., NSDI'12, section 5, for misses alone).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeGuard

import numpy as np
from msgspec import Struct

from slomo.errors import ConfigurationError
from slomo.files.documents import convert
from slomo.files.stored import Stored
from slomo.models.base import HINT, CompositionKind, Floats, SensitivityModel, StoredSensitivity, require
from slomo.models.functions.monotone import MonotoneSensitivity
from slomo.models.functions.smooth import SmoothSensitivity
from slomo.models.functions.tree_formats import plain_from_dict, plain_to_dict, xgboost_from_json
from slomo.models.functions.trees import TreeEnsemble
from slomo.models.responses.latent import LatentSensitivity
from slomo.plugins import load_plugin, plugins

#: Entry points under which other packages register readers of their own kinds of models.
GROUP = "slomo.model_kinds"
#: Name of the family, and kind of the model, that is a weighted mean of others.
AVERAGED = "averaged"
#: Output of an ensemble: throughput itself, or its share of solo throughput.
Response = Literal["throughput", "relative throughput"]


@dataclass(frozen=True, eq=False)
class PlaneSensitivity(StoredSensitivity, kind="plane"):
    """Throughput ``start + slopes . vector``, at least 0.

    >>> model = PlaneSensitivity("linear", ("IPC", "READ"), "pressure", 4.0, np.array([0.5, -1.0]))
    >>> model.predict_mpps(np.array([[1.0, 2.0], [0.0, 9.0]])).tolist()
    [2.5, 0.0]
    """

    #: Throughput with every column at 0 [Mpps].
    start_mpps: float
    #: Change of throughput per unit of each column [Mpps], shape (features,).
    slopes: Floats

    def __post_init__(self) -> None:
        require(
            self.slopes.shape == (len(self.feature_names),),
            f"model '{self.name}' is no plane: {self.slopes.size} slopes for {len(self.feature_names)} columns",
        )

    def predict_mpps(self, vectors: Floats) -> Floats:
        """Return throughput [Mpps] for vectors of shape ``(n, len(feature_names))``; NaN if a row lacks a value."""
        mpps = np.full(len(vectors), self.start_mpps)
        for column, slope in enumerate(self.slopes.tolist()):  # one by one: the same bits in one row and in many
            mpps = mpps + vectors[:, column] * slope
        return np.where(mpps < 0.0, 0.0, mpps)


@dataclass(frozen=True, eq=False)
class AdditiveSensitivity(StoredSensitivity, kind="additive"):
    """Throughput ``solo / (1 + base + slopes . vector)``; without competitors it is solo throughput.

    >>> model = AdditiveSensitivity("slomo-additive", ("FELTLLC",), "pressure", 4.0, 0.0, np.array([0.5]))
    >>> model.predict_mpps(np.array([[0.0], [2.0]])).tolist()
    [4.0, 2.0]
    """

    #: Throughput without competitors [Mpps].
    solo_mpps: float
    #: Additional time per packet beside any competitor, as a share of the solo time; at least 0.
    base: float
    #: Additional time per packet for one unit of each feature, as a share of the solo time; at least 0, shape
    #: (features,).
    slopes: Floats

    def __post_init__(self) -> None:
        if (len(self.feature_names),) != self.slopes.shape or self.base < 0.0 or (self.slopes < 0.0).any():
            raise ConfigurationError(
                f"model '{self.name}' is no additive model: {self.slopes.size} slopes for {len(self.feature_names)} "
                "metrics, needed as many, none below 0"
            )

    def predict_mpps(self, vectors: Floats) -> Floats:
        """Return throughput [Mpps] for vectors of shape ``(n, len(feature_names))``; NaN if a row lacks a value."""
        pressed = np.where((vectors > 0.0).any(axis=1), self.base, 0.0)
        extra = pressed + np.maximum(vectors, 0.0) @ self.slopes
        answer: Floats = self.solo_mpps / (1.0 + extra)
        return np.where(np.isnan(vectors).any(axis=1), np.nan, answer)


@dataclass(frozen=True, eq=False)
class TreeSensitivity:
    """Decision trees over the combined counters of the competitors.

    `composition`: what the input is composed of, ``"pressure"`` or ``"solo"``. `response`: what the trees answer with,
    ``"throughput"`` or ``"relative throughput"``; with the latter `solo_mpps` is also the most that can be predicted.
    `source`: xgboost's own JSON, where it grew the trees, so that saving writes the library's format unchanged.
    """

    name: str
    feature_names: tuple[str, ...]
    composition: CompositionKind
    ensemble: TreeEnsemble
    response: Response
    solo_mpps: float
    source: str | None = None

    def predict_mpps(self, vectors: Floats) -> Floats:
        """Return throughput [Mpps] for vectors of shape ``(n, len(feature_names))``; NaN if a row lacks a value."""
        raw = self.ensemble.predict(vectors)
        if self.response == "relative throughput":
            # limited to 0 and solo throughput: a neighbour never speeds up an NF
            answer = self.solo_mpps * np.minimum(np.maximum(raw, 0.0), 1.0)
        else:
            answer = np.maximum(raw, 0.0)
        gaps = np.isnan(vectors)
        return np.where(gaps.any(axis=1), np.nan, answer) if gaps.any() else answer

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping; xgboost's trees are stored separately, in :attr:`source`."""
        trees = None if self.source is not None else plain_to_dict(self.ensemble)
        return {
            "kind": "trees",
            "name": self.name,
            "feature_names": list(self.feature_names),
            "composition": self.composition,
            "response": self.response,
            "solo_mpps": self.solo_mpps,
            "trees": trees,
        }


@dataclass(frozen=True)
class LinearSensitivity(StoredSensitivity, kind="linear"):
    """A straight line over one metric, at least 0."""

    intercept_mpps: float
    slope: float

    def __post_init__(self) -> None:
        if (count := len(self.feature_names)) != 1:
            raise ConfigurationError(f"model '{self.name}' is a line over one metric, got {count} names")

    def predict_mpps(self, vectors: Floats) -> Floats:
        """Return throughput [Mpps] for vectors of shape ``(n, 1)``."""
        return np.maximum(self.intercept_mpps + self.slope * vectors[:, 0], 0.0)


@dataclass(frozen=True, eq=False)
class CurveSensitivity(StoredSensitivity, kind="curve"):
    """A falling curve over one metric: linear between its knots, constant beyond them."""

    knots: Floats
    mpps: Floats

    def __post_init__(self) -> None:
        knots, apart = self.knots, self.knots.shape != self.mpps.shape
        if len(self.feature_names) != 1 or apart or knots.ndim != 1 or not len(knots) or (np.diff(knots) <= 0).any():
            raise ConfigurationError(f"model '{self.name}' is no curve over one metric: knots must ascend")

    def predict_mpps(self, vectors: Floats) -> Floats:
        """Return throughput [Mpps] for vectors of shape ``(n, 1)``."""
        return np.interp(vectors[:, 0], self.knots, self.mpps)


@dataclass(frozen=True)
class ConstantSensitivity(Stored, kind="constant"):
    """Constant throughput: the solo throughput, whatever the neighbours.

    >>> ConstantSensitivity("none", 5.0).predict_mpps(np.zeros((2, 0))).tolist()
    [5.0, 5.0]
    """

    name: str
    solo_mpps: float
    feature_names: ClassVar[tuple[str, ...]] = ()
    composition: ClassVar[CompositionKind] = "none"

    def predict_mpps(self, vectors: Floats) -> Floats:
        """Return the solo throughput [Mpps] for each row."""
        return np.full(len(vectors), self.solo_mpps)


@dataclass(frozen=True, eq=False)
class AveragedSensitivity:
    """The weighted mean of some of one NF's other models; only the weights are stored."""

    #: The averaged models by family, and the weight of each, above 0; the sum is 1.
    models: Mapping[str, SensitivityModel]
    weights: Mapping[str, float]
    name: ClassVar[str] = AVERAGED
    composition: ClassVar[CompositionKind] = "pressure"

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Every column that one of the averaged models reads."""
        return tuple(dict.fromkeys(name for model in self.models.values() for name in model.feature_names))

    def predict_mpps(self, vectors: Floats) -> Floats:
        """Return throughput [Mpps] for vectors of shape ``(n, len(feature_names))``; NaN if a row lacks a value."""
        mpps = np.zeros(len(vectors))
        for family, model in self.models.items():
            columns = [self.feature_names.index(name) for name in model.feature_names]
            mpps = mpps + self.weights[family] * model.predict_mpps(vectors[:, columns])
        return mpps

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping without the averaged models, which are stored beside it."""
        return {"kind": AVERAGED, "weights": dict(self.weights)}


def averaged_from_dict(data: Mapping[str, Any], models: Mapping[str, SensitivityModel]) -> AveragedSensitivity:
    """Return the weighted mean of `models` that a mapping describes.

    Raises ConfigurationError for weights of models that are not there, or that are no shares of 1.
    """
    weights = convert(data.get("weights"), dict[str, float], "weights of model 'averaged'", HINT)
    there = [name for name in models if name != AVERAGED]
    shares = min(weights.values(), default=0.0) > 0.0 and abs(sum(weights.values()) - 1.0) < 1e-9
    if not (shares and set(weights) <= set(there)):
        raise ConfigurationError(
            f"model '{AVERAGED}': weights of {', '.join(weights)}, "
            f"needed some of {', '.join(there) or 'none'}, above 0 with sum 1",
            hint=HINT,
        )
    return AveragedSensitivity({name: models[name] for name in weights}, weights)


def sensitivity_from_dict(data: Mapping[str, Any], source: str | None = None) -> SensitivityModel:
    """Return the model that a mapping describes; trees of xgboost are in `source`.

    Raises ConfigurationError for an unknown kind or an invalid mapping.
    """
    kind = data.get("kind")
    if not is_known_kind(kind):
        raise ConfigurationError(
            f"sensitivity model of kind {kind!r}, needed one of {', '.join(['trees', *_READERS, *plugins(GROUP)])}",
            hint="a newer slomo may have written it, or a plug-in that is not installed here",
        )
    if kind in _READERS:
        return _READERS[kind](data)
    return (_trees if kind == "trees" else load_plugin(GROUP, kind))(data, source)


def is_known_kind(kind: object) -> TypeGuard[str]:
    """Return whether models of a kind can be read here."""
    return isinstance(kind, str) and (kind in ("trees", AVERAGED) or kind in _READERS or kind in plugins(GROUP))


class _StoredTrees(Struct):
    """Content of a model file that holds a tree ensemble; the trees of xgboost are in a second file."""

    name: str
    feature_names: tuple[str, ...]
    composition: Literal["pressure", "solo", "none"]
    response: Response
    solo_mpps: float
    trees: Any = None


def _trees(data: Mapping[str, Any], source: str | None) -> TreeSensitivity:
    stored = convert(data, _StoredTrees, "tree model", HINT)
    names = stored.feature_names
    ensemble = plain_from_dict(stored.trees, len(names)) if source is None else xgboost_from_json(source, len(names))
    return TreeSensitivity(stored.name, names, stored.composition, ensemble, stored.response, stored.solo_mpps, source)


_KINDS = (LinearSensitivity, CurveSensitivity, ConstantSensitivity, SmoothSensitivity, MonotoneSensitivity,
          AdditiveSensitivity, LatentSensitivity, PlaneSensitivity)  # fmt: skip
_READERS: dict[str, Callable[[Mapping[str, Any]], SensitivityModel]] = {
    str(each._head["kind"]): each.from_dict for each in _KINDS
}
