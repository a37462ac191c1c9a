"""Composition of a network function's resources into throughput, and the time per packet on a share of a core.

Yala (ASPLOS'25), composition by execution pattern: a pipeline is as fast as its slowest stage, run-to-completion takes
the sum of its stages, and the uncontended time of a packet is counted once. SLOMO (SIGCOMM'20) models one resource, the
memory subsystem; with more resources, times per packet add up, throughputs do not.
"""

from typing import Literal

from slomo.errors import InvalidValueError, UnknownNameError

#: How an NF uses its resources: concurrently on different packets, or one after the other on each packet.
Pattern = Literal["pipeline", "run-to-completion"]
PATTERNS: tuple[Pattern, ...] = ("pipeline", "run-to-completion")


def core_share_ns(own_ns: float, share: float) -> float:
    """Return the time per packet of an NF with only a share of a core [ns].

    `own_ns`: time per packet on a core of its own [ns]. `share`: share of the core's time, above 0, at most 1. Raises
    InvalidValueError for a share outside that range.

    Examples
    --------
    >>> core_share_ns(400.0, 0.5)
    800.0

    References
    ----------
    NFVnice (SIGCOMM'17): the share of NF i is its arrival rate x cost over the sum of all on the core.
    """
    if not 0.0 < share <= 1.0:
        raise InvalidValueError(f"share of a core is {share:g}, needed above 0 and at most 1")
    return own_ns / share


def checked_pattern(pattern: str) -> Pattern:
    """Return `pattern` if it is valid.

    Raises UnknownNameError with the nearest.

    Examples
    --------
    >>> checked_pattern("pipelin")
    Traceback (most recent call last):
    slomo.errors.UnknownNameError: unknown execution pattern 'pipelin'
    hint: did you mean 'pipeline'? Known: pipeline, run-to-completion
    """
    if pattern not in PATTERNS:
        raise UnknownNameError("execution pattern", str(pattern), PATTERNS)
    return pattern
