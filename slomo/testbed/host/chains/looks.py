"""Read the output of the native chain manager, one JSON object per line.

The manager reports every ten milliseconds if any packet moved, and at the end the counts since the warm-up.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from slomo.errors import TestbedError
from slomo.files.json_text import json_object
from slomo.testbed.host.chains.moves import MoveOutcome


class StageLook(NamedTuple):
    """State of one stage at one time."""

    #: Arrivals per second, smoothed over 100 ms, including packets dropped before the stage.
    arrivals: float
    #: Median cost of a packet over the last 100 ms [time-stamp cycles]; None without a sample.
    cost_cycles: float | None
    #: Packets since the start: lost (to a full ring or a stopped chain), and processed.
    lost: int
    served: int
    #: CPU time divided by packets over the last 100 ms [time-stamp cycles]; includes wake-ups and cold caches.
    paid_cycles: float | None = None


class ChainLook(NamedTuple):
    """State and core of every stage, in the order of the plan, at a time since the first packet [s]."""

    time_s: float
    stages: tuple[StageLook, ...]
    stopped: tuple[bool, ...]
    cores: tuple[int, ...] = ()
    #: Packets of each chain delivered, and offered, since the start.
    delivered: tuple[int, ...] = ()
    offered: tuple[int, ...] = ()


@dataclass(frozen=True)
class StageOutcome:
    """Counts and times of one stage over the measured time."""

    name: str
    arrived: int
    lost: int
    served: int
    refused: int
    sleeps: int
    samples: int
    processor_share: float
    voluntary_switches: int
    involuntary_switches: int
    cost_cycles: float
    turns: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class TcpOutcome:
    """Counts of the kernel's TCP connection through a chain, over the measured time."""

    #: Bytes that the receiver's program read [Gbit/s].
    goodput_gbps: float
    #: Segments retransmitted, and packets with an ECN mark.
    retransmitted: int
    marked: int
    #: Whether both ends agreed on ECN.
    ecn: bool


@dataclass(frozen=True)
class ChainOutcome:
    """Result of one chain over the measured time."""

    #: Name of the chain.
    name: str
    #: Offered load, and throughput [Mpps].
    offered_mpps: float
    delivered_mpps: float
    #: Packets lost before any work was done on them.
    lost_at_entry: int
    #: Packets lost after the first stage processed them.
    lost_behind: int
    #: `lost_behind` divided by the sum of delivered packets and `lost_behind`, 0 to 1.
    wasted: float
    #: Time from arrival to departure [us].
    p50_us: float
    p99_us: float
    #: Counts of the TCP connection; None for a chain without TCP.
    tcp: TcpOutcome | None = None


@dataclass(frozen=True)
class HostChainResult:
    """Result of a run of chains."""

    #: Measured time [s].
    seconds: float
    #: Outcomes of all stages and chains.
    stages: tuple[StageOutcome, ...]
    chains: tuple[ChainOutcome, ...]
    #: CPU time of the manager (including traffic) and, in `control_share`, of this process, as shares of one core.
    manager_share: float
    #: Rounds of the manager over the rings, per second.
    looks_per_s: float = 0.0
    control_share: float = 0.0
    #: How often a weight changed.
    weight_writes: int = 0
    #: Features that were unavailable, and the rights that would enable them.
    notes: tuple[str, ...] = ()
    #: Stages that moved.
    moves: tuple[MoveOutcome, ...] = ()
    #: States over time, warm-up included; empty unless `series_ms` is set.
    series: tuple[ChainLook, ...] = ()

    def rates(self) -> tuple[tuple[float, tuple[float, ...]], ...]:
        """Return pairs of a time [s] and all chains' throughputs [Mpps] at that time."""
        return tuple(
            (
                (before.time_s + after.time_s) / 2,
                tuple(
                    (new - old) / (after.time_s - before.time_s) / 1e6
                    for old, new in zip(before.delivered, after.delivered, strict=True)
                ),
            )
            for before, after in pairwise(self.series)
        )

    @property
    def delivered_mpps(self) -> float:
        """Throughput of all chains together [Mpps]."""
        return sum(chain.delivered_mpps for chain in self.chains)

    @property
    def wasted(self) -> float:
        """Lost share of the packets that at least one stage had processed, 0 to 1."""
        lost = sum(chain.lost_behind for chain in self.chains)
        worked = lost + sum(chain.delivered_mpps for chain in self.chains) * self.seconds * 1e6
        return lost / worked if worked else 0.0

    @property
    def fairness(self) -> float:
        """Jain's index of the chains' ratios of output to offered load; 1 if all ratios are equal."""
        shares = [chain.delivered_mpps / chain.offered_mpps for chain in self.chains if chain.offered_mpps]
        squares = sum(share**2 for share in shares)
        return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


@contextmanager
def understood() -> Iterator[None]:
    """Convert the error that an incomplete line of the manager's output causes to a TestbedError."""
    try:
        yield
    except (LookupError, TypeError, ValueError, ArithmeticError) as problem:
        raise TestbedError(
            f"the output of the chains' manager cannot be read: {type(problem).__name__} {problem}",
            hint="was it built from other sources? Remove it: it is built again",
        ) from None


def parse_line(text: str) -> dict[str, Any] | None:
    """Parse one line of the manager's output; return None for a line that is no JSON report."""
    line = json_object(text)
    return line if line is not None and "event" in line else None


@understood()
def look_of(line: dict[str, Any], cores: tuple[int, ...] = ()) -> ChainLook:
    """Return the chains' state that a parsed line reports.

    >>> stages = [[5000, 550, 10, 40, 560.0]]
    >>> look_of({"time_s": 0.01, "stages": stages, "stopped": [0], "delivered": [40], "offered": [50]}).stages[0].lost
    10
    """
    stages = tuple(
        StageLook(arrivals, cost or None, lost, served, paid or None)
        for arrivals, cost, lost, served, paid in line["stages"]
    )
    stopped = tuple(map(bool, line["stopped"]))
    return ChainLook(line["time_s"], stages, stopped, cores, tuple(line["delivered"]), tuple(line["offered"]))


@understood()
def result_of(line: dict[str, Any]) -> HostChainResult:
    """Return the result that the manager's last line reports. Raises TestbedError if nothing was measured."""
    seconds = float(line["seconds"])
    if seconds <= 0.0:
        raise TestbedError("the chains ended before anything was measured", hint="run them longer: --window-s 2")
    return HostChainResult(
        seconds=seconds,
        stages=tuple(_stage(item, seconds) for item in line["stages"]),
        chains=tuple(_chain(item, seconds) for item in line["chains"]),
        manager_share=float(line["manager_s"]) / seconds,
        looks_per_s=line["looks"] / seconds,
    )


def _stage(item: dict[str, Any], seconds: float) -> StageOutcome:
    same = ("name", "lost", "served", "refused", "sleeps", "samples", "voluntary_switches", "involuntary_switches")
    return StageOutcome(
        arrived=item["offered"],
        processor_share=item["processor_s"] / seconds,
        cost_cycles=float(item["cost_cycles"]),
        turns=tuple((packets, us) for packets, us in item["turns_us"]),
        **{name: item[name] for name in same},
    )


def _chain(item: dict[str, Any], seconds: float) -> ChainOutcome:
    behind, delivered, tcp = item["lost_behind"], item["delivered"], None
    if (seen := item.get("tcp")) is not None:
        goodput_gbps = 8 * seen["received_bytes"] / seconds / 1e9
        tcp = TcpOutcome(goodput_gbps, seen["retransmitted"], seen["marked"], seen["ecn"])
    return ChainOutcome(
        name=item["name"],
        offered_mpps=item["offered"] / seconds / 1e6,
        delivered_mpps=delivered / seconds / 1e6,
        lost_at_entry=item["refused"] + item["entry_lost"],
        lost_behind=behind,
        wasted=behind / (behind + delivered) if behind else 0.0,
        p50_us=item["latency_us"]["p50"],
        p99_us=item["latency_us"]["p99"],
        tcp=tcp,
    )
