"""A co-location: the network functions that run together on a machine, and what each may use.

One co-location is one experiment of SLOMO (SIGCOMM'20, section 4.1): a target, its competitors, and a machine. With the
competitors alone it yields the vector V; with the target the throughput P.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from types import NoneType
from typing import Annotated, Any

from msgspec import Meta, Struct

from slomo.errors import InvalidValueError
from slomo.files.documents import convert
from slomo.files.ranges import Index
from slomo.vocabulary.way_masks import has_hole
from slomo.vocabulary.workload import Workload, fingerprint_of
from slomo.vocabulary.workload_text import counted

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Isolation:
    """Cache ways and memory bandwidth that one network function may use; None for no limit."""

    #: Contiguous bit mask of LLC ways (Intel CAT).
    llc_way_mask: int | None = None
    #: Memory bandwidth throttle (Intel MBA), 10 to 100 [%].
    memory_bandwidth_percent: int | None = None
    #: Packet buffers it may have (ResQ, NSDI'18, section 4.3), 32 or more.
    packet_buffers: int | None = None

    def __post_init__(self) -> None:
        if self.packet_buffers is not None and self.packet_buffers < 32:
            raise InvalidValueError(f"{self.packet_buffers} packet buffers, needed 32 or more: a burst is 32 packets")
        mask, percent = self.llc_way_mask, self.memory_bandwidth_percent
        if mask is not None and (mask <= 0 or has_hole(mask)):
            raise InvalidValueError(f"way mask {mask:#x} is not one block of ways", hint="0x3 or 0x7fc would do")
        if percent is not None and not 10 <= percent <= 100:
            raise InvalidValueError(f"memory bandwidth throttle is {percent} %, needed 10 to 100 %")

    def to_list(self) -> list[int | None]:
        """Return a JSON-ready list, without unrestricted fields at its end."""
        fields = [self.llc_way_mask, self.memory_bandwidth_percent, self.packet_buffers]
        return fields if self.packet_buffers is not None else fields[:2]


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
        For the target first, then each competitor; ``None`` means no isolation.
    sockets : tuple of int or None
        Socket of each, in the same order; ``None`` means all are on the NIC's.
    memory_node : int, tuple of int or None
        NUMA node of all tenants' memory, or of each one's; ``None`` means that each has it on its own socket.
    port_gbps : float or None
        Line rate of the one NIC port that all tenants, on any socket, share [Gbit/s]; ``None`` means that they share
        the machine's ports.

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
    sockets: tuple[int, ...] | None = None
    memory_node: int | tuple[int, ...] | None = None
    port_gbps: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "competitors", tuple(self.competitors))
        for tenant in self.tenants:
            if not isinstance(tenant, Workload):
                raise InvalidValueError(
                    f"co-location: {tenant!r} is no Workload",
                    hint="write for instance Colocation('silver-4110', Workload('lpm'), [Workload('stats')])",
                )
        tenants, node = len(self.competitors) + (self.target is not None), self.memory_node
        if isinstance(node, list):
            object.__setattr__(self, "memory_node", tuple(node))
        elif not isinstance(node, (Integral, tuple, NoneType)):
            raise InvalidValueError(f"memory node {node!r} of a co-location, needed a number, or one per tenant")
        for name in ("isolation", "sockets", "memory_nodes"):
            value = getattr(self, name)
            if value is not None and len(value) != tenants:
                raise InvalidValueError(f"{name} lists {len(value)} tenants, the co-location has {tenants}")
        if self.port_gbps is not None and not 0.0 < self.port_gbps < float("inf"):
            raise InvalidValueError(f"line rate of the shared port is {self.port_gbps} Gbit/s, needed above 0")
        numbers = [*(self.sockets or ()), *(self.memory_nodes or ())]
        if any(not isinstance(number, Integral) or number < 0 for number in numbers):
            raise InvalidValueError(f"sockets {numbers} of a co-location, needed whole numbers from 0")

    @property
    def tenants(self) -> tuple[Workload, ...]:
        """Target first (if any), then the competitors."""
        return self.competitors if self.target is None else (self.target, *self.competitors)

    @property
    def memory_nodes(self) -> tuple[int, ...] | None:
        """Memory node of each tenant, the target's first; None if each has its memory on its own socket."""
        node = self.memory_node
        return node if node is None or isinstance(node, tuple) else (node,) * len(self.tenants)

    @cached_property
    def key(self) -> str:
        """Fingerprint of the experiment: 16 hexadecimal digits, the same on every machine."""
        return fingerprint_of(self.to_dict())

    @property
    def label(self) -> str:
        """Short description of the experiment, for display."""
        beside = counted(workload.key for workload in self.competitors)
        target = self.target.key if self.target else "nobody"
        return f"{target}{f' + {beside}' if beside else ' alone'} on {self.machine}"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping that :meth:`from_dict` reads back; default cores are left out."""
        seats = {
            "sockets": None if self.sockets is None else list(self.sockets),
            "memory_node": self.memory_node,
            "port_gbps": self.port_gbps,
        }
        return {
            "schema_version": SCHEMA_VERSION,
            "machine": self.machine,
            "target": self.target.to_dict() if self.target else None,
            "competitors": [workload.to_dict() for workload in self.competitors],
            "isolation": None if self.isolation is None else [item.to_list() for item in self.isolation],
            **{name: value for name, value in seats.items() if value is not None},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Colocation":
        """Rebuild a co-location from :meth:`to_dict`'s mapping."""
        read = convert(data, _ColocationDocument, "co-location")
        return cls(
            machine=read.machine,
            target=None if read.target is None else Workload.from_dict(read.target),
            competitors=tuple(Workload.from_dict(item) for item in read.competitors),
            isolation=None if read.isolation is None else tuple(Isolation(*item) for item in read.isolation),
            sockets=read.sockets,
            memory_node=read.memory_node,
            port_gbps=read.port_gbps,
        )


class _ColocationDocument(Struct):
    """A co-location as a mapping."""

    machine: str
    target: dict[str, Any] | None
    competitors: list[dict[str, Any]]
    isolation: list[Annotated[list[int | None], Meta(max_length=3)]] | None = None
    sockets: tuple[Index, ...] | None = None
    memory_node: Index | tuple[Index, ...] | None = None
    port_gbps: float | None = None
