"""Estimate how noisy each row is from repeated runs, and whether a model beats the mean by more than noise.

Two or three replicates per row determine the variance of a single row badly, but the pooled variance of all rows well.
Each row's variance is therefore shrunk towards the pooled one (a scaled inverse chi-squared prior; the idea is that of
Gelman et al., Bayesian Data Analysis, section 5.4).
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from slomo.models.base import Floats
from slomo.models.nf_model import NFModel

#: Weight of the pooled variance, expressed as a number of replicates of a row.
_PRIOR = 4.0
#: Least number of rows with replicates for pooling, and noise below which there counts as being none.
_FEWEST, _NOTHING = 3, 1e-6
#: Largest ratio of two rows' weights.
_SPREAD = 5.0
MEAN = "mean"


def row_variance(dispersion: Floats, replicates: NDArray[np.int64]) -> Floats | None:
    """Return the relative variance of every row's throughput; None if runs were not repeated.

    `dispersion` is the standard deviation over the mean of each row's replicates.

    >>> row_variance(np.array([0.02, 0.04, 0.06]), np.array([2, 2, 4])).round(5).tolist()
    [0.00106, 0.00118, 0.00075]
    >>> row_variance(np.zeros(3), np.ones(3, dtype=int)) is None
    True
    """
    # replicates equal to the last bit were not measured separately (they share a solo speed, for instance)
    degrees = np.where(np.isfinite(dispersion) & (dispersion > 0.0), replicates - 1.0, 0.0)
    if (degrees > 0).sum() < _FEWEST:
        return None
    squares = np.where(degrees > 0, np.square(np.nan_to_num(dispersion)), 0.0)
    pooled = float((degrees * squares).sum() / degrees.sum())
    if pooled < _NOTHING**2:
        return None
    return (_PRIOR * pooled + degrees * squares) / (_PRIOR + degrees) / replicates


def weights_of(variance: Floats | None) -> Floats | None:
    """Return the weight of each row, 1 on average; weights are bounded, since variances are only estimates.

    >>> weights_of(np.array([1.0, 1.0, 4.0])).round(3).tolist()
    [1.333, 1.333, 0.333]
    """
    if variance is None:
        return None
    weights = np.clip(np.median(variance) / variance, 1.0 / _SPREAD, _SPREAD)
    answer: Floats = weights / weights.mean()
    return answer


def against_mean(
    measured: Floats, guesses: Mapping[str, Floats], solo_mpps: float, weights: Floats | None
) -> dict[str, dict[str, float]]:
    """Return each family's gain, the amount by which its held-out error is below that of `mean`, with standard error.

    `guesses` are held-out predictions of the same rows, NaN where a family has none.

    >>> measured = np.array([1.0, 2.0, 3.0])
    >>> found = against_mean(measured, {"mean": np.full(3, 2.0), "a": measured + 0.1}, 4.0, None)
    >>> {name: round(value, 2) for name, value in found["a"].items()}
    {'gain': 14.17, 'standard_error': 8.33}
    """
    if MEAN not in guesses:
        return {}
    count = np.ones(len(measured)) if weights is None else weights
    away = {name: 100.0 * np.abs(guess - measured) / solo_mpps for name, guess in guesses.items()}
    result: dict[str, dict[str, float]] = {}
    for name, error in away.items():
        both = np.isfinite(error) & np.isfinite(away[MEAN])
        if name == MEAN or both.sum() < _FEWEST:
            continue
        gain, share = (away[MEAN] - error)[both], count[both] / count[both].sum()
        mean = float(share @ gain)
        spread = float(np.sqrt(np.square(share) @ np.square(gain - mean)) * np.sqrt(len(gain) / (len(gain) - 1)))
        result[name] = {"gain": mean, "standard_error": spread}
    return result


def pooled_gains(models: Sequence[NFModel]) -> list[dict[str, tuple[float, float]]]:
    """Return, for each model of one machine, every family's gain on family `mean` [% of solo], and its standard error.

    Gains are shrunk towards those of the machine's other models: eight noisy rows of one network function say little
    about a family, those of all functions much. Gains are treated as draws around a common one, with the spread
    estimated by DerSimonian and Laird (1986).
    """
    stated = [model.manifest.get("against_mean", {}) for model in models]
    result: list[dict[str, tuple[float, float]]] = [{} for _ in models]
    for name in dict.fromkeys(name for gains in stated for name in gains):
        places = [place for place, gains in enumerate(stated) if name in gains]
        gain = np.array([stated[place][name]["gain"] for place in places])
        error = np.maximum([stated[place][name]["standard_error"] for place in places], 1e-6)
        for place, drawn in zip(places, _drawn(gain, error), strict=True):
            result[place][name] = drawn
    return result


def _drawn(gain: Floats, error: Floats) -> list[tuple[float, float]]:
    """Return every gain, shrunk towards the mean of the other gains, with its standard error."""
    weights, count = 1.0 / error**2, len(gain)
    if count == 1:
        return [(float(gain[0]), float(error[0]))]
    mean = float(weights @ gain / weights.sum())
    excess = float(weights @ np.square(gain - mean)) - (count - 1)
    spread = max(0.0, excess / float(weights.sum() - np.square(weights).sum() / weights.sum()))
    drawn = []
    for place in range(count):
        others = np.arange(count) != place
        total = float((1.0 / (error[others] ** 2 + spread)).sum())
        middle = float((gain[others] / (error[others] ** 2 + spread)).sum()) / total
        prior = 1.0 / (spread + 1.0 / total)
        precision = weights[place] + prior
        drawn.append((float((weights[place] * gain[place] + prior * middle) / precision), float(precision**-0.5)))
    return drawn


def noise_aware_defaults(models: Sequence[NFModel], baselines: Sequence[str]) -> list[str]:
    """Return the default family of each model of one machine with noisy rows.

    On noisy rows the family with the smallest error is often the luckiest. A family is therefore chosen only if its
    gain on the mean exceeds the gain's standard error; of several, the one with the largest gain; of none, `mean`.
    Baselines are no candidates.
    """
    answers = []
    for model, gains in zip(models, pooled_gains(models), strict=True):
        rivals = {name: gain for name, gain in gains.items() if name in model.sensitivity and name not in baselines}
        sure = {name: gain for name, (gain, error) in rivals.items() if gain > error}
        first = next(iter(model.sensitivity), "")
        answers.append(max(sure, key=sure.__getitem__, default=MEAN if MEAN in model.sensitivity else first))
    return answers
