"""Profiles of one instance: throughput over cache ways and latency over load, by few measurements.

ResQ (NSDI'18) section 5.2: throughput over the LLC is concave and monotone, latency over load convex and monotone.
Measure both ends and the middle, and split recursively while the linear interpolation is off by more than 1 %: 8 to 12
measurements.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slomo.errors import ConfigurationError, InvalidValueError
from slomo.placement.problem.checks import check_version
from slomo.vocabulary.documents import read_document
from slomo.vocabulary.durable import write_durably

ProfileKey = tuple[str, str]
SCHEMA_VERSION = 1
#: Interpolation may be off by this share before a segment is split (ResQ section 5.2).
TOLERANCE = 0.01
#: A profile promises this share less than it was measured at: the interpolation's error, and the memory bandwidth that
#: cache allocation does not isolate; ResQ's published scheduler discounts utilisation by as much.
DISCOUNT = 0.03


@dataclass(frozen=True)
class InstanceProfile:
    """What one instance does on one machine type.

    Attributes
    ----------
    machine, workload : str
        Machine type and workload key.
    solo_mpps : float
        Throughput with the whole cache [Mpps].
    ways : tuple of (int, float)
        Cache ways -> throughput [Mpps], ways ascending.
    latency : tuple of (float, float, float)
        Load as a share of capacity -> p95 and p99 sojourn time [us], load ascending; may be empty.
    buffers : int or None
        Packet buffers it had; the frame size is that of the workload.
    fingerprint : str
        Of the machine it was measured on; empty where that is not known.

    Examples
    --------
    >>> profile = InstanceProfile("e5-2695v4", "lpm@64B,100000f", 5.0, ((2, 3.0), (10, 4.6), (18, 5.0)))
    >>> profile.mpps(6), profile.ways_for(4.6), profile.ways_for(6.0)
    (3.8, 13, None)
    """

    machine: str
    workload: str
    solo_mpps: float
    ways: tuple[tuple[int, float], ...]
    latency: tuple[tuple[float, float, float], ...] = ()
    buffers: int | None = None
    fingerprint: str = ""

    def __post_init__(self) -> None:
        steps = [way for way, _ in self.ways]
        good = self.solo_mpps > 0 and steps and steps == sorted(set(steps)) and all(mpps > 0 for _, mpps in self.ways)
        if not good:
            raise InvalidValueError(
                f"profile of '{self.workload}' on {self.machine}: needed ascending ways and rates above 0"
            )

    def mpps(self, ways: float) -> float:
        """Return the throughput with so many ways of its own [Mpps], by interpolation; 0 below the fewest measured."""
        steps, rates = zip(*self.ways, strict=True)
        if ways < steps[0]:
            return 0.0
        return float(np.interp(ways, steps, np.maximum.accumulate(rates)))

    def promise_mpps(self, ways: int) -> float:
        """Return the throughput to count on with so many ways [Mpps]."""
        return self.mpps(ways) * (1.0 - DISCOUNT)

    def ways_for(self, mpps: float) -> int | None:
        """Return the fewest ways that promise `mpps`, or None."""
        last = self.ways[-1][0]
        return next(
            (ways for ways in range(self.ways[0][0], last + 1) if self.promise_mpps(ways) >= mpps * (1 - 1e-9)), None
        )

    def load_for(self, p95_us: float | None, p99_us: float | None, speed: float = 1.0) -> float | None:
        """Return the highest load, as a share of capacity, at which both latencies hold; None where none does.

        Parameters
        ----------
        p95_us, p99_us : float or None
            Limits [us].
        speed : float
            Capacity relative to solo: all times stretch by its inverse.
        """
        held = [
            load
            for load, p95, p99 in self.latency
            if p95 <= (math.inf if p95_us is None else p95_us * speed)
            and p99 <= (math.inf if p99_us is None else p99_us * speed)
        ]
        return max(held, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping."""
        return {
            **asdict(self),
            "ways": [list(pair) for pair in self.ways],
            "latency": [list(row) for row in self.latency],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "InstanceProfile":
        """Rebuild from :meth:`to_dict`'s mapping."""
        ways = tuple((int(way), float(mpps)) for way, mpps in data["ways"])
        latency = tuple((float(a), float(b), float(c)) for a, b, c in data.get("latency", ()))
        first = (str(data["machine"]), str(data["workload"]), float(data["solo_mpps"]))
        return cls(*first, ways, latency, data.get("buffers"), str(data.get("fingerprint", "")))


def measure_curve(
    measure: Callable[[int], float], low: int, high: int, tolerance: float = TOLERANCE
) -> tuple[tuple[int, float], ...]:
    """Measure a monotone curve on whole numbers from `low` to `high` at as few points as interpolation needs.

    Parameters
    ----------
    measure : callable
        One measurement.
    low, high : int
        Ends, both measured.
    tolerance : float
        Share by which the interpolated middle may be off.

    Examples
    --------
    >>> points = measure_curve(lambda ways: min(float(ways), 4.0), 1, 19)
    >>> len(points) < 12, points[-1]
    (True, (19, 4.0))
    """
    if not 0 < low <= high:
        raise InvalidValueError(f"a curve from {low} to {high} ways, needed 1 or more and ascending")
    known = {low: measure(low), high: measure(high)}
    segments = [(low, high)]
    while segments:
        left, right = segments.pop()
        middle = (left + right) // 2
        if middle in (left, right):
            continue
        known[middle] = measure(middle)
        guess = known[left] + (known[right] - known[left]) * (middle - left) / (right - left)
        if abs(guess - known[middle]) > tolerance * known[middle]:
            segments += [(left, middle), (middle, right)]
    return tuple(sorted(known.items()))


def save_profiles(profiles: Iterable[InstanceProfile], path: str | Path) -> Path:
    """Write profiles as JSON; return the path."""
    document = {"schema_version": SCHEMA_VERSION, "profiles": [profile.to_dict() for profile in profiles]}
    return write_durably(path, json.dumps(document, indent=1) + "\n")


def load_profiles(path: str | Path) -> tuple[InstanceProfile, ...]:
    """Read profiles.

    Raises
    ------
    ConfigurationError
        For a file that holds none, or another schema version.
    """
    try:
        data = json.loads(read_document(Path(path)))
        check_version("profiles", data)
        return tuple(InstanceProfile.from_dict(item) for item in data["profiles"])
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise ConfigurationError(
            f"{path}: holds no profiles over cache ways: {problem}", hint="write them with save_profiles"
        ) from None
