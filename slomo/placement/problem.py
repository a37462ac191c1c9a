"""The placement problem as frozen values: servers, what is asked to run on them, and what it must achieve.

The terms are those of ResQ (NSDI'18) section 5: an SLO promises throughput and latency, and is reserved or on-demand
(served best-effort, max-min fair); chains, rates and NUMA nodes are those of NUMASFP (COMSNETS'22).
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from slomo.errors import ConfigurationError, InvalidValueError, UnknownNameError
from slomo.vocabulary.machine import Machine, load_machine
from slomo.vocabulary.workload import Workload
from slomo.vocabulary.workload_text import parse_workload

SCHEMA_VERSION = 1
#: More instances of one request than this is taken for a slip of the pen.
MOST_REPLICAS = 1024


@dataclass(frozen=True)
class Server:
    """One server of a cluster.

    Attributes
    ----------
    name : str
        Unique in the cluster.
    machine : str
        Machine type: a shipped name or a YAML file.
    cores_reserved : int
        Cores of each socket that NFs may not use (operating system, driver), 0 or more.
    llc_ways_usable : int or None
        Cache ways that may be given to NFs; None means all but those devices fill (DDIO).
    nic_sockets : tuple of int or None
        Sockets with a NIC of their own; None means the machine type's one. NFs run on these, except under NUMA-aware
        policies.
    sockets : int or None
        Sockets in use; None means all.

    Raises
    ------
    UnknownNameError
        For a machine type there is none of.
    InvalidValueError
        For more cores, ways or sockets than the machine type has.

    Examples
    --------
    >>> Server("a", "e5-2695v4", cores_reserved=9).cores, Server("a", "e5-2695v4").ways
    (9, 18)
    """

    name: str
    machine: str
    cores_reserved: int = 0
    llc_ways_usable: int | None = None
    nic_sockets: tuple[int, ...] | None = None
    sockets: int | None = None

    def __post_init__(self) -> None:
        host = self.model
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

    def _require(self, condition: bool, name: str, needed: str) -> None:
        if not condition:
            raise InvalidValueError(f"server '{self.name}': {name} is {getattr(self, name)!r}, needed {needed}")

    @property
    def model(self) -> Machine:
        """The machine type."""
        return load_machine(self.machine)

    @property
    def cores(self) -> int:
        """Cores of one socket that NFs may use."""
        return self.model.cores_per_socket - self.cores_reserved

    @property
    def ways(self) -> int:
        """Cache ways of one socket that NFs may be given."""
        return self.model.llc_ways - self.model.ddio_ways if self.llc_ways_usable is None else self.llc_ways_usable

    @property
    def used_sockets(self) -> int:
        """Sockets in use."""
        return self.model.sockets if self.sockets is None else self.sockets

    @property
    def nics(self) -> tuple[int, ...]:
        """Sockets with a NIC."""
        return (min(self.model.nic_socket, self.used_sockets - 1),) if self.nic_sockets is None else self.nic_sockets

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping."""
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in asdict(self).items()
            if value is not None
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Server":
        """Rebuild from :meth:`to_dict`'s mapping."""
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        return cls(**fields)


@dataclass(frozen=True)
class Cluster:
    """The servers there are.

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
        object.__setattr__(self, "servers", tuple(self.servers))
        if not self.servers:
            raise InvalidValueError("the cluster has no servers, needed 1 or more")
        _unique("server", (server.name for server in self.servers))

    def __len__(self) -> int:
        return len(self.servers)

    @property
    def machines(self) -> tuple[str, ...]:
        """Machine types of the cluster, in the order they appear."""
        return tuple(dict.fromkeys(server.model.name for server in self.servers))

    @classmethod
    def uniform(cls, machine: str, count: int, **fields: Any) -> "Cluster":
        """Return `count` servers alike, with `fields` of :class:`Server`.

        Examples
        --------
        >>> Cluster.uniform("e5-2695v4", 2, cores_reserved=9).servers[1].name
        'e5-2695v4-2'
        """
        if count < 1:
            raise InvalidValueError(f"a cluster of {count} servers, needed 1 or more")
        first = Server("first", machine, **fields)
        return cls(tuple(_renamed(first, f"{first.model.name}-{number}") for number in range(1, count + 1)))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping that :meth:`from_dict` reads back."""
        return {"schema_version": SCHEMA_VERSION, "servers": [server.to_dict() for server in self.servers]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Cluster":
        """Rebuild from :meth:`to_dict`'s mapping; an entry with ``count`` stands for that many servers."""
        check_version("cluster", data)
        servers = []
        for entry in data["servers"]:
            fields = {key: value for key, value in entry.items() if key != "count"}
            first, count = Server.from_dict(fields), entry.get("count")
            servers += [first] if count is None else [_renamed(first, f"{first.name}-{i}") for i in range(1, count + 1)]
        return cls(tuple(servers))


def _renamed(server: Server, name: str) -> Server:
    """Return a copy under another name; what was checked once holds for ten thousand alike."""
    copy = object.__new__(Server)
    copy.__dict__.update(server.__dict__)
    object.__setattr__(copy, "name", name)
    return copy


@dataclass(frozen=True)
class SLO:
    """What a request must achieve.

    Attributes
    ----------
    min_mpps : float or None
        Least throughput [Mpps], of all instances together.
    min_share : float or None
        Least throughput as a share of one instance's solo throughput, above 0; instead of `min_mpps`.
    p95_us, p99_us : float or None
        Longest sojourn time at these percentiles [us].
    kind : str
        ``"reserved"`` or ``"on-demand"``.

    Raises
    ------
    InvalidValueError
        For a rate or time that is not above 0, both kinds of throughput, or another kind.

    Examples
    --------
    >>> SLO(min_share=0.9).needed_mpps(solo_mpps=5.0)
    4.5
    """

    min_mpps: float | None = None
    min_share: float | None = None
    p95_us: float | None = None
    p99_us: float | None = None
    kind: str = "reserved"

    def __post_init__(self) -> None:
        for name, unit in (("min_mpps", "Mpps"), ("min_share", "of solo"), ("p95_us", "us"), ("p99_us", "us")):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0.0):
                raise InvalidValueError(f"SLO: {name} is {value!r}, needed a number above 0 [{unit}]")
        if self.min_mpps is not None and self.min_share is not None:
            raise InvalidValueError(
                f"SLO: min_mpps is {self.min_mpps} and min_share is {self.min_share}, needed one of them"
            )
        if self.kind not in ("reserved", "on-demand"):
            raise InvalidValueError(f"SLO: kind is {self.kind!r}, needed 'reserved' or 'on-demand'")

    def needed_mpps(self, solo_mpps: float) -> float:
        """Return the throughput promised [Mpps]; 0 where none is."""
        if self.min_share is not None:
            return self.min_share * solo_mpps
        return 0.0 if self.min_mpps is None else self.min_mpps

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping."""
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Request:
    """One thing asked for: a network function, or a chain of them, with an SLO.

    Attributes
    ----------
    id : str
        Unique among what is placed.
    chain : tuple of Workload
        Network functions packets pass in this order; one for a plain NF. Each takes a core of the same socket.
    slo : SLO
        Applies to the whole chain.
    priority : int
        Higher ones are placed first.
    affinity, anti_affinity : tuple of str
        Requests that must, or must not, be on the same server. A request that avoids itself spreads its replicas.
    replicas : int
        Instances it may be split into, at most.

    Raises
    ------
    InvalidValueError
        For an empty id or chain, or a number of replicas outside 1 to 1024.

    Examples
    --------
    >>> Request("edge", ("lpm", "stats@1500B,1000f"), SLO(min_mpps=1.0)).label
    'lpm -> stats'
    """

    id: str
    chain: tuple[Workload, ...]
    slo: SLO = field(default_factory=SLO)
    priority: int = 0
    affinity: tuple[str, ...] = ()
    anti_affinity: tuple[str, ...] = ()
    replicas: int = 1

    def __post_init__(self) -> None:
        items = (self.chain,) if isinstance(self.chain, (str, Workload)) else tuple(self.chain)
        object.__setattr__(
            self, "chain", tuple(parse_workload(item) if isinstance(item, str) else item for item in items)
        )
        for name in ("affinity", "anti_affinity"):
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
        if not self.id or not self.chain:
            raise InvalidValueError(
                f"request '{self.id}' of {len(self.chain)} network functions, needed an id and 1 or more"
            )
        if not 1 <= self.replicas <= MOST_REPLICAS:
            raise InvalidValueError(f"request '{self.id}': replicas is {self.replicas}, needed 1 to {MOST_REPLICAS}")

    @property
    def label(self) -> str:
        """Names of the network functions in order."""
        return " -> ".join(workload.nf for workload in self.chain)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping that :meth:`from_dict` reads back."""
        kept = {name: getattr(self, name) for name in ("priority", "affinity", "anti_affinity", "replicas")}
        rest = {key: list(value) if isinstance(value, tuple) else value for key, value in kept.items()}
        return {
            "id": self.id,
            "chain": [workload.to_dict() for workload in self.chain],
            "slo": self.slo.to_dict(),
            **rest,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Request":
        """Rebuild from :meth:`to_dict`'s mapping; ``nf`` may stand for a chain of one, a text for a workload."""
        fields = dict(data)
        chain = fields.pop("chain", None) or [fields.pop("nf")]
        items = tuple(Workload.from_dict(item) if isinstance(item, Mapping) else item for item in chain)
        return cls(chain=items, **{**fields, "slo": SLO(**fields.get("slo", {}))})


def requests_to_dict(requests: Iterable[Request]) -> dict[str, Any]:
    """Return requests as one JSON-ready document."""
    return {"schema_version": SCHEMA_VERSION, "requests": [request.to_dict() for request in requests]}


def requests_from_dict(data: Mapping[str, Any]) -> tuple[Request, ...]:
    """Rebuild requests; an entry with ``count`` stands for that many, with numbered ids.

    Raises
    ------
    InvalidValueError
        For two requests of one id, and for rates over time, which are those of chains.

    Examples
    --------
    >>> [r.id for r in requests_from_dict({"requests": [{"id": "a", "nf": "lpm", "count": 2}]})]
    ['a-1', 'a-2']
    """
    check_version("requests", data)
    made: list[Request] = []
    for entry in data["requests"]:
        if "gbps" in entry:
            raise InvalidValueError(
                f"request '{entry['id']}' has gbps, rates over time: only policies for chains on NUMA nodes read them",
                hint="choose --policy numasfp, or promise slo: {min_mpps: ...} instead",
            )
        fields = {key: value for key, value in entry.items() if key != "count"}
        ids = [fields["id"]] if "count" not in entry else [f"{fields['id']}-{i}" for i in range(1, entry["count"] + 1)]
        made += [Request.from_dict({**fields, "id": name}) for name in ids]
    return unique_requests(made)


def unique_requests(requests: Iterable[Request]) -> tuple[Request, ...]:
    """Return requests as a tuple.

    Raises
    ------
    InvalidValueError
        For two requests of one id.
    """
    found = tuple(requests)
    _unique("request", (request.id for request in found))
    return found


def _unique(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidValueError(f"two {what}s are called '{name}', needed names that differ")
        seen.add(name)


def check_version(what: str, data: Mapping[str, Any]) -> None:
    """Refuse a document of another schema version.

    Raises
    ------
    ConfigurationError
        Naming both versions.
    """
    if data.get("schema_version", SCHEMA_VERSION) != SCHEMA_VERSION:
        raise ConfigurationError(
            f"{what} of schema version {data['schema_version']}, this slomo reads version {SCHEMA_VERSION}",
            hint="write it again with this version of slomo",
        )


def find_request(what: str, name: str, known: Collection[str]) -> None:
    """Refuse an id nobody has.

    Raises
    ------
    UnknownNameError
        With the nearest id.
    """
    if name in known:
        return
    raise UnknownNameError(what, name, list(known)[:50])
