"""Settings of a simulation of chains: the scheduler of the cores, and what the manager does."""

import math
from dataclasses import dataclass
from typing import TypedDict

from slomo.errors import InvalidValueError, UnknownNameError

#: Schedulers, in the order of the constants in `slomo.simulator.sharing.state`.
KINDS = ("rr", "cfs", "batch", "eevdf", "eevdf-batch")


class SpanFields(TypedDict, total=False):
    """Duration of a simulation, as keyword arguments of `slomo.simulator.sharing.engine.simulate_chains`."""

    duration_ms: float
    warm_ms: float
    seed: int


@dataclass(frozen=True)
class Scheduler:
    """A scheduler of the operating system, the same on all cores.

    Raises UnknownNameError for another scheduler; InvalidValueError for a time that is not above 0.

    >>> Scheduler("rr", quantum_ms=1.0).quantum_ms
    1.0
    """

    #: One of "rr" (SCHED_RR), "cfs" and "batch" (SCHED_NORMAL and SCHED_BATCH of Linux up to 6.5), "eevdf" and
    #: "eevdf-batch" (the same two policies since 6.6).
    kind: str = "cfs"
    #: Time slice of round robin [ms]; Linux has 100.
    quantum_ms: float = 100.0
    #: CFS's period, least slice and wake-up granularity [ms]: Linux's 6, 0.75 and 1 ms times 1 + log2(8 CPUs).
    latency_ms: float = 24.0
    granularity_ms: float = 3.0
    wakeup_ms: float = 4.0
    #: EEVDF's slice [ms]: Linux's 0.7 ms times 1 + log2(8 CPUs).
    base_slice_ms: float = 2.8
    #: Time between the scheduler's ticks [ms]: HZ = 1000.
    tick_ms: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnknownNameError("scheduler", self.kind, KINDS)
        for name in ("quantum_ms", "latency_ms", "granularity_ms", "wakeup_ms", "base_slice_ms", "tick_ms"):
            if not 0.0 < getattr(self, name) < float("inf"):
                raise InvalidValueError(f"scheduler '{self.kind}': {name} is {getattr(self, name):g}, needed above 0")


@dataclass(frozen=True)
class Manager:
    """Back-pressure and timing of the chains' manager.

    Raises InvalidValueError if `scan_us` is not above 0, or if `carry_ns` is below 0.

    >>> Manager(pressure=True).scan_us
    51.0
    """

    #: Whether the manager applies back-pressure: it drops packets at a chain's entry, makes upstream stages yield,
    #: blocks stages whose next ring is full, and sets ECN marks.
    pressure: bool = False
    #: A stage is overloaded only if packets wait longer than this [us].
    waiting_us: float = 100.0
    #: Packets get ECN marks when a ring's smoothed length exceeds this point between its low (0) and high (1)
    #: watermark; `smoothing`: weight of the latest length.
    mark_between: float = 0.75
    smoothing: float = 0.1
    #: Time between two rounds over the rings [us]: OpenNetVM's wake thread sleeps for 1 us, which the kernel's timer
    #: slack makes 51 (``PR_SET_TIMERSLACK``, 50 us by default).
    scan_us: float = 51.0
    #: Time to bring a packet in and out, if the manager does so in its rounds [ns]; 0 if the network card does.
    carry_ns: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 < self.scan_us < math.inf or not 0.0 <= self.carry_ns < math.inf:
            raise InvalidValueError(
                f"the manager looks every {self.scan_us:g} us and takes {self.carry_ns:g} ns for a packet, "
                "needed above 0, and 0 or more"
            )
