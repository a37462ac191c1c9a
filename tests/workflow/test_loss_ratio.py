"""Throughput at a loss ratio, searched by MLRsearch."""

import pytest

from slomo.errors import TestbedError
from slomo.workflow.acting.noisy_neighbour import search_throughput


@pytest.mark.parametrize(("loss_ratio", "expected_pps"), [(0.0, 2e6), (0.1, 2e6 / 0.9)])
def test_the_search_finds_the_highest_load_within_the_ratio(loss_ratio: float, expected_pps: float) -> None:
    """A path that serves 2 Mpps is found within the width asked for, from below."""
    pytest.importorskip("MLRsearch")

    low, high = search_throughput(lambda _, load: max(0.0, 1 - 2e6 / load), loss_ratio, least_pps=1e5, most_pps=1e7)

    assert low <= expected_pps <= high
    assert low == pytest.approx(expected_pps, rel=0.011)


def test_a_path_that_always_loses_is_told() -> None:
    """Where the least load already loses more than allowed, the error says so."""
    pytest.importorskip("MLRsearch")

    with pytest.raises(TestbedError, match="more than 1 % are lost at every load down to 1000 packets/s"):
        search_throughput(lambda *_: 0.1, 0.01, least_pps=1e3, most_pps=1e7)
