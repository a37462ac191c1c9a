"""Facts about the plan that measures latency over load."""

import pytest

from slomo.errors import InvalidValueError, MissingMetricError
from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.plans.latency_plans import LOADS, latency_plan
from slomo.testing.builders import ToyTestbed, toy_plan
from slomo.vocabulary.workload import Workload
from slomo.workflow.profile import profile


@pytest.fixture
def measured():
    return run_campaign(toy_plan(competitors=4), ToyTestbed())


def test_loads_are_shares_of_what_was_served_beside_the_same_competition(measured):
    """Every run offers a share of the throughput measured beside its competitors."""
    served = dict(zip(measured.frame["competitor_count"], measured.throughput, strict=True))
    plan = latency_plan(measured, loads=(0.5, 0.9), pressures=3)
    assert len(plan) == 2 * (1 + 3)
    for colocation in plan.colocations:
        share = colocation.target.traffic.offered_mpps / served[len(colocation.competitors)]
        assert min(abs(share - 0.5), abs(share - 0.9)) < 1e-4


def test_pressures_reach_from_the_mildest_to_the_hardest(measured):
    """Alone, the mildest and the hardest competition are always among those chosen."""
    counts = [len(c.competitors) for c in latency_plan(measured, loads=(0.5,), pressures=2).colocations]
    assert counts == [0, 1, 4]


def test_targets_can_be_chosen(measured):
    """Only the targets named are run; one that was not measured is an error."""
    assert len(latency_plan(measured, [Workload("lpm")], pressures=0)) == len(LOADS)
    with pytest.raises(MissingMetricError, match="nat"):
        latency_plan(measured, ["nat@64B,100000f"])


def test_without_a_run_alone_there_is_no_plan(measured):
    """Capacity alone is what every curve starts from."""
    frame = measured.frame
    with pytest.raises(MissingMetricError, match="never measured alone"):
        latency_plan(type(measured)(frame[frame["competitor_count"] > 0], measured.environment))


@pytest.mark.parametrize("loads", [(), (0.0,), (0.5, 1.0), (float("nan"),)])
def test_impossible_loads_are_refused_before_anything_runs(measured, loads):
    """Loads outside 0 to 1 are refused, by the plan and by the front door."""
    with pytest.raises(InvalidValueError, match="loads are"):
        latency_plan(measured, loads=loads)
    with pytest.raises(InvalidValueError, match="loads are"):
        profile("lpm", plan="solo", latency=loads)


def test_latency_needs_more_than_mixes():
    """Plan `mixes` has no run alone to take loads from."""
    with pytest.raises(InvalidValueError, match="plan 'mixes'"):
        profile(["lpm", "nat"], plan="mixes", latency=True)
