"""The columns of a dataset: their names and types, and a check of every table.

A dataset has one row per measurement and target. The vector columns follow SLOMO (SIGCOMM'20, section 4.1): the
competitors' vector V, measured without and with the target running, and the target's own core-level vector, which is
its contentiousness.
"""

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
import pandas as pd

from slomo.errors import ConfigurationError, UnknownNameError
from slomo.vocabulary.metrics import METRICS

SCHEMA_VERSION = 1


class Plan(StrEnum):
    """Purpose for which a row was measured; it determines how the row is used."""

    SOLO = "solo"
    PRESSURE = "pressure"
    MIX = "mix"
    ACCELERATOR = "accelerator"
    IMPORTED = "imported"


#: Key of a dataset's environment: tenants of the packed mixes, which are drawn as placement fills servers
#: (`slomo.profiling.plans.basic.tenants_key`).
PACKED = "packed_mixes"

#: Key of a dataset's environment: machine -> function -> what probes tell of it
#: (`slomo.records.importing.probe_tables`).
PROBES = "probes"

MACHINE, NF, TARGET, CONFIGURATION = "machine", "nf", "target", "configuration"
PACKET_SIZE, FLOW_COUNT, FLOW_DISTRIBUTION = "packet_size_b", "flow_count", "flow_distribution"
ZIPF_EXPONENT, OFFERED = "zipf_exponent", "offered_mpps"
COMPETITORS, COMPETITOR_COUNT, ISOLATION, PLAN, TENANT = (
    "competitors",
    "competitor_count",
    "isolation",
    "plan",
    "tenant",
)
THROUGHPUT, THROUGHPUT_CV, REPLICATES, LOSS = "throughput_mpps", "throughput_cv", "replicates", "loss"
LATENCIES = ("latency_p50_us", "latency_p95_us", "latency_p99_us")
STABILITY, SEED, RUN_KEY, TRUTH = "stability", "seed", "run_key", "truth_mpps"
#: Standard error of a replicate's throughput [Mpps]; missing if the testbed does not report it.
THROUGHPUT_SE = "throughput_se_mpps"
#: Sockets of tenants and memory, as in a co-location; "null" or absent if all are on the NIC's socket.
NODES = "nodes"
#: Name of the scenario of a row of an imported table; absent if the table names none.
SCENARIO = "scenario"

#: Columns that identify a measurement: the experiment, the row's tenant, the seed.
IDENTITY = (RUN_KEY, TENANT, SEED)

TEXT_COLUMNS = (
    MACHINE,
    NF,
    TARGET,
    CONFIGURATION,
    FLOW_DISTRIBUTION,
    COMPETITORS,
    ISOLATION,
    PLAN,
    STABILITY,
    RUN_KEY,
    NODES,
    SCENARIO,
)
_INTEGER = (PACKET_SIZE, FLOW_COUNT, COMPETITOR_COUNT, TENANT, REPLICATES, SEED)

#: Columns that every dataset has, in order.
BASE_COLUMNS: tuple[str, ...] = (
    MACHINE, NF, TARGET, CONFIGURATION, PACKET_SIZE, FLOW_COUNT, FLOW_DISTRIBUTION, ZIPF_EXPONENT, OFFERED,
    COMPETITORS, COMPETITOR_COUNT, ISOLATION, PLAN, TENANT, THROUGHPUT, THROUGHPUT_CV, REPLICATES, LOSS, *LATENCIES,
    STABILITY, SEED, RUN_KEY, TRUTH,
)  # fmt: skip

#: Vector families: the competitors alone, the competitors beside the target, the target itself.
PREFIXES = ("competition", "beside", "own")
TRAFFIC_PREFIX = "traffic."

#: All vector columns, family by family, in the vocabulary's order.
METRIC_COLUMNS: tuple[str, ...] = tuple(f"{prefix}.{name}" for prefix in PREFIXES for name in METRICS)


def metric_column(prefix: str, name: str) -> str:
    """Return the column that holds metric `name` of vector family `prefix`."""
    if prefix not in PREFIXES:
        raise UnknownNameError("vector family", prefix, PREFIXES)
    return f"{prefix}.{name}"


def column_kind(name: str) -> str:
    """Return ``'text'``, ``'integer'`` or ``'number'`` for a column; UnknownNameError for one that no dataset has."""
    if name in TEXT_COLUMNS:
        return "text"
    if name in _INTEGER:
        return "integer"
    if (
        name in (*BASE_COLUMNS, THROUGHPUT_SE)
        or name in METRIC_COLUMNS
        or (name.startswith(TRAFFIC_PREFIX) and len(name) > len(TRAFFIC_PREFIX))
    ):
        return "number"
    raise UnknownNameError("dataset column", name, [*BASE_COLUMNS, *METRIC_COLUMNS, "traffic.<name>"])


def placed(frame: pd.DataFrame) -> "pd.Series[bool]":
    """Return which rows have a tenant or memory on another socket than the NIC's.

    >>> placed(pd.DataFrame({NODES: ["null", '{"memory_node":1}']})).tolist(), placed(pd.DataFrame([{}])).tolist()
    ([False, True], [False])
    """
    return frame[NODES] != "null" if NODES in frame else pd.Series(data=False, index=frame.index)


def isolated(frame: pd.DataFrame) -> "pd.Series[bool]":
    """Return which rows were measured with tenants isolated from each other.

    Examples
    --------
    >>> isolated(pd.DataFrame({ISOLATION: ["null", '[{"llc_way_mask":3}]']})).tolist()
    [False, True]
    """
    return frame[ISOLATION] != "null"


def check_frame(frame: pd.DataFrame, source: str = "dataset", lines: Sequence[int] | None = None) -> pd.DataFrame:
    """Return `frame` with all columns of the schema, in its order and types; absent vector columns are not reported.

    `source`, `lines`: name and lines of the file, for errors; without lines, errors give row numbers from 0.
    """
    missing = [name for name in BASE_COLUMNS if name not in frame.columns]
    if missing:
        raise ConfigurationError(
            f"{source}: missing column{'s' if len(missing) > 1 else ''} {', '.join(missing)}", hint=_IMPORT_HINT
        )
    extra = [name for name in frame.columns if name not in BASE_COLUMNS and name not in METRIC_COLUMNS]
    for name in extra:
        check_column(str(name), source)
    place = _Place(source, lines)
    order = [*BASE_COLUMNS, *sorted(map(str, extra)), *METRIC_COLUMNS]
    columns = {
        name: _typed(frame[name], name, place) if name in frame.columns else np.full(len(frame), math.nan)
        for name in order
    }
    checked = pd.DataFrame(columns)
    _check_rows(checked, place)
    return checked


_IMPORT_HINT = "a table measured elsewhere is read with `slomo dataset import` and a mapping"


class _Place:
    """Position of a row: a line of a file, or a row of a frame."""

    def __init__(self, source: str, lines: Sequence[int] | None) -> None:
        self.source, self.lines = source, lines

    def __call__(self, row: int, column: str) -> str:
        where = f"row {row}" if self.lines is None else f"line {self.lines[row]}"
        return f"{self.source}, {where}, column '{column}'"


def check_column(name: str, source: str) -> None:
    """Raise ConfigurationError for a column that no dataset has."""
    try:
        column_kind(name)
    except UnknownNameError as unknown:
        raise ConfigurationError(f"{source}: unknown column '{name}'", hint=unknown.hint) from None


def _typed(values: "pd.Series[Any]", name: str, place: _Place) -> "pd.Series[Any]":
    kind = column_kind(name)
    values = values.reset_index(drop=True)
    if kind == "text":
        if name in (ISOLATION, NODES):
            return values.astype(object).fillna("null").astype(str).replace({"": "null", "None": "null"})
        return (values.astype(object).fillna("") if name == SCENARIO else values).astype(str)
    numbers = _numbers(values, name, place)
    if kind == "number":
        return pd.Series(numbers)
    wrong = np.flatnonzero(~np.isfinite(numbers) | (numbers != np.floor(np.nan_to_num(numbers))))
    if wrong.size:
        raise ConfigurationError(f"{place(int(wrong[0]), name)}: got {values[int(wrong[0])]!r}, needed a whole number")
    return values.astype("int64")


def _numbers(values: "pd.Series[Any]", name: str, place: _Place) -> Any:
    try:
        plain = values.dtype == np.float64
        numbers = values.to_numpy() if plain else values.to_numpy(dtype=np.float64, na_value=math.nan)
    except (TypeError, ValueError):
        raise ConfigurationError(
            f"{place(_first_text(values), name)}: {values[_first_text(values)]!r} is no number"
        ) from None
    signed = name.startswith(TRAFFIC_PREFIX)
    wrong = np.flatnonzero(np.isinf(numbers) | (False if signed else numbers < 0.0))
    if wrong.size:
        row = int(wrong[0])
        raise ConfigurationError(
            f"{place(row, name)}: got {numbers[row]:g}, needed a finite number{'' if signed else ' of 0 or more'}",
            hint="leave the cell empty where the counter could not be read, or drop the measurement",
        )
    return numbers


def _first_text(values: Iterable[Any]) -> int:
    for row, value in enumerate(values):
        try:
            float(value)
        except (TypeError, ValueError):
            return row
    return 0


def _check_rows(frame: pd.DataFrame, place: _Place) -> None:
    _require(frame[THROUGHPUT].notna(), THROUGHPUT, "nothing", "a throughput in Mpps", place)
    _require(frame[REPLICATES] >= 1, REPLICATES, "less than 1", "at least one replicate", place)
    _require(frame[PLAN].isin(list(Plan)), PLAN, "an unknown plan", f"one of {', '.join(Plan)}", place)
    _require(
        (frame[PLAN] == Plan.SOLO) == (frame[COMPETITOR_COUNT] == 0),
        COMPETITOR_COUNT,
        "another number",
        "0 in solo rows and only there",
        place,
    )
    repeated = frame.duplicated(subset=list(IDENTITY))
    _require(~repeated, RUN_KEY, "a measurement listed before", "one row per run, tenant and seed", place)


def _require(holds: "pd.Series[bool]", column: str, got: str, needed: str, place: _Place) -> None:
    wrong = np.flatnonzero(~holds.to_numpy(dtype=bool))
    if wrong.size:
        raise ConfigurationError(f"{place(int(wrong[0]), column)}: got {got}, needed {needed}")
