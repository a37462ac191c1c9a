"""Family ``slomo-additive``, for few noisy rows: each pressure adds a time per packet, never below 0.

Non-negative least squares (Lawson and Hanson 1974, chapter 23) with a ridge penalty on the slopes alone: fully shrunk
it gives the mean extra time, so it deviates from the mean only as far as the rows support. Its strength is chosen by
cross-validation.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from slomo.models.base import Floats
from slomo.models.responses.sensitivity import AdditiveSensitivity
from slomo.training.cross_validation import folds
from slomo.training.families.weighted import WeightedFamily, WeightedRows
from slomo.vocabulary.metrics import METRICS

#: Candidate strengths of the penalty, as multiples of the number of rows; the last one gives the mean.
STRENGTHS = (1e-6, 1e-4, 1e-3, 1e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0, 1e6)
_FOLDS = 10
_JITTER = 1e-10


def _fitted(pressures: Floats, extra: Floats, weights: Floats, seed: int) -> tuple[float, Floats]:
    """Return the intercept and the slopes of additional times over pressures, none of them below 0."""
    spread = pressures.std(axis=0)
    scale = np.where(spread > 1e-12 * np.maximum(np.abs(pressures).max(axis=0, initial=0.0), 1e-300), spread, np.inf)
    scaled = pressures / scale
    strength = _strength(scaled, extra, weights, seed)
    answer = _solved(*_normal(np.column_stack([np.ones(len(extra)), scaled]), extra, weights), strength)
    return float(answer[0]), answer[1:] / scale


def _strength(scaled: Floats, y: Floats, weights: Floats, seed: int) -> float:
    """Return the strength with the least weighted held-out error; among equal errors, the largest strength."""
    fold = folds(np.arange(len(y)), seed, _FOLDS)
    numbers = np.unique(fold)
    if len(numbers) < 2:
        return STRENGTHS[-1]
    design = np.column_stack([np.ones(len(y)), scaled])
    parts = [_normal(design[fold == number], y[fold == number], weights[fold == number]) for number in numbers]
    whole = [sum(part[i] for part in parts) for i in range(2)]
    errors = []
    for strength in STRENGTHS:
        total = 0.0
        for number, (gram, moment) in zip(numbers, parts, strict=True):
            left_out = fold == number
            answer = _solved(whole[0] - gram, whole[1] - moment, strength)
            total += float(weights[left_out] @ np.square(design[left_out] @ answer - y[left_out]))
        errors.append(total)
    best = min(errors) * (1.0 + 1e-9)
    return max(strength for strength, error in zip(STRENGTHS, errors, strict=True) if error <= best)


def _normal(design: Floats, y: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return the normal equations of weighted least squares."""
    return (design * weights[:, None]).T @ design, (design * weights[:, None]).T @ y


def _solved(gram: Floats, moment: Floats, strength: float) -> Floats:
    """Solve normal equations with shrinkage; return intercept and slopes, none of them below 0."""
    penalty = np.full(len(gram), strength * max(gram[0, 0], 1.0))
    penalty[0] = _JITTER * max(gram[0, 0], 1.0)
    lower = np.linalg.cholesky(gram + np.diag(penalty))
    answer: Floats = nnls(lower.T, np.linalg.solve(lower, moment))[0]
    return answer


@dataclass(frozen=True)
class AdditiveFamily(WeightedFamily[AdditiveSensitivity]):
    """A family in which every pressure adds extra time per packet."""

    name: str = "slomo-additive"

    def select_features(self, available: Sequence[str]) -> tuple[str, ...]:
        """Return the pressures that are sums over competitors, without traffic attributes."""
        return tuple(name for name in super().select_features(available) if name in METRICS)

    def fit_weighted(self, rows: WeightedRows) -> AdditiveSensitivity:
        """Fit one NF to weighted rows; rows without competitors are ignored."""
        weights = np.ones(len(rows.mpps)) if rows.weights is None else rows.weights
        pressed = (rows.vectors > 0.0).any(axis=1) & (rows.mpps > 0.0)
        if not pressed.any():
            slopes = np.zeros(len(rows.names))
            return AdditiveSensitivity(self.name, rows.names, self.composition, rows.solo_mpps, 0.0, slopes)
        share = np.minimum(rows.mpps[pressed] / rows.solo_mpps, 1.0)
        # a relative error of throughput is one of 1 + extra time, so slow rows have less certain extra times
        extra = rows.solo_mpps / rows.mpps[pressed] - 1.0
        base, slopes = _fitted(np.maximum(rows.vectors[pressed], 0.0), extra, weights[pressed] * share**2, rows.seed)
        return AdditiveSensitivity(self.name, rows.names, self.composition, rows.solo_mpps, base, slopes)
