"""Find measurements that contradict each other: more pressure on every resource, and yet higher throughput.

More pressure never speeds a network function up; in SLOMO (SIGCOMM'20, figure 4) and ResQ (NSDI'18, section 3),
throughput falls with every metric measured there. A contradiction larger than noise means that a measurement was
disturbed or mixed up.
"""

from slomo.models.base import Floats

#: One metric per resource: cache accesses, cache occupancy, memory read and write bandwidth.
RESOURCES = ("L2MISS", "L3OCC", "READ", "WRITE")
#: Required increase in one of them, and tolerated decrease in the others.
MORE = 1.5
#: Gains below this share of solo throughput, or this many standard deviations of noise, are no contradiction. Of some
#: 600 000 pairs with more pressure in each of the two shipped datasets, none gains a tenth.
LEAST_GAIN = 0.1
DEVIATIONS = 4.0


def contradictions(pressures: Floats, shares: Floats, noise: float) -> list[int]:
    """Return the numbers of the fewest rows without which no others contradict each other, found greedily.

    `pressures`: :data:`RESOURCES` of the competition, as reported. `shares`: throughput as a share of solo. `noise`:
    relative standard deviation of one run.
    """
    contradicting: list[int] = []
    gain = max(LEAST_GAIN, DEVIATIONS * noise)
    more = (pressures[:, None, :] >= pressures[None, :, :]).all(axis=2)
    more &= (pressures[:, None, :] > MORE * pressures[None, :, :]).any(axis=2)
    against = more & (shares[:, None] > shares[None, :] + gain)  # row i has more pressure than row j and is faster
    against = against | against.T
    while against.any():
        worst = int(against.sum(axis=1).argmax())
        contradicting.append(worst)
        against[worst, :] = against[:, worst] = False
    return contradicting
