"""Bandwidth that Ethernet frames use on the wire, with preamble, start delimiter and gap (IEEE 802.3)."""

from typing import TypeVar

from slomo.vocabulary.vector import Floats

#: Preamble, start of frame and gap between frames, in bytes of time on the wire.
WIRE_OVERHEAD_B = 20
_Rate = TypeVar("_Rate", float, Floats)


def wire_gbps(frame_b: _Rate, mpps: _Rate) -> _Rate:
    """Return the bandwidth that packets use on the wire [Gbit/s].

    >>> wire_gbps(1230, 1.0)
    10.0
    """
    return 8e-3 * (frame_b + WIRE_OVERHEAD_B) * mpps


def mpps_of_gbps(gbps: float, frame_b: float) -> float:
    """Return how many packets per second use a given bandwidth on the wire [Mpps]."""
    return gbps * 1e3 / (8.0 * (frame_b + WIRE_OVERHEAD_B))
