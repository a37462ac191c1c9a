"""Facts about what full ports and missing latencies do to what is learned from a profile and its mixes."""

import numpy as np
import pandas as pd
import pytest

from slomo.records.catalog import find_dataset
from slomo.records.dataset import ProfileDataset
from slomo.training.features import limited_by_ports, limited_in_mixes, subjects
from slomo.training.plausibility import _by_throughput

SHIPPED = "slomo-silver-4110"


@pytest.fixture(scope="module")
def mixes() -> pd.DataFrame:
    """Return a few shipped mixes of two and three, as if their packets had 1500 B: some fill ports of 80 Gbit/s."""
    frame = find_dataset(SHIPPED).frame
    frame = frame[(frame["plan"] == "mix") & frame["offered_mpps"].isna() & frame["competitor_count"].isin([1, 2])]
    frame = frame[frame["run_key"].isin(frame["run_key"].unique()[:20])]
    return frame.assign(packet_size_b=1500).reset_index(drop=True)


def test_who_sends_most_in_a_mix_that_fills_the_ports_is_limited_by_them(mixes: pd.DataFrame) -> None:
    """Every tenant of a mix is a row, so that the sum is exact; a run with a row missing is judged by its counters."""
    environment = find_dataset(SHIPPED).environment
    environment["machines"]["silver-4110"] |= {"nic_gbps": 40.0}
    limited = limited_in_mixes(mixes, environment)

    gbps = (mixes["packet_size_b"] + 20) * 8e-3 * mixes["throughput_mpps"]
    total, most = (gbps.groupby(mixes["run_key"]).transform(how) for how in ("sum", "max"))
    np.testing.assert_array_equal(limited, (total > 0.97 * 80.0) & (gbps > 0.97 * most))
    assert 0 < limited.sum() < len(mixes)
    part = mixes.drop_duplicates("run_key")
    np.testing.assert_array_equal(limited_in_mixes(part, environment), limited_by_ports(part, environment))


def test_where_nothing_misses_there_is_no_latency_to_report() -> None:
    """A third of the competitors miss nothing and so tell no latency: the others' still teaches waiting."""
    shipped = find_dataset(SHIPPED)
    frame = shipped.frame[(shipped.frame["nf"] == "snort") & (shipped.frame["plan"] != "mix")].reset_index(drop=True)
    third = (np.arange(len(frame)) % 3 == 0) & (frame["competitor_count"] > 0)

    def names(misses: float) -> tuple[str, ...]:
        changed = frame.copy()
        changed.loc[third, "beside.LLCMISSLAT"], changed.loc[third, "beside.L3MISS"] = np.nan, misses
        return next(subjects(ProfileDataset(changed, shipped.environment))).beside_names

    assert "LLCMISSLAT" in names(0.0)
    assert "LLCMISSLAT" not in names(1.0)


def test_who_polls_behind_a_full_port_does_not_make_other_runs_implausible() -> None:
    """Most runs of a function are at its port's line rate, with thrice the instructions: the others are sound."""
    shipped = find_dataset(SHIPPED)
    frame = shipped.frame[(shipped.frame["nf"] == "snort") & (shipped.frame["plan"] == "pressure")]
    frame = frame[frame["offered_mpps"].isna()].reset_index(drop=True)
    port = np.arange(len(frame)) % 3 > 0
    line_rate = 1e3 * shipped.environment["machines"]["silver-4110"]["nic_gbps"] / (84 * 8)
    frame["own.INST"] *= np.where(port, 3.0 * line_rate / frame["throughput_mpps"], 1.0)
    frame.loc[port, "throughput_mpps"] = line_rate

    found = _by_throughput(frame, frame["throughput_mpps"].to_numpy(), shipped.environment)

    assert not any(rows.any() for rows in found.values())
