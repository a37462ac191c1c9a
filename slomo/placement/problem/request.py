"""What is asked to run, and what it must achieve.

The terms are those of ResQ (NSDI'18) section 5: an SLO promises throughput and latency, and is reserved or on-demand
(served best-effort, max-min fair); chains are those of NUMASFP (COMSNETS'22).
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from slomo.errors import InvalidValueError, UnknownNameError
from slomo.placement.problem.checks import SCHEMA_VERSION, Amounts, check_unique, check_version, checked_amounts
from slomo.vocabulary.workload import Workload
from slomo.vocabulary.workload_text import parse_workload

Pairs = tuple[tuple[str, str], ...]


class Whereabouts(TypedDict, total=False):
    """What a request may say about where it runs, by name."""

    selector: Mapping[str, str] | Pairs
    tolerations: str | Sequence[str]
    spread: str | None
    max_per_host: int | None
    resources: Mapping[str, float] | Amounts


#: More instances of one request than this is taken for a slip of the pen.
MOST_REPLICAS = 1024


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
        Network functions packets pass in this order; one for a plain NF. Each takes a core of the same socket. Given
        as workloads or as text, one or several.
    slo : SLO
        Applies to the whole chain.
    priority : int
        Higher ones are placed first.
    affinity, anti_affinity : tuple of str
        Requests that must, or must not, be on the same server. A request that avoids itself spreads its replicas.
    replicas : int
        Instances it may be split into, at most.
    selector : mapping of str to str
        Labels that a server must carry.
    tolerations : tuple of str
        Taints of servers that it puts up with.
    spread : str or None
        Label over whose values its instances are spread, for instance ``"rack"``: no two on one value.
    max_per_host : int or None
        Instances on one server, at most.
    resources : mapping of str to float
        What one instance takes of a server's `memory_gib`, `hugepages_gib` and `virtual_functions`.

    Raises
    ------
    InvalidValueError
        For an empty id or chain, a number of replicas outside 1 to 1024, or an unknown or negative resource.

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
    selector: Pairs = ()
    tolerations: tuple[str, ...] = ()
    spread: str | None = None
    max_per_host: int | None = None
    resources: Amounts = ()

    if TYPE_CHECKING:  # what may be given is wider than what is kept

        def __init__(
            self,
            id: str,  # noqa: A002 - the name of the field
            chain: Workload | str | Sequence[Workload | str],
            slo: SLO = ...,
            priority: int = ...,
            affinity: str | Sequence[str] = ...,
            anti_affinity: str | Sequence[str] = ...,
            replicas: int = ...,
            **where: Unpack[Whereabouts],
        ) -> None: ...

    def __post_init__(self) -> None:
        items = (self.chain,) if isinstance(self.chain, (str, Workload)) else tuple(self.chain)
        object.__setattr__(
            self, "chain", tuple(parse_workload(item) if isinstance(item, str) else item for item in items)
        )
        for name in ("affinity", "anti_affinity", "tolerations"):
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
        object.__setattr__(self, "selector", tuple(sorted(dict(self.selector).items())))
        object.__setattr__(self, "resources", checked_amounts(f"request '{self.id}'", dict(self.resources)))
        if self.max_per_host is not None and self.max_per_host < 1:
            raise InvalidValueError(f"request '{self.id}': max_per_host is {self.max_per_host}, needed 1 or more")
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
        more: dict[str, Any] = {name: v for name in ("selector", "resources") if (v := dict(getattr(self, name)))}
        more |= {name: value for name in ("spread", "max_per_host") if (value := getattr(self, name)) is not None}
        more |= {"tolerations": list(self.tolerations)} if self.tolerations else {}
        return {
            "id": self.id,
            "chain": [workload.to_dict() for workload in self.chain],
            "slo": self.slo.to_dict(),
            **rest,
            **more,
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
    distinct_requests = tuple(requests)
    check_unique("request", (request.id for request in distinct_requests))
    return distinct_requests


def find_request(what: str, name: str, request_ids: Collection[str]) -> None:
    """Refuse an id nobody has.

    Raises
    ------
    UnknownNameError
        With the nearest id.
    """
    if name in request_ids:
        return
    raise UnknownNameError(what, name, list(request_ids)[:50])
