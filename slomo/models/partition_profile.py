"""Profiles of NFs over cache ways, memory latency and throttles, and the file that contains them.

Placement with exclusive ways (ResQ, NSDI'18), NUMASFP's lookup table (COMSNETS'22), what-if questions and control read
the same profiles. `slomo profile NF... --plan ways` measures throughput over ways and latency over load, `--plan
partitions` also memory traffic and throttles.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta, Struct

from slomo.errors import ConfigurationError, UnsupportedPredictionError
from slomo.files.documents import check_version, parse
from slomo.files.durable import write_durably
from slomo.files.opening import read_text
from slomo.files.ranges import Count, Name
from slomo.files.stored import stored
from slomo.models.applicability import applicability
from slomo.models.contentiousness import constant_profile
from slomo.models.library import ModelLibrary, load_library
from slomo.models.nf_model import NFModel
from slomo.models.responses.memory_traffic import MemoryTraffic
from slomo.models.responses.partition import AllocationModel, PartitionResponse
from slomo.vocabulary.identity import require_same
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload_text import parse_workload

SCHEMA_VERSION: Literal[5] = 5
_NO_MEMORY = MemoryTraffic((), ())
_HINT = "measure again: slomo profile NF... --plan partitions --out FILE (ways suffices for policies of ResQ)"


@dataclass(frozen=True)
class PartitionProfile:
    """Profiles of the workloads of one machine over cache ways, memory latency and throttles."""

    #: Name of the machine.
    machine: Name
    #: Workload key -> time per packet over ways, latency and throttle.
    responses: Annotated[Mapping[str, PartitionResponse], Meta(min_length=1)]
    #: Memory latency of a socket over its traffic; empty for profiles over cache ways alone.
    memory: MemoryTraffic = _NO_MEMORY
    #: Fingerprint of the machine (`Machine.fingerprint`); empty if unknown.
    fingerprint: str = ""
    #: Predicted over measured throughput, less 1, on partitions that were not profiled: of tenants with ways of their
    #: own, and of tenants that share ways; empty if none were run.
    errors: tuple[float, ...] = ()
    shared_errors: tuple[float, ...] = ()
    #: The same of tenants whose memory is on another node; empty if none were run.
    away_errors: tuple[float, ...] = ()
    #: Number of profiling runs.
    runs: Count = 0
    #: Predicted loss as a share of solo throughput, of each of these errors in this order; empty if unknown.
    losses: tuple[float, ...] = ()

    def models(self, machine: Machine) -> dict[str, AllocationModel]:
        """Return the trained model of each workload over ways and throttles, by its key.

        Raises UnsupportedPredictionError or ConfigurationError if it was measured on another machine, even one of the
        same name, or over cache ways alone.
        """
        if self.machine != machine.name:
            problem = f"partitions of '{self.machine}' were profiled, asked about '{machine.name}'"
            raise UnsupportedPredictionError(
                problem, hint="profile them there: slomo whatif with another --profiles FILE"
            )
        require_same(machine.name, self.fingerprint, machine.fingerprint, "the one asked about")
        if not self.memory.latency_ns:
            problem = f"{', '.join(self.responses)} were profiled over cache ways alone"
            raise UnsupportedPredictionError(problem, hint=_HINT)
        memory = replace(self.memory, most_gb_s=machine.capacities().memory_gb_s)
        remote_ns = machine.dram_remote_ns - machine.dram_local_ns
        shared = memory, machine.llc_ways, remote_ns, self.errors, self.shared_errors, machine.llc_domains_per_socket
        rest = (*shared, self.away_errors, self.losses)
        return {key: AllocationModel(response, *rest) for key, response in self.responses.items()}

    def added_to(self, library: ModelLibrary, machine: Machine) -> ModelLibrary:
        """Return a library whose models also know the effect of ways and throttles.

        Raises UnsupportedPredictionError as :meth:`models`.
        """
        library.require_measured_on(machine)
        learned = []
        for key, allocation in self.models(machine).items():
            model = library.get((machine.name, key)) or _unpressed(machine, key, allocation.response.solo_mpps)
            learned.append(replace(model, allocation=allocation))
        return library.merge(ModelLibrary(learned))


class ProfilesFile(Struct, forbid_unknown_fields=True):
    """The file that contains profiles over cache ways, memory latency and throttles."""

    profiles: Annotated[tuple[PartitionProfile, ...], Meta(min_length=1)]
    schema_version: Literal[5] = SCHEMA_VERSION


def save_profiles(profiles: Iterable[PartitionProfile], path: str | Path) -> Path:
    """Write profiles as JSON; return the path."""
    document = {"schema_version": SCHEMA_VERSION, "profiles": stored(list(profiles))}
    return write_durably(path, json.dumps(document, indent=1) + "\n")


def load_profiles(path: str | Path) -> tuple[PartitionProfile, ...]:
    """Read profiles from their file, or from a folder of models that learned the effect of ways."""
    if not Path(path).is_dir():
        hint = _HINT if Path(path).exists() else None
        document = parse(read_text(path, hint=hint), str(path), hint)
        version = document.table(hint).get("schema_version", SCHEMA_VERSION)
        check_version(path, version, SCHEMA_VERSION, _HINT)  # told before a field that another version lacks
        return document.to(ProfilesFile, hint).profiles
    learned = [(model, model.allocation) for model in load_library(path).values() if model.allocation is not None]
    if not learned:
        raise ConfigurationError(f"no model in '{path}' was profiled over partitions", hint=_HINT)
    return tuple(
        PartitionProfile(
            model.machine, {model.workload.key: known.response}, known.memory, model.machine_fingerprint,
            known.errors, known.shared_errors, known.away_errors, losses=known.losses,
        )
        for model, known in learned
    )  # fmt: skip


def library_of(profiles: Sequence[PartitionProfile], machine: Machine) -> ModelLibrary:
    """Return a library of models that include profiles over cache ways and throttles."""
    made = ModelLibrary()
    for profile in [candidate for candidate in profiles if candidate.machine == machine.name] or profiles:
        made = profile.added_to(made, machine)
    return made


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
