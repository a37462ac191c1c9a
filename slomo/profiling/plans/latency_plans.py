"""The plan that measures latency over load: alone, and beside some sets of competitors from a profile.

ResQ (NSDI'18) section 5.2 measures latency over load for an NF alone. The highest throughput of an NF beside given
competitors is known only from a saturated run beside them, so the plan is made from a profile's dataset.
"""

from collections.abc import Sequence
from numbers import Real

import numpy as np
import pandas as pd

from slomo.errors import InvalidValueError, MissingMetricError
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.records.dataset import ProfileDataset
from slomo.records.rows import competitors_from_cell, workload_from_columns
from slomo.records.schema import isolated
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.workload import Workload

#: Loads as shares of the possible throughput, close together since latency bends twice where bursts begin to fill.
LOADS = (0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
#: Number of competitions beside which latency is measured, in addition to alone.
PRESSURES = 5
_DIGITS = 5  # of an offered load [Mpps]: ten packets per second


def latency_plan(
    dataset: ProfileDataset,
    targets: Sequence[Workload | str] | None = None,
    *,
    loads: Sequence[float] = LOADS,
    pressures: int = PRESSURES,
    replicates: int = 1,
    seed: int = 0,
) -> ExperimentPlan:
    """Return the plan that runs targets at several loads, alone and beside sets of competitors from their profile.

    `dataset`: solo and pressure runs at full load. `targets`: all of the dataset by default. `loads`: shares of what
    the target served beside the same competition, above 0 and below 1. `pressures`: competitions per target besides
    none, evenly spread from the mildest to the hardest. `replicates`, `seed`: as in `ExperimentPlan`.

    Raises InvalidValueError for loads or a number of pressures out of range; MissingMetricError for a target that was
    never measured alone.

    >>> from slomo.profiling.campaign.run import run_campaign
    >>> from slomo.testing.builders import ToyTestbed, toy_plan
    >>> plan = latency_plan(run_campaign(toy_plan(), ToyTestbed()), loads=(0.5, 0.9), pressures=2)
    >>> [colocation.target.traffic.offered_mpps for colocation in plan.colocations][:2]
    [2.5, 4.5]
    """
    check_loads(loads)
    if pressures < 0:
        raise InvalidValueError(f"latency beside {pressures} pressures, needed 0 or more")
    frame = dataset.frame
    frame = frame[frame["plan"].isin(["solo", "pressure"]) & frame["offered_mpps"].isna()]
    frame = frame[~isolated(frame)]
    keys = None if targets is None else {item if isinstance(item, str) else item.key for item in targets}
    colocations = []
    for (machine, key), rows in frame.groupby(["machine", "target"], sort=False):
        if keys is None or str(key) in keys:
            colocations += _loaded(str(machine), str(key), rows, loads, pressures)
    if not colocations:
        target_names = "any target" if keys is None else ", ".join(sorted(keys))
        raise MissingMetricError(
            f"the dataset has no solo run of {target_names}, so there is no load to offer", hint="profile it first"
        )
    return ExperimentPlan("latency", tuple(dict.fromkeys(colocations)), replicates=replicates, seed=seed)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def check_loads(loads: Sequence[float]) -> tuple[float, ...]:
    """Return the loads; InvalidValueError for an empty list, or a load that is not above 0 and below 1."""
    if isinstance(loads, str) or not loads or not all(_is_number(load) and 0.0 < load < 1.0 for load in loads):
        shown = ", ".join(f"{load:g}" if _is_number(load) else repr(load) for load in loads) or "none"
        raise InvalidValueError(
            f"loads are {shown}, needed shares above 0 and below 1 of what was served",
            hint="0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95",
        )
    return tuple(float(load) for load in loads)


def _loaded(machine: str, key: str, rows: pd.DataFrame, loads: Sequence[float], pressures: int) -> list[Colocation]:
    """Return the runs of one target at several loads."""
    possible = rows.groupby("competitors", sort=False)["throughput_mpps"].median()
    alone = [cell for cell in possible.index if not competitors_from_cell(str(cell))]
    if not alone:
        raise MissingMetricError(
            f"'{key}' was never measured alone on {machine}", hint="profile it with plan solo, pressure or all"
        )
    pressed = possible.drop(alone).sort_values(ascending=False, kind="stable")
    pressed = pressed[pressed > 10.0**-_DIGITS / min(loads)]
    picked = np.linspace(0, len(pressed) - 1, min(pressures, len(pressed))).round().astype(int)
    target = workload_from_columns({str(name): value for name, value in rows.iloc[0].items()})
    settings = [(alone[0], float(possible[alone[0]])), *((c, float(m)) for c, m in pressed.iloc[picked].items())]
    return [
        Colocation(machine, target.offered(round(load * mpps, _DIGITS)), competitors_from_cell(str(cell)))
        for cell, mpps in settings
        for load in loads
    ]
