"""Compute throughput on a real machine: ratios measured within one process, times one solo speed per NF.

Solo speed differs by 3 to 8 % between two starts of the same NF, and more when the machine itself drifts. The ratio of
throughput to that of alternating solo windows does not drift. Any single solo speed per NF gives the same slowdowns.
The median over the whole campaign is used, so the order of runs and interruptions have no effect.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from slomo.records.run import Phase, RunRecord


def with_common_solo(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Return records whose throughputs are their ratios times one solo speed; records without ratios are unchanged."""
    solo = _solo_mpps(records)
    return [_scaled(record, solo) if record.colocation.target is not None else record for record in records]


def stability(records: Sequence[RunRecord]) -> dict[str, Any]:
    """Return how stable the machine was: speed changes of reference programs, and the number of repeated runs."""
    drifts = [drift for record in records if (drift := _host(record).get("drift"))]
    if not drifts:
        return {}
    changes = sorted(abs(float(drift["change"]) - 1.0) for drift in drifts)
    rates: dict[str, list[float]] = {}
    for drift in drifts:
        for name, rate in drift["rates"].items():
            rates.setdefault(name, []).append(float(rate))
    spans = {name: round(max(seen) / min(seen), 4) for name, seen in rates.items() if min(seen) > 0.0}
    return {
        "runs": len(drifts),
        "repeated": sum(int(drift["repeated"]) for drift in drifts),
        "median_change": round(statistics.median(changes), 4),
        "largest_change": round(changes[-1], 4),
        "fastest_over_slowest": spans,
    }


def _solo_mpps(records: Sequence[RunRecord]) -> dict[str, float]:
    """Return the median solo throughput [Mpps] of each target that ran in turns with itself alone, by workload key."""
    seen: dict[str, list[float]] = {}
    for record in records:
        target, host = record.colocation.target, _host(record)
        windows = host.get("solo", {}).get("mpps") or host.get("pairs", {}).get("solo_mpps")
        if target is not None and windows:
            seen.setdefault(target.key, []).append(statistics.median(windows))
    return {key: statistics.median(values) for key, values in seen.items()}


def _scaled(record: RunRecord, solo: Mapping[str, float]) -> RunRecord:
    target, host = record.colocation.target, _host(record)
    if record.beside is None or target is None or not record.provenance.get("settings", {}).get("interleaved"):
        return record
    ratio = 1.0 if "solo" in host else host.get("pairs", {}).get("ratio")
    if ratio is None or target.key not in solo:
        return record
    own = replace(record.beside.tenants[0], throughput_mpps=float(ratio) * solo[target.key])
    beside: Phase = replace(record.beside, tenants=(own, *_others(record, host, solo)))
    return replace(record, beside=beside)


def _others(record: RunRecord, host: Mapping[str, Any], solo: Mapping[str, float]) -> tuple[Any, ...]:
    """Return the competitors' samples; a single one's throughput is its ratio times its solo speed, if known."""
    assert record.beside is not None
    others, ratio = record.beside.tenants[1:], host.get("pairs", {}).get("competitor_ratio")
    if len(others) != 1 or ratio is None or record.colocation.competitors[0].key not in solo:
        return others
    return (replace(others[0], throughput_mpps=float(ratio) * solo[record.colocation.competitors[0].key]),)


def _host(record: RunRecord) -> Mapping[str, Any]:
    host = record.provenance.get("host", {})
    return host if isinstance(host, Mapping) else {}
