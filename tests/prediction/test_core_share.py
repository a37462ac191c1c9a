"""NFs that share a core: what is predicted for the one asked about."""

import pytest

import slomo
from slomo.compose.cores import CoreUser, core_shares, cut_turns, shared_core_mpps
from slomo.errors import InvalidValueError, UnsupportedPredictionError

MACHINE = "silver-4110"


def test_two_equal_nfs_get_half_a_core_each(library) -> None:
    """Two of the same, saturated: each half of what it serves beside the other, and the answer says so."""
    beside = slomo.predict("nat", ["nat"], library, machine=MACHINE, model="slomo-xgb")
    shared = slomo.predict("nat", [], library, machine=MACHINE, model="slomo-xgb", shares_core_with=["nat"])

    assert shared.throughput_mpps == pytest.approx(beside.throughput_mpps / 2, rel=0.02)
    assert "shares its core with nat: 50 % of the core's time" in shared.reasons
    low, high = shared.interval
    assert low < shared.throughput_mpps < high


def test_partners_with_a_count_and_neighbours_are_told_apart(library) -> None:
    """Three on the core get a third; a neighbour with a core of its own takes no share."""
    three = slomo.predict("lpm", ["snort"], library, machine=MACHINE, model="slomo-xgb", shares_core_with=["stats:2"])

    assert three.reasons[-1].endswith("33 % of the core's time")
    assert [item.nf for item in three.competitors] == ["stats", "stats", "snort"]


def test_what_partners_leave_is_the_targets(library) -> None:
    """A partner that is offered little takes what that needs and no more."""
    little = "stats@64B,100000f,0.1Mpps"
    light = slomo.predict("lpm", [], library, machine=MACHINE, model="slomo-xgb", shares_core_with=[little])
    beside = slomo.predict("lpm", [little], library, machine=MACHINE, model="slomo-xgb")

    assert 0.95 * beside.throughput_mpps < light.throughput_mpps < beside.throughput_mpps


def test_a_share_is_max_min_fair_by_weight() -> None:
    """Who wants less than its share keeps what it wants; the rest is divided by weight, never more than one core."""
    users = [CoreUser(400.0, weight=3.0), CoreUser(400.0), CoreUser(400.0, offered_mpps=0.25, weight=9.0)]
    shares = core_shares(users)

    assert shares == pytest.approx((0.675, 0.225, 0.1))
    assert shared_core_mpps(users) == pytest.approx((1.6875, 0.5625, 0.25))


@pytest.mark.parametrize(
    "bad", [{"time_ns": 0.0}, {"time_ns": 1.0, "weight": 0.0}, {"time_ns": 1.0, "offered_mpps": -1.0}]
)
def test_users_of_a_core_need_time_weight_and_load(bad) -> None:
    """Times and weights are above 0, loads are not negative."""
    with pytest.raises(InvalidValueError):
        CoreUser(**bad)


def test_strict_refuses_on_a_shared_core_too(gap_library) -> None:
    """What no model can answer is no more answered for sharing a core."""
    options = {"machine": MACHINE, "model": "dobrescu", "shares_core_with": ["nat"], "strict": True}
    with pytest.raises(UnsupportedPredictionError):
        slomo.predict("lpm", ["snort"], gap_library, **options)


def test_an_interval_knows_how_long_is_counted(library) -> None:
    """A window cuts turns: the shorter it is, the wider the interval of what is counted; one NF alone has no turns."""
    options = {"machine": MACHINE, "model": "slomo-xgb", "shares_core_with": ["nat"]}
    endless, long, short = (
        slomo.predict("nat", [], library, window_s=window_s, **options).interval for window_s in (None, 10.0, 0.1)
    )

    assert short[0] < long[0] <= endless[0]
    assert short[1] > long[1] >= endless[1]
    assert cut_turns(0.25, 4, 0.24) > cut_turns(0.25, 4, 2.4) > 0.0
    with pytest.raises(InvalidValueError, match="a measurement of 0 s"):
        cut_turns(0.5, 2, 0.0)
