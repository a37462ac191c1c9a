"""A testbed that returns recorded runs instead of making runs.

Profilers and models can thus be tested on real measurements, as with the replayed back ends of Ax and vizier.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from slomo.errors import TestbedError
from slomo.files.json_text import parse_json
from slomo.records import schema
from slomo.records.dataset import ProfileDataset
from slomo.records.measurement import Stability
from slomo.records.rows import competitors_from_cell, workload_from_columns
from slomo.records.run import Phase, RunRecord, TenantSample
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.metrics import METRICS, Rule, Scope
from slomo.vocabulary.vector import MetricVector

_UNKNOWN = TenantSample(float("nan"), MetricVector({}, scope=Scope.CORE))


class ReplayTestbed:
    """A testbed that returns recorded runs.

    `source`: raw records (for instance `stored_records` of a campaign's store), which are returned unchanged, or a
    dataset. A dataset has rows for single competitors only in mixes; for other runs, the competitors' samples are empty
    and their throughput is unknown (NaN). `environment`: environment of raw records; a dataset has its own.

    Examples
    --------
    >>> from slomo.testing.builders import ToyTestbed, toy_plan
    >>> colocation = toy_plan().colocations[1]
    >>> replay = ReplayTestbed([ToyTestbed().run(colocation)])
    >>> round(replay.run(colocation).target.throughput_mpps, 3)
    4.545
    """

    name = "replay"
    exclusive = False

    def __init__(
        self, source: ProfileDataset | Iterable[RunRecord], environment: Mapping[str, Any] | None = None
    ) -> None:
        if isinstance(source, ProfileDataset):
            self._environment: dict[str, Any] = source.environment
            records: Iterable[RunRecord] = _records(source)
        else:
            self._environment = dict(environment or {"testbed": self.name})
            records = source
        self._recorded: dict[str, list[RunRecord]] = {}
        for record in records:
            self._recorded.setdefault(record.colocation.key, []).append(record)

    def run(self, colocation: Colocation, *, seed: int = 0) -> RunRecord:
        """Return a recorded run of these network functions, chosen by the seed.

        Raises TestbedError if this co-location was not recorded.
        """
        recorded = self._recorded.get(colocation.key)
        if not recorded:
            raise TestbedError(
                f"{colocation.label} was not recorded; there are {len(self._recorded)} other co-locations",
                hint="ask for a co-location of the recording, or run it on the testbed it was made with",
            )
        same = [record for record in recorded if record.seed == seed]
        return same[0] if same else recorded[seed % len(recorded)]

    @property
    def colocations(self) -> tuple[Colocation, ...]:
        """All sets of network functions whose runs were recorded."""
        return tuple(records[0].colocation for records in self._recorded.values())

    def environment(self) -> Mapping[str, Any]:
        """Return the environment of the recording."""
        return self._environment

    def estimate_s(self, colocation: Colocation) -> float:  # noqa: ARG002
        """Return a very small time [s], since no run is made."""
        return 1e-4


def _records(dataset: ProfileDataset) -> Iterator[RunRecord]:
    """Make run records from a dataset's rows."""
    runs: dict[str, dict[int, Mapping[Any, Any]]] = {}
    for row in dataset.frame.to_dict("records"):
        runs.setdefault(row[schema.RUN_KEY], {})[row[schema.TENANT]] = row
    for tenants in runs.values():
        if 0 in tenants:
            yield _record(tenants[0], tenants)


def _record(row: Mapping[Any, Any], tenants: Mapping[int, Mapping[Any, Any]]) -> RunRecord:
    competitors = competitors_from_cell(str(row[schema.COMPETITORS]))
    colocation = Colocation.from_dict(
        {
            "machine": row[schema.MACHINE],
            "target": workload_from_columns(row).to_dict(),
            "competitors": [workload.to_dict() for workload in competitors],
            "isolation": parse_json(str(row[schema.ISOLATION]), "isolation"),
            **(parse_json(str(row.get(schema.NODES, "null")), "nodes") or {}),
        }
    )
    target = _sample(row)
    others = tuple(_sample(tenants[slot]) if slot in tenants else _UNKNOWN for slot in range(1, len(competitors) + 1))
    alone = Phase((_UNKNOWN,) * len(competitors), _vector(row, "competition", Scope.SOCKET)) if competitors else None
    beside = Phase((target, *others), _together(_vector(row, "beside", Scope.SOCKET), target.vector))
    stated = {"testbed": "replay", "run_key": colocation.key, "seed": int(row[schema.SEED])}
    return RunRecord(colocation, int(row[schema.SEED]), alone, beside, stated)


def _sample(row: Mapping[Any, Any]) -> TenantSample:
    latency: dict[str, Any] = {name: _known(row[name]) for name in schema.LATENCIES}
    converged = row[schema.STABILITY] != Stability.UNCONVERGED
    vector = _vector(row, "own", Scope.CORE)
    return TenantSample(
        float(row[schema.THROUGHPUT]), vector, loss=_known(row[schema.LOSS]), converged=converged, **latency
    )


def _vector(row: Mapping[Any, Any], prefix: str, scope: Scope) -> MetricVector:
    return MetricVector({name: row[schema.metric_column(prefix, name)] for name in METRICS}, scope=scope)


def _together(beside: MetricVector, own: MetricVector) -> MetricVector:
    """Return the socket's counters: those of the competitors plus the target's."""
    added = {name: value + own.get(name, 0.0) for name, value in beside.items() if METRICS[name].rule is Rule.SUM}  # type: ignore[operator]
    return MetricVector({**dict(beside), **added}, scope=Scope.SOCKET)


def _known(value: float) -> float | None:
    return None if value != value else float(value)
