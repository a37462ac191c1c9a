"""Choose a lower bound of each tenant's throughput so that servers break promises as rarely as the user asks.

Only throughput below the promise breaks it. Tenants of the same workload serve the same rate and break together; errors
of different workloads are nearly independent (rank of the worst of m against m ranks, on the shipped calibration
mixes). Each of m different tenants may therefore fail with probability 1 - (1 - p) ** (1 / m), where p is the server's
probability, as measured on whole calibration servers by their worst tenant (`slomo.training.conformal_fit`).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from slomo.models.error_shape import shapes_at
from slomo.models.interval_ends import ends_mpps, predicted_loss
from slomo.models.intervals import ConformalCalibration
from slomo.models.neighbourhood import within
from slomo.vocabulary.vector import Floats


def level_of(confidence: float, different: int, together: float = 1.0) -> float:
    """Return the confidence that each of `different` bounds needs so that together they hold with `confidence`.

    `together` comes from calibration: servers whose tenants' bounds are set for probability p fail with probability p
    ** together.
    """
    risk = (1.0 - confidence) ** (1.0 / together)
    return float((1.0 - risk) ** (1.0 / max(different, 1)))


def different_in(members: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many different tenants each mix has."""
    ordered = np.sort(members, axis=1)
    first = np.diff(ordered, axis=1, prepend=-1) > 0
    counts: NDArray[np.int64] = first.sum(axis=1)
    return counts


def lower_mpps(
    calibrations: Sequence[ConformalCalibration],
    solo_mpps: Floats,
    members: NDArray[np.int64],
    mpps: Floats,
    confidence: float,
    different: NDArray[np.int64],
) -> Floats:
    """Return the lower bound of every tenant's throughput [Mpps]; 0 if too few errors are known.

    `calibrations`: one per model. `solo_mpps`, shape (models,): solo throughput. `members`, shape (mixes, places):
    which model runs, -1 for an empty place. `mpps`, shape (mixes, places): predicted throughput at full load.
    `confidence`: probability with which all bounds of a mix hold, above 0 and below 1. `different`, shape (mixes,): how
    many different tenants of each mix are promised something.
    """
    counts, which = np.unique(different, return_inverse=True)
    scores = np.array(
        [
            [each.lower_scores(level_of(confidence, count, each.together)) for each in calibrations]
            for count in counts.tolist()
        ]
    )
    nobody = members < 0
    who = np.where(nobody, 0, members)
    solo = solo_mpps[who]
    middle, size = shapes_at([each.shape for each in calibrations], who, predicted_loss(mpps, solo))
    away = middle + size * scores[which[:, None], who, within(members)]
    bound_mpps, _ = ends_mpps(mpps, solo, (away, np.inf))
    return np.where(nobody | np.isneginf(away), 0.0, bound_mpps)


def breaking(
    calibrations: Sequence[ConformalCalibration],
    solo_mpps: Floats,
    members: NDArray[np.int64],
    mpps: Floats,
    needed_mpps: Floats,
) -> float:
    """Return the probability that a server breaks at least one promise.

    `calibrations`, `solo_mpps`: as for :func:`lower_mpps`. `members`, shape (places,): index of the running model.
    `mpps`, `needed_mpps`, shape (places,): predicted and promised throughput; 0 without a promise.
    """
    if len(members) == 1:  # alone: the measured throughput
        return float(not mpps[0] >= needed_mpps[0] * (1.0 - 1e-9))
    solo = solo_mpps[members]
    middle, size = shapes_at([each.shape for each in calibrations], members, predicted_loss(mpps, solo))
    scores, kinds = ((needed_mpps - mpps) / solo - middle) / size, within(members[None])[0]
    hold, together = 1.0, calibrations[int(members[0])].together
    for model in np.unique(members[needed_mpps > 0.0]).tolist():
        mine = (members == model) & (needed_mpps > 0.0)
        hold *= 1.0 - float(calibrations[model].risks(scores[mine], kinds[mine]).max())
    return float((1.0 - hold) ** together)
