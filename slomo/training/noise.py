"""How noisy each row is, from its replicates, and whether a model is better than the mean beyond that noise.

Two or three replicates say little about one row and much about all of them: each row's variance is drawn towards the
pooled one (a scaled inverse chi-squared prior; Gelman et al., Bayesian Data Analysis, section 5.4, for the idea).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slomo.models.base import Floats, ModelFamily, SensitivityModel
from slomo.models.nf_model import NFModel

#: The pooled variance counts as much as this many replicates of a row's own.
_PRIOR = 4.0
#: Rows with replicates from which noise is pooled, at least; and the noise that is none.
_FEWEST, _NOTHING = 3, 1e-6
#: How much more one row may count than another.
_SPREAD = 5.0
MEAN = "mean"


def row_variance(dispersion: Floats, replicates: NDArray[np.int64]) -> Floats | None:
    """Return the relative variance of every row's throughput; None where replicates do not tell.

    Parameters
    ----------
    dispersion : ndarray, shape (n,)
        Standard deviation over mean of each row's replicates.
    replicates : ndarray of int, shape (n,)
        How many it is of.

    Examples
    --------
    >>> row_variance(np.array([0.02, 0.04, 0.06]), np.array([2, 2, 4])).round(5).tolist()
    [0.00106, 0.00118, 0.00075]
    >>> row_variance(np.zeros(3), np.ones(3, dtype=int)) is None
    True
    """
    # replicates that agree to the last bit were not measured apart: a solo speed is one by definition
    degrees = np.where(np.isfinite(dispersion) & (dispersion > 0.0), replicates - 1.0, 0.0)
    if (degrees > 0).sum() < _FEWEST:
        return None
    squares = np.where(degrees > 0, np.square(np.nan_to_num(dispersion)), 0.0)
    pooled = float((degrees * squares).sum() / degrees.sum())
    if pooled < _NOTHING**2:
        return None
    answer: Floats = (_PRIOR * pooled + degrees * squares) / (_PRIOR + degrees) / replicates
    return answer


def weights_of(variance: Floats | None) -> Floats | None:
    """Return how much each row counts, 1 on average; within bounds, as a variance is only estimated.

    Examples
    --------
    >>> weights_of(np.array([1.0, 1.0, 4.0])).round(3).tolist()
    [1.333, 1.333, 0.333]
    """
    if variance is None:
        return None
    weights = np.clip(np.median(variance) / variance, 1.0 / _SPREAD, _SPREAD)
    answer: Floats = weights / weights.mean()
    return answer


def fit_rows(
    family: ModelFamily,
    names: tuple[str, ...],
    rows: tuple[Floats, Floats, Floats | None],
    *,
    solo_mpps: float,
    seed: int,
) -> SensitivityModel:
    """Fit a family to vectors, throughputs [Mpps] and weights; one that cannot weigh its rows counts them alike."""
    vectors, mpps, weights = rows
    weighing = getattr(family, "fit_weighted", None)
    if weights is None or weighing is None:
        return family.fit(names, vectors, mpps, solo_mpps=solo_mpps, seed=seed)
    model: SensitivityModel = weighing(names, vectors, mpps, solo_mpps=solo_mpps, seed=seed, weights=weights)
    return model


def against_mean(
    measured: Floats, guesses: Mapping[str, Floats], solo_mpps: float, weights: Floats | None
) -> dict[str, dict[str, float]]:
    """Return by how much each family errs less than `mean` on rows it never saw, and how sure that is [% of solo].

    Parameters
    ----------
    measured : ndarray, shape (n,)
        Throughput [Mpps].
    guesses : mapping of str to ndarray
        Family -> held-out predictions of the same rows, NaN where it has none.
    solo_mpps : float
        Throughput alone [Mpps].
    weights : ndarray, shape (n,), optional
        How much each row counts.

    Examples
    --------
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


def never_worse_than_mean(model: NFModel, chosen: str) -> str:
    """Return the family that answers by default: the chosen one, a better one, or `mean` where none is surely better.

    On noisy rows the family with the smallest error is often the luckiest: it stays only if it gains more on the mean
    than the standard error of that gain; else the family whose gain is surest answers, if there is one, else `mean`.
    """
    gains: Mapping[str, Mapping[str, Any]] = model.manifest.get("against_mean", {})
    if MEAN not in model.sensitivity or not gains or _sure(gains.get(chosen)):
        return chosen
    sure = {name: gain["gain"] for name, gain in gains.items() if _sure(gain) and name in model.sensitivity}
    return max(sure, key=sure.__getitem__, default=MEAN)


def guarded(model: NFModel, chosen: str) -> NFModel:
    """Return a model whose manifest says which family answers where rows are noisy, and why."""
    answer = never_worse_than_mean(model, chosen)
    return replace(model, manifest={**model.manifest, "noise_aware": {"chosen": answer, "instead_of": chosen}})


def _sure(gain: Mapping[str, Any] | None) -> bool:
    return gain is not None and gain["gain"] > gain["standard_error"]
