"""Convert measurements and runs to rows of a dataset.

Solo rows have zero for every additive metric (no competitors, no pressure). A run of a mix gives one row per tenant,
each in turn as the target ("rotation"), so that one run of n NFs tests n predictions.
"""

import functools
import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import slomo.records.schema as schema
from slomo.errors import InvalidValueError
from slomo.records.measurement import Measurement, median_vector, others_of, summarise
from slomo.records.run import RunRecord
from slomo.records.schema import Plan
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.metrics import FELT, METRICS, no_pressure
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Traffic, Workload, canonical_json

#: NF with adjustable pressure; a run with only such competitors belongs to the pressure plan.
SYNTHETIC = "synthetic"

Row = dict[str, Any]
T = TypeVar("T", dict[str, Any], list[Any])


def plan_of(colocation: Colocation) -> Plan:
    """Return the plan to which a run belongs, derived from its competitors."""
    if not colocation.competitors:
        return Plan.SOLO
    if all(workload.nf.startswith(f"{SYNTHETIC}-") for workload in colocation.competitors):
        return Plan.ACCELERATOR
    return Plan.PRESSURE if all(workload.nf == SYNTHETIC for workload in colocation.competitors) else Plan.MIX


def workload_columns(workload: Workload) -> Row:
    """Return the columns of a row that describe the target."""
    traffic = workload.traffic
    return {
        schema.NF: workload.nf,
        schema.TARGET: workload.key,
        schema.CONFIGURATION: canonical_json(dict(workload.configuration)),
        schema.PACKET_SIZE: traffic.packet_size_b,
        schema.FLOW_COUNT: traffic.flow_count,
        schema.FLOW_DISTRIBUTION: traffic.flow_distribution,
        schema.ZIPF_EXPONENT: traffic.zipf_exponent,
        schema.OFFERED: math.nan if traffic.offered_mpps is None else traffic.offered_mpps,
    }


def workload_from_columns(row: Mapping[str, Any]) -> Workload:
    """Return the target of a row."""
    offered = float(row[schema.OFFERED])
    traffic = Traffic(
        packet_size_b=int(row[schema.PACKET_SIZE]),
        flow_count=int(row[schema.FLOW_COUNT]),
        flow_distribution=str(row[schema.FLOW_DISTRIBUTION]),
        zipf_exponent=float(row[schema.ZIPF_EXPONENT]),
        offered_mpps=None if math.isnan(offered) else offered,
    )
    return Workload(str(row[schema.NF]), _json(str(row[schema.CONFIGURATION]), dict, "object"), traffic)


@functools.lru_cache(maxsize=8192)  # an evaluation parses the same cells a hundred times
def competitors_from_cell(text: str) -> tuple[Workload, ...]:
    """Return the competitors of a row."""
    return tuple(Workload.from_dict(item) for item in _json(text, list, "list of workloads", dict))


def colocation_columns(colocation: Colocation, plan: Plan) -> Row:
    """Return the columns that describe an experiment with a target."""
    if colocation.target is None:
        raise InvalidValueError(f"{colocation.label}: a dataset needs runs with a target")
    described = colocation.to_dict()
    nodes = {name: described[name] for name in ("sockets", "memory_node") if name in described}
    return {
        schema.MACHINE: colocation.machine,
        **workload_columns(colocation.target),
        schema.COMPETITORS: canonical_json(described["competitors"]),
        schema.COMPETITOR_COUNT: len(colocation.competitors),
        schema.ISOLATION: canonical_json(described["isolation"]),
        schema.PLAN: str(plan),
        **({schema.NODES: canonical_json(nodes)} if nodes else {}),
    }


def measurement_row(measurement: Measurement, plan: Plan | None = None, truth_mpps: float = math.nan) -> Row:
    """Return the dataset row of a measurement."""
    solo = not measurement.colocation.competitors
    plan = plan_of(measurement.colocation) if plan is None or solo else plan
    provenance, own = measurement.provenance, measurement.contentiousness
    nothing = MetricVector(no_pressure(reporters=any(name in own for name in FELT)))
    error = measurement.throughput_error_mpps
    return {
        **colocation_columns(measurement.colocation, plan),
        **({} if error is None else {schema.THROUGHPUT_SE: error}),
        schema.TENANT: 0,
        schema.THROUGHPUT: measurement.median_mpps,
        schema.THROUGHPUT_CV: measurement.dispersion,
        schema.REPLICATES: len(measurement.throughput_mpps),
        schema.LOSS: math.nan if measurement.loss is None else measurement.loss,
        **{name: measurement.latency_us.get(name.split("_")[1], math.nan) for name in schema.LATENCIES},
        schema.STABILITY: str(measurement.stability),
        schema.SEED: int(provenance.get("seed", 0)),
        schema.RUN_KEY: measurement.colocation.key,
        schema.TRUTH: truth_mpps,
        **vector_columns("competition", nothing if solo else measurement.competition),
        **vector_columns("beside", nothing if solo else measurement.beside),
        **vector_columns("own", measurement.contentiousness),
    }


def record_rows(records: Iterable[RunRecord], *, limit: float = 0.05) -> list[Row]:
    """Return the table rows of runs: replicates become one row; a mix gives one row per tenant, with it as the target.

    Replicates are runs of the same co-location; they count as unstable if their dispersion is above `limit`.
    """
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        if record.colocation.target is not None:
            groups.setdefault(record.colocation.key, []).append(record)
    return [row for group in groups.values() for row in _replicate_rows(group, limit)]


def _replicate_rows(records: Sequence[RunRecord], limit: float) -> Iterator[Row]:
    colocation, seed = records[0].colocation, min(record.seed for record in records)
    plan = plan_of(colocation)
    for slot in range(len(colocation.tenants) if plan is Plan.MIX else 1):
        turned = [rotate(record, slot) for record in records]
        if slot and any(math.isnan(record.target.throughput_mpps) for record in turned):
            continue  # only the first tenant's throughput was recorded
        row = measurement_row(summarise(turned, limit=limit), plan, _truth(records, slot))
        if slot:
            beside = [others_of(each.beside.socket, each.target.vector) for each in turned if each.beside is not None]
            row |= vector_columns("beside", median_vector(beside))
        yield {**row, schema.TENANT: slot, schema.SEED: seed, schema.RUN_KEY: colocation.key}


def rotate(record: RunRecord, slot: int) -> RunRecord:
    """Return a run with the network function at `slot` as its target."""
    if slot == 0:
        return record
    if record.beside is None:
        raise InvalidValueError(f"{record.colocation.label}: there is no phase beside the target")
    colocation = record.colocation
    tenants, isolation = colocation.tenants, colocation.isolation
    turned = replace(
        colocation,
        target=tenants[slot],
        competitors=(*tenants[:slot], *tenants[slot + 1 :]),
        isolation=None if isolation is None else (isolation[slot], *isolation[:slot], *isolation[slot + 1 :]),
    )
    samples = record.beside.tenants
    beside = replace(record.beside, tenants=(samples[slot], *samples[:slot], *samples[slot + 1 :]))
    return replace(record, colocation=turned, alone=None, beside=beside, truth=None)


def _truth(records: Sequence[RunRecord], slot: int) -> float:
    true_mpps = [
        r.truth.beside.tenants[slot].throughput_mpps
        for r in records
        if r.truth is not None and r.truth.beside is not None
    ]
    return statistics.median(true_mpps) if true_mpps and len(true_mpps) == len(records) else math.nan


def vector_columns(prefix: str, vector: MetricVector | None) -> Row:
    """Return the columns for a vector, with NaN where a metric is unknown."""
    return {f"{prefix}.{name}": math.nan if vector is None else vector.get(name, math.nan) for name in METRICS}


def _json(text: str, kind: type[T], name: str, of: type = object) -> T:
    """Return the JSON value in a cell, whose items have type `of`."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidValueError(f"{text[:80]!r} is no JSON: {error}") from None
    if not isinstance(value, kind) or not all(isinstance(item, of) for item in value):
        raise InvalidValueError(f"{text[:80]!r} is no JSON {name}")
    return value
