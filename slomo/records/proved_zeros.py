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

Proved = Mapping[Scope, frozenset[str]]


def with_proved_zeros(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Set metrics that were omitted as all-zero to 0 if another run of the campaign shows that their counter works."""
    proved = {scope: _positive(records, scope) for scope in (Scope.CORE, Scope.SOCKET)}
    return [_mended(record, proved) for record in records]


def _positive(records: Sequence[RunRecord], scope: Scope) -> frozenset[str]:
    phases = [phase for record in records for phase in (record.alone, record.beside) if phase is not None]
    own = [tenant.vector for phase in phases for tenant in phase.tenants]
    vectors = own if scope is Scope.CORE else [phase.socket for phase in phases]
    seen = {name for vector in vectors for name, value in vector.items() if value > 0.0}
    return frozenset(seen | {name for name, other in _SAME_COUNTER.items() if other in seen})


def _mended(record: RunRecord, proved: Proved) -> RunRecord:
    host = record.provenance.get("host", {})
    alone = _phase(record.alone, host.get("alone", {}), proved)
    beside = _phase(record.beside, host.get("beside", {}), proved)
    same = alone is record.alone and beside is record.beside
    return record if same else replace(record, alone=alone, beside=beside)


def _phase(phase: Phase | None, details: Mapping[str, Any], proved: Proved) -> Phase | None:
    read = details.get(ZERO_THROUGHOUT, {})
    zeros = {scope: [name for name in names if name in proved[Scope(scope)]] for scope, names in read.items()}
    if phase is None or not any(zeros.values()):
        return phase
    return phase.with_vectors(
        lambda vector: MetricVector({**dict.fromkeys(zeros.get(vector.scope, ()), 0.0), **vector}, scope=vector.scope)
    )
