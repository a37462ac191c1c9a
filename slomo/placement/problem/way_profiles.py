"""Profiles of one instance (throughput over cache ways, latency over load), and what may be promised from them.

ResQ (NSDI'18) section 5.2: throughput is concave and monotone in ways, latency convex and monotone in load, so linear
interpolation between few points suffices. `slomo.workflow.profile_ways` measures them.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from msgspec import Struct

from slomo.errors import InvalidValueError
from slomo.files.documents import read
from slomo.files.durable import write_durably
from slomo.files.ranges import PositiveCount, PositiveRate, Seconds, Share, Ways
from slomo.files.stored import stored

ProfileKey = tuple[str, str]
SCHEMA_VERSION = 1
#: Relative discount of a promise against the measurement. It covers the interpolation error and memory bandwidth, which
#: cache allocation does not isolate; ResQ's published scheduler discounts utilisation by as much.
DISCOUNT = 0.03


@dataclass(frozen=True)
class InstanceProfile:
    """Measured curves of one instance on one machine type.

    Examples
    --------
    >>> profile = InstanceProfile("e5-2695v4", "lpm@64B,100000f", 5.0, ((2, 3.0), (10, 4.6), (18, 5.0)))
    >>> profile.mpps(6), profile.ways_for(4.6), profile.ways_for(6.0)
    (3.8, 13, None)
    """

    #: Machine type and workload key.
    machine: str
    workload: str
    #: Throughput with the whole cache [Mpps].
    solo_mpps: PositiveRate
    #: Cache ways -> throughput [Mpps], ways ascending.
    ways: tuple[tuple[Ways, PositiveRate], ...]
    #: Load as a share of capacity -> p95 and p99 sojourn time [us], both ascending; may be empty.
    latency: tuple[tuple[Share, Seconds, Seconds], ...] = ()
    #: Number of packet buffers; the frame size is that of the workload.
    buffers: PositiveCount | None = None
    #: Fingerprint of the machine; empty if unknown.
    fingerprint: str = ""

    def __post_init__(self) -> None:
        steps = [way for way, _ in self.ways]
        good = self.solo_mpps > 0 and steps and steps == sorted(set(steps)) and all(mpps > 0 for _, mpps in self.ways)
        if not good:
            raise InvalidValueError(
                f"profile of '{self.workload}' on {self.machine}: needed ascending ways and rates above 0"
            )

    def mpps(self, ways: float) -> float:
        """Return the throughput with `ways` exclusive ways [Mpps], interpolated; 0 below the fewest measured ways."""
        steps, rates = zip(*self.ways, strict=True)
        if ways < steps[0]:
            return 0.0
        return float(np.interp(ways, steps, np.maximum.accumulate(rates)))

    def promise_mpps(self, ways: int) -> float:
        """Return the throughput that may be promised with `ways` ways [Mpps]."""
        return self.mpps(ways) * (1.0 - DISCOUNT)

    def ways_for(self, mpps: float) -> int | None:
        """Return the fewest ways with which `mpps` may be promised; None if no number suffices."""
        last = self.ways[-1][0]
        return next(
            (ways for ways in range(self.ways[0][0], last + 1) if self.promise_mpps(ways) >= mpps * (1 - 1e-9)), None
        )

    def load_for(self, p95_us: float | None, p99_us: float | None, speed: float = 1.0) -> float | None:
        """Return the highest load, as a share of capacity, that keeps both latency limits; None if none does.

        `p95_us`, `p99_us`: limits [us]. `speed`: capacity relative to solo; all times scale with its inverse.
        """
        limits = ((1, p95_us), (2, p99_us))
        loads = [self._load_at(column, limit * speed) for column, limit in limits if limit is not None]
        if not self.latency or None in loads:
            return None
        return min((load for load in loads if load is not None), default=self.latency[-1][0])

    def capacity_for(self, mpps: float, p95_us: float | None, p99_us: float | None) -> float | None:
        """Return the least capacity that keeps both latency limits at a throughput [Mpps]; None if solo is too slow.

        An instance slowed down by others takes longer for every packet, and has a higher utilisation at the same
        throughput.
        """
        if mpps >= self.solo_mpps or not self._in_time(mpps, 1.0, p95_us, p99_us):
            return None
        low, high = mpps / self.solo_mpps, 1.0
        while high - low > 1e-4:
            middle = 0.5 * (low + high)
            if self._in_time(mpps, middle, p95_us, p99_us):
                high = middle
            else:
                low = middle
        return high * self.solo_mpps

    def _in_time(self, mpps: float, speed: float, p95_us: float | None, p99_us: float | None) -> bool:
        load = self.load_for(p95_us, p99_us, speed)
        return load is not None and mpps <= load * speed * self.solo_mpps * (1.0 + 1e-9)

    def _load_at(self, column: int, limit_us: float) -> float | None:
        """Return the highest load at which a latency is within its limit, by linear interpolation."""
        loads, times = [row[0] for row in self.latency], [row[column] for row in self.latency]
        if not times or times[0] > limit_us:
            return None
        above = next((number for number, time in enumerate(times) if time > limit_us), None)
        if above is None:
            return loads[-1]
        share = (limit_us - times[above - 1]) / (times[above] - times[above - 1])
        return loads[above - 1] + share * (loads[above] - loads[above - 1])


class WayProfilesFile(Struct, forbid_unknown_fields=True):
    """The file of profiles over cache ways."""

    profiles: tuple[InstanceProfile, ...]
    schema_version: Literal[1] = 1


def save_profiles(profiles: Iterable[InstanceProfile], path: str | Path) -> Path:
    """Write profiles as JSON; return the path."""
    document = {"schema_version": SCHEMA_VERSION, "profiles": stored(list(profiles))}
    return write_durably(path, json.dumps(document, indent=1) + "\n")


def load_profiles(path: str | Path) -> tuple[InstanceProfile, ...]:
    """Read profiles. Raises ConfigurationError for an invalid file or another schema version."""
    return read(path, WayProfilesFile, hint="write them with save_profiles").profiles
