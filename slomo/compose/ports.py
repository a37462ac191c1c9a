"""Divide a NIC port's bandwidth among NFs, max-min fair by bits.

An NF offered less than an equal part gets all of its load; the rest is divided equally among the others (Bertsekas and
Gallager, Data Networks, section 6.5.2).
"""

import math
from collections.abc import Sequence

from slomo.errors import InvalidValueError
from slomo.vocabulary.wire import wire_gbps


def port_shares_mpps(
    frames_b: Sequence[int], offered_mpps: Sequence[float | None], port_gbps: float
) -> tuple[float, ...]:
    """Divide a port's bandwidth among NFs; return packet rates [Mpps].

    Raises InvalidValueError for a line rate that is not a number above 0.

    `offered_mpps`: sent to each; None for as much as the port carries.
    """
    if not (math.isfinite(port_gbps) and port_gbps > 0.0):
        raise InvalidValueError(f"line rate of the shared port is {port_gbps}, needed a number above 0 [Gbit/s]")
    bits = [wire_gbps(size, 1.0) for size in frames_b]
    offered_gbps = [math.inf if mpps is None else mpps * each for mpps, each in zip(offered_mpps, bits, strict=True)]
    most = largest_part(offered_gbps, port_gbps)
    return tuple(
        _spelled_mpps(min(gbps, most) / gbit) if mpps is None or gbps > most else mpps
        for gbps, gbit, mpps in zip(offered_gbps, bits, offered_mpps, strict=True)
    )


def largest_part(demands: Sequence[float], capacity: float) -> float:
    """Return the largest part of a capacity that is divided max-min fairly; infinite if it suffices for all demands."""
    for rank, each in enumerate(waiting := sorted(demands)):
        if each > (part := capacity / (len(waiting) - rank)):
            return part  # the same for all that demand more, in any order of arrival
        capacity -= each
    return math.inf


def _spelled_mpps(mpps: float) -> float:
    """Round a rate down to six digits.

    A workload's name spells offered loads with six digits, and a share of a port becomes an offered load.

    >>> _spelled_mpps(0.1234567), _spelled_mpps(0.75)
    (0.123456, 0.75)
    """
    step = 10.0 ** (math.floor(math.log10(mpps)) - 5)
    return float(f"{math.floor(mpps / step + 1e-9) * step:.6g}")
