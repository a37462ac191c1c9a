"""Say what a partition would give, and which smallest change keeps all SLOs.

Profiles over partitions are measured once and kept as data; predictions take them, with an interval calibrated on
partitions that were not profiled.
"""

import itertools
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from slomo.control.advice import advise
from slomo.control.situation import Outlook, Setting, Situation, explain, foresee, shares_ways
from slomo.equilibrium.partition import Part, solve_partition
from slomo.errors import ConfigurationError, InvalidValueError, UnsupportedPredictionError
from slomo.files.opening import read_text
from slomo.models.responses.partition import MemoryTraffic, PartitionResponse
from slomo.testbed.base import Testbed
from slomo.vocabulary.colocation import Colocation, Isolation
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.workload import Workload
from slomo.vocabulary.workload_text import parse_workload
from slomo.workflow.acting.partition_profile import PartitionProfile, profile_partitions

SCHEMA_VERSION = 3
#: Partitions run to calibrate intervals, of ways of one's own and of ways shared; none of them is profiled.
CALIBRATION_RUNS = 24
#: Share of the tenants that share ways and are not throttled while intervals are calibrated.
UNTHROTTLED = 0.6
#: Advice picks what just suffices, so what was judged too well: its margin is the error that hardly any run exceeds.
ADVICE_COVERAGE = 0.98


@dataclass(frozen=True)
class PartitionKnowledge:
    """Profiles over partitions of one machine, with the errors that give intervals.

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

    def half_width(self, coverage: float = 0.9, *, shares_ways: bool = False) -> float:
        """Return the half width of an interval as a share of the prediction (split conformal)."""
        return _ranked([abs(error) for error in self._errors(shares_ways)], coverage)

    def excess(self, coverage: float, *, shares_ways: bool = False) -> float:
        """Return the share by which a prediction is too high at most, with this coverage; 0 where it is never."""
        return max(0.0, _ranked(self._errors(shares_ways), coverage))

    def _errors(self, shares_ways: bool) -> tuple[float, ...]:
        return self.shared_errors if shares_ways else self.errors

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        document = {
            "schema_version": SCHEMA_VERSION,
            "machine": self.profile.machine,
            "runs": self.profile.runs,
            "memory": asdict(self.profile.memory),
            "responses": [response.to_dict() for response in self.profile.responses.values()],
            "errors": list(self.errors),
            "shared_errors": list(self.shared_errors),
        }
        Path(path).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> "PartitionKnowledge":
        """Read it again.

        Raises
        ------
        ConfigurationError
            For what is none.
        """
        try:
            data = json.loads(read_text(path))
            if data["schema_version"] != SCHEMA_VERSION:
                raise KeyError("schema_version")
            responses = [PartitionResponse.from_dict(item) for item in data["responses"]]
            memory = MemoryTraffic(tuple(data["memory"]["latency_ns"]), tuple(data["memory"]["traffic_gb_s"]))
            by_key = {response.workload: response for response in responses}
            profile = PartitionProfile(str(data["machine"]), by_key, memory, int(data["runs"]))
            return cls(profile, _errors_of(data["errors"]), _errors_of(data["shared_errors"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ConfigurationError(
                f"{path}: is no profile over partitions", hint="make one: slomo whatif --save"
            ) from None


def _errors_of(numbers: Sequence[float]) -> tuple[float, ...]:
    """Return calibration errors read from a file: at least one, all finite."""
    errors = tuple(float(number) for number in numbers)
    if not errors or not all(map(math.isfinite, errors)):
        raise ValueError("no errors to rank")
    return errors


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
    """Return a random mix, each tenant with ways of its own, half of them throttled."""
    count = draw.randint(2, min(6, machine.cores_per_socket))
    mix = [draw.choice(workloads) for _ in range(count)]
    cuts = [0, *sorted(draw.sample(range(1, machine.llc_ways), count - 1)), machine.llc_ways]
    isolation = tuple(
        Isolation(((1 << (end - start)) - 1) << start, draw.choice([None, 10 * draw.randint(1, 9)]))
        for start, end in itertools.pairwise(cuts)
    )
    return Colocation(machine.name, mix[0], tuple(mix[1:]), isolation)


def random_crowd(machine: Machine, workloads: Sequence[Workload], draw: random.Random) -> Colocation:
    """Return a random mix as advice divides it: up to two tenants with ways of their own, the rest share theirs."""
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


@dataclass(frozen=True)
class PartitionAnswer:
    """An answer.

    Attributes
    ----------
    situation : Situation
        What was asked about.
    outlook : Outlook
        What it gives.
    half_widths : tuple of (float, float)
        Of the intervals of tenants with ways of their own and of tenants that share theirs, as shares of predictions.
    advice : Outlook or None
        The smallest change that keeps all SLOs, where it was asked for and there is one.
    """

    situation: Situation
    outlook: Outlook
    half_widths: tuple[float, float]
    advice: Outlook | None = None

    def rows(self, outlook: Outlook | None = None) -> list[dict[str, Any]]:
        """Return one mapping per tenant."""
        chosen = outlook or self.outlook
        table = []
        for index, (name, mpps) in enumerate(chosen.throughput_mpps.items()):
            setting = chosen.settings[name]
            cause, losses, lever = explain(self.situation, chosen, name)
            half_width = self.half_widths[shares_ways(chosen.settings, name)]
            table.append(
                {
                    "tenant": name,
                    "ways": f"{setting.mask:#x}",
                    "holds_ways": round(chosen.parted.ways[index], 2),
                    "bandwidth_percent": setting.bandwidth_percent,
                    "core_share": chosen.parted.shares[index],
                    "weight": setting.weight,
                    "remote_memory": setting.remote,
                    "throughput_mpps": mpps,
                    "low_mpps": mpps * (1.0 - half_width),
                    "high_mpps": mpps * (1.0 + half_width),
                    "solo_mpps": self.situation.responses[name].solo_mpps,
                    "slo_mpps": self.situation.promised_mpps.get(name),
                    "kept": name not in chosen.broken,
                    "bottleneck": cause,
                    "losses": dict(losses),
                    "lever": lever,
                }
            )
        return table


@dataclass(frozen=True)
class AskedPartition:
    """What is asked about, one value per tenant; what is left out is as it is on a machine that nobody divided.

    Attributes
    ----------
    ways : sequence of int, optional
        Way masks; all share the whole cache if not given.
    bandwidth_percent : sequence of float, optional
        Throttles [%].
    cores : sequence of int, optional
        Cores; tenants with equal ones share a core. Everybody has one alone if not given.
    weights : sequence of float, optional
        CPU weights on shared cores; equal if not given.
    nodes : sequence of int, optional
        Node of each tenant's memory; the NIC's, where the cores are, if not given.
    """

    ways: Sequence[int] | None = None
    bandwidth_percent: Sequence[float] | None = None
    cores: Sequence[int] | None = None
    weights: Sequence[float] | None = None
    nodes: Sequence[int] | None = None

    def settings(self, tenants: int, machine: Machine) -> list[Setting]:
        """Return each tenant's setting.

        Raises
        ------
        InvalidValueError
            For lists of other lengths, or ways, nodes and weights that there are not.
        """
        for field in fields(self):
            given = getattr(self, field.name)
            if given is not None and len(given) != tenants:
                raise InvalidValueError(f"{len(given)} {field.name.replace('_', ' ')} for {tenants} tenants")
        masks = self.ways or [machine.full_way_mask] * tenants
        nodes = self.nodes or [machine.nic_socket] * tenants
        weights = self.weights or [1.0] * tenants
        for mask, node, weight in zip(masks, nodes, weights, strict=True):
            if not 0 < mask <= machine.full_way_mask:
                raise InvalidValueError(f"way mask {mask:#x}, but '{machine.name}' has {machine.llc_ways} ways")
            if not 0 <= node < machine.sockets:
                raise InvalidValueError(f"memory node {node}, but '{machine.name}' has {machine.sockets}")
            if not 0.0 < weight < float("inf"):
                raise InvalidValueError(f"CPU weight {weight:g}, needed above 0")
        throttles = self.bandwidth_percent or [100.0] * tenants
        away = [node != machine.nic_socket for node in nodes]
        return [Setting(*each) for each in zip(masks, throttles, weights, away, strict=True)]


def what_if(
    knowledge: PartitionKnowledge,
    mix: Sequence[str | Workload],
    machine: Machine,
    partition: AskedPartition | None = None,
    *,
    slo_share: Mapping[int, float] | None = None,
    with_advice: bool = False,
) -> PartitionAnswer:
    """Predict every tenant of a mix under a partition.

    Parameters
    ----------
    knowledge : PartitionKnowledge
        Profiles over partitions.
    mix : sequence of str or Workload
        Tenants.
    machine : Machine
        Where.
    partition : AskedPartition, optional
        Ways, throttles, cores, weights and memory nodes; nothing is divided if not given.
    slo_share : mapping of int to float, optional
        Tenant's place in the mix -> share of its solo throughput that was promised.
    with_advice : bool
        Look for the smallest change that keeps all SLOs.

    Raises
    ------
    UnsupportedPredictionError
        For a tenant without a profile.
    InvalidValueError
        For lists of other lengths, or what is not there.
    """
    tenants = [parse_workload(item) if isinstance(item, str) else item for item in mix]
    names = [f"{number}:{tenant.nf}" for number, tenant in enumerate(tenants)]
    partition = partition or AskedPartition()
    settings = dict(zip(names, partition.settings(len(tenants), machine), strict=True))
    responses = {name: _response(knowledge, tenant) for name, tenant in zip(names, tenants, strict=True)}
    loads = {n: t.traffic.offered_mpps for n, t in zip(names, tenants, strict=True) if t.traffic.offered_mpps}
    situation = Situation(
        responses,
        knowledge.profile.memory,
        machine.llc_ways,
        settings,
        {names[place]: share * responses[names[place]].solo_mpps for place, share in (slo_share or {}).items()},
        {name: float(load) for name, load in loads.items() if load is not None},
        cores=dict(zip(names, partition.cores, strict=True)) if partition.cores else {},
        remote_ns=machine.dram_remote_ns - machine.dram_local_ns,
    )
    own, shared = (knowledge.excess(ADVICE_COVERAGE, shares_ways=flag) for flag in (False, True))
    careful = replace(situation, shared_doubt=max(0.0, 1.0 - (1.0 + own) / (1.0 + shared)))
    advice = advise(careful, margin=own) if with_advice else None
    widths = knowledge.half_width(), knowledge.half_width(shares_ways=True)
    return PartitionAnswer(situation, foresee(situation), widths, advice)


def _ranked(errors: Sequence[float], coverage: float) -> float:
    """Return the error that a new one does not exceed with a probability (split conformal)."""
    if not 0.0 < coverage < 1.0:
        raise InvalidValueError(f"coverage is {coverage:g}, needed between 0 and 1")
    rank = int(np.ceil(coverage * (len(errors) + 1))) - 1
    return sorted(errors)[min(rank, len(errors) - 1)]


def _response(knowledge: PartitionKnowledge, workload: Workload) -> PartitionResponse:
    responses = knowledge.profile.responses
    key = next((k for k in (workload.key, workload.saturated.key) if k in responses), None)
    if key is None:
        raise UnsupportedPredictionError(
            f"'{workload.key}' was not profiled over partitions of '{knowledge.profile.machine}'",
            hint=f"profiled: {', '.join(responses) or 'none'}",
        )
    return responses[key]
