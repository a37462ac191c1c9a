"""The verdict on a prediction: whether measurements support it, with reasons.

SLOMO (SIGCOMM'20) sections 4.1 and 7: a sensitivity model is valid for the pressures it was trained on. The range of
each metric detects single values outside the measurements; the Mahalanobis distance detects unusual combinations of
usual values.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slomo.files.stored import Stored
from slomo.models.base import Floats, require
from slomo.vocabulary.metrics import METRICS

#: A value outside the measured range by less than this share of it is within a counter's noise.
SLACK = 0.02
#: A value outside the range by more than this share of it is beyond what any model can extrapolate to.
FAR = 0.5


class Verdict(StrEnum):
    """How well measurements support a prediction, best first; arrays of verdicts hold indices in this order.

    `unknown` says nothing about the answer's quality: there is too little to judge it by (`slomo.models.evidence`).
    """

    SUPPORTED = "supported"
    EXTRAPOLATED = "extrapolated"
    UNSUPPORTED = "unsupported"
    UNKNOWN = "unknown"

    @property
    def is_refused(self) -> bool:
        """Whether a prediction with this verdict raises an error if the caller asked for `strict`."""
        return self in (Verdict.UNSUPPORTED, Verdict.UNKNOWN)


VERDICTS = tuple(Verdict)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of several verdicts; supported if there are none."""
    return max(verdicts, key=VERDICTS.index, default=Verdict.SUPPORTED)


@dataclass(frozen=True, eq=False)
class Applicability(Stored):
    """The range of pressures (counters of competitors) under which an NF was profiled."""

    #: Metrics that are checked.
    feature_names: tuple[str, ...]
    #: Range measured, shape (features,).
    low: Floats
    high: Floats
    #: Mean of the measured pressures, as shares of the range, shape (features,).
    centre: Floats
    #: Inverse covariance of the measured pressures, each as a share of its range, shape (features, features).
    precision: Floats
    #: Largest Mahalanobis distance among the measured pressures.
    reach: float

    def codes(self, vectors: Floats) -> NDArray[np.int8]:
        """Return each row's verdict as a number: 0 supported, 1 extrapolated, 2 unsupported."""
        outside = np.maximum(np.maximum(vectors - self.high, self.low - vectors), 0.0) / self.span
        far = np.where(np.isnan(outside), np.inf, outside).max(axis=1, initial=0.0) > FAR
        with np.errstate(invalid="ignore", over="ignore"):  # infinite values are far
            covered = self.covers(vectors.T)
        return np.where(far, 2, np.logical_not(covered)).astype(np.int8)

    def covers(self, values: Iterable[Any]) -> Any:
        """Return whether a row is supported: its values or, for many rows, an array of each feature's values.

        A missing value is not covered. Compiled code (`slomo.equilibrium.one_question`) adds in the same order.
        """
        low, high, centre, *precision, farthest = self._inside
        inside, squared = True, 0.0
        away: list[Any] = []
        for value, least, most, middle in zip(values, low, high, centre, strict=True):
            inside = inside & (least <= value) & (value <= most)
            away.append(value - middle)
        for one, weights in zip(away, precision, strict=True):
            for weight, other in zip(weights, away, strict=True):
                squared = squared + one * weight * other
        return inside & (squared <= farthest)

    @cached_property
    def _inside(self) -> tuple[Any, ...]:
        """The rows of :attr:`inside` as lists, and the squared distance that still is inside."""
        return *self.inside[:, :-1].tolist(), float(self.inside[0, -1])

    @cached_property
    def inside(self) -> Floats:
        """The range with a margin, its centre and scatter, one row each, with a last column for compiled code.

        It begins with the squared distance that still counts as inside.
        """
        span = self.span
        low, high, centre = self.low - SLACK * span, self.high + SLACK * span, self.low + span * self.centre
        rows = np.vstack([low, high, centre, self.precision / span[:, np.newaxis] / span])
        return np.column_stack([rows, np.full(len(rows), (self.reach * (1.0 + FAR)) ** 2)])

    def check(self, vectors: Floats) -> tuple[list[Verdict], list[tuple[str, ...]]]:
        """Return a verdict and its reasons for each row of shape ``(n, len(feature_names))``."""
        codes = self.codes(vectors)
        reasons = [self._reasons(row) if code else () for row, code in zip(vectors, codes, strict=True)]
        return [VERDICTS[code] for code in codes], reasons

    def distance_share(self, row: Floats) -> float:
        """Return a row's distance from the measurements' centre, divided by that of the farthest measured row."""
        distance = float(self._distance(row[np.newaxis])[0]) / max(self.reach, 1e-12)
        return float("nan") if np.isnan(row).any() else distance

    @cached_property
    def span(self) -> Floats:
        """Range of each measured pressure, above 0."""
        return np.maximum(self.high - self.low, 1e-9 * np.maximum(np.abs(self.high), 1.0))

    def _distance(self, vectors: Floats) -> Floats:
        known = vectors if np.isfinite(vectors).all() else np.nan_to_num(vectors)
        away = (known - self.low) / self.span - self.centre
        squared = ((away @ self.precision) * away).sum(axis=1)
        distance: Floats = np.sqrt(np.maximum(squared, 0.0))
        return distance

    def _reasons(self, row: Floats) -> tuple[str, ...]:
        reasons = []
        for i, name in enumerate(self.feature_names):
            unit = METRICS[name].unit if name in METRICS else ""
            if np.isnan(row[i]):
                reasons.append(f"{name} is not known for every competitor; missing is not zero")
            elif not self.inside[0, i] <= row[i] <= self.inside[1, i]:
                measured = f"{self.low[i]:.4g} to {self.high[i]:.4g} {unit}".rstrip()
                reasons.append(f"{name} {row[i]:.4g} {unit}; the profile covers {measured}")
        if not reasons:
            distance = self._distance(row[None, :])[0]
            reasons.append(
                f"a combination unlike any profiled: distance {distance:.3g}, the profile reaches {self.reach:.3g}"
            )
        return tuple(reasons)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Applicability":
        """Return the object that :meth:`to_dict` described; ConfigurationError if tables do not fit names."""
        made = super().from_dict(data)
        count = len(made.feature_names)
        square = made.precision if count else np.zeros((0, 0))
        fits = made.low.shape == made.high.shape == made.centre.shape == (count,) and square.shape == (count, count)
        require(fits, "an applicability range whose tables do not fit its names")
        require(0.0 <= made.reach <= 1e100, f"an applicability range that reaches {made.reach}")
        return replace(made, precision=square)


def applicability(names: Sequence[str], vectors: Floats) -> Applicability:
    """Return the range that the measured pressures `vectors` span, shape ``(n, len(names))``."""
    low, high = vectors.min(axis=0), vectors.max(axis=0)
    draft = Applicability(tuple(names), low, high, np.zeros(len(names)), np.zeros((len(names), len(names))), 0.0)
    shares = (vectors - low) / draft.span
    centre = shares.mean(axis=0)
    # ridge of (2 % of the range) squared: distances within counter noise do not count as far
    covariance = (shares - centre).T @ (shares - centre) / max(len(vectors), 1) + SLACK**2 * np.eye(len(names))
    ready = Applicability(tuple(names), low, high, centre, np.linalg.inv(covariance), 0.0)
    reach = float(ready._distance(vectors).max())
    return Applicability(tuple(names), low, high, centre, ready.precision, reach)
