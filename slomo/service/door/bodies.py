"""Types of the bodies of requests and answers, checked when they are decoded.

Names and units are those of the library's documents; unknown fields are refused, so that typing errors are noticed.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict

from slomo.files.ranges import PositiveRate, Seconds
from slomo.placement.problem.entries import HostEntry, PlacementEntry
from slomo.vocabulary.defaults import DEFAULT_METHOD, DEFAULT_MODEL, AnswerOptions, Compat, Method
from slomo.vocabulary.server_setting import ServerSetting

Name = Annotated[str, Meta(min_length=1, max_length=300)]
Identifier = Annotated[str, Meta(min_length=1, max_length=200)]
Coverage = Annotated[float, Meta(gt=0.0, lt=1.0)]
Positive = Annotated[float, Meta(gt=0.0)]
Document = dict[str, Any]


class SettingBody(Struct, forbid_unknown_fields=True):
    """Settings of a server (ways, throttles, ...): one value per network function, in the functions' order."""

    ways: Annotated[list[Annotated[int, Meta(ge=1)]], Meta(max_length=1024)] | None = None
    bandwidth_percent: Annotated[list[Annotated[float, Meta(gt=0.0, le=100.0)]], Meta(max_length=1024)] | None = None
    cores: Annotated[list[int | None], Meta(max_length=1024)] | None = None
    weights: Annotated[list[Positive], Meta(max_length=1024)] | None = None
    nodes: Annotated[list[Annotated[int, Meta(ge=0, le=63)]], Meta(max_length=1024)] | None = None
    sockets: Annotated[list[Annotated[int, Meta(ge=0, le=63)]], Meta(max_length=1024)] | None = None
    port_gbps: PositiveRate | None = None

    @property
    def asked(self) -> ServerSetting:
        """Return these settings as the library's type."""
        return ServerSetting(**asdict(self))


class AnswerBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """How to predict: the fields of `slomo.prediction.options.PredictionOptions`."""

    model: Name = DEFAULT_MODEL
    method: Method = DEFAULT_METHOD
    compat: Compat | None = None
    coverage: Coverage = 0.9
    window_s: Seconds | None = None

    @property
    def how(self) -> AnswerOptions:
        """Return these options as the library's keyword arguments."""
        return AnswerOptions(
            method=self.method, model=self.model, compat=self.compat, coverage=self.coverage, window_s=self.window_s
        )


class QuestionBody(AnswerBody, forbid_unknown_fields=True):
    """A target and its competitors; `setting` has values for the target, the NFs on its core, then the competitors."""

    target: Name
    competitors: Annotated[list[Name], Meta(max_length=1024)] = []
    shares_core_with: Annotated[list[Name], Meta(max_length=64)] = []
    port_gbps: PositiveRate | None = None
    setting: SettingBody | None = None
    machine: Name | None = None
    offered_mpps: PositiveRate | None = None
    explain: bool = False
    strict: bool = False


class Questions(AnswerBody, forbid_unknown_fields=True):
    """Many mixes to predict in one request; the answer has one column per field."""

    targets: list[str]
    mixes: list[Annotated[list[str], Meta(max_length=1024)]]
    machine: Name | None = None


class WhatIf(AnswerBody, forbid_unknown_fields=True):
    """Network functions of one server; the answer states how much throughput each costs each of the others."""

    tenants: Annotated[list[Name], Meta(min_length=1, max_length=256)]
    machine: Name | None = None
    setting: SettingBody | None = None


class PlacementRequest(PlacementEntry, forbid_unknown_fields=True, omit_defaults=True):
    """A network function or chain with an SLO and constraints, in the format of request files; machines by name."""

    nf: Name | None = None
    chain: Annotated[list[Name], Meta(max_length=32)] = []  # type: ignore[assignment]  # noqa: RUF012 - a Struct copies it


class Placement(Struct, forbid_unknown_fields=True):
    """Requests to place; with `what_if` the service returns the decisions without placing anything."""

    requests: Annotated[list[PlacementRequest], Meta(min_length=1, max_length=20_000)]
    what_if: bool = False


class ServerBody(HostEntry, forbid_unknown_fields=True, omit_defaults=True):
    """One server in the format of cluster files; `machine` is the name of a machine type, never a file."""

    machine: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class ServersBody(Struct, forbid_unknown_fields=True):
    """Servers to add."""

    servers: Annotated[list[ServerBody], Meta(min_length=1, max_length=20_000)]


class Rebalance(Struct, forbid_unknown_fields=True):
    """Largest number of moves that a rebalancing of the cluster may make."""

    max_moves: Annotated[int, Meta(ge=0, le=100_000)] = 100


class ClusterChangeBody(Struct, forbid_unknown_fields=True):
    """A change of one server, of a request (update, preempt), or of all servers with a label's value (fail_domain)."""

    action: Literal["cordon", "uncordon", "drain", "fail", "taint", "fail_domain", "update", "preempt"]
    server: Identifier | None = None
    taints: Annotated[list[Identifier], Meta(max_length=64)] = []
    label: Identifier | None = None
    value: Identifier | None = None
    request: PlacementRequest | None = None
    max_moves: Annotated[int, Meta(ge=0, le=100_000)] | None = None
    surge: bool = True
    what_if: bool = False


class Observation(Struct, forbid_unknown_fields=True):
    """One measurement: the throughput of a placed network function while its neighbours ran."""

    target: Name
    throughput_mpps: Annotated[float, Meta(ge=0.0)]
    competitors: Annotated[list[Name], Meta(max_length=1024)] = []
    machine: Name | None = None
    machine_fingerprint: Identifier | None = None
    server: Identifier | None = None
    counters: dict[str, Annotated[float, Meta(ge=0.0)]] | None = None
    counters_beside: dict[str, Annotated[float, Meta(ge=0.0)]] | None = None


class Observations(Struct, forbid_unknown_fields=True):
    """Measured throughputs, oldest first."""

    observations: Annotated[list[Observation], Meta(min_length=1, max_length=10_000)]


class PredictionAnswer(Struct):
    """A prediction with the library's fields, and a fingerprint of the models that made it."""

    schema_version: int
    target: str
    competitors: list[str]
    machine: str
    model: str
    solo_mpps: float | None
    throughput_mpps: float
    slowdown: float | None
    interval: list[float]
    coverage: float
    verdict: str
    reasons: list[str]
    fingerprint: str
    workloads: list[Document] = []
    mean_interval: list[float] | None = None
    noise: Any = None
    evidence: Any = None
    carrier: Any = None
    explanation: Any = None
    composition: Any = None
    latency: Any = None
    unit: Literal["Mpps", "share"] = "Mpps"
    correction: float | None = None


class PredictionColumns(Struct):
    """Predictions of many mixes; row i of every column is mix i, null if it cannot be predicted."""

    machine: str
    model: str
    coverage: float
    solo_mpps: list[float | None]
    throughput_mpps: list[float | None]
    low_mpps: list[float | None]
    high_mpps: list[float | None]
    slowdown: list[float | None]
    unit: list[Literal["Mpps", "share"]]
    verdict: list[str]
    reasons: list[list[str]]
    fingerprint: str


class ProblemDocument(Struct):
    """An error document of RFC 9457, with a hint."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    hint: str = ""


Text = Annotated[str, Meta(max_length=500)]


class TenantReport(Struct, forbid_unknown_fields=True):
    """An agent's report about one pod: its counters, or the reason why there are none."""

    tenant: Identifier
    nf: Name
    counters: dict[str, Annotated[float, Meta(ge=0.0)]] | None = None
    reason: Text = ""
    source: Annotated[str, Meta(max_length=100)] = ""
    throughput_mpps: Annotated[float, Meta(ge=0.0)] | None = None


class EnforcementReport(Struct, forbid_unknown_fields=True):
    """Settings of the node's plan that an agent has made, and settings that were refused."""

    backend: Annotated[str, Meta(max_length=100)]
    receipt: Annotated[str, Meta(max_length=200)] = ""
    changes: Annotated[list[Text], Meta(max_length=100)] = []
    refusals: Annotated[list[Text], Meta(max_length=100)] = []


class AgentReport(Struct, forbid_unknown_fields=True):
    """An agent's report about its node at one time."""

    tenants: Annotated[list[TenantReport], Meta(max_length=1024)]
    enforcement: EnforcementReport | None = None


class NodePlan(Struct, forbid_unknown_fields=True):
    """A plan for a node's pods in the format of `slomo enforce`, with `pod` (namespace/name) instead of processes."""

    plan: dict[str, Any]
