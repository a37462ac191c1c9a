"""Turns on a core that functions behind rings share."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slomo.compose.turns import RingUser, TurnRules, ring_turns
from slomo.errors import InvalidValueError

LINE = 14.88


def test_saturated_functions_share_by_weight_and_take_turns_of_a_tick() -> None:
    """What never runs out of packets has its weight's part, in turns that the tick ends."""
    light, heavy = ring_turns([RingUser(1000.0, LINE), RingUser(2000.0, LINE, weight=3.0)])

    assert (light.share, heavy.share) == pytest.approx((0.25, 0.75), abs=0.01)
    assert (light.mpps, heavy.mpps) == pytest.approx((0.25, 0.375), rel=0.03)
    assert light.turns_per_s == pytest.approx(0.25 / 0.004, rel=0.05)


def test_a_function_that_empties_its_ring_gets_less_than_its_part() -> None:
    """A ring of 2048 is empty within a tenth of a slice; the rest of the core is the other's."""
    quick, slow = ring_turns([RingUser(50.0, LINE), RingUser(1000.0, LINE)])

    assert quick.share < 0.45
    assert quick.share + slow.share == pytest.approx(1.0, abs=0.01)
    assert quick.turns_per_s > 500


def test_who_wants_little_gets_all_of_it() -> None:
    """A load below its part is served whole, and the others divide what it leaves."""
    users = [RingUser(500.0, 0.1), RingUser(1000.0, LINE), RingUser(1000.0, LINE)]
    little, one, other = ring_turns(users, duration_ms=200.0)

    assert little.mpps == pytest.approx(0.1, rel=0.05)
    assert one.share == pytest.approx(other.share, rel=0.05)


def test_cold_caches_cost_time_each_turn() -> None:
    """A refill of 400 us in a turn of 4 ms is a tenth of the rate; nobody who evicts, no refill."""
    cold = RingUser(1000.0, LINE, refill_us=400.0, refill_over_us=300.0, evicts_over_us=500.0)
    kept = RingUser(1000.0, LINE, refill_us=400.0, refill_over_us=300.0)

    assert ring_turns([cold, cold])[0].mpps == pytest.approx(0.45, rel=0.02)
    assert ring_turns([kept, kept])[0].mpps == pytest.approx(0.5, rel=0.02)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.builds(
            RingUser,
            time_ns=st.floats(30.0, 3000.0),
            offered_mpps=st.floats(0.0, 20.0),
            weight=st.floats(0.05, 10.0),
            refill_us=st.floats(0.0, 500.0),
            refill_over_us=st.floats(50.0, 900.0),
            evicts_over_us=st.floats(100.0, 9000.0),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_nobody_serves_more_than_comes_or_than_the_core_has(users: list[RingUser]) -> None:
    """Shares add up to one core at most; no function serves more than its load, nor faster than its cost."""
    outcomes = ring_turns(users, TurnRules(), duration_ms=60.0)

    assert sum(one.share for one in outcomes) <= 1.001
    for user, one in zip(users, outcomes, strict=True):
        assert one.mpps <= user.offered_mpps * 1.001 + 2048 / 50e3
        assert one.mpps * user.time_ns / 1e3 <= one.share + 0.001


@pytest.mark.parametrize("bad", [{"time_ns": 0.0}, {"weight": 0.0}, {"offered_mpps": -1.0}, {"refill_us": -1.0}])
def test_bad_users_are_refused(bad: dict[str, float]) -> None:
    """Times and weights are above 0, loads and refills not negative; nothing is played for no time."""
    with pytest.raises(InvalidValueError, match="NF behind a ring"):
        RingUser(**{"time_ns": 100.0, "offered_mpps": 1.0, **bad})
    with pytest.raises(InvalidValueError, match="played for 0 ms"):
        ring_turns([RingUser(100.0, 1.0)], duration_ms=0.0)
