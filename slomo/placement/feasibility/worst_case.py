"""Find the functions of a library that stand, as the worst case, for network functions without a profile.

The worst case is as contentious as the most contentious profile and as sensitive as the most sensitive one (SLOMO,
SIGCOMM'20, distinguishes the two: they are seldom the same function). Both are found by trying every pair: a socket
full of one function around the other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

#: Key of network functions without a model.
STRANGER = "worst-case"


@dataclass(frozen=True)
class WorstCase:
    """Workload keys of the most contentious and of the most sensitive function."""

    contentious: str
    sensitive: str


def worst_case(
    solo_mpps: Mapping[str, float],
    cores: int,
    rates: Callable[[Sequence[tuple[str, ...]]], Sequence[Mapping[str, float]]],
) -> WorstCase:
    """Find the most contentious and the most sensitive of some workloads.

    `rates` takes mixes and returns the throughput of every workload of each [Mpps].
    """
    keys = sorted(solo_mpps)
    pairs = [(mine, other) for mine in keys for other in keys]
    mix_rates = rates([tuple(sorted((mine, *(other,) * max(cores - 1, 1)))) for mine, other in pairs])
    lost = [1.0 - here[mine] / solo_mpps[mine] for (mine, _), here in zip(pairs, mix_rates, strict=True)]
    table = np.array(lost).reshape(len(keys), len(keys))
    return WorstCase(keys[int(table.mean(axis=0).argmax())], keys[int(table.mean(axis=1).argmax())])
