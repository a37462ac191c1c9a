"""Numbers that indicate sensitivity and pressure of functions known by name: from probes, and counters of solo runs.

`slomo.training.pairs` draws hidden sensitivities and pressures towards a straight line over these hints.
"""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from slomo.models.base import Floats
from slomo.models.nf_model import NFModel
from slomo.records.dataset import ProfileDataset
from slomo.records.schema import PROBES, isolated, placed

if TYPE_CHECKING:
    import pandas as pd


#: Least number of functions with hints.
FEWEST_HINTS = 3
#: References of the last-level cache, its misses, and the part of it that the function holds.
COUNTERS = ("L2MISS", "L3MISS", "L3OCC")
#: Source -> hints of each function's sensitivity (first row) and pressure (second row), standardised, shape (functions,
#: 2, numbers); 0 where unknown. Source "" has none.
Hints = dict[str, Floats]


def hints_of(dataset: ProfileDataset, machine: str, models: Sequence[NFModel]) -> Hints:
    """Return the hints of a machine's functions."""
    hints = {"": np.zeros((len(models), 2, 1))}
    for source, values in (
        ("probes", _probed(dataset, machine, models)),
        ("counters", _counted(dataset, machine, models)),
    ):
        known = np.logical_and.reduce(np.isfinite(values), axis=(1, 2))
        if known.sum() >= FEWEST_HINTS:
            away = values - values[known].mean(axis=0)
            spread = np.maximum(values[known].std(axis=0), 1e-9)
            hints[source] = np.where(known[:, np.newaxis, np.newaxis], away / spread, 0.0)
    return hints


def _probed(dataset: ProfileDataset, machine: str, models: Sequence[NFModel]) -> Floats:
    """Return what probes tell of each function, shape (functions, 2, 1); NaN without probes."""
    probes = dataset.environment.get(PROBES, {}).get(machine, {})
    of_functions = [probes.get(model.workload.nf, {}) for model in models]
    return np.array([[[each.get(name, np.nan)] for name in ("suffers", "presses")] for each in of_functions])


def _counted(dataset: ProfileDataset, machine: str, models: Sequence[NFModel]) -> Floats:
    """Return logarithms of each function's counters in solo runs, shape (functions, 2, 1 or 2); NaN without these.

    For its sensitivity: hits per second and occupancy of the last-level cache; for its pressure: references per second
    and occupancy (SLOMO, SIGCOMM'20, section 3; Dobrescu et al., NSDI'12, section 5). Of twelve forms, this one had the
    smallest error in held-out runs of simulated pairs (`benchmarks/pairs.py`, draws 0 to 3). Occupancy may be missing.
    A warning names functions without counters if others have them.
    """
    frame, keys = dataset.frame, [model.workload.key for model in models]
    alone = frame[(frame["plan"] == "solo") & frame["offered_mpps"].isna() & ~isolated(frame) & ~placed(frame)]
    here = alone[alone["machine"] == machine].groupby("target")[[f"own.{name}" for name in COUNTERS]].median()
    names = [name for name in COUNTERS if name != "L3OCC" or here["own.L3OCC"].notna().any()]
    counters = here.reindex(keys).set_axis(list(COUNTERS), axis=1)[names]
    counted = alone[alone.filter(regex=r"^own\.").notna().any(axis=1) & alone["target"].isin(keys)]
    if len(counted) and (lacking := counters.index[counters.isna().any(axis=1)].tolist()):
        uncounted = [f"'{key}' ({_where_missing(counted, machine, key, names)})" for key in lacking]
        warnings.warn(
            f"co-locations by name on {machine}: functions without counters {', '.join(names)} of a solo run there "
            f"count as average: {', '.join(uncounted)}",
            stacklevel=4,
        )
    levels = counters.assign(L3MISS=(counters["L2MISS"] - counters["L3MISS"]).clip(lower=0.0))
    # a counter of zero is as far below the median as a fiftieth of it
    usual = levels.median().to_numpy(dtype=float)
    references, hits, *held = np.log(levels.to_numpy(dtype=float) + 0.02 * usual + 1e-6).T
    return np.stack([[hits, references], *([each, each] for each in held)], axis=2).transpose(1, 0, 2)


def _where_missing(counted: "pd.DataFrame", machine: str, key: str, names: Sequence[str]) -> str:
    """Return row and column in which a function's solo runs lack counters; `counted` are solo runs with any."""
    own = counted[counted["target"] == key]
    here = own[own["machine"] == machine]
    if len(here):
        name = next(name for name in names if here[f"own.{name}"].isna().all())
        return f"row {here.index[0]}, column own.{name}: missing"
    return f"row {own.index[0]}, column machine: {own['machine'].iloc[0]}" if len(own) else "no solo run"
