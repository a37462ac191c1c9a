"""A trained neural network whose throughput never rises with pressure; it needs numpy alone.

Each unit is a sigmoid of a weighted sum of pressures, with weights of one sign (Sill, Monotonic Networks, 1998; Archer
and Wang 1993). Throughput therefore falls along every pressure and has a slope everywhere. Units are evaluated in
single precision, which takes numpy a third of the time and changes throughput by some 1e-6 of solo.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from slomo.errors import ConfigurationError
from slomo.models.base import HINT, TRAFFIC_PREFIX, Floats, SensitivityModel
from slomo.models.functions.scaling import ScaledSensitivity, apart, clipped

_Singles = NDArray[np.float32]

#: Number of rows per pass: the values of the network's units for these rows fit in the L2 cache.
_CHUNK = 2048
#: Number of rows of one model from which adding feature by feature is faster.
MANY = 128


@dataclass(frozen=True, eq=False)
class MonotoneSensitivity(ScaledSensitivity, kind="monotone"):
    """Throughput as a share of solo: the constant ``top`` minus what each unit of the network subtracts."""

    #: Offset and width that scale features to 0 to 1, shape (features,).
    start: Floats
    width: Floats
    #: Weights, at least 0 except for traffic, shape (units, features).
    slope: Floats
    #: Position and height of each unit; heights are at least 0, shape (units,).
    offset: Floats
    height: Floats
    #: Share of solo throughput if no unit subtracts anything.
    top: float

    def __post_init__(self) -> None:
        self.require_per_feature("start", "width")
        if self.offset.ndim != 1 or self.slope.shape != (len(self.offset), len(self.feature_names)):
            raise apart(self.name)
        if self.height.shape != self.offset.shape:
            raise apart(self.name)
        falling = np.array([not name.startswith(TRAFFIC_PREFIX) for name in self.feature_names], dtype=bool)
        if (self.height < 0.0).any() or (self.slope[:, falling] < 0.0).any():
            raise ConfigurationError(f"model '{self.name}': a weight has the wrong sign", hint=HINT)

    def predict_mpps(self, vectors: Floats) -> Floats:
        """Return throughput [Mpps] for vectors of shape ``(n, len(feature_names))``; NaN if a row lacks a value."""
        parts = [vectors[at : at + _CHUNK] for at in range(0, len(vectors), _CHUNK)] or [vectors]
        taken = [_taken(part, self._limits, *self._units) for part in parts]
        return _left(self.solo_mpps, self._half_way, taken[0] if len(taken) == 1 else np.concatenate(taken))

    @cached_property
    def _limits(self) -> Floats:
        """Smallest, largest and typical value of each input of the model, one row for each of the three."""
        return np.array([np.maximum(self.low, 0.0), self.high, self.typical])

    @cached_property
    def _units(self) -> tuple[_Singles, _Singles, _Singles]:
        """Slopes, offsets and heights of the network's units, as functions of the logarithms of the inputs.

        Halved, as sigmoid(x) is (1 + tanh(x / 2)) / 2. At least two units: numpy adds the features of a single one in
        another order.
        """
        spare, slope = max(2 - len(self.offset), 0), self.slope / self.width
        offset = self.offset - np.add.reduce(slope * self.start, axis=1)
        offset, height = (np.pad(0.5 * each, (0, spare)).astype(np.float32) for each in (offset, self.height))
        return np.pad(0.5 * slope.T, [(0, 0), (0, spare)]).astype(np.float32), offset, height

    @cached_property
    def _half_way(self) -> float:
        """Share of solo throughput if each unit subtracts half of its height, where its hyperbolic tangent is 0."""
        return self.top - float(self._units[2].sum(dtype=np.float64))

    @cached_property
    def rows(self) -> tuple[Floats, _Singles]:
        """Limits and ends, and all weights, of the model, each in one row, for compiled code."""
        ends = [self.solo_mpps, self._half_way]
        return np.concatenate([self._limits.ravel(), ends]), np.concatenate([part.ravel() for part in self._units])


def rows_of(models: Sequence[SensitivityModel]) -> tuple[Floats, _Singles] | None:
    """Return two rows of numbers per model (limits and ends, weights); None unless all models have one shape."""
    every = [model for model in models if isinstance(model, MonotoneSensitivity)]
    if len(every) < len(models) or len({(model.feature_names, len(model.rows[1])) for model in every}) != 1:
        return None
    limits, weights = zip(*[model.rows for model in every], strict=True)
    return np.array(limits), np.array(weights)


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Several networks of one shape, evaluated in one pass; for few rows this is faster than one by one."""

    limits: Floats
    slope: _Singles
    offset: _Singles
    height: _Singles
    solo_mpps: Floats
    half_way: Floats

    @classmethod
    def of(cls, models: Sequence[MonotoneSensitivity]) -> "SideBySide | None":
        """Combine `models` for one pass; None if their inputs or numbers of units differ."""
        if len({(model.feature_names, model._units[0].shape) for model in models}) != 1:
            return None
        slope, offset, height = (np.array(each) for each in zip(*[model._units for model in models], strict=True))
        limits = np.array([model._limits for model in models]).swapaxes(0, 1)
        ends = np.array([[model.solo_mpps, model._half_way] for model in models])
        return cls(limits, slope, offset, height, ends[:, 0], ends[:, 1])

    def rows(self, who: NDArray[np.int64]) -> "SideBySide":
        """Return a :class:`SideBySide` whose i-th model is model number `who[i]` of this one."""
        units = self.slope.take(who, 0), self.offset.take(who, 0), self.height.take(who, 0)
        return SideBySide(self.limits.take(who, 1), *units, self.solo_mpps[who], self.half_way[who])

    def predict_mpps(self, vectors: Floats) -> Floats:
        """Return throughputs [Mpps]; the i-th is that of the i-th model for the row `vectors[i]`."""
        taken = _taken(vectors, self.limits, self.slope, self.offset, self.height)
        return _left(self.solo_mpps, self.half_way, taken)


def _taken(vectors: Floats, limits: Floats, slope: _Singles, offset: _Singles, height: _Singles) -> Floats:
    """Return, for every row, the share of solo throughput that the units subtract beyond half of their heights."""
    scaled = clipped(vectors, *limits) + 1.0
    # terms are added one by one: the last bits of a matrix product, or of eight terms or more that numpy reduces,
    # depend on the number of rows
    if len(scaled) < MANY:
        inputs = np.log(scaled.astype(np.float32))
        units = np.tanh(np.add.accumulate(inputs[:, :, np.newaxis] * slope, axis=1)[:, -1] + offset)
        few: _Singles = np.add.accumulate(units * height, axis=1)[:, -1]
        return few.astype(np.float64)
    columns = np.log(np.ascontiguousarray(scaled.T, dtype=np.float32))
    units = slope[0][:, np.newaxis] * columns[0]
    more = np.empty_like(units)
    for feature in range(1, len(slope)):
        units += np.multiply(slope[feature][:, np.newaxis], columns[feature], out=more)
    units += offset[:, np.newaxis]
    np.tanh(units, out=units)
    units *= height[:, np.newaxis]
    many: _Singles = np.add.reduce(units, axis=0)
    return many.astype(np.float64)


def _left(solo_mpps: Floats | float, half_way: Floats | float, taken: Floats) -> Floats:
    return solo_mpps * np.minimum(np.maximum(half_way - taken, 0.0), 1.0)


def sigmoid(values: Floats) -> Floats:
    """Return 1 / (1 + exp(-x)), without overflow.

    >>> sigmoid(np.array([-1000.0, 0.0, 1000.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    return 0.5 * (1.0 + np.tanh(0.5 * values))
