"""NFVnice's controller, without any machine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slomo.control.cpu_shares import (
    CostWindow,
    NFObservation,
    cpu_shares,
    cpu_weights,
    fair_shares,
)
from slomo.errors import InvalidValueError
from slomo.vocabulary.service_chains import checked_shares


def test_share_is_arrivals_times_cost() -> None:
    """500, 250 and 50 cycles under equal load get shares of 10 : 5 : 1."""
    shares = fair_shares([NFObservation(f"nf{cost:g}", 0, 5e6, cost) for cost in (500.0, 250.0, 50.0)])

    assert shares["nf500"] == pytest.approx(500 / 800)
    assert shares["nf500"] / shares["nf50"] == pytest.approx(10.0)
    assert sum(shares.values()) == pytest.approx(1.0)


def test_dropped_packets_count_as_load() -> None:
    """Uneven arrivals of 6, 6 and 3 Mpps at equal cost give 2 : 2 : 1, whatever was served of them."""
    weights = cpu_weights(
        [NFObservation(name, 0, rate, 250.0) for name, rate in {"a": 6e6, "b": 6e6, "c": 3e6}.items()]
    )

    assert weights == {"a": 1200, "b": 1200, "c": 600}


def test_priority_multiplies() -> None:
    """An NF of priority 3 gets three times the share of its like."""
    shares = cpu_shares([NFObservation("gold", 0, 1e6, 100.0, priority=3.0), NFObservation("plain", 0, 1e6, 100.0)])

    assert shares["gold"] == 3 * shares["plain"]


def test_cores_do_not_touch_each_other() -> None:
    """A heavy NF on another core changes no share here."""
    here = [NFObservation("a", 0, 1e6, 100.0), NFObservation("b", 0, 2e6, 100.0)]

    assert cpu_shares(here) == {
        name: share for name, share in cpu_shares([*here, NFObservation("c", 1, 9e6, 9e3)]).items() if name != "c"
    }


def test_core_is_shared_equally_until_every_loaded_nf_was_sampled() -> None:
    """Before the first sample of one NF there is nothing to weigh it by, so all are equal."""
    shares = fair_shares([NFObservation("a", 0, 1e6, 900.0), NFObservation("b", 0, 1e6, None)])

    assert shares == {"a": 0.5, "b": 0.5}


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1e9)), min_size=1, max_size=6))
def test_weights_stay_within_a_cgroup(loads: list[tuple[float, float]]) -> None:
    """Whatever is seen, the kernel takes what is written."""
    seen = [NFObservation(str(i), 0, rate, cost) for i, (rate, cost) in enumerate(loads)]

    assert all(2 <= share <= 262_144 for share in cpu_shares(seen).values())
    assert all(1 <= weight <= 10_000 for weight in cpu_weights(seen).values())


def test_window_forgets_after_100_ms() -> None:
    """A sample older than the window no longer counts."""
    window = CostWindow().plus(0.0, 9000.0).plus(50.0, 100.0).plus(101.0, 120.0)

    assert window.median_cycles == 110.0


@pytest.mark.parametrize("shares", [1, 262_145, 3.5])
def test_shares_a_cgroup_does_not_take_are_refused(shares: float) -> None:
    """The limits of the kernel are named before anything is written."""
    with pytest.raises(InvalidValueError, match="a cgroup takes 2 to 262144"):
        checked_shares("nat", shares)
