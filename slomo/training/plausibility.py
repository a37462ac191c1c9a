"""Find rows that no machine can have measured, and leave them out of training.

As in pyperf's checks, bounds are physical (port rates, instructions per packet), relative to medians of the same
network function (neighbours do not speed it up by half or halve its instructions), or detect frozen and contradictory
counters.
"""

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import slomo.records.schema as schema
from slomo.errors import SlomoError
from slomo.files.json_text import parse_json
from slomo.records.dataset import ProfileDataset
from slomo.records.importing.plausible import MOST_MPPS, MOST_OF_SOLO, PORT_SLACK
from slomo.training.features import FULL_PORT, limited_in_mixes
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.metrics import METRICS, Rule

#: Largest factor between dependent numbers: instructions per packet, misses per instruction.
MOST_APART = 2.0
#: Relative difference of throughputs beyond noise: equal counters at different throughputs were not read twice.
_DIFFERENT = 1.05
#: Least numbers of counters for which all zeros, or exact repetition, are suspicious.
_FEWEST_COUNTERS, _FEWEST_ALIKE = 3, 8
#: Counters that are positive on any core that executes instructions.
_ACTIVITY = ("INST", "FREQ", "AFREQ")
_QUOTIENTS = {name: str(metric.weight).split("/") for name, metric in METRICS.items() if metric.rule is Rule.QUOTIENT}
_Mask = NDArray[np.bool_]

if TYPE_CHECKING:
    import pandas as pd


def plausible_rows(dataset: ProfileDataset) -> ProfileDataset:
    """Return a dataset without impossible rows; a warning names each, with the reason."""
    frame, mpps = dataset.frame, dataset.throughput
    reasons = {**_by_counters(frame, mpps), **_by_throughput(frame, mpps, dataset.environment)}
    absurd = np.logical_or.reduce(list(reasons.values()))
    if not absurd.any():
        return dataset
    left, named = absurd.copy(), []
    for reason, rows in reasons.items():
        if (new := left & rows).any():
            listed = [f"{row} ({frame[schema.TARGET].iloc[row]}, {mpps[row]:.4g} Mpps)" for row in np.flatnonzero(new)]
            named.append(f"{reason}: row{'s' if len(listed) > 1 else ''} {', '.join(listed)}")
        left &= ~rows
    warnings.warn(
        f"{int(absurd.sum())} of {len(frame)} rows are implausible and left out; {'; '.join(named)}", stacklevel=3
    )
    return dataset.rows(~absurd)


def _by_throughput(
    frame: "pd.DataFrame", mpps: NDArray[np.float64], environment: Mapping[str, object]
) -> dict[str, _Mask]:
    keys = [schema.MACHINE, schema.TARGET]
    full = (frame[schema.OFFERED].isna() & ~schema.isolated(frame)).to_numpy(copy=True)
    full &= (mpps > 0.0) & (mpps <= MOST_MPPS)
    alone = full & (frame[schema.PLAN] == schema.Plan.SOLO).to_numpy()
    featured = [name for name in frame.columns if str(name).startswith(schema.TRAFFIC_PREFIX)]
    if featured:  # traffic that the key does not distinguish has its own solo throughput
        alone &= frame[featured].isna().all(axis=1).to_numpy()
        full &= frame[featured].isna().all(axis=1).to_numpy()

    def median(values: NDArray[np.float64], of: _Mask) -> NDArray[np.float64]:
        chosen = frame[keys].assign(value=np.where(of, values, np.nan))
        return chosen.groupby(keys)["value"].transform("median").to_numpy()

    length, rates = frame["own.INST"].to_numpy() / np.where(mpps > 0.0, mpps, np.nan), _line_rates(frame, environment)
    shares = limited_in_mixes(frame, environment)  # waiting for a port executes more, above all behind a shared one
    usual = median(length, full & ~shares & ~(mpps > FULL_PORT * rates))
    usual = np.where(np.isnan(usual), median(length, full & ~shares), usual)
    return {
        f"above the {MOST_MPPS:.0f} Mpps that any port carries": mpps > MOST_MPPS,
        "above the machine's line rate": mpps > PORT_SLACK * rates,
        f"more than {MOST_OF_SOLO:g} times the median of solo runs": mpps > MOST_OF_SOLO * median(mpps, alone),
        f"less than 1/{MOST_APART:g} of the instructions that a packet takes": length * MOST_APART < usual,
    }


def _line_rates(frame: "pd.DataFrame", environment: Mapping[str, object]) -> NDArray[np.float64]:
    """Return the rate that the ports of each row's machine can carry [Mpps]; NaN if unknown."""
    rates, described = np.full(len(frame), np.nan), environment.get("machines")
    if environment.get("testbed") != "simulated" or not isinstance(described, Mapping):
        return rates
    machines, sizes = frame[schema.MACHINE].to_numpy(), frame[schema.PACKET_SIZE].to_numpy()
    for name, size in dict.fromkeys(zip(machines, sizes, strict=True)):
        try:
            rate = Machine.from_dict(described[name]).line_rate_mpps(int(size))
            rates[(machines == name) & (sizes == size)] = rate
        except (SlomoError, KeyError, TypeError):
            continue  # a machine of an imported table, whose ports are unknown
    return rates


def _by_counters(frame: "pd.DataFrame", mpps: NDArray[np.float64]) -> dict[str, _Mask]:
    beside = (frame[schema.COMPETITOR_COUNT] > 0).to_numpy()
    masks: dict[str, _Mask] = {}
    for prefix, active, whose in (("competition", beside, "the competition"), ("own", mpps > 0.0, "the target")):
        values = frame[[f"{prefix}.{name}" for name in METRICS]].set_axis(list(METRICS), axis=1)
        enough = active & (np.isfinite(values).sum(axis=1) >= _FEWEST_COUNTERS).to_numpy()
        masks[f"every counter of {whose} 0"] = enough & ~(values.fillna(0.0) != 0.0).any(axis=1).to_numpy()
        idle = (values[list(_ACTIVITY)] == 0.0).any(axis=1).to_numpy()
        masks[f"{whose} ran without instructions or cycles"] = enough & idle
        apart = np.zeros(len(frame), dtype=bool)
        for name, (over, under) in _QUOTIENTS.items():
            expected, seen = (values[name] * values[under]).to_numpy(), values[over].to_numpy()
            apart |= np.maximum(expected, seen) > MOST_APART * np.minimum(expected, seen) + 0.01
        masks[f"counters of {whose} contradict each other"] = enough & apart
        many = active & (np.isfinite(values).sum(axis=1) >= _FEWEST_ALIKE).to_numpy()
        numbers: dict[bytes, int] = {}
        codes = [numbers.setdefault(row.tobytes(), len(numbers)) for row in values.to_numpy(dtype=np.float64)]
        alike = frame.assign(alike=np.where(many, codes, np.nan))["alike"]
        masks[f"counters of {whose} stood still"] = many & _stood_still(frame, mpps, alike, prefix)
    return masks


def _stood_still(frame: "pd.DataFrame", mpps: NDArray[np.float64], alike: "pd.Series[float]", prefix: str) -> _Mask:
    """Return rows whose counters equal an earlier row's although tenants or throughput differ."""
    if prefix == "own":
        first = (
            frame[schema.THROUGHPUT].groupby([frame[schema.MACHINE], frame[schema.TARGET], alike]).transform("first")
        )
        values = first.to_numpy(dtype=np.float64)
        still: _Mask = np.maximum(mpps, values) > _DIFFERENT * np.minimum(mpps, values)
        return still
    cells = frame[schema.COMPETITORS].where(alike.duplicated(keep=False), "[]")
    mixes = cells.map({cell: str(sorted(map(str, parse_json(cell, "competitors")))) for cell in cells.unique()})
    return (mixes != mixes.groupby([frame[schema.MACHINE], alike]).transform("first")).to_numpy()
