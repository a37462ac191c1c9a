"""Predict a server under a setting, and find the smallest change that keeps all SLOs.

`slomo.prediction.question` makes the predictions. Profiles over partitions are measured once and stored with the
models, together with the prediction errors on partitions that were not profiled.
"""

import itertools
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Unpack

import numpy as np
from msgspec import Meta, Struct

from slomo.control.advice import advise
from slomo.control.situation import Outlook, Setting, Situation, explain, foresee
from slomo.equilibrium.partition import Part, solve_partition
from slomo.errors import InvalidValueError, UnsupportedPredictionError
from slomo.files.documents import read
from slomo.files.durable import write_durably
from slomo.files.ranges import Count, Name
from slomo.files.stored import stored
from slomo.models.applicability import applicability
from slomo.models.contentiousness import constant_profile
from slomo.models.library import ModelLibrary
from slomo.models.nf_model import NFModel
from slomo.models.responses.partition import AllocationModel, MemoryTraffic, PartitionResponse, memory_of
from slomo.prediction.allocated import allocation_models
from slomo.prediction.options import OptionFields, PredictionOptions
from slomo.prediction.ports import behind_ports
from slomo.prediction.question import answers_on
from slomo.prediction.server_result import ServerPrediction
from slomo.prediction.tenants import TenantModels, server_of
from slomo.testbed.base import Testbed
from slomo.vocabulary.colocation import Colocation, Isolation
from slomo.vocabulary.display import Result, html_table
from slomo.vocabulary.identity import require_same
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.server_setting import ServerSetting
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Workload
from slomo.vocabulary.workload_text import parse_workload
from slomo.workflow.acting.partition_profile import PartitionProfile, profile_partitions
from slomo.workflow.names import named

SCHEMA_VERSION: Literal[3] = 3
#: Random partitions run to calibrate intervals, with exclusive and with shared ways; none is among the profiled ones.
CALIBRATION_RUNS = 24
#: Share of way-sharing tenants left unthrottled in calibration runs.
UNTHROTTLED = 0.6
#: Advice picks the setting that just suffices and so favours over-optimistic predictions (winner's curse); its margin
#: is therefore this quantile of the error.
ADVICE_COVERAGE = 0.98


@dataclass(frozen=True)
class PartitionKnowledge:
    """Profiles over partitions of one machine, and the prediction errors from which intervals are made.

    Attributes
    ----------
    profile : PartitionProfile
        Responses and memory.
    errors : tuple of float
        Predicted over measured less 1, on partitions that were not profiled, of tenants with ways of their own.
    shared_errors : tuple of float
        The same of tenants that share ways.
    """

    profile: PartitionProfile
    errors: tuple[float, ...]
    shared_errors: tuple[float, ...]

    def models(self, machine: Machine) -> dict[str, AllocationModel]:
        """Return the learned response of each workload, by its key.

        Raises UnsupportedPredictionError or ConfigurationError if it was measured on another machine, even one of the
        same name.
        """
        require_same(machine.name, self.profile.fingerprint, machine.fingerprint, "the one asked about")
        if self.profile.machine != machine.name:
            raise UnsupportedPredictionError(
                f"partitions of '{self.profile.machine}' were profiled, asked about '{machine.name}'",
                hint="profile them there: slomo whatif",
            )
        memory = replace(self.profile.memory, most_gb_s=machine.capacities().memory_gb_s)
        remote_ns = machine.dram_remote_ns - machine.dram_local_ns
        shared = memory, machine.llc_ways, remote_ns, self.errors, self.shared_errors
        return {key: AllocationModel(response, *shared) for key, response in self.profile.responses.items()}

    def added_to(self, library: ModelLibrary, machine: Machine) -> ModelLibrary:
        """Return a library whose models include these responses; workloads without a model get one with only this.

        Raises UnsupportedPredictionError as :meth:`models`.
        """
        library.require_measured_on(machine)
        learned = []
        for key, allocation in self.models(machine).items():
            model = library.get((machine.name, key)) or _unpressed(machine, key, allocation.response.solo_mpps)
            learned.append(replace(model, allocation=allocation))
        return library.merge(ModelLibrary(learned))

    def save(self, path: str | Path) -> None:
        """Write the profiles as JSON."""
        profile = self.profile
        document = _KnowledgeFile(
            profile.machine,
            profile.runs,
            profile.memory,
            tuple(profile.responses.values()),
            self.errors,
            self.shared_errors,
            profile.fingerprint,
        )
        held = {name: stored(getattr(document, name)) for name in _KnowledgeFile.__struct_fields__}
        write_durably(path, json.dumps(held, indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> "PartitionKnowledge":
        """Read a stored profile. Raises ConfigurationError if it is invalid."""
        held = read(path, _KnowledgeFile, hint="make one: slomo whatif NF... --profile FILE")
        responses = {response.workload: response for response in held.responses}
        profile = PartitionProfile(held.machine, responses, held.memory, held.runs, held.machine_fingerprint)
        return cls(profile, held.errors, held.shared_errors)


class _KnowledgeFile(Struct, forbid_unknown_fields=True):
    """The file of profiles over partitions."""

    machine: Name
    runs: Count
    memory: MemoryTraffic
    responses: Annotated[tuple[PartitionResponse, ...], Meta(min_length=1)]
    errors: Annotated[tuple[float, ...], Meta(min_length=1)]
    shared_errors: Annotated[tuple[float, ...], Meta(min_length=1)]
    machine_fingerprint: str = ""
    schema_version: Literal[3] = SCHEMA_VERSION

    def __post_init__(self) -> None:
        if not 1 <= len(self.memory.latency_ns) == len(self.memory.traffic_gb_s):
            raise ValueError("Expected as many latencies as traffic values, one or more")  # msgspec adds where


def learn_partitions(
    testbed: Testbed, machine: Machine, workloads: Sequence[Workload], *, seed: int = 0
) -> PartitionKnowledge:
    """Profile workloads over partitions of a machine, and calibrate intervals on random partitions of random mixes.

    Raises
    ------
    SlomoError
        What the testbed raises.
    """
    profile = profile_partitions(testbed, machine, workloads, seed=seed)
    draw = random.Random(f"calibration {seed}")  # noqa: S311 - no secret
    different = list(dict.fromkeys(workloads))
    apart = [random_partition(machine, different, draw) for _ in range(CALIBRATION_RUNS)]
    crowded = [random_crowd(machine, different, draw) for _ in range(CALIBRATION_RUNS)]
    errors: dict[bool, list[float]] = {False: [], True: []}
    for number, colocation in enumerate(apart + crowded):
        record = testbed.run(colocation, seed=10_000 + seed + number)
        assert record.beside is not None
        masks = [isolation.llc_way_mask for isolation in colocation.isolation or ()]
        predicted = predict_partition(profile, colocation)
        for mask, guess, tenant in zip(masks, predicted, record.beside.tenants, strict=True):
            errors[masks.count(mask) > 1].append(guess / tenant.throughput_mpps - 1.0)
    return PartitionKnowledge(profile, tuple(errors[False]), tuple(errors[True]))


def random_partition(machine: Machine, workloads: Sequence[Workload], draw: random.Random) -> Colocation:
    """Return a random mix in which each tenant has exclusive ways and half are throttled."""
    count = draw.randint(2, min(6, machine.cores_per_socket))
    mix = [draw.choice(workloads) for _ in range(count)]
    cuts = [0, *sorted(draw.sample(range(1, machine.llc_ways), count - 1)), machine.llc_ways]
    isolation = tuple(
        Isolation(((1 << (end - start)) - 1) << start, draw.choice([None, 10 * draw.randint(1, 9)]))
        for start, end in itertools.pairwise(cuts)
    )
    return Colocation(machine.name, mix[0], tuple(mix[1:]), isolation)


def random_crowd(machine: Machine, workloads: Sequence[Workload], draw: random.Random) -> Colocation:
    """Return a random mix divided as advice does: up to two tenants with exclusive ways, the rest share."""
    most = min(7, machine.cores_per_socket)
    count = draw.randint(min(3, most), most)
    mix = [draw.choice(workloads) for _ in range(count)]
    own = min(draw.choice([0, 0, 1, 1, 2]), count - 2)
    cuts = [0, *sorted(draw.sample(range(1, machine.llc_ways), own))]
    masks = [((1 << (end - start)) - 1) << start for start, end in itertools.pairwise(cuts)]
    rest = ((1 << (machine.llc_ways - cuts[-1])) - 1) << cuts[-1]
    throttles = [None if draw.random() < UNTHROTTLED else 10 * draw.randint(1, 9) for _ in range(count - own)]
    isolation = [Isolation(mask) for mask in masks] + [Isolation(rest, percent) for percent in throttles]
    return Colocation(machine.name, mix[0], tuple(mix[1:]), tuple(isolation))


def predict_partition(profile: PartitionProfile, colocation: Colocation) -> tuple[float, ...]:
    """Return the predicted throughput of every tenant of a partitioned co-location [Mpps]."""
    full = max(i.llc_way_mask or 1 for i in colocation.isolation or (Isolation(),))
    parts = [
        Part(
            profile.responses[workload.key],
            isolation.llc_way_mask or full,
            float(isolation.memory_bandwidth_percent or 100),
            workload.traffic.offered_mpps,
        )
        for workload, isolation in zip(colocation.tenants, colocation.isolation or (), strict=True)
    ]
    return solve_partition(parts, profile.memory).throughput_mpps


def _unpressed(machine: Machine, key: str, solo_mpps: float) -> NFModel:
    """Return a model that knows only a workload's solo throughput."""
    vector = MetricVector({}, scope=Scope.CORE)
    return NFModel(
        workload=parse_workload(key),
        machine=machine.name,
        capacities=machine.capacities(),
        solo_mpps=solo_mpps,
        solo_vector=vector,
        sensitivity={},
        contentiousness=constant_profile(vector),
        calibration={},
        applicability=applicability((), np.zeros((1, 0))),
        manifest={"machine_fingerprint": machine.fingerprint},
    )


@dataclass(frozen=True)
class PartitionAnswer(Result):
    """Predicted throughput of every tenant under a setting, and an advised setting."""

    #: Every tenant as asked about.
    predicted: ServerPrediction
    #: Index of a tenant -> throughput that it was promised.
    promised_mpps: Mapping[int, float]
    #: The same server over ways, throttles and weights; None if a tenant was not profiled over them.
    situation: Situation | None = None
    #: Whether promises hold, and the ways that each tenant holds.
    outlook: Outlook | None = None
    #: The smallest change that keeps all SLOs; None if not asked for or not found.
    advice: Outlook | None = None
    #: Every tenant after it.
    advised: ServerPrediction | None = None

    @property
    def kept(self) -> bool:
        """Whether every promise is predicted to be kept."""
        return self.outlook.kept if self.outlook is not None else all(map(self._kept, self.promised_mpps))

    def _kept(self, place: int) -> bool:
        tenant = self.predicted.tenants[place]
        return tenant.throughput_mpps >= min(self.promised_mpps[place], tenant.solo_mpps)

    def rows(self, *, advised: bool = False) -> list[dict[str, Any]]:
        """Return one mapping per tenant, for the setting asked about or the advised one."""
        server, outlook = (self.advised, self.advice) if advised else (self.predicted, self.outlook)
        if server is None:
            return []
        table = []
        for place, tenant in enumerate(server.tenants):
            row: dict[str, Any] = {
                "tenant": f"{place}:{tenant.workload.nf}",
                "throughput_mpps": tenant.throughput_mpps,
                "low_mpps": tenant.interval[0],
                "high_mpps": tenant.interval[1],
                "solo_mpps": tenant.solo_mpps,
                "slo_mpps": self.promised_mpps.get(place),
                "verdict": str(tenant.verdict),
                "reasons": list(tenant.reasons),
            }
            if self.situation is not None and outlook is not None:
                row |= _over_partition(self.situation, outlook, row["tenant"])
            else:
                row["kept"] = place not in self.promised_mpps or self._kept(place)
            table.append(row)
        return table

    def columns(self) -> dict[str, Sequence[Any]]:
        """Return one entry per tenant for the setting asked about, then one per tenant for the advised setting."""
        rows = [{"advised": advised, **row} for advised in (False, True) for row in self.rows(advised=advised)]
        return {name: [row.get(name) for row in rows] for name in (rows[0] if rows else ())}

    def row_labels(self) -> list[str]:
        """Return the tenants' names, and whether the row is of the advised setting."""
        pairs = zip(self.columns()["tenant"], self.columns()["advised"], strict=True)
        return [f"{tenant}, advised" if advised else str(tenant) for tenant, advised in pairs]

    def _repr_html_(self) -> str:
        columns = self.columns()
        names = ("tenant", "advised", "solo_mpps", "throughput_mpps", "low_mpps", "high_mpps", "slo_mpps", "kept")
        rows = zip(*([_short(value) for value in columns[name]] for name in names), strict=True)
        return html_table(f"{'all promises hold' if self.kept else 'a promise breaks'}", names, rows)


def _short(value: object) -> object:
    return f"{value:.3g}" if isinstance(value, float) else "–" if value is None else value


def _over_partition(situation: Situation, outlook: Outlook, name: str) -> dict[str, Any]:
    setting, index = outlook.settings[name], list(situation.responses).index(name)
    cause, losses, lever = explain(situation, outlook, name)
    return {
        "ways": f"{setting.mask:#x}",
        "holds_ways": round(outlook.parted.ways[index], 2),
        "bandwidth_percent": setting.bandwidth_percent,
        "core_share": outlook.parted.shares[index],
        "weight": setting.weight,
        "remote_memory": setting.remote,
        "kept": name not in outlook.broken,
        "bottleneck": cause,
        "losses": dict(losses),
        "lever": lever,
    }


def what_if(
    models: ModelLibrary | PartitionKnowledge,
    mix: Sequence[str | Workload],
    machine: Machine,
    setting: ServerSetting | None = None,
    *,
    slo_share: Mapping[int, float] | None = None,
    with_advice: bool = False,
    **how: Unpack[OptionFields],
) -> PartitionAnswer:
    """Predict every tenant of a mix under a partition.

    Parameters
    ----------
    models : ModelLibrary or PartitionKnowledge
        Trained models, or profiles over partitions alone.
    mix : sequence of str or Workload
        Tenants; a text may carry a count, ``"stats:2"``.
    machine : Machine
        Where.
    setting : ServerSetting, optional
        Ways, throttles, cores, weights, memory nodes and a port; nothing is divided if not given.
    slo_share : mapping of int to float, optional
        Tenant's place in the mix -> share of its solo throughput that was promised.
    with_advice : bool
        Look for the smallest change that keeps all SLOs.
    **how
        As in `slomo.prediction.options.PredictionOptions`.

    Raises
    ------
    UnsupportedPredictionError
        For a part of the cache or of the memory's bandwidth, or advice, and a tenant not profiled over them.
    InvalidValueError
        For lists of different lengths, or values that the machine does not have.
    """
    library = models if isinstance(models, ModelLibrary) else models.added_to(ModelLibrary(), machine)
    library.require_measured_on(machine)
    asked, options = setting or ServerSetting(), PredictionOptions(**{**how, "explain": False})  # type: ignore[arg-type]
    tenants = named(mix)
    require_possible(asked, machine, len(tenants))
    server = server_of(library, tenants, machine.name, asked, machine.nic_socket)
    for place, share in (slo_share or {}).items():
        if not 0.0 < share <= 1.0:
            meant = f"a share, not a percentage: {share / 100:g} for {share:g} %"
            hint = meant if 1.0 < share <= 100.0 else "0.9 promises 90 % of what it serves alone"
            raise InvalidValueError(f"slo_share of tenant {place} is {share}, needed above 0 and at most 1", hint=hint)
    promised = {place: share * server.tenants[place].model.solo_mpps for place, share in (slo_share or {}).items()}
    answer = PartitionAnswer(answers_on(server, options).whole(), promised)
    if len(server.by_socket) > 1 or any(model.allocation is None for model in server.models):
        if with_advice:
            allocation_models(server)
            raise UnsupportedPredictionError("advice is for the tenants of one socket", hint="leave out --advise")
        return answer
    situation, careful, margin = _situation(server, behind_ports(server, options), promised, machine)
    outlook = foresee(situation)
    answer = replace(answer, situation=situation, outlook=outlook)
    advice = advise(careful, margin=margin) if with_advice else None
    if advice is None:
        return answer
    changed = careful.set_on(server, advice.settings)
    return replace(answer, advice=advice, advised=answers_on(changed, options).whole())


def require_possible(setting: ServerSetting, machine: Machine, tenants: int) -> None:
    """Raise InvalidValueError, naming the field, for a setting impossible on the machine or for so many tenants."""
    checked = setting.checked(tenants)
    for mask in checked.ways or ():
        if mask > machine.full_way_mask:
            raise InvalidValueError(f"way mask {mask:#x}, but '{machine.name}' has {machine.llc_ways} ways")
    for node in (*(checked.nodes or ()), *(checked.sockets or ())):
        if node >= machine.sockets:
            raise InvalidValueError(f"node {node}, but '{machine.name}' has {machine.sockets}")


def _situation(
    server: TenantModels, loaded: TenantModels, promised: Mapping[int, float], machine: Machine
) -> tuple[Situation, Situation, float]:
    """Return a socket's tenants at their loads over partitions, for prediction and for advice with its margin."""
    models = allocation_models(server)
    setting = server.setting
    names = [f"{place}:{tenant.workload.nf}" for place, tenant in enumerate(server.tenants)]
    ways, count = setting.ways or [machine.full_way_mask] * len(names), len(names)
    nodes = setting.nodes or server.sockets
    away = [node != socket for node, socket in zip(nodes, server.sockets, strict=True)]
    each = zip(ways, setting.bandwidth_percent or [100.0] * count, setting.weights or [1.0] * count, away, strict=True)
    loads = {name: tenant.offered_mpps for name, tenant in zip(names, loaded.tenants, strict=True)}
    situation = Situation(
        {name: model.response for name, model in zip(names, models, strict=True)},
        memory_of(models),
        machine.llc_ways,
        dict(zip(names, [Setting(*values) for values in each], strict=True)),
        {names[place]: mpps for place, mpps in promised.items()},
        {name: load for name, load in loads.items() if load is not None},
        cores={n: core for n, core in zip(names, setting.cores or [None] * count, strict=True) if core is not None},
        remote_ns=models[0].remote_ns,
        server=replace(loaded, setting=ServerSetting()) if loaded.models[0].response is not None else None,
    )
    own, shared = (max(m.excess(ADVICE_COVERAGE, shares_ways=flag) for m in models) for flag in (False, True))
    return situation, replace(situation, shared_doubt=max(0.0, 1.0 - (1.0 + own) / (1.0 + shared))), own
