"""Distinguish real zeros from unread counters: tools print 0 for both.

A single recording cannot distinguish the two, so its reader leaves such a metric out and lists it in the run's
provenance. If another run of the same campaign has a positive value, the counter works, and the omitted values were 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from slomo.records.run import Phase, RunRecord
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector

#: Key in a run's provenance: by phase and scope, the metrics whose samples were all 0.
ZERO_THROUGHOUT = "zero_throughout"

#: Metrics of the same counter: if one works, so does the other.
_SAME_COUNTER = {"LMB": "RMB", "RMB": "LMB", "L3MPI": "L3MISS"}

Proved = Mapping[str, frozenset[str]]


def with_proved_zeros(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Set metrics that were omitted as all-zero to 0 if another run of the campaign shows that their counter works."""
    proved = {Scope.CORE.value: _positive(records, Scope.CORE), Scope.SOCKET.value: _positive(records, Scope.SOCKET)}
    return [_mended(record, proved) for record in records]


def _positive(records: Sequence[RunRecord], scope: Scope) -> frozenset[str]:
    phases = [phase for record in records for phase in (record.alone, record.beside) if phase is not None]
    vectors = [vector for phase in phases for vector in _vectors(phase, scope)]
    seen = {name for vector in vectors for name, value in vector.items() if value > 0.0}
    return frozenset(seen | {name for name, other in _SAME_COUNTER.items() if other in seen})


def _vectors(phase: Phase, scope: Scope) -> list[MetricVector]:
    return [phase.socket] if scope is Scope.SOCKET else [tenant.vector for tenant in phase.tenants]


def _mended(record: RunRecord, proved: Proved) -> RunRecord:
    host = record.provenance.get("host", {})
    alone = _phase(record.alone, host.get("alone", {}), proved)
    beside = _phase(record.beside, host.get("beside", {}), proved)
    same = alone is record.alone and beside is record.beside
    return record if same else replace(record, alone=alone, beside=beside)


def _phase(phase: Phase | None, details: Mapping[str, Any], proved: Proved) -> Phase | None:
    read = details.get(ZERO_THROUGHOUT, {})
    zeros = {scope: [name for name in names if name in proved[scope]] for scope, names in read.items()}
    if phase is None or not any(zeros.values()):
        return phase
    of_core = zeros.get(Scope.CORE.value, ())
    tenants = tuple(replace(tenant, vector=_filled(tenant.vector, of_core)) for tenant in phase.tenants)
    return replace(phase, tenants=tenants, socket=_filled(phase.socket, zeros.get(Scope.SOCKET.value, ())))


def _filled(vector: MetricVector, zeros: Sequence[str]) -> MetricVector:
    return MetricVector({**dict.fromkeys(zeros, 0.0), **vector}, scope=vector.scope)
