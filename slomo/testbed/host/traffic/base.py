"""The contract of every traffic generator: start a workload's traffic, stop it, and report sent and received packets.

One interface covers captures, testpmd, Pktgen-DPDK and TRex, as in NPF and DPDK's test suite (DTS).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from slomo.errors import InvalidValueError
from slomo.vocabulary.workload import Traffic

_CHECKSUM_B = 4  # a frame's length includes its checksum, the length given to programs does not


@dataclass(frozen=True)
class TrafficStatistics:
    """Counts of a generator since its start.

    Examples
    --------
    >>> TrafficStatistics(1000, 990).lost
    10
    """

    #: Since the start.
    sent_packets: int
    received_packets: int
    #: Rates over the generator's own last interval [Mpps].
    sent_mpps: float = 0.0
    received_mpps: float = 0.0
    #: Percentiles such as ``p99`` or ``mean`` [us], where the generator measures them.
    latency_us: Mapping[str, float] = field(default_factory=dict)

    @property
    def lost(self) -> int:
        """Packets that did not come back; 0 if more came than were sent."""
        return max(0, self.sent_packets - self.received_packets)


@runtime_checkable
class TrafficGenerator(Protocol):
    """Sends a workload's traffic to the machine under test."""

    #: Its name in the provenance.
    name: str

    def available(self) -> tuple[bool, str]:
        """Return whether it can be used from here, and why not."""
        ...

    def start(self, traffic: Traffic) -> None:
        """Begin to send.

        Raises InvalidValueError for traffic that this generator cannot make; TestbedError if it cannot be started or
        does not answer.
        """
        ...

    def statistics(self) -> TrafficStatistics:
        """Return the counts so far; TestbedError if it does not answer (any more)."""
        ...

    def stop(self) -> None:
        """Stop sending; does nothing if nothing was started."""
        ...


def frame_without_checksum_b(traffic: Traffic) -> int:
    """Return the frame length without checksum, as programs expect it [bytes].

    Examples
    --------
    >>> frame_without_checksum_b(Traffic(packet_size_b=64))
    60
    """
    return traffic.packet_size_b - _CHECKSUM_B


def require_uniform(traffic: Traffic, generator: str) -> None:
    """Raise an error for Zipf-distributed destinations, which only a capture can contain.

    The InvalidValueError names a generator that supports them.
    """
    if traffic.flow_distribution != "uniform":
        raise InvalidValueError(
            f"traffic generator '{generator}' cannot draw destinations after Zipf's law",
            hint="use the generator 'pcap', whose captures hold any distribution",
        )


def require_saturating(traffic: Traffic, generator: str) -> None:
    """Raise an error for an offered load with a generator that only sends at full speed.

    The InvalidValueError names generators that support a load.
    """
    if traffic.offered_mpps is not None:
        raise InvalidValueError(
            f"traffic generator '{generator}' only knows full speed, {traffic.offered_mpps:g} Mpps were asked for",
            hint="use 'pktgen' or 'trex', which hold a rate",
        )
