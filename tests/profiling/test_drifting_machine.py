"""Campaigns on a machine that drifts: order, one solo speed, repetitions, and a drift that does not end."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from slomo.errors import MeasurementError, UnstableMeasurementError
from slomo.profiling.campaign.run import IncompleteCampaignError, run_campaign
from slomo.profiling.campaign.schedule import Schedule
from slomo.profiling.campaign.solo_reference import stability, with_common_solo
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.records.run import RunRecord
from slomo.testing.builders import ToyTestbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.workload import Workload

_MACHINE = "toy"


def _plan(replicates: int = 2) -> ExperimentPlan:
    targets = [Workload("lpm"), Workload("nat"), Workload("firewall")]
    pressures = [Workload("synthetic", {"data_size_mib": size}) for size in (1.0, 2.0, 4.0, 8.0)]
    solo = [Colocation(_MACHINE, target) for target in targets]
    pressed = [Colocation(_MACHINE, target, (pressure,)) for target in targets for pressure in pressures]
    return ExperimentPlan("drift", (*solo, *pressed), replicates=replicates)


def test_blocks_are_random_and_competitors_stay_together() -> None:
    """Every block runs everything once, in an order of its own, those beside the same competitors one after another."""
    schedule = Schedule(_plan(), (), interleaved=True)
    runs = list(schedule.pending())
    blocks = [runs[:15], runs[15:]]
    assert [{run.replicate for run in block} for block in blocks] == [{0}, {1}]
    orders = [[run.colocation.key for run in block] for block in blocks]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1])
    for block in blocks:
        competitions = [run.colocation.competitors for run in block if run.colocation.competitors]
        changes = sum(one != other for one, other in pairwise(competitions))
        assert changes == 3
    solo = [number for number, run in enumerate(runs[:15]) if not run.colocation.competitors]
    assert max(solo) > 2, "solo runs are spread over the block"
    assert list(Schedule(_plan(), (), interleaved=True).pending()) == runs
    assert schedule.count() == len(runs)


class DriftingTestbed(ToyTestbed):
    """A machine of which every run is slower than the one before; ratios beside competitors do not change."""

    exclusive = True

    def __init__(self) -> None:
        super().__init__()
        self.speed = 1.0

    def run(self, colocation: Colocation, *, seed: int = 0) -> RunRecord:
        record = super().run(colocation, seed=seed)
        self.speed *= 0.98
        solo = 10.0 * self.speed
        host: dict[str, Any] = {"solo": {"mpps": [solo]}}
        mpps = solo
        if colocation.competitors:
            mpps, host = 0.7 * solo, {"pairs": {"ratio": 0.7, "solo_mpps": [solo]}}
        host["drift"] = {"change": 0.98, "of": "cache", "repeated": 0, "rates": {"cache": self.speed}}
        assert record.beside is not None
        own = replace(record.beside.tenants[0], throughput_mpps=mpps)
        beside = replace(record.beside, tenants=(own, *record.beside.tenants[1:]))
        return replace(record, beside=beside, provenance={"settings": {"interleaved": True}, "host": host})


def test_drift_is_no_pressure() -> None:
    """Whatever the speed of the hour, every row is its ratio times one solo speed per function."""
    dataset = run_campaign(_plan(), DriftingTestbed())
    for target in dataset.targets:
        rows = dataset.select(target=target, plan="pressure")
        assert rows.throughput / dataset.solo_mpps(target) == pytest.approx(0.7)
    steady = dataset.environment["stability"]
    assert steady["runs"] == 30
    assert steady["median_change"] == pytest.approx(0.02)
    assert steady["fastest_over_slowest"]["cache"] == pytest.approx(0.98**-29, rel=1e-3)


def test_runs_of_other_testbeds_are_left_alone() -> None:
    """Records without windows in their provenance keep their throughput, and nothing is said about stability."""
    records = [ToyTestbed().run(colocation) for colocation in _plan().colocations[:4]]
    assert with_common_solo(records) == records
    assert stability(records) == {}


class UnsteadyTestbed(ToyTestbed):
    """A machine that never settles after its fourth run."""

    exclusive = True
    count = 0

    def run(self, colocation: Colocation, *, seed: int = 0) -> RunRecord:
        self.count += 1
        if self.count > 4:
            raise UnstableMeasurementError("the machine changed", hint="wait")
        return super().run(colocation, seed=seed)


def test_a_drift_that_does_not_end_stops_the_campaign() -> None:
    """After five unstable runs in a row the campaign ends with exit code 4; what was measured is in the error."""
    testbed = UnsteadyTestbed()
    with pytest.raises(IncompleteCampaignError, match="the machine changed") as told:
        run_campaign(_plan(), testbed)
    assert told.value.exit_code == MeasurementError.exit_code == 4
    assert len(told.value.failed) == 5
    assert testbed.count == 4 + 2 * 5
    assert told.value.dataset is not None
    assert len(told.value.dataset) == 4
