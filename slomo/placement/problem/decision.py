"""A decision about a request: where it is placed and why, or the first SLO that it would have broken.

ResQ (NSDI'18) section 5.2: admission returns a schedule (server, cores, cache ways, buffers) or refuses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from slomo.files.documents import convert
from slomo.files.ranges import Index, Name, PositiveCount, Rate, Share, WayMask
from slomo.files.stored import Stored
from slomo.placement.problem.checks import RESOURCES
from slomo.vocabulary.display import Result, html_table

SCHEMA_VERSION = 1
#: A promise that many times what is possible is taken for another unit.
_UNLIKELY = 1e3


@dataclass(frozen=True)
class Assignment(Stored):
    """Where one network function runs: server, socket, core, cache ways."""

    #: Its place; the core counts from 0 within the socket.
    server: Name
    socket: Index
    core: Index
    #: Workload key.
    workload: Name
    #: Throughput that this instance must serve [Mpps]; 0 without a promise.
    needed_mpps: Rate = 0.0
    #: Predicted throughput and its interval [Mpps]; None under policies without predictions.
    predicted_mpps: Rate | None = None
    low_mpps: Rate | None = None
    high_mpps: Rate | None = None
    #: Cache ways it may fill (Intel CAT); None means all.
    llc_way_mask: WayMask | None = None
    #: Packet buffers it may have, so that all on the socket fit into the DDIO ways (ResQ section 4.3).
    buffers: PositiveCount | None = None
    #: NUMA node of its memory; None means its socket's.
    memory_node: Index | None = None
    #: Hyper-thread of the core, 0 or 1.
    thread: Annotated[int, Meta(ge=0, le=1)] = 0
    #: Memory bandwidth throttle (Intel MBA) [%]; None means none.
    memory_bandwidth_percent: Annotated[int, Meta(ge=1, le=100)] | None = None
    #: Fingerprint of the server that the decision is for (`Machine.fingerprint`); empty in older decisions.
    machine_fingerprint: str = ""

    @property
    def seat(self) -> str:
        """The core as text, with the hyper-thread if it is the second one.

        >>> Assignment("s1", 0, 3, "lpm").seat, Assignment("s1", 0, 3, "lpm", thread=1).seat
        ('3', '3.1')
        """
        return f"{self.core}.{self.thread}" if self.thread else str(self.core)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping without the first hyper-thread and unknown fields."""
        unsaid = ("thread", "memory_bandwidth_percent", "machine_fingerprint")
        return {name: value for name, value in super().to_dict().items() if name not in unsaid or value}


@dataclass(frozen=True)
class Refusal:
    """Reason for a refusal: the first SLO that would have been broken."""

    #: Request whose SLO breaks: the one asked about, or one placed before.
    request: str
    #: Which of its network functions.
    workload: str
    #: Server type that was tried.
    machine: str
    #: The limit; ``"servers"`` if none is open. A resource: ``"throughput"``, ``"latency"``, ``"cores"``, ``"ways"``. A
    #: constraint's field:
    #: ``"affinity"``, ``"anti_affinity"``, ``"selector"``, ``"taints"``, ``"spread"``, ``"survives"``,
    #: ``"max_per_host"``, ``"min_replicas"``, ``"gang"``. An amount such as ``"memory_gib"``. Missing knowledge:
    #: ``"model"``, ``"profile over cache ways"``, ``"held-out errors"`` (too few for the confidence).
    what: str
    #: Needed throughput [Mpps] (or cores, ways: see `what`), and the best available.
    needed: float | None = None
    possible: float | None = None
    #: Server with the smallest shortfall; empty if that makes no difference.
    server: str = ""
    #: The constraint in words, with its label; empty for other limits.
    constraint: str = ""
    #: State of that server that violates the constraint.
    here: str = ""
    #: What would have to give.
    gives: str = ""

    @property
    def text(self) -> str:
        """One line that describes the reason, for display.

        >>> Refusal("edge", "lpm", "e5-2620v4", "throughput", 6.0, 5.4, "rack-3").text
        "throughput of 'edge' (lpm) on rack-3 (e5-2620v4): needed 6, at best 5.4 Mpps, 10 % short"
        """
        if self.constraint:
            nearest = f"; nearest is {self.server} ({self.machine}): {self.here}" if self.server else ""
            gives = f"; would have to give: {self.gives}" if self.gives else ""
            return f"{self.constraint} of '{self.request}' ({self.workload}){nearest}{gives}"
        if self.what == "servers":
            return f"no server is open for '{self.request}' ({self.workload})"
        units = {"throughput": " Mpps", "latency": " us"} | {
            name: f" {unit}" for name, unit in RESOURCES.items() if unit
        }
        where = f"{self.server} ({self.machine})" if self.server else self.machine
        missing = "no " if self.what.startswith(("model", "profile")) else ""
        subject = f"{missing}{self.what} of '{self.request}' ({self.workload}) on {where}"
        numbers = "" if self.needed is None else f": needed {self.needed:.4g}"
        best = "" if self.possible is None else f", at best {self.possible:.4g}"
        short = ""
        if self.what == "throughput" and self.needed and self.possible is not None and self.possible < self.needed:
            lacking = 100.0 * (1.0 - self.possible / self.needed)
            short = f", {lacking:.0f} % short" if lacking >= 10.0 else f", {lacking:.2g} % short"
            if self.needed > _UNLIKELY * self.possible:
                short += f"; is that pps? {self.needed:.4g} pps are {self.needed / 1e6:g} Mpps"
        if self.what == "held-out errors":
            short = f"; run slomo profile '{self.workload}' --machine {self.machine} with more --runs, --mixes; train"
        if self.what.startswith("model"):
            short = f"; run slomo profile '{self.workload}' --machine {self.machine}, then slomo train"
        if self.what.startswith("profile"):
            measure = f"slomo profile '{self.workload}' --machine {self.machine} --plan ways --out ways.json"
            short = f"; run {measure}, then give --profiles ways.json"
        return f"{subject}{numbers}{best}{units.get(self.what, '') if numbers else ''}{short}"


@dataclass(frozen=True)
class AtRisk:
    """A promise to one network function that the models do not confirm, at the required confidence."""

    #: Request whose promise it is, its network function, and that one's place.
    request: str
    workload: str
    server: str
    socket: int
    #: Core of the socket, as a snapshot counts: second hyper-threads come after all first ones.
    core: int
    #: ``"throughput"``, ``"cores"`` or ``"ways"``.
    what: str
    #: The promised throughput, and its predicted lower bound [Mpps].
    needed: float
    possible: float
    #: Whether the promise is predicted to break, or cannot be judged for want of known prediction errors; why.
    state: Literal["broken", "unjudged"]
    why: str


@dataclass(frozen=True)
class Decision(Result, Stored, version=SCHEMA_VERSION):
    """Decision about one request: its assignments, or the reasons for refusing it.

    Examples
    --------
    >>> made = Decision("edge", True, "predicted", "slomo-xgb", (Assignment("s1", 0, 3, "lpm"),), ("fits",))
    >>> Decision.from_dict(made.to_dict()) == made
    True
    """

    #: Its id.
    request: Name
    #: Whether it is placed.
    accepted: bool
    #: Policy that decided, and its sensitivity model (empty: none).
    policy: str
    model: str = ""
    #: One per instance and network function.
    assignments: tuple[Assignment, ...] = ()
    #: Why there, in words.
    reasons: tuple[str, ...] = ()
    #: What would have broken.
    refused: Refusal | None = None
    #: Probability with which all SLOs of its sockets hold; None under policies that predict nothing.
    confidence: Share | None = None

    @property
    def servers(self) -> tuple[str, ...]:
        """Servers on which the request runs."""
        return tuple(dict.fromkeys(item.server for item in self.assignments))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Decision":
        """Return the object that :meth:`to_dict` described. Raises ConfigurationError if it is invalid."""
        return convert(data, cls, "decision")

    def columns(self) -> dict[str, Sequence[Any]]:
        """Return one entry per assignment; for a refusal, the required throughput and the best available one."""
        placed = [
            (True, a.workload, a.server, a.socket, a.seat, a.needed_mpps, a.predicted_mpps, a.low_mpps, a.high_mpps)
            for a in self.assignments
        ]
        no = self.refused
        short = [] if no is None or no.what != "throughput" else [
            (False, no.workload, no.server, None, None, no.needed, no.possible, None, None)
        ]  # fmt: skip
        names = ("accepted", "workload", "server", "socket", "core", "needed_mpps", "throughput_mpps", "low_mpps")
        listed = [*placed, *short]
        return {name: [row[i] for row in listed] for i, name in enumerate((*names, "high_mpps"))}

    def row_labels(self) -> list[str]:
        """Return workload and server of each placed instance, as labels of table rows."""
        columns = self.columns()
        return [
            f"{w} on {s}" if s else f"{w}: refused" for w, s in zip(columns["workload"], columns["server"], strict=True)
        ]

    def _repr_html_(self) -> str:
        rows = (
            (
                item.workload,
                item.server,
                item.socket,
                item.seat,
                f"{item.needed_mpps:.3f}",
                "–" if item.predicted_mpps is None else f"{item.predicted_mpps:.3f}",
            )
            for item in self.assignments
        )
        verdict = "placed" if self.accepted else f"refused: {self.refused.text if self.refused else ''}"
        head = ("workload", "server", "socket", "core", "needed [Mpps]", "predicted [Mpps]")
        return html_table(f"{self.request}: {verdict} ({self.policy})", head, rows)
