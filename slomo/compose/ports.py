"""A NIC port as a shared resource: its line rate is divided max-min fair by bits.

An NF offered less than an equal part gets all of its load; the rest is divided equally among the others (Bertsekas and
Gallager, Data Networks, section 6.5.2).
"""

import math
from collections.abc import Callable, Sequence

from slomo.errors import InvalidValueError
from slomo.vocabulary.wire import wire_gbps

#: Largest number of times that a port is divided anew, and the change of a share at which that ends.
_DIVISIONS, _SETTLED = 12, 1e-3
#: Offered load of each NF [Mpps]; None where it is saturated.
Loads = Sequence[float | None]


def settled_loads(
    frames_b: Sequence[int],
    offered_mpps: Loads,
    solo_mpps: Sequence[float],
    port_gbps: float,
    possible_mpps: Callable[[Loads], Sequence[float]],
) -> tuple[float | None, ...]:
    """Divide a port until shares no longer change.

    An NF that its neighbours slow down leaves more of the line rate to the others, who then press more on it.

    Parameters
    ----------
    frames_b, offered_mpps, port_gbps
        As for :func:`loads_behind`.
    solo_mpps : sequence of float
        What each can serve alone [Mpps]: the first division.
    possible_mpps : callable
        Returns what each could serve beside the others under given loads [Mpps].

    Returns
    -------
    tuple of float or None
        Offered loads, limited to their shares [Mpps].

    Examples
    --------
    >>> settled_loads([1230, 1230], [None, None], [1.0, 1.0], 10.0, lambda loads: [1.0, 0.25])
    (0.75, None)
    """
    first = [most if load is None else load for most, load in zip(solo_mpps, offered_mpps, strict=True)]
    loads = loads_behind(frames_b, offered_mpps, first, port_gbps)
    for _ in range(_DIVISIONS):
        if loads == tuple(offered_mpps):
            break
        before, loads = loads, loads_behind(frames_b, offered_mpps, possible_mpps(loads), port_gbps)
        if _alike(before, loads):
            break
    return loads


def _alike(before: Loads, after: Loads) -> bool:
    """Return whether two divisions of a port limit the same NFs, with nearly equal shares."""
    return all(
        old == new or (old is not None and new is not None and abs(new - old) <= _SETTLED * old)
        for old, new in zip(before, after, strict=True)
    )


def loads_behind(
    frames_b: Sequence[int], offered_mpps: Loads, possible_mpps: Sequence[float], port_gbps: float
) -> tuple[float | None, ...]:
    """Return offered loads limited to the shares of a port among NFs that can serve so much at most [Mpps].

    Examples
    --------
    >>> loads_behind([1230, 1230], [None, 0.25], [2.0, 2.0], 10.0)
    (0.75, 0.25)
    """
    demand_mpps = [
        most if load is None else min(most, load) for most, load in zip(possible_mpps, offered_mpps, strict=True)
    ]
    shares = port_shares_mpps(frames_b, demand_mpps, port_gbps)
    return tuple(
        share if share < demand else load for share, demand, load in zip(shares, demand_mpps, offered_mpps, strict=True)
    )


def port_shares_mpps(
    frames_b: Sequence[int], offered_mpps: Sequence[float | None], port_gbps: float
) -> tuple[float, ...]:
    """Divide a port.

    Raises InvalidValueError for a line rate that is not a number above 0.

    Parameters
    ----------
    frames_b : sequence of int
        Frame size of each NF [B].
    offered_mpps : sequence of float or None
        What is sent to each [Mpps]; None for as much as the port carries.
    port_gbps : float
        Line rate of the port [Gbit/s], above 0.

    Returns
    -------
    tuple of float
        Rate that reaches each [Mpps].

    Examples
    --------
    >>> port_shares_mpps([1230, 1230], [None, 0.25], 10.0)
    (0.75, 0.25)
    >>> port_shares_mpps([64, 64], [1.0, 2.0], 40.0)
    (1.0, 2.0)
    """
    check_port(port_gbps)
    bits = [wire_gbps(size, 1.0) for size in frames_b]
    offered_gbps = [math.inf if mpps is None else mpps * each for mpps, each in zip(offered_mpps, bits, strict=True)]
    most, left, waiting = math.inf, port_gbps, sorted(offered_gbps)
    for rank, each in enumerate(waiting):
        if each > left / (len(waiting) - rank):
            most = left / (len(waiting) - rank)  # the same for all that want more, in any order of arrival
            break
        left -= each
    return tuple(
        _spelled_mpps(min(gbps, most) / gbit) if mpps is None or gbps > most else mpps
        for gbps, gbit, mpps in zip(offered_gbps, bits, offered_mpps, strict=True)
    )


def _spelled_mpps(mpps: float) -> float:
    """Round down to six digits, as a workload's name spells offered loads: a share of a port becomes one.

    Examples
    --------
    >>> _spelled_mpps(0.1234567), _spelled_mpps(0.75)
    (0.123456, 0.75)
    """
    step = 10.0 ** (math.floor(math.log10(mpps)) - 5)
    return float(f"{math.floor(mpps / step + 1e-9) * step:.6g}")


def check_port(port_gbps: float) -> None:
    """Raise InvalidValueError for a line rate that is not a number above 0."""
    if not (math.isfinite(port_gbps) and port_gbps > 0.0):
        raise InvalidValueError(f"line rate of the shared port is {port_gbps}, needed a number above 0 [Gbit/s]")
