"""Measurements that contradict each other: more pressure on every resource, and yet the target ran faster.

More pressure never speeds a network function up; SLOMO (SIGCOMM'20, figure 4) and ResQ (NSDI'18, section 3) see
throughput fall with every metric of theirs. What breaks this by more than noise was disturbed, or mixed up.
"""

import numpy as np
from numpy.typing import NDArray

from slomo.models.base import Floats

#: One metric per resource: accesses and occupancy of the cache, bandwidth of memory to read and to write.
RESOURCES = ("L2MISS", "L3OCC", "READ", "WRITE")
#: Clearly more of one of them; no less of any.
MORE = 1.5
#: A gain of less than this share of solo throughput, or of this many standard deviations of noise, contradicts nothing.
#: Of some 600 000 pairs with more pressure in each of the two shipped datasets none gains a tenth.
LEAST_GAIN = 0.1
DEVIATIONS = 4.0


def contradictions(pressures: Floats, shares: Floats, noise: float) -> list[int]:
    """Return the fewest measurements without which no two contradict each other, most contradicted first.

    Parameters
    ----------
    pressures : ndarray, shape (n, metrics)
        :data:`RESOURCES` of the competition, or those of them that were reported; 0 alone.
    shares : ndarray, shape (n,)
        Throughput as a share of solo.
    noise : float
        Relative standard deviation of one run.

    Returns
    -------
    list of int
        Row numbers; found greedily, so nearly the fewest.

    Examples
    --------
    >>> pressure = np.array([[0.0], [10.0], [20.0], [40.0]])
    >>> contradictions(pressure, np.array([1.0, 0.4, 0.8, 0.7]), noise=0.001)
    [1]
    """
    contradicting: list[int] = []
    against = _pairs(pressures, shares, max(LEAST_GAIN, DEVIATIONS * noise))
    against = against | against.T
    while against.any():
        worst = int(against.sum(axis=1).argmax())
        contradicting.append(worst)
        against[worst, :] = against[:, worst] = False
    return contradicting


def _pairs(pressures: Floats, shares: Floats, gain: float) -> NDArray[np.bool_]:
    """Return whether row i is under more pressure than row j and yet faster, shape ``(n, n)``."""
    more = (pressures[:, None, :] >= pressures[None, :, :]).all(axis=2)
    more &= (pressures[:, None, :] > MORE * pressures[None, :, :]).any(axis=2)
    faster: NDArray[np.bool_] = shares[:, None] > shares[None, :] + gain
    return more & faster
