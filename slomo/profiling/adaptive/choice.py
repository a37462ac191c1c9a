"""Choose settings of the synthetic competitor that are far from the measured ones.

Space filling takes the setting farthest from all settings chosen before (greedy maximin: Kennard and Stone, 1969;
Gonzalez, 1985). The corners of the space are thus measured early, which matters because trees cannot extrapolate.
"""

import math
from collections.abc import Sequence

import numpy as np

from slomo.models.base import Floats
from slomo.profiling.plans.designs import MOST_INSTANCES, RANGES, Design, Pressure
from slomo.vocabulary.knobs import knob


class Choice:
    """Settings to choose from, and their coordinates.

    `points`: settings to choose from. `seed`: seed of the first setting.

    Examples
    --------
    >>> from slomo.profiling.plans.designs import grid
    >>> choice = Choice(grid({"data_size_mib": [1, 2, 4, 8, 16]}, instances=1), seed=0)
    >>> sizes = [choice.points[number].workload.configuration["data_size_mib"] for number in choice.farthest(3, ())]
    >>> {1, 16} < set(sizes)
    True
    """

    def __init__(self, points: Design, seed: int) -> None:
        self.points = tuple(points)
        self.coordinates = coordinates(self.points)
        self._start = int(np.random.default_rng(seed).integers(len(self.points)))

    def farthest(self, count: int, taken: Sequence[int], worth: Floats | float = 1.0) -> list[int]:
        """Return up to `count` settings, each as far as possible from the chosen ones."""
        chosen: list[int] = []
        while len(chosen) < count and len(taken) + len(chosen) < len(self.points):
            occupied = [*taken, *chosen]
            chosen.append(int((self._distance(occupied) * worth).argmax()) if occupied else self._start)
        return chosen

    def _distance(self, taken: Sequence[int]) -> Floats:
        """Return the distance of each setting to the nearest chosen setting; -1 for the chosen settings themselves."""
        away = self.coordinates[:, None, :] - self.coordinates[list(taken)][None, :, :]
        distance: Floats = np.sqrt((away**2).sum(axis=2).min(axis=1))
        distance[list(taken)] = -1.0
        return distance


def coordinates(pool: Sequence[Pressure]) -> Floats:
    """Return each setting as coordinates from 0 to 1, shape ``(len(pool), knobs + 1)``.

    Examples
    --------
    >>> from slomo.profiling.plans.designs import sobol
    >>> coordinates(sobol(4)).shape
    (4, 7)
    """
    rows = []
    for point in pool:
        settings = {**point.workload.configuration, "packet_size_b": point.workload.traffic.packet_size_b}
        row = [_level(name, float(settings.get(name, knob(name).default))) for name in RANGES]
        rows.append([*row, math.log(point.instances) / math.log(MOST_INSTANCES)])
    return np.array(rows)


def _level(name: str, value: float) -> float:
    low, high = RANGES[name]
    if name == "rate_mpps" and value == 0.0:
        value = high  # no limit
    return math.log(max(value, low) / low) / math.log(high / low)
