"""A request: what to run, and which SLO it must meet.

Terms of ResQ (NSDI'18) section 5: an SLO promises throughput and latency, and is reserved or on-demand (best effort,
max-min fair). Chains are those of NUMASFP (COMSNETS'22).
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any

from slomo.errors import InvalidValueError, UnknownNameError
from slomo.files.documents import check_version, convert
from slomo.placement.problem.checks import SCHEMA_VERSION, Amounts, check_unique, checked_amounts
from slomo.placement.problem.entries import PlacementEntry
from slomo.placement.problem.whereabouts import (
    HOST,
    Neighbours,
    Pairs,
    Preference,
    Spread,
    Taint,
    pairs,
    plain,
    values_of,
)
from slomo.vocabulary.numbers import share_hint
from slomo.vocabulary.workload import Workload
from slomo.vocabulary.workload_text import parse_workload

AffinityTerm = str | Neighbours


#: Field of a request -> conversion of its given value.
_CONVERSIONS: Mapping[str, Callable[[Any], Any]] = {
    "tolerations": lambda value: (value,) if isinstance(value, str) else tuple(value),
    "affinity": partial(values_of, Neighbours),
    "anti_affinity": partial(values_of, Neighbours),
    "spread": partial(values_of, Spread, short="label"),
    "prefer": partial(values_of, Preference),
    "selector": pairs,
    "labels": pairs,
}
#: Larger numbers of instances of one request are taken for a typing error.
MOST_REPLICAS = 1024


@dataclass(frozen=True, slots=True)
class SLO:
    """The throughput and latency that a request must achieve.

    Attributes
    ----------
    min_mpps : float or None
        Least throughput [Mpps], of all instances together.
    min_share : float or None
        Least throughput of all instances together, as a share of one instance's solo throughput, above 0; instead of
        `min_mpps`. Three instances that each serve 90 % of solo are 2.7.
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
            if value is not None and not (isinstance(value, (int, float)) and math.isfinite(value) and value > 0.0):
                raise InvalidValueError(f"SLO: {name} is {value!r}, needed a number above 0 [{unit}]")
        if self.min_mpps is not None and self.min_share is not None:
            raise InvalidValueError(
                f"SLO: min_mpps is {self.min_mpps} and min_share is {self.min_share}, needed one of them"
            )
        if self.kind not in ("reserved", "on-demand"):
            raise InvalidValueError(f"SLO: kind is {self.kind!r}, needed 'reserved' or 'on-demand'")

    def needed_mpps(self, solo_mpps: float) -> float:
        """Return the promised throughput [Mpps]; 0 if none is promised."""
        if self.min_share is not None:
            return self.min_share * solo_mpps
        return 0.0 if self.min_mpps is None else self.min_mpps

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a mapping that can be written as JSON."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name)) is not None}


@dataclass(frozen=True, slots=True)
class Request:
    """One request: a network function or a chain of them, with an SLO.

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
    affinity, anti_affinity : tuple of str or Neighbours
        Requests that must, or must not, be on the same server: by id, or by their labels, then also in the same domain
        of a label, and as a preference. A request that avoids itself spreads its replicas.
    replicas, min_replicas : int
        Instances it may be split into, at most and at least; equal for exactly so many.
    selector : mapping of str to str
        Labels that a server must carry.
    tolerations : tuple of str
        Taints of servers that it puts up with: ``key``, ``key=value``, ``key:effect`` or ``key=value:effect``.
    spread : tuple of Spread
        Labels over whose values its instances are spread; ``"rack"``: no two on one rack.
    max_per_host : int or None
        Instances on one server, at most.
    resources : mapping of str to float
        What one instance takes of a server's `memory_gib`, `hugepages_gib` and `virtual_functions`.
    labels : mapping of str to str
        By which others name it, and servers keep cores for it.
    prefer : tuple of Preference
        Servers that are taken first.
    max_disrupted : int or None
        Disruption budget: instances that one operation (drain, rebalance, re-optimise, update, pre-empt) may move or
        end, at most; None for any number. Failures ignore it.
    survives : str or None
        Label of which one domain, for instance one rack, may fail and its SLO still holds: instances are on different
        domains, and all but one of them suffice.
    gang : str or None
        Requests of a batch with the same gang are placed all or none.

    Raises
    ------
    InvalidValueError
        For an empty id or chain, a number of replicas outside 1 to 1024, an unknown or negative resource, or
        constraints that contradict each other.

    Examples
    --------
    >>> Request("edge", ("lpm", "stats@1500B,1000f"), SLO(min_mpps=1.0)).label
    'lpm -> stats'
    """

    id: str
    chain: tuple[Workload, ...]
    slo: SLO = field(default_factory=SLO)
    priority: int = 0
    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    replicas: int = 1
    selector: Pairs = ()
    tolerations: tuple[str, ...] = ()
    spread: tuple[Spread, ...] = ()
    max_per_host: int | None = None
    resources: Amounts = ()
    labels: Pairs = ()
    min_replicas: int = 1
    prefer: tuple[Preference, ...] = ()
    max_disrupted: int | None = None
    survives: str | None = None
    gang: str | None = None

    if TYPE_CHECKING:  # what may be given is wider than what is kept

        def __init__(
            self,
            id: str,  # noqa: A002 - the name of the field
            chain: Workload | str | Sequence[Workload | str],
            slo: SLO = ...,
            priority: int = ...,
            affinity: AffinityTerm | Sequence[AffinityTerm | Mapping[str, Any]] = ...,
            anti_affinity: AffinityTerm | Sequence[AffinityTerm | Mapping[str, Any]] = ...,
            replicas: int = ...,
            *,
            selector: Mapping[str, str] | Pairs = ...,
            tolerations: str | Sequence[str] = ...,
            spread: str | Spread | Mapping[str, Any] | Sequence[str | Spread | Mapping[str, Any]] | None = ...,
            max_per_host: int | None = ...,
            resources: Mapping[str, float] | Amounts = ...,
            labels: Mapping[str, str] | Pairs = ...,
            min_replicas: int = ...,
            prefer: Sequence[Preference | Mapping[str, Any]] = ...,
            max_disrupted: int | None = ...,
            survives: str | None = ...,
            gang: str | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.slo, SLO):
            share = f"{self.slo:g}" if isinstance(self.slo, (int, float)) else "0.8"
            raise InvalidValueError(
                f"request '{self.id}': slo is {self.slo!r}, needed an SLO",
                hint=f"write slo=SLO(min_share={share}) for a share of solo throughput, or SLO(min_mpps=...)",
            )
        items: Iterable[Workload | str] = self.chain
        if not isinstance(items, tuple):
            items = items if isinstance(items, Iterable) and not isinstance(items, str) else (items,)
        workloads = tuple([item if isinstance(item, Workload) else parse_workload(item) for item in items])
        object.__setattr__(self, "chain", workloads)
        for name, converted in _CONVERSIONS.items():
            if (value := getattr(self, name)) != ():  # most requests have few of them
                object.__setattr__(self, name, converted(value))
        if self.resources != ():
            object.__setattr__(self, "resources", checked_amounts(f"request '{self.id}'", dict(self.resources)))
        self._check()

    def _check(self) -> None:
        for toleration in self.tolerations:
            Taint.of(toleration)
        if not self.id or not self.chain:
            raise InvalidValueError(
                f"request '{self.id}' of {len(self.chain)} network functions, needed an id and 1 or more"
            )
        if not isinstance(self.id, str):
            raise InvalidValueError(f"request {self.id!r}: its id is no text", hint=f"write '{self.id}'")
        if not self.id.isprintable():  # a control character would act on the terminal that shows it
            raise InvalidValueError(
                f"request {self.id!r}: its id holds what cannot be shown", hint="letters and digits"
            )
        self._check_numbers()
        share = self.slo.min_share
        if share is not None and share >= 2.0 and share > self.replicas:
            raise InvalidValueError(
                f"request '{self.id}': slo.min_share is {share:g}, that is {share:g} times what one instance serves "
                f"alone, with {self.replicas} instances at most",
                hint=share_hint(share, "give it as many replicas"),
            )
        for name in {*filter(is_must, self.affinity)} & {*filter(is_must, self.anti_affinity)}:
            raise InvalidValueError(
                f"request '{self.id}': affinity and anti_affinity both name "
                f"{name if isinstance(name, str) else name.words}",
                hint="near or away, take one of them out",
            )
        if not self.affinity:
            return
        apart = [item.text for item in self.spread if item.weight is None and item.max_skew is None]
        apart += [f"anti_affinity: [{self.id}]"] if self.id in self.anti_affinity else []
        if apart and self.id in self.affinity:
            raise InvalidValueError(f"request '{self.id}': affinity with itself, and {apart[0]}", hint="take one out")

    def _check_numbers(self) -> None:
        for number in ("priority", "replicas", "min_replicas"):
            if not isinstance(getattr(self, number), int):
                raise self._refused(number, "a whole number")
        if not 1 <= self.replicas <= MOST_REPLICAS:
            raise self._refused("replicas", f"1 to {MOST_REPLICAS}")
        if not 1 <= self.min_replicas <= self.replicas:
            hint = f"replicas: {self.min_replicas} as well, for exactly so many"
            raise self._refused("min_replicas", f"1 to its replicas, {self.replicas}", hint)
        for limit, least in (("max_per_host", 1), ("max_disrupted", 0)):
            most = getattr(self, limit)
            if most is not None and not (isinstance(most, int) and most >= least):
                raise self._refused(limit, f"{least} or more")
        if self.survives is not None and self.replicas < 2:
            raise self._refused("survives", "replicas of 2 or more", "replicas: 2, so that either serves all of it")

    def _refused(self, name: str, needed: str, hint: str | None = None) -> InvalidValueError:
        value = getattr(self, name)
        return InvalidValueError(f"request '{self.id}': {name} is {value!r}, needed {needed}", hint=hint)

    @property
    def apart(self) -> tuple[str, ...]:
        """Labels of which each value (for ``host``: each server) may have at most one instance."""
        labels = [item.label for item in self.spread if item.weight is None and item.max_skew is None]
        labels += [HOST] if self.id in self.anti_affinity or self.max_per_host == 1 else []
        return tuple(dict.fromkeys([*labels, *([self.survives] if self.survives else [])]))

    @property
    def most_together(self) -> int:
        """Largest number of instances that one server may have.

        Examples
        --------
        >>> Request("a", "lpm", replicas=4, spread="rack").most_together
        1
        """
        most = 1 if self.apart else min(self.max_per_host or self.replicas, self.replicas)
        skews = [item.max_skew for item in self.spread if item.weight is None and item.max_skew is not None]
        return min([most, *skews])

    def capacity_for(self, needed_mpps: float, count: int) -> float | None:
        """Return the throughput that each of several instances must serve [Mpps]; None if that many do not suffice.

        If one domain may fail, all but one instance must suffice.
        """
        working = count - 1 if self.survives else count
        return needed_mpps / working if working else None

    @property
    def label(self) -> str:
        """Names of the network functions, in the order of the chain."""
        return " -> ".join(workload.nf for workload in self.chain)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping that :meth:`from_dict` reads back."""
        rest: dict[str, Any] = {name: getattr(self, name) for name in ("priority", "replicas")}
        rest |= {name: [plain(item) for item in getattr(self, name)] for name in ("affinity", "anti_affinity")}
        more: dict[str, Any] = {
            name: v for name in ("selector", "resources", "labels") if (v := dict(getattr(self, name)))
        }
        unsaid = ("max_per_host", "max_disrupted", "survives", "gang")
        more |= {name: value for name in unsaid if (value := getattr(self, name)) is not None}
        more |= {"tolerations": list(self.tolerations)} if self.tolerations else {}
        more |= {"min_replicas": self.min_replicas} if self.min_replicas > 1 else {}
        for name in ("spread", "prefer"):
            listed = [plain(item) for item in getattr(self, name)]
            more |= {name: listed[0] if len(listed) == 1 and isinstance(listed[0], str) else listed} if listed else {}
        return {
            "id": self.id,
            "chain": [workload.to_dict() for workload in self.chain],
            "slo": self.slo.to_dict(),
            **rest,
            **more,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Request":
        """Return the object that :meth:`to_dict` described; ``nf`` may replace a chain of one, and a text a workload.

        Raises ConfigurationError, with the field's name, for anything else.
        """
        try:
            fields = dict(data)
            chain = fields.pop("chain", None) or [fields.pop("nf")]
            items = tuple([item if isinstance(item, str | Workload) else Workload.from_dict(item) for item in chain])
            fields["slo"] = SLO(**fields.get("slo", {}))
            return cls(chain=items, **fields)
        except (KeyError, TypeError, AttributeError):
            convert(data, PlacementEntry, "request")  # says which field is wrong
            raise


def is_must(term: AffinityTerm) -> bool:
    """Return whether an affinity must be met, not only preferred."""
    return isinstance(term, str) or term.weight is None


def requests_to_dict(requests: Iterable[Request]) -> dict[str, Any]:
    """Return requests as one JSON-ready document."""
    return {"schema_version": SCHEMA_VERSION, "requests": [request.to_dict() for request in requests]}


def requests_from_dict(data: Mapping[str, Any]) -> tuple[Request, ...]:
    """Return the requests in a document; an entry with ``count`` gives that many, with numbered ids.

    Raises InvalidValueError for two requests of one id, and for rates over time, which only chains have.
    """
    check_version("requests", data.get("schema_version", SCHEMA_VERSION), SCHEMA_VERSION)
    made: list[Request] = []
    for entry in data["requests"]:
        if "gbps" in entry:
            raise InvalidValueError(
                f"request '{entry['id']}' has gbps, rates over time: only policies for chains on NUMA nodes read them",
                hint="choose --policy numasfp, or promise slo: {min_mpps: ...} instead",
            )
        made += map(Request.from_dict, numbered(entry))
    return unique_requests(made)


def numbered(entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return an entry as many times as its ``count`` says, with numbered ids; without a count, return it unchanged."""
    if "count" not in entry:
        return [entry]
    fields = {key: value for key, value in entry.items() if key != "count"}
    return [{**fields, "id": f"{entry['id']}-{number}"} for number in range(1, entry["count"] + 1)]


def unique_requests(requests: Iterable[Request]) -> tuple[Request, ...]:
    """Return requests as a tuple. Raises InvalidValueError if two requests have the same id."""
    distinct_requests = tuple(requests)
    for request in distinct_requests:
        check_request(request)
    check_unique("request", (request.id for request in distinct_requests))
    return distinct_requests


def check_request(request: object) -> None:
    """Raise InvalidValueError, with how to write a request, if a value is no request."""
    if not isinstance(request, Request):
        raise InvalidValueError(
            f"{request!r} is no request", hint="write for instance Request('edge', ['lpm'], SLO(min_share=0.9))"
        )


def require_placed(name: str, placed: Collection[str]) -> None:
    """Raise UnknownNameError, with the nearest id, if a request is not placed."""
    if name not in placed:
        raise UnknownNameError("placed request", name, list(placed)[:50])
