"""The interface of traffic generators: start a workload's traffic, stop it, and count sent and received packets.

One interface covers captures, testpmd, Pktgen-DPDK and TRex, as in NPF and DPDK's test suite (DTS).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from slomo.errors import InvalidValueError
from slomo.vocabulary.workload import Traffic

_CHECKSUM_B = 4  # part of a frame's length, but not of the length that programs are given


@dataclass(frozen=True)
class TrafficStatistics:
    """Packets that a generator sent and received since its start."""

    #: Packets since the start.
    sent_packets: int
    received_packets: int
    #: Rates over the generator's own last interval [Mpps].
    sent_mpps: float = 0.0
    received_mpps: float = 0.0
    #: Latencies such as ``p99`` or ``mean`` [us]; empty if the generator does not measure them.
    latency_us: Mapping[str, float] = field(default_factory=dict)

    @property
    def lost(self) -> int:
        """Number of packets sent but not received; 0 if more were received than sent."""
        return max(0, self.sent_packets - self.received_packets)


@runtime_checkable
class TrafficGenerator(Protocol):
    """Sends a workload's traffic to the machine under test."""

    #: Name of the generator in the provenance.
    name: str

    def available(self) -> tuple[bool, str]:
        """Return whether the generator can be used from here, and the reason if not."""
        ...

    def start(self, traffic: Traffic) -> None:
        """Start to send a workload's traffic.

        Raises InvalidValueError for traffic that this generator cannot make; TestbedError if the generator cannot be
        started or does not answer.
        """
        ...

    def statistics(self) -> TrafficStatistics:
        """Return the counts so far. Raises TestbedError if the generator does not answer."""
        ...

    def stop(self) -> None:
        """Stop sending; do nothing if nothing was started."""
        ...


def frame_without_checksum_b(traffic: Traffic) -> int:
    """Return the length of a frame without its checksum, the length that generators are given [bytes].

    >>> frame_without_checksum_b(Traffic(packet_size_b=64))
    60
    """
    return traffic.packet_size_b - _CHECKSUM_B


def require_uniform(traffic: Traffic, generator: str) -> None:
    """Raise InvalidValueError for Zipf-distributed destinations; for generators that only send uniform ones."""
    if traffic.flow_distribution != "uniform":
        raise InvalidValueError(
            f"traffic generator '{generator}' cannot draw destinations after Zipf's law",
            hint="use the generator 'pcap', whose captures hold any distribution",
        )


def require_saturating(traffic: Traffic, generator: str) -> None:
    """Raise InvalidValueError for a limited offered load; for generators that only send at full speed."""
    if traffic.offered_mpps is not None:
        raise InvalidValueError(
            f"traffic generator '{generator}' only sends at full speed, {traffic.offered_mpps:g} Mpps were asked for",
            hint="use 'pktgen' or 'trex', which hold a rate",
        )
