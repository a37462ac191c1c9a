"""Facts about what runs that fill the memory channel teach: the latency there, and what cards read back."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from slomo.models.contentiousness import pressure_basis
from slomo.training.features import Subject
from slomo.training.server_response_fit import _with_long_queues
from slomo.training.waiting import FULL_CHANNEL, full_channel_ns
from slomo.vocabulary.capacities import Capacities
from slomo.vocabulary.metrics import METRICS
from slomo.vocabulary.workload import Traffic, Workload

CAPACITIES = Capacities(8, memory_gb_s=10.0)
MOST = CAPACITIES.limit(METRICS["LMB"])
#: Memory traffic of one line per packet [MiB/s per Mpps].
LINE = 64e6 / 2**20


def runs(share: list[float], latency: list[float]) -> pd.DataFrame:
    """Return runs in which all together move these shares of the channel."""
    own = 0.25 * np.array(share) * MOST
    return pd.DataFrame({"own.LMB": own, "beside.LMB": 3.0 * own, "beside.LLCMISSLAT": latency})


def test_a_channel_is_just_full_at_99_percent() -> None:
    """How long requests wait beyond that in some of the runs does not matter; with few full runs it is unknown."""
    share, latency = (
        [0.5, 0.97, 0.98, 1.0, 1.0, 1.0, 1.0, 1.0],
        [100.0, 150.0, 170.0, 480.0, 200.0, 300.0, 210.0, 230.0],
    )
    assert full_channel_ns(runs(share, latency), CAPACITIES) == pytest.approx(185.0)
    assert full_channel_ns(runs(share[:-1], latency[:-1]), CAPACITIES) == 0.0
    assert full_channel_ns(runs(share, latency), None) == 0.0


@pytest.fixture
def subject() -> Subject:
    """Return an NF with packets of ten lines: the card reads back six of them, or two where the channel is full."""
    loads = np.linspace(0.5, 1.0, 40)
    full = loads > FULL_CHANNEL
    card = np.where(full, 12.0, 16.0)
    own = np.column_stack([(3.0 + card) * LINE, card])
    return Subject(
        Workload("lpm", {}, Traffic(packet_size_b=640)), "machine", 1.0, "solo", (), np.zeros((40, 0)), np.ones(40),
        np.arange(40), ("LMB", "PCIEMISS"), own, ("LMB",), loads[:, None] * MOST - own[:, :1], np.ones(40, int), {},
    )  # fmt: skip


def test_runs_on_a_full_channel_lack_what_held_back_cards_do_not_read_back(subject: Subject) -> None:
    """There the traffic of a packet is completed to that with a long queue; elsewhere it stays as measured."""
    whole = np.ones(40, dtype=bool)
    basis = pressure_basis(subject.beside / MOST, np.ones(1), np.ones(1))
    own, weights = _with_long_queues(subject, whole, subject.own, basis, MOST)

    np.testing.assert_allclose(basis @ weights, 6.0 * LINE)
    np.testing.assert_allclose(own[:, 0], 19.0 * LINE)
    np.testing.assert_array_equal(own[:, 1], subject.own[:, 1])
    unmeasured = replace(subject, own_names=("LMB", "PCIEHIT"))
    assert len(_with_long_queues(unmeasured, whole, subject.own, basis, MOST)[1]) == 0
