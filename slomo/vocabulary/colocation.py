"""A co-location: which workloads share which machine, and how they are kept apart.

One co-location is one experiment of SLOMO (SIGCOMM'20, section 4.1): a target, its competitors, and a machine. Run
with the competitors alone it yields the vector V; run with the target it yields the throughput P.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slomo.errors import InvalidValueError
from slomo.vocabulary.workload import Workload, canonical_json

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Isolation:
    """Partitioning applied to one tenant; ``None`` means not restricted.

    Attributes
    ----------
    llc_way_mask : int or None
        Contiguous bit mask of LLC ways (Intel CAT).
    memory_bandwidth_percent : int or None
        Memory bandwidth throttle (Intel MBA), 10 to 100 [%].
    """

    llc_way_mask: int | None = None
    memory_bandwidth_percent: int | None = None

    def __post_init__(self) -> None:
        mask, percent = self.llc_way_mask, self.memory_bandwidth_percent
        if mask is not None and (mask <= 0 or (mask // (mask & -mask)) & ((mask // (mask & -mask)) + 1)):
            raise InvalidValueError(f"way mask {mask:#x} is not one block of ways", hint="0x3 or 0x7fc would do")
        if percent is not None and not 10 <= percent <= 100:
            raise InvalidValueError(f"memory bandwidth throttle is {percent} %, needed 10 to 100 %")


@dataclass(frozen=True)
class Colocation:
    """One experiment: a target beside competitors on a machine.

    Attributes
    ----------
    machine : str
        Name of the machine.
    target : Workload or None
        The NF under test; ``None`` measures the competition alone.
    competitors : tuple of Workload
        One entry per instance, in any order.
    isolation : tuple of Isolation or None
        For the target first, then each competitor; ``None`` means nobody is isolated.

    Examples
    --------
    >>> c = Colocation("silver-4110", Workload("lpm"), (Workload("stats"), Workload("stats")))
    >>> c.label
    'lpm@64B,100000f + 2 x stats@64B,100000f on silver-4110'
    """

    machine: str
    target: Workload | None
    competitors: tuple[Workload, ...] = ()
    isolation: tuple[Isolation, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "competitors", tuple(self.competitors))
        tenants = len(self.competitors) + (self.target is not None)
        if self.isolation is not None and len(self.isolation) != tenants:
            raise InvalidValueError(f"isolation lists {len(self.isolation)} tenants, the co-location has {tenants}")

    @property
    def tenants(self) -> tuple[Workload, ...]:
        """Target first (if any), then the competitors."""
        return self.competitors if self.target is None else (self.target, *self.competitors)

    @property
    def key(self) -> str:
        """Fingerprint of the experiment: 16 hexadecimal digits, the same on every machine."""
        return hashlib.sha256(canonical_json(self.to_dict()).encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """Short text for people."""
        counts: dict[str, int] = {}
        for workload in self.competitors:
            counts[workload.key] = counts.get(workload.key, 0) + 1
        beside = " + ".join(key if n == 1 else f"{n} x {key}" for key, n in counts.items())
        target = self.target.key if self.target else "nobody"
        return f"{target}{f' + {beside}' if beside else ' alone'} on {self.machine}"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping that :meth:`from_dict` reads back."""
        return {
            "schema_version": SCHEMA_VERSION,
            "machine": self.machine,
            "target": self.target.to_dict() if self.target else None,
            "competitors": [workload.to_dict() for workload in self.competitors],
            "isolation": None
            if self.isolation is None
            else [[i.llc_way_mask, i.memory_bandwidth_percent] for i in self.isolation],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Colocation":
        """Rebuild a co-location from :meth:`to_dict`'s mapping."""
        target, isolation = data["target"], data.get("isolation")
        return cls(
            machine=str(data["machine"]),
            target=None if target is None else Workload.from_dict(target),
            competitors=tuple(Workload.from_dict(item) for item in data["competitors"]),
            isolation=None if isolation is None else tuple(Isolation(*pair) for pair in isolation),
        )


def repeated(workload: Workload, count: int) -> Sequence[Workload]:
    """Return `count` instances of one workload.

    Examples
    --------
    >>> len(repeated(Workload("stats"), 3))
    3
    """
    if count < 0:
        raise InvalidValueError(f"number of instances of '{workload.nf}' is {count}, needed 0 or more")
    return (workload,) * count
