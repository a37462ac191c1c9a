"""Rows that no machine can have measured are named and kept out of training.

Robust as pyperf's checks of a benchmark are: a bound by physics (no port carries more), one by the median of solo runs
(neighbours do not make an NF half as fast again), and counters that stood still while competitors ran.
"""

import warnings

import numpy as np

import slomo.records.schema as schema
from slomo.records.dataset import ProfileDataset
from slomo.records.importing.plausible import MOST_MPPS

#: Throughput beside others over the median of solo runs that noise and turbo do not explain.
MOST_OF_SOLO = 1.5
#: A competition of fewer counters may well be all zeros.
_FEWEST_COUNTERS = 3


def plausible_rows(dataset: ProfileDataset) -> ProfileDataset:
    """Return a dataset without rows that cannot be; a warning names each with the reason."""
    frame = dataset.frame
    mpps = dataset.throughput
    alone = (
        (frame[schema.PLAN] == schema.Plan.SOLO) & frame[schema.OFFERED].isna() & (frame[schema.ISOLATION] == "null")
    )
    alone &= mpps <= MOST_MPPS
    featured = [name for name in frame.columns if str(name).startswith(schema.TRAFFIC_PREFIX)]
    if featured:  # traffic that the key does not tell apart has a solo throughput of its own
        alone &= frame[featured].isna().all(axis=1)
    keys = [schema.MACHINE, schema.TARGET]
    solo = frame[keys].assign(mpps=np.where(alone, mpps, np.nan)).groupby(keys)["mpps"].transform("median").to_numpy()
    competition = frame[[name for name in frame.columns if str(name).startswith("competition.")]].to_numpy(dtype=float)
    counters = np.isfinite(competition).sum(axis=1)
    still = (frame[schema.COMPETITOR_COUNT] > 0).to_numpy() & (counters >= _FEWEST_COUNTERS)
    still &= ~(np.nan_to_num(competition) != 0.0).any(axis=1)
    limit = MOST_OF_SOLO * np.nan_to_num(solo, nan=np.inf)
    reasons = {
        f"above the {MOST_MPPS:.0f} Mpps that any port carries": mpps > MOST_MPPS,
        f"more than {MOST_OF_SOLO:g} times the median of solo runs": mpps > limit,
        "every counter of the competition 0": still,
    }
    absurd = np.logical_or.reduce(list(reasons.values()))
    if not absurd.any():
        return dataset
    named = [
        f"row {row} ({frame[schema.TARGET].iloc[row]}, {mpps[row]:.4g} Mpps): "
        + next(reason for reason, rows in reasons.items() if rows[row])
        for row in np.flatnonzero(absurd)[:20]
    ]
    warnings.warn(
        f"{int(absurd.sum())} of {len(frame)} rows are implausible and left out of training: {'; '.join(named)}",
        stacklevel=3,
    )
    return dataset.rows(~absurd)
