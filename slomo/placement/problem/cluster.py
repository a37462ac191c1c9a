"""Servers and clusters on which requests can run.

Rates and NUMA nodes are those of NUMASFP (COMSNETS'22), cache ways those of ResQ (NSDI'18).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from slomo.errors import InvalidValueError
from slomo.files.documents import check_version, convert
from slomo.files.stored import Stored
from slomo.placement.problem.checks import (
    MOST_COPIES,
    SCHEMA_VERSION,
    Amounts,
    check_unique,
    checked_amounts,
)
from slomo.placement.problem.entries import ClusterFile
from slomo.placement.problem.whereabouts import HOST, Pairs, Reserved, Taint, pairs
from slomo.units import plural
from slomo.vocabulary.display import html_table
from slomo.vocabulary.machine import Machine, load_machine
from slomo.vocabulary.numbers import whole_number


@dataclass(frozen=True)
class Server:
    """One server of a cluster: machine type, sockets, usable cores and ways, labels.

    Raises UnknownNameError for a machine type there is none of; InvalidValueError for more cores, ways or sockets than
    the machine type has, or a cost or amount that is negative.

    >>> Server("a", "e5-2695v4", cores_reserved=9).cores, Server("a", "e5-2695v4").ways
    (9, 18)
    """

    #: Unique in the cluster.
    name: str
    #: Machine type: a shipped name or a YAML file.
    machine: str
    #: Cores of each socket that NFs may not use (operating system, driver), 0 or more.
    cores_reserved: int = 0
    #: Cache ways that may be given to NFs; None means all but those devices fill (DDIO).
    llc_ways_usable: int | None = None
    #: Sockets with a NIC of their own; None means the machine type's one. NFs run on these, except under NUMA-aware
    #: policies.
    nic_sockets: tuple[int, ...] | None = None
    #: Sockets in use; None means all.
    sockets: int | None = None
    #: What it costs to use it, in any unit; plans use what costs least in all.
    cost: float = 1.0
    #: For instance ``{"rack": "r3"}``; requests may ask for some.
    labels: Pairs = ()
    #: What a request must tolerate to be put here: ``key``, ``key=value``, ``key:effect`` or ``key=value:effect``.
    taints: tuple[str, ...] = ()
    #: Amounts of `memory_gib`, `hugepages_gib`, `nic_gbps`, `virtual_functions`, `closids` that network functions may
    #: use; what is not named is not counted.
    resources: Amounts = ()
    #: 2 to make both hyper-threads of a core places for what is promised nothing. Nothing predicts or simulates
    #: hyper-threads, so promises are made on a socket only while no tenants there share a core.
    threads_per_core: int = 1
    #: Line rate of the one NIC port that all network functions of the server share [Gbit/s], for instance through
    #: virtual functions; None means that they share the machine's ports. One port is attached to one socket, so
    #: `nic_sockets` may name no more.
    port_gbps: float | None = None
    #: Cores kept for requests of some labels.
    reserved: Reserved | None = None

    if TYPE_CHECKING:  # what may be given is wider than what is kept

        def __init__(
            self,
            name: str,
            machine: str,
            cores_reserved: int = ...,
            llc_ways_usable: int | None = ...,
            nic_sockets: Sequence[int] | None = ...,
            sockets: int | None = ...,
            *,
            cost: float = ...,
            labels: Mapping[str, str] | Pairs = ...,
            taints: str | Sequence[str] = ...,
            resources: Mapping[str, float] | Amounts = ...,
            threads_per_core: int = ...,
            port_gbps: float | None = ...,
            reserved: Reserved | Mapping[str, Any] | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        host = self.machine_type
        if not self.name.isprintable():
            raise InvalidValueError(
                f"server {self.name!r}: its name holds what cannot be shown", hint="letters, digits"
            )
        object.__setattr__(self, "labels", pairs(self.labels))
        object.__setattr__(self, "taints", (self.taints,) if isinstance(self.taints, str) else tuple(self.taints))
        object.__setattr__(self, "resources", checked_amounts(f"server '{self.name}'", dict(self.resources)))
        self._require(math.isfinite(self.cost) and self.cost > 0.0, "cost", "a number above 0")
        self._require(self.threads_per_core in (1, 2), "threads_per_core", "1 or 2")
        if self.nic_sockets is not None:
            object.__setattr__(self, "nic_sockets", tuple(self.nic_sockets))
        has = f"machine '{host.name}' has"
        self._require(
            0 <= self.cores_reserved < host.cores_per_socket,
            "cores_reserved",
            f"0 to {host.cores_per_socket - 1}, {has} {host.cores_per_socket} cores on a socket",
        )
        self._require(1 <= self.used_sockets <= host.sockets, "sockets", f"1 to {host.sockets}, {has} {host.sockets}")
        self._require(
            1 <= self.ways <= host.llc_ways, "llc_ways_usable", f"1 to {host.llc_ways}, {has} {host.llc_ways} ways"
        )
        inside = (
            all(0 <= socket < self.used_sockets for socket in self.nics) and len(set(self.nics)) == len(self.nics) > 0
        )
        self._require(inside, "nic_sockets", f"different sockets from 0 to {self.used_sockets - 1}")
        if self.port_gbps is not None:
            self._require(0.0 < self.port_gbps <= 1e6, "port_gbps", "above 0 to 1e6 Gbit/s")
            one = "None with several nic_sockets, since one port is attached to one socket"
            self._require(len(self.nics) == 1, "port_gbps", one)
        for taint in self.taints:
            Taint.of(taint)
        if isinstance(self.reserved, Mapping):
            object.__setattr__(self, "reserved", Reserved(**self.reserved))
        most = self.cores * len(self.nics)
        self._require(
            self.reserved is None or self.reserved.cores <= most,
            "reserved",
            f"cores up to {most}, those of its sockets",
        )

    def _require(self, condition: bool, name: str, needed: str) -> None:
        if not condition:
            raise InvalidValueError(f"server '{self.name}': {name} is {getattr(self, name)!r}, needed {needed}")

    @property
    def machine_type(self) -> Machine:
        """Description of the server's machine type."""
        return load_machine(self.machine)

    @property
    def cores(self) -> int:
        """Number of cores of one socket available to NFs."""
        return self.machine_type.cores_per_socket - self.cores_reserved

    @property
    def ways(self) -> int:
        """Number of cache ways of one socket that can be given to NFs."""
        return (
            self.machine_type.llc_ways - self.machine_type.ddio_ways
            if self.llc_ways_usable is None
            else self.llc_ways_usable
        )

    @property
    def used_sockets(self) -> int:
        """Sockets of the server that may be used."""
        return self.machine_type.sockets if self.sockets is None else self.sockets

    @property
    def nics(self) -> tuple[int, ...]:
        """Sockets of the server that have a NIC."""
        return (
            (min(self.machine_type.nic_socket, self.used_sockets - 1),)
            if self.nic_sockets is None
            else self.nic_sockets
        )

    def domain(self, label: str) -> str | None:
        """Return the server's value of a label (its name for ``host``); None if the server lacks the label.

        >>> Server("a", "e5-2620v4", labels={"rack": "r3"}).domain("rack")
        'r3'
        """
        return dict(self.labels).get(label, self.name if label == HOST else None)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping without fields that have their defaults."""
        fields = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}
        fields |= {name: dict(getattr(self, name)) for name in ("labels", "resources")}
        if self.reserved is not None:
            fields["reserved"] = {"cores": self.reserved.cores, "labels": dict(self.reserved.labels)}
        usual = {"cost": 1.0, "labels": {}, "taints": [], "resources": {}, "threads_per_core": 1}
        return {key: value for key, value in fields.items() if value is not None and value != usual.get(key)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Server":
        """Return the object that :meth:`to_dict` described."""
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        return cls(**fields)


@dataclass(frozen=True)
class Cluster(Stored, version=SCHEMA_VERSION):
    """The servers on which requests can be placed.

    Raises
    ------
    InvalidValueError
        For no servers, or two of one name.

    Examples
    --------
    >>> len(Cluster.uniform("e5-2620v4", 3))
    3
    """

    servers: tuple[Server, ...]

    def __post_init__(self) -> None:
        servers = tuple(self.servers) if isinstance(self.servers, Iterable) else (self.servers,)
        for server in servers:
            if not isinstance(server, Server):
                raise InvalidValueError(
                    f"cluster: {server!r} is no Server", hint="Cluster.uniform('e5-2620v4', 4) makes four alike"
                )
        object.__setattr__(self, "servers", servers)
        if not self.servers:
            raise InvalidValueError("the cluster has no servers, needed 1 or more")
        check_unique("server", (server.name for server in self.servers))
        _ = self.machine_types  # two that differ under one name are refused

    def __len__(self) -> int:
        return len(self.servers)

    def __repr__(self) -> str:
        return f"Cluster({plural(len(self), 'server')}: {', '.join(self.machines)})"

    def _repr_html_(self) -> str:
        rows = ((s.name, s.machine, s.used_sockets, s.cores, s.ways) for s in self.servers)
        return html_table(plural(len(self), "server"), ("server", "machine", "sockets", "cores", "cache ways"), rows)

    @cached_property
    def machine_types(self) -> dict[str, Machine]:
        """Machine types of the cluster by name."""
        machine_types: dict[str, Machine] = {}
        for made in map(load_machine, dict.fromkeys(server.machine for server in self.servers)):
            if machine_types.setdefault(made.name, made).fingerprint != made.fingerprint:
                raise InvalidValueError(
                    f"two machine types of the cluster are called '{made.name}', but differ", hint="rename one's file"
                )
        return machine_types

    @cached_property
    def machines(self) -> tuple[str, ...]:
        """Machine types of the cluster, in the order in which they appear."""
        return tuple(self.machine_types)

    @cached_property
    def label_values(self) -> dict[str, frozenset[str]]:
        """Values of every label among the servers; ``host`` has the servers' names."""
        values: dict[str, set[str]] = {HOST: {server.name for server in self.servers}}
        for server in self.servers:
            for name, value in server.labels:
                values.setdefault(name, set()).add(value)
        return {name: frozenset(each) for name, each in values.items()}

    @classmethod
    def uniform(
        cls,
        machine: str,
        count: int,
        *,
        cores_reserved: int = 0,
        llc_ways_usable: int | None = None,
        nic_sockets: Sequence[int] | None = None,
        sockets: int | None = None,
        cost: float = 1.0,
        labels: Mapping[str, str] | Pairs = (),
        taints: str | Sequence[str] = (),
        resources: Mapping[str, float] | Amounts = (),
        threads_per_core: int = 1,
        port_gbps: float | None = None,
        reserved: Reserved | Mapping[str, Any] | None = None,
    ) -> "Cluster":
        """Return a cluster of `count` equal servers.

        Examples
        --------
        >>> Cluster.uniform("e5-2695v4", 2, cores_reserved=9).servers[1].name
        'e5-2695v4-2'
        """
        whole_number("servers of a cluster", count, 1, MOST_COPIES)
        first = Server(
            "first",
            machine,
            cores_reserved,
            llc_ways_usable,
            nic_sockets,
            sockets,
            cost=cost,
            labels=labels,
            taints=taints,
            resources=resources,
            threads_per_core=threads_per_core,
            port_gbps=port_gbps,
            reserved=reserved,
        )
        return cls(tuple(_renamed(first, f"{first.machine_type.name}-{number}") for number in range(1, count + 1)))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Cluster":
        """Return the object that :meth:`to_dict` described; an entry with ``count`` is repeated that often.

        Raises ConfigurationError, with the field's name, for anything else.
        """
        try:
            check_version("cluster", data.get("schema_version", SCHEMA_VERSION), SCHEMA_VERSION)
            return cls(tuple([server for entry in data["servers"] for server in _alike(entry)]))
        except (KeyError, TypeError, AttributeError):
            convert(data, ClusterFile, "cluster")  # says which field is wrong
            raise


def _alike(entry: Mapping[str, Any]) -> list[Server]:
    first, count = Server.from_dict({key: value for key, value in entry.items() if key != "count"}), entry.get("count")
    return [first] if count is None else [_renamed(first, f"{first.name}-{i}") for i in range(1, count + 1)]


def _renamed(server: Server, name: str) -> Server:
    """Return a copy of a server with another name, without checking the same fields thousands of times."""
    copy = object.__new__(Server)
    copy.__dict__.update(server.__dict__)
    object.__setattr__(copy, "name", name)
    return copy
