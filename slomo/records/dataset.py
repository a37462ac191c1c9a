"""A dataset: every measurement of a campaign in one table, with a description of how it was measured.

One table holds SLOMO's (SIGCOMM'20, section 4.1) pairs (V, P), which train sensitivity models, and its contentiousness
profiles, which are core-level vectors. It has one row per measurement and target.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import slomo.records.host_effect as host_effect
import slomo.records.provenance as provenance
import slomo.records.rows as rows
import slomo.records.schema as schema
import slomo.records.tables as tables
from slomo.errors import IncompatibleMeasurementsError, InvalidValueError, MissingMetricError, UnknownNameError
from slomo.records.measurement import Measurement, Stability
from slomo.records.run import RunRecord
from slomo.records.schema import Plan
from slomo.units import plural
from slomo.vocabulary.display import drawn, html_table
from slomo.vocabulary.metrics import METRICS, canonical_names
from slomo.vocabulary.workload import Workload

if TYPE_CHECKING:
    from slomo.vocabulary.display import Axes


class ProfileDataset:
    """Measurements as a table with fixed columns, and the environment in which they were made.

    Parameters
    ----------
    frame : DataFrame
        One row per measurement and target; columns of `slomo.records.schema`. Metrics of missing vector columns count
        as not reported.
    environment : mapping, optional
        Description of how and where it was measured (`slomo.records.provenance`); JSON values only.

    Raises
    ------
    ConfigurationError
        If the frame does not follow the schema.

    Examples
    --------
    >>> empty = ProfileDataset.from_measurements([], {"testbed": "simulated"})
    >>> len(empty), empty.targets
    (0, ())
    """

    def __init__(self, frame: pd.DataFrame, environment: Mapping[str, Any] | None = None) -> None:
        self._frame = schema.check_frame(frame)
        self._environment: dict[str, Any] = json.loads(
            json.dumps(dict(environment or {}), sort_keys=True, allow_nan=False)
        )
        provenance.require_felt(self._environment)

    @property
    def frame(self) -> pd.DataFrame:
        """A copy of the table as a pandas frame."""
        return self._frame.copy()

    @property
    def environment(self) -> dict[str, Any]:
        """A copy of the description of how the measurements were made."""
        environment: dict[str, Any] = json.loads(json.dumps(self._environment))
        return environment

    @property
    def targets(self) -> tuple[str, ...]:
        """Keys of the workloads that were targets, in order of appearance."""
        return tuple(map(str, self._frame[schema.TARGET].unique()))

    @property
    def profiled_targets(self) -> tuple[str, ...]:
        """Those :attr:`targets` that were profiled, in contrast to only measured in mixes."""
        full = self._frame[schema.OFFERED].isna()
        saturated = self._frame["nf"].isin(self._frame.loc[full, "nf"])
        listed = full | (~saturated & (self._frame[schema.PLAN] != Plan.MIX))
        return tuple(map(str, self._frame.loc[listed, schema.TARGET].unique()))

    @property
    def machines(self) -> tuple[str, ...]:
        """Names of the machines measured, in order of appearance."""
        return tuple(map(str, self._frame[schema.MACHINE].unique()))

    @property
    def throughput(self) -> NDArray[np.float64]:
        """The target's throughput of every row [Mpps], shape ``(n_rows,)``."""
        return self._frame[schema.THROUGHPUT].to_numpy(dtype=np.float64, copy=True)

    def __len__(self) -> int:
        return len(self._frame)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProfileDataset):
            return NotImplemented
        return self._environment == other._environment and self._frame.equals(other._frame)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        places = ", ".join(self.machines) or "no machine"
        return f"ProfileDataset({plural(len(self), 'row')}, {plural(len(self.profiled_targets), 'target')} on {places})"

    def select(
        self, target: str | None = None, machine: str | None = None, plan: str | Sequence[str] | None = None
    ) -> "ProfileDataset":
        """Return the rows of one target (workload key or NF name), machine and plan.

        Raises
        ------
        UnknownNameError
            For a target, machine or plan that does not occur; the message names the most similar one that does.
        """
        keep = np.ones(len(self), dtype=bool)
        if target is not None:
            rows = self._frame[schema.TARGET] == target
            if not rows.any():
                rows = self._matching(schema.NF, target, "target", self.profiled_targets)
            keep &= rows.to_numpy(dtype=bool)
        if machine is not None:
            keep &= self._matching(schema.MACHINE, machine, "machine", self.machines).to_numpy(dtype=bool)
        if plan is not None:
            plans = [plan] if isinstance(plan, str) else list(plan)
            for name in plans:
                if name not in list(Plan):
                    raise UnknownNameError("plan", name, Plan)
            keep &= self._frame[schema.PLAN].isin(plans).to_numpy(dtype=bool)
        return self.rows(keep)

    def converged(self) -> "ProfileDataset":
        """Return the rows of runs that converged; only these are used for training.

        Examples
        --------
        >>> len(ProfileDataset.from_measurements([], {"testbed": "simulated"}).converged())
        0
        """
        return self.rows((self._frame[schema.STABILITY] != Stability.UNCONVERGED).to_numpy())

    def vectors(self, prefix: str, names: Iterable[str] | None = None) -> pd.DataFrame:
        """Return the metrics of vector `prefix` of all rows as a frame; NaN for metrics not reported.

        Parameters
        ----------
        prefix : {'competition', 'beside', 'own'}
            The competition alone, the competition beside the target, or the target itself.
        names : iterable of str, optional
            Metrics in the wanted order; by default all that were reported.

        Raises
        ------
        MissingMetricError
            For a metric that no row reports.
        """
        metrics = self.metric_names(prefix) if names is None else tuple(canonical_names([name])[0] for name in names)
        lacking = [
            name for name in metrics if len(self) and self._frame[schema.metric_column(prefix, name)].isna().all()
        ]
        if lacking:
            there = ", ".join(self.metric_names(prefix)) or "none"
            raise MissingMetricError(
                f"no row of this dataset reports {prefix}.{', '.join(lacking)}; it has: {there}",
                hint="missing is unknown, not zero; measure these counters too, or use a model that does without",
            )
        return self._frame[[schema.metric_column(prefix, name) for name in metrics]].set_axis(list(metrics), axis=1)

    def metric_names(self, prefix: str) -> tuple[str, ...]:
        """Return the metrics of vector `prefix` that have values.

        Zeros in solo rows count as values only if the dataset has no other rows.
        """
        schema.metric_column(prefix, "IPC")
        contended = self._frame[self._frame[schema.COMPETITOR_COUNT] > 0]
        judged = contended if len(contended) and prefix != "own" else self._frame
        return tuple(name for name in METRICS if bool(judged[schema.metric_column(prefix, name)].notna().any()))

    def workload(self, target: str) -> Workload:
        """Return the workload with this key.

        Raises
        ------
        UnknownNameError
            If the dataset has no such target.
        """
        chosen = self.select(target=target)._frame
        return rows.workload_from_columns({str(name): value for name, value in chosen.iloc[0].items()})

    def competitors(self, row: int) -> tuple[Workload, ...]:
        """Return the competitors of row number `row`, one entry per instance."""
        return rows.competitors_from_cell(str(self._frame[schema.COMPETITORS].iloc[row]))

    @cached_property
    def tenants(self) -> tuple[list[Workload], list[tuple[Workload, ...]]]:
        """The targets, and the competitors, of all rows."""
        targets, keys = {key: self.workload(key) for key in self.targets}, self._frame[schema.TARGET]
        return [targets[str(key)] for key in keys], [self.competitors(row) for row in range(len(keys))]

    def solo_mpps(self, target: str, machine: str | None = None) -> float:
        """Return the solo throughput of a target [Mpps]; :meth:`solo_source` gives its source.

        Raises
        ------
        MissingMetricError
            If the dataset has neither solo rows of the target, nor a stated solo throughput, nor imported measurements.
        """
        return self._solo(target, machine)[0]

    def solo_source(self, target: str, machine: str | None = None) -> str:
        """Return the source of the solo throughput: ``measured``, ``stated`` or ``best measured``.

        ``best measured`` is the highest throughput in an imported table without solo runs; slowdowns are then relative
        to this throughput.
        """
        return self._solo(target, machine)[1]

    def _solo(self, target: str, machine: str | None) -> tuple[float, str]:
        chosen = self.select(target=target, machine=machine)._frame
        solos = chosen[chosen[schema.PLAN] == Plan.SOLO]
        elsewhere = schema.placed(solos)
        solo = solos.loc[~elsewhere if not elsewhere.all() else elsewhere, schema.THROUGHPUT]
        if len(solo):
            return float(solo.median()), "measured"
        stated = self._environment.get("stated_solo_mpps", {})
        for name in (target, str(chosen[schema.TARGET].iloc[0])):
            if isinstance(stated, Mapping) and name in stated:
                return float(stated[name]), "stated"
        imported = chosen.loc[chosen[schema.PLAN] == Plan.IMPORTED, schema.THROUGHPUT]
        if len(imported):
            return float(imported.max()), "best measured"
        raise MissingMetricError(
            f"solo throughput of '{target}' is not in this dataset: none of its {len(chosen)} rows is solo",
            hint="profile it with the solo plan and merge the two datasets",
        )

    def merge(self, other: "ProfileDataset") -> "ProfileDataset":
        """Return the rows of both datasets; a measurement that is in both appears once.

        If the datasets hold readings of two hosts' reporters (probe programs), the other dataset's readings are
        converted to this dataset's units, by competitions that both hosts probed (`slomo.records.host_effect`). A run
        in both datasets is taken from this one.

        Raises
        ------
        IncompatibleMeasurementsError
            If the environments differ in fields that must agree, if a measurement has other numbers in the other
            dataset, if one has shares of solo throughput where the other has Mpps, or if two probed hosts share too few
            competitions or their reporters' readings do not correspond.
        """
        for one, two in ((self, other), (other, self)):
            _require_one_unit(one, two)
        mine, theirs = self._environment, other._environment
        if host_effect.calibration_of(mine) != host_effect.calibration_of(theirs) != "":
            return self._with_host(other)
        environment = provenance.merge_environments(mine, theirs)
        both = pd.concat(
            [part for part in (self._frame, other._frame) if len(part)] or [self._frame], ignore_index=True
        )
        both = both.drop_duplicates(ignore_index=True)
        again = both[both.duplicated(subset=list(schema.IDENTITY), keep=False)]
        if len(again):
            raise IncompatibleMeasurementsError(
                _conflict(again), hint="one of them was measured under other conditions; keep the datasets apart"
            )
        return ProfileDataset(both, environment)

    def _with_host(self, other: "ProfileDataset") -> "ProfileDataset":
        """Return the rows of both datasets, with another host's probe readings converted to common units."""
        first, second = (
            host_effect.by_competition(each._frame, each.metric_names("competition")) for each in (self, other)
        )
        both = first.index.intersection(second.index)
        effect = host_effect.effect_of_shared(first.loc[both], second.loc[both])
        frame, known = other._frame.copy(), self._frame.set_index(list(schema.IDENTITY)).index
        for name, factor in effect.factors.items():
            columns = [schema.metric_column(prefix, name) for prefix in schema.PREFIXES]
            frame[columns] = frame[columns] * factor
        if other._environment["settings"].get("interleaved"):  # throughput is relative to the host's solo throughput
            for target in set(self.targets) & set(other.targets):
                ours, theirs = self.solo_mpps(target), other.solo_mpps(target)
                rows = frame[schema.TARGET] == target
                frame.loc[rows, schema.THROUGHPUT] *= ours / theirs
                if schema.THROUGHPUT_SE in frame:
                    frame.loc[rows, schema.THROUGHPUT_SE] *= ours / theirs
        frame = frame[~frame.set_index(list(schema.IDENTITY)).index.isin(known)]
        hosts = host_effect.joined_hosts(self._environment, other._environment, effect)
        shared = [host_effect.shared_environment(each._environment) for each in (self, other)]
        joined = host_effect.joined_environment(provenance.merge_environments(*shared), hosts)
        return ProfileDataset(pd.concat([self._frame, frame], ignore_index=True), joined)

    @classmethod
    def from_measurements(
        cls,
        measurements: Iterable[Measurement],
        environment: Mapping[str, Any] | None = None,
        *,
        plan: str | None = None,
    ) -> "ProfileDataset":
        """Build a dataset with one row for each summarised measurement.

        Parameters
        ----------
        measurements : iterable of Measurement
            Measurements, each with a target.
        environment : mapping, optional
            Provenance that all measurements share.
        plan : str, optional
            Plan of the rows with competitors; by default it follows from the competitors.
        """
        chosen = None if plan is None else Plan(plan)
        return cls._from_rows([rows.measurement_row(item, chosen) for item in measurements], environment)

    @classmethod
    def from_records(
        cls,
        records: Iterable[RunRecord],
        environment: Mapping[str, Any] | None = None,
        *,
        limit: float = 0.05,
    ) -> "ProfileDataset":
        """Build a dataset from raw runs: repeated runs are summarised, and a mix gives one row per tenant.

        `records`: runs in any order; runs of the same co-location are replicates. Runs without a target are left out.
        `environment`: provenance that all runs share. `limit`: largest dispersion of replicates that still counts as
        stable.
        """
        return cls._from_rows(rows.record_rows(records, limit=limit), environment)

    @classmethod
    def _from_rows(cls, listed: Sequence[rows.Row], environment: Mapping[str, Any] | None) -> "ProfileDataset":
        if not listed:
            return cls(pd.DataFrame({name: [] for name in schema.BASE_COLUMNS}), environment)
        return cls(pd.DataFrame(listed).drop_duplicates(ignore_index=True), environment)

    def to_parquet(self, path: str | Path) -> None:
        """Write the dataset to a parquet file, without rounding; equal datasets give equal bytes.

        Raises
        ------
        StoreError
            If the file cannot be written.
        """
        tables.write_parquet(Path(path), self._frame, self._environment)

    @classmethod
    def read_parquet(cls, path: str | Path) -> "ProfileDataset":
        """Read a parquet file written by :meth:`to_parquet`. Raises ConfigurationError for any other file."""
        return cls._checked(*tables.read_parquet(Path(path)))

    def to_csv(self, path: str | Path) -> None:
        """Write the dataset to a CSV file, without rounding; raise StoreError if that fails."""
        tables.write_csv(Path(path), self._frame, self._environment)

    @classmethod
    def read_csv(cls, path: str | Path) -> "ProfileDataset":
        """Read a CSV file written by :meth:`to_csv`; ConfigurationError, with line and column, for any other file."""
        return cls._checked(*tables.read_csv(Path(path)))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping that :meth:`from_dict` reads back; missing values are None."""
        columns = {name: [_plain(value) for value in self._frame[name].tolist()] for name in self._frame.columns}
        reported = {
            name: values
            for name, values in columns.items()
            if name not in schema.METRIC_COLUMNS or any(v is not None for v in values)
        }
        return {"schema_version": schema.SCHEMA_VERSION, "environment": self.environment, "columns": reported}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ProfileDataset":
        """Rebuild a dataset from :meth:`to_dict`'s mapping."""
        environment = tables.check_head("dataset", dict(data))
        if not isinstance(data.get("columns"), Mapping):
            raise InvalidValueError("a dataset's 'columns' must be a mapping of column name to list of values")
        return cls(
            pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in data["columns"].items()}),
            environment,
        )

    def _matching(self, column: str, name: str, kind: str, valid_names: Sequence[str]) -> "pd.Series[bool]":
        matching_rows = self._frame[column] == name
        if not matching_rows.any():
            raise UnknownNameError(kind, name, valid_names)
        return matching_rows

    def rows(self, keep: NDArray[np.bool_]) -> "ProfileDataset":
        """Return the rows selected by a mask."""
        return self._checked(self._frame[keep].reset_index(drop=True), self._environment)

    @classmethod
    def _checked(cls, frame: pd.DataFrame, environment: dict[str, Any]) -> "ProfileDataset":
        made = object.__new__(cls)
        made._frame, made._environment = frame, environment
        return made

    def to_frame(self) -> pd.DataFrame:
        """Return a copy of the rows."""
        return self._frame.copy()

    def plot(self, ax: "Axes | None" = None, *, target: str | None = None) -> "Axes":
        """Draw a target's measured slowdown over its competitors' cache access rate and over their cache occupancy.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; new axes by default.
        target : str, optional
            Workload key or name; by default the first target that was profiled.

        Returns
        -------
        matplotlib Axes
            Where it was drawn.

        Raises
        ------
        MissingMetricError
            If the dataset lacks one of the two metrics or the target's solo throughput.
        """
        return drawn("surface", self, target or next(iter(self.profiled_targets), ""), ax)

    def _repr_html_(self) -> str:
        plans = self._frame[schema.PLAN].value_counts()
        caption = f"{plural(len(self), 'row')}: " + ", ".join(
            f"{plans[plan]} {plan}" for plan in Plan if plan in plans.index
        )
        listed = self._frame[self._frame[schema.TARGET].isin(self.profiled_targets)]
        grouped = listed.groupby([schema.MACHINE, schema.TARGET], sort=False)[schema.THROUGHPUT]
        rows = grouped.agg(["size", "min", "max"]).reset_index().itertuples(index=False)
        cells = ((row[0], row[1], row[2], f"{row[3]:.3g} to {row[4]:.3g}") for row in rows)
        return html_table(caption, ("machine", "target", "rows", "throughput [Mpps]"), cells)


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _require_one_unit(one: ProfileDataset, other: ProfileDataset) -> None:
    """Raise an error if `one` has shares of solo throughput of a function whose rates are Mpps in `other`."""
    units, frame = other._environment.get("throughput_units", {}), other._frame
    for machine, names in one._environment.get("throughput_units", {}).items():
        in_mpps = names.keys() - units.get(machine, {}).keys()
        rows = np.flatnonzero((frame[schema.MACHINE] == machine) & frame[schema.NF].isin(in_mpps))
        if len(rows):
            row = frame.iloc[rows[0]]
            raise IncompatibleMeasurementsError(
                f"'{row[schema.NF]}' on {machine} has shares of solo throughput in one dataset, and "
                f"{row[schema.THROUGHPUT]:.4g} Mpps in row {rows[0]}, column {schema.THROUGHPUT}, of the other",
                hint="import its rates beside others in Mpps, too: multiply the shares by its solo throughput",
            )


def _conflict(again: pd.DataFrame) -> str:
    first = again.iloc[0]
    twin = again[(again[list(schema.IDENTITY)] == first[list(schema.IDENTITY)]).all(axis=1)].iloc[1]
    lines = [
        f"  {name}: {first[name]} | {twin[name]}"
        for name in again.columns
        if first[name] != twin[name] and not (_plain(first[name]) is None and _plain(twin[name]) is None)
    ]
    what = f"run {first[schema.RUN_KEY]} of '{first[schema.TARGET]}' on {first[schema.MACHINE]}"
    return f"these measurements must not be merged, {what} has other numbers (first | second):\n" + "\n".join(
        lines[:12]
    )
