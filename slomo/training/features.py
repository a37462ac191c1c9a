"""Convert a dataset's rows to training data: for each machine and NF, pressures and throughputs as arrays.

SLOMO (SIGCOMM'20) section 4.1: pairs (V, P) train the sensitivity; the core-level vectors measured in the same runs are
the contentiousness. In tables measured elsewhere, traffic attributes are further features (Yala, ASPLOS'25, section 5).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from slomo.compose.ports import port_shares_mpps
from slomo.errors import MissingMetricError, UnknownNameError
from slomo.models.base import TRAFFIC_PREFIX, Floats
from slomo.records.dataset import ProfileDataset
from slomo.records.rows import competitors_from_cell, workload_from_columns
from slomo.records.schema import SCENARIO, isolated, placed
from slomo.training.noise import row_variance
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.metrics import METRICS
from slomo.vocabulary.wire import wire_gbps
from slomo.vocabulary.workload import Workload

if TYPE_CHECKING:
    import pandas as pd


#: Least share of rows with competitors that must report a metric for it to count as measured.
REPORTED = 0.95
#: Columns of the schema that describe traffic by a number.
_TRAFFIC_COLUMNS = ("packet_size_b", "flow_count", "zipf_exponent", "offered_mpps")
#: Utilisation above which ports count as full, and ratio to another tenant's port share above which two shares count as
#: equal.
FULL_PORT = 0.97
#: Size of a cache line [B].
LINE_B = 64.0
FITTED_PLANS = ("solo", "pressure", "imported")
#: Served share of the offered load below which a tenant was busy all the time.
SERVED = 0.985


@dataclass(frozen=True, eq=False)
class PartLoadRows:
    """Runs beside the synthetic competitor in which the NF was offered less than it could serve."""

    #: Served throughput [Mpps], shape (n,).
    mpps: Floats
    #: Offered load [Mpps]; NaN if full ports limited it, shape (n,).
    offered_mpps: Floats
    #: As in :class:`Subject`.
    own: Floats
    beside: Floats


@dataclass(frozen=True, eq=False)
class Subject:
    """All training rows of one NF on one machine, as arrays."""

    #: Machine and workload, solo throughput [Mpps] and its source.
    workload: Workload
    machine: str
    solo_mpps: float
    solo_source: str
    #: Measured features: metrics of the competitors, then ``traffic.*``.
    names: tuple[str, ...]
    #: Features of each row; NaN if not reported, shape (n, len(names)).
    vectors: Floats
    #: Throughput, shape (n,).
    mpps: Floats
    #: Rows of one competitor configuration share a number; cross-validation never splits them, shape (n,).
    groups: NDArray[np.int64]
    #: The NF's own core-level metrics and their values, shape (n, len(own_names)).
    own_names: tuple[str, ...]
    own: Floats
    #: Metrics of the competitors measured while the NF ran, and their values, shape (n, len(beside_names)); none for
    #: tables measured elsewhere.
    beside_names: tuple[str, ...]
    beside: Floats
    #: Number of competitors of each row, shape (n,).
    counts: NDArray[np.int64]
    #: Traffic features of :attr:`workload`.
    traffic: dict[str, float]
    #: Relative variance of each row's throughput, shape (n,); None without replicates (`slomo.training.noise`).
    variance: Floats | None = None
    #: Median number of runs per row.
    replicates: float = 1.0
    #: The NF's runs at part load.
    part_load: PartLoadRows | None = None
    #: Distinct competing workloads of each row; its number in :attr:`groups` may differ between NFs. Shape (n,).
    settings: NDArray[np.str_] = field(default_factory=lambda: np.zeros(0, dtype=np.str_))
    #: Whether the rows are a table measured elsewhere, whose rows are independent and whose columns may have any
    #: effect.
    imported: bool = False
    #: Columns that no model uses, with the reasons.
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Names of the features that are counters."""
        return tuple(name for name in self.names if name in METRICS)

    def columns(self, names: Sequence[str]) -> Floats:
        """Return the columns `names` of :attr:`vectors`."""
        return self.vectors[:, [self.names.index(name) for name in names]]


def subjects(
    dataset: ProfileDataset, targets: Sequence[str] | None = None, *, as_measured: bool = False
) -> Iterator[Subject]:
    """Yield the training rows of each NF on each machine.

    Rows of plan ``mix`` and rows with isolated tenants are left out. Runs of an NF at reduced load, where it was also
    measured with as much as it can serve, are kept apart, as are runs in which full ports reduced it; the former are
    for latency as well (`slomo.training.latency_fit`). Only `as_measured` keeps rows of tenants or memory away from the
    NIC's socket, and metrics of a socket that no core has. Raises UnknownNameError for a target that has no rows to
    fit, with the nearest that does.
    """
    frame = dataset.frame
    frame = frame[frame["plan"].isin(FITTED_PLANS) & ~isolated(frame)]
    frame = frame if as_measured else frame[~placed(frame)]
    chosen = _wanted(frame, targets)
    reduced = reduced_rows(frame)
    saturated = frame.drop(reduced.index)
    limited = saturated[limited_by_ports(saturated, dataset.environment)]
    idle = reduced[(reduced["competitor_count"] > 0) & (reduced["throughput_mpps"] >= SERVED * reduced["offered_mpps"])]
    idle = frame.loc[idle.index.union(limited.index)]
    idle = idle.assign(saturated=saturated_key(idle))
    frame = saturated.drop(limited.index)
    imported = frame["plan"] == "imported"
    for (machine, target), rows in frame[~imported].groupby(["machine", "target"], sort=False):
        if chosen is None or str(target) in chosen:
            subject = _subject(dataset, rows, str(machine), str(target), imported=False, as_measured=as_measured)
            mine = idle[(idle["machine"] == machine) & (idle["saturated"] == target)]
            yield replace(subject, part_load=_part_load(subject, mine))
    for (machine, _, _), rows in frame[imported].groupby(["machine", "nf", "configuration"], sort=False):
        if chosen is None or chosen & set(map(str, rows["target"])):
            yield _subject(dataset, rows, str(machine), str(rows["target"].mode()[0]), imported=True)


def _part_load(subject: Subject, rows: "pd.DataFrame") -> PartLoadRows | None:
    own, beside = (
        rows[[f"{prefix}.{name}" for name in names]].to_numpy(dtype=float)
        for prefix, names in (("own", subject.own_names), ("beside", subject.beside_names))
    )
    whole = np.isfinite(own).all(axis=1) & np.isfinite(beside).all(axis=1)
    mpps = rows["throughput_mpps"].to_numpy(dtype=float)
    offered = rows["offered_mpps"].to_numpy(dtype=float)
    return PartLoadRows(mpps[whole], offered[whole], own[whole], beside[whole]) if whole.any() else None


def limited_by_ports(frame: "pd.DataFrame", environment: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Return the runs whose target was limited by full ports instead of by its competitors.

    Shared ports are divided max-min: a tenant that wants more than its share gets as much as any other. A competitor's
    demand is its sending rate including drops; without a rate it is the traffic of its card, in lines in and out. If
    that is unknown too, the run is not selected.
    """
    limited, columns = np.zeros(len(frame), dtype=bool), ["beside.PCIEHIT", "beside.PCIEMISS"]
    senders = {text: [_sent(item) for item in competitors_from_cell(text)] for text in set(frame["competitors"])}
    for machine, described in environment.get("machines", {}).items():
        ports_gbps = Machine.from_dict(described).shared_wire_gbps()
        here = (frame["machine"] == machine) & (frame["competitor_count"] > 0) & (frame["plan"] != "imported")
        if not here.any() or not np.isfinite(ports_gbps) or not set(columns) <= set(frame.columns):
            continue
        rows = frame[here]
        sent = [senders[text] for text in rows["competitors"]]
        frames_b = np.array([np.mean([size for size, _ in competitors]) for competitors in sent])
        others_mpps = rows[columns].sum(axis=1) / (2.0 * np.ceil(frames_b / LINE_B))
        others_gbps = wire_gbps(frames_b, others_mpps)
        own_gbps = wire_gbps(rows["packet_size_b"], rows["throughput_mpps"])
        level = others_gbps / rows["competitor_count"]
        full = (own_gbps + others_gbps > FULL_PORT * ports_gbps) & (own_gbps > FULL_PORT * level)
        left_mpps = [
            port_shares_mpps(
                [int(size), *(b for b, _ in competitors)], [None, *(rate for _, rate in competitors)], ports_gbps
            )[0]
            if all(rate is not None for _, rate in competitors)
            else np.inf
            for size, competitors in zip(rows["packet_size_b"], sent, strict=True)
        ]
        limited[here] = full | (rows["throughput_mpps"] > SERVED * np.array(left_mpps))
    return limited


def limited_in_mixes(frame: "pd.DataFrame", environment: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Return the runs of plan ``mix``, whose rows tell what all send, in which full ports limited the target."""
    limited = limited_by_ports(frame, environment)
    gbps_of_one = wire_gbps(frame["packet_size_b"].to_numpy(dtype=float), np.ones(len(frame)))
    own_gbps = frame["throughput_mpps"] * gbps_of_one
    runs = own_gbps.groupby([frame["machine"], frame["run_key"]])
    whole = (runs.transform("size") == frame["competitor_count"] + 1).to_numpy()
    described = environment.get("machines", {})
    rates = {name: Machine.from_dict(document).shared_wire_gbps() for name, document in described.items()}
    ports_gbps = np.array([rates.get(name, np.inf) for name in frame["machine"]], dtype=float)
    full = runs.transform("sum") > FULL_PORT * ports_gbps
    most = own_gbps > FULL_PORT * runs.transform("max")
    return np.where(whole, (full & most).to_numpy(), limited)


def _sent(competitor: Workload) -> tuple[int, float | None]:
    """Return a competitor's packet size [B] and sending rate [Mpps]; None if saturated."""
    rate = competitor.traffic.offered_mpps or competitor.configuration.get("rate_mpps")
    return competitor.traffic.packet_size_b, float(rate) if rate else None


def reduced_rows(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return the runs, solo or under pressure, with an offered load below the throughput measured at full load."""
    measured = frame[frame["plan"].isin(["solo", "pressure"]) & ~isolated(frame)]
    full = measured[measured["offered_mpps"].isna()]
    full_pairs = set(zip(full["machine"], full["target"], strict=True))
    reduced = measured[measured["offered_mpps"].notna()]
    same = [pair in full_pairs for pair in zip(reduced["machine"], saturated_key(reduced), strict=True)]
    return reduced[np.array(same, dtype=bool)]


def saturated_key(frame: "pd.DataFrame") -> "pd.Series[Any]":
    """Return the key of every row's target without its offered load."""
    saturated_keys: dict[str, str] = {}
    for row in frame.drop_duplicates("target").to_dict("records"):
        workload = workload_from_columns({str(name): value for name, value in row.items()})
        saturated_keys[str(row["target"])] = workload.saturated.key
    return frame["target"].map(saturated_keys)


def _wanted(frame: "pd.DataFrame", targets: Sequence[str] | None) -> set[str] | None:
    if targets is None:
        return None
    keys: set[str] = set()
    for name in targets:
        matching = frame.loc[(frame["target"] == name) | (frame["nf"] == name), "target"]
        if not len(matching):
            at_full_load = frame.loc[frame["offered_mpps"].isna(), "target"]
            raise UnknownNameError("target with rows to train on", name, {*frame["nf"], *at_full_load})
        keys |= set(map(str, matching))
    return keys


def _subject(
    dataset: ProfileDataset,
    rows: "pd.DataFrame",
    machine: str,
    target: str,
    *,
    imported: bool,
    as_measured: bool = False,
) -> Subject:
    solo, source = _solo(dataset, rows, machine, target, imported=imported)
    contended = rows[rows["competitor_count"] > 0] if not imported else rows
    own_names = _reported(rows, "own")
    beside_names = _reported_beside(contended) if not imported else ()
    metrics = _reported(contended, "competition")
    if not imported and not as_measured:
        # a metric that competitors do not report for their own cores cannot be composed for a mix
        metrics = tuple(name for name in metrics if name in own_names)
    traffic = _traffic(rows) if imported else {}
    vectors = [rows[f"competition.{name}"].to_numpy(dtype=float) for name in metrics]
    vectors += [column.to_numpy(dtype=float) for column in traffic.values()]
    workload = dataset.workload(target)
    at_workload = rows["target"] == target
    settings = rows["competitors"].map({text: _kind(text) for text in rows["competitors"].unique()})
    return Subject(
        workload=workload,
        machine=machine,
        solo_mpps=solo,
        solo_source=source,
        names=(*metrics, *traffic),
        vectors=np.column_stack(vectors) if vectors else np.zeros((len(rows), 0)),
        mpps=rows["throughput_mpps"].to_numpy(dtype=float),
        groups=_scenarios(rows) if imported else settings.factorize()[0],
        own_names=own_names,
        own=rows[[f"own.{name}" for name in own_names]].to_numpy(dtype=float),
        beside_names=beside_names,
        beside=rows[[f"beside.{name}" for name in beside_names]].to_numpy(dtype=float),
        counts=rows["competitor_count"].to_numpy(dtype=np.int64),
        traffic={name: float(column[at_workload].median()) for name, column in traffic.items()},
        variance=row_variance(rows["throughput_cv"].to_numpy(dtype=float), rows["replicates"].to_numpy(dtype=np.int64)),
        replicates=float(rows["replicates"].median()),
        settings=settings.to_numpy(dtype=np.str_),
        imported=imported,
        left_out=_left_out(rows, (*metrics, *traffic)) if imported else {},
    )


def _solo(
    dataset: ProfileDataset, rows: "pd.DataFrame", machine: str, target: str, *, imported: bool
) -> tuple[float, str]:
    """Return solo throughput and its source; in an imported table without solo runs, the highest throughput counts."""
    if imported and rows["target"].nunique() > 1:
        solo, source = float(rows["throughput_mpps"].max()), "best measured"
    else:
        solo, source = dataset.solo_mpps(target, machine), dataset.solo_source(target, machine)
    if not solo > 0.0:
        raise MissingMetricError(
            f"solo throughput of '{target}' on {machine} is {solo:g} Mpps, needed more than 0", hint="measure it again"
        )
    return solo, source


def _reported(rows: "pd.DataFrame", prefix: str) -> tuple[str, ...]:
    if not len(rows):
        return ()
    return tuple(name for name in METRICS if rows[f"{prefix}.{name}"].notna().mean() >= REPORTED)


def _reported_beside(rows: "pd.DataFrame") -> tuple[str, ...]:
    """Return the competitors' counters that were measured beside the target; a latency needs misses."""
    names, latency = _reported(rows, "beside"), rows["beside.LLCMISSLAT"].notna()
    missed = ~(rows["beside.L3MISS"] == 0.0)
    known = latency.any() and latency[missed].mean() >= REPORTED
    return tuple(name for name in METRICS if name in names or (known and name == "LLCMISSLAT"))


def _left_out(rows: "pd.DataFrame", read: Sequence[str]) -> dict[str, str]:
    """Return the columns of an imported table that no model can use, with reasons."""
    reasons: dict[str, str] = {}
    for name in METRICS:
        share = float(rows[f"competition.{name}"].notna().mean())
        if name not in read and share > 0.0:
            reasons[name] = f"reported in {100.0 * share:.0f} % of the rows, needed {100.0 * REPORTED:.0f} %"
        if rows[f"own.{name}"].notna().any():
            reasons[f"own.{name}"] = "of the target itself, not known of a row that is asked about"
    for name in (str(column) for column in rows.columns if str(column).startswith(TRAFFIC_PREFIX)):
        if name not in read:
            reasons[name] = "the same in all rows" if rows[name].notna().all() else "not told of every row"
    return reasons


def _traffic(rows: "pd.DataFrame") -> "dict[str, pd.Series[Any]]":
    """Return the traffic attributes that vary, by feature name."""
    traffic_columns = {TRAFFIC_PREFIX + name: rows[name] for name in _TRAFFIC_COLUMNS}
    # a feature of the same name has the row's value; the schema's column then only names the workload
    traffic_columns |= {name: rows[name] for name in rows.columns if name.startswith(TRAFFIC_PREFIX)}
    return {name: column for name, column in traffic_columns.items() if column.notna().all() and column.nunique() > 1}


def _scenarios(rows: "pd.DataFrame") -> NDArray[np.int64]:
    """Return the number of each row's scenario; a row without one is a scenario of its own."""
    scenarios = np.arange(len(rows)).astype(str)
    if SCENARIO in rows:
        named = rows[SCENARIO].to_numpy(dtype=str)
        scenarios = np.where(named == "", np.char.add("row ", scenarios), named)
    codes: NDArray[np.int64] = np.unique(scenarios, return_inverse=True)[1].astype(np.int64)
    return codes if codes.max(initial=0) > 0 else np.arange(len(rows))


def _kind(competitors: str) -> str:
    """Return the distinct competing workloads of a row, without their counts."""
    return "|".join(sorted({workload.key for workload in competitors_from_cell(competitors)}))


def typical_values(vectors: Floats) -> Floats:
    """Return the median of the positive values of each column; 1 if there are none.

    It is where a scale turns from linear to logarithmic, ``log1p(value / typical)``, and where a pressure has half its
    effect (`slomo.models.contentiousness.pressure_basis`).

    >>> typical_values(np.array([[0.0, 0.0], [4.0, 0.0], [6.0, 0.0]])).tolist()
    [5.0, 1.0]
    """
    typical = [np.median(column[column > 0.0]) if (column > 0.0).any() else 1.0 for column in vectors.T]
    return np.array(typical, dtype=float)
