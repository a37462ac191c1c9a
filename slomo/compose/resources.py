"""Combine the times per packet at several resources into throughput.

Yala (ASPLOS'25), composition by execution pattern: a pipeline is as fast as its slowest stage, run-to-completion takes
the sum of its stages, and the uncontended time of a packet is counted once. SLOMO (SIGCOMM'20) models one resource, the
memory subsystem; with more resources, times per packet add up, throughputs do not.
"""

from typing import Literal

from slomo.errors import UnknownNameError

#: How an NF uses its resources: concurrently on different packets, or one after the other on each packet.
Pattern = Literal["pipeline", "run-to-completion"]
PATTERNS: tuple[Pattern, ...] = ("pipeline", "run-to-completion")


def checked_pattern(pattern: str) -> Pattern:
    """Return `pattern` if it is valid; UnknownNameError with the nearest."""
    if pattern not in PATTERNS:
        raise UnknownNameError("execution pattern", str(pattern), PATTERNS)
    return pattern
