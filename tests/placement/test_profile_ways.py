"""Profiles over cache ways and load: few runs, repeats where noise asks, and what they then promise."""

import numpy as np
import pytest

from slomo.models.functions.regression import rising
from slomo.models.responses.partition import PartitionResponse
from slomo.records.run import Phase, RunRecord, TenantSample
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Workload
from slomo.workflow.profile_ways import profile_ways

MACHINE = "e5-2695v4"
NOTHING = MetricVector({}, scope=Scope.CORE)


def measured(bed, *, latency=True):
    """Return the response of one function as profiled on a testbed."""
    (response,) = profile_ways(bed, load_machine(MACHINE), [Workload("lpm")], latency=latency).responses.values()
    return response


class Curves:
    """A testbed whose throughput saturates with ways and whose latency grows with load, with noise from the seed."""

    name = "curves"

    def __init__(self, noise=0.0, late=0.0):
        self.noise, self.late, self.seeds, self.runs = noise, late, {}, 0

    def mpps(self, ways):
        return 5.0 - 2.0 * 0.6**ways

    def run(self, colocation, *, seed=0):
        ways = (
            18 if colocation.isolation is None else (colocation.isolation[0].llc_way_mask or (1 << 18) - 1).bit_count()
        )
        load = (colocation.target.traffic.offered_mpps or 0.0) / self.mpps(18)
        self.runs += 1
        self.seeds.setdefault((ways, round(load, 6)), set()).add(seed)
        noise = np.random.default_rng([seed, ways, round(1e6 * load)]).normal(size=2)
        factor = 1.0 + self.noise * noise[0]
        late = None if not load else (1.0 + self.late * noise[1]) / (1.0 - load)
        sample = TenantSample(self.mpps(ways) * factor, NOTHING, None, late, late, late and 1.5 * late)
        return RunRecord(colocation, seed, None, Phase((sample,), NOTHING), {})


def test_ways_are_profiled_from_few_points_within_one_percent():
    """A saturating curve over 18 ways takes at most 12 points, and is right to 1 % in between."""
    bed = Curves()
    profile = measured(bed, latency=False)

    assert len(profile.curve) <= 12
    assert all(profile.alone_mpps(ways) == pytest.approx(bed.mpps(ways), rel=0.011) for ways in range(1, 19))


def test_noise_asks_for_repeats_and_quiet_for_none():
    """Only the ends are run thrice where runs agree; where they differ by a percent, every point is repeated."""
    quiet, noisy = Curves(), Curves(noise=0.01)
    calm = measured(quiet, latency=False)
    shaky = measured(noisy, latency=False)

    assert sum(len(seeds) > 1 for seeds in quiet.seeds.values()) == 2
    assert all(len(seeds) >= 3 for seeds in noisy.seeds.values())
    assert [mpps for _, mpps in shaky.curve] == sorted(mpps for _, mpps in shaky.curve)
    assert shaky.alone_mpps(18) == pytest.approx(calm.alone_mpps(18), rel=0.02)


def test_latency_leaves_room_for_what_repeats_show():
    """Latency rises with load, and noise is promised away: above the curve, where quiet runs are on it."""
    calm, shaky = (measured(Curves(late=noise)) for noise in (0.0, 0.02))

    for load, p95, _ in calm.latency:
        assert p95 == pytest.approx(1.0 / (1.0 - load), rel=1e-4)
    over = [p95 * (1.0 - load) for load, p95, _ in shaky.latency]
    assert len(calm.latency) <= 12
    assert np.mean(over) > 1.01


def test_load_for_a_latency_lies_on_the_line_between_two_measured():
    """Half way between two limits is half way between two loads; beyond the last is the last; below the first none."""
    profile = PartitionResponse.over_ways("nf", 4.0, ((1, 4.0),), ((0.2, 1.0, 2.0), (0.6, 3.0, 5.0), (0.9, 9.0, 12.0)))

    assert profile.load_for(2.0, None) == pytest.approx(0.4)
    assert profile.load_for(None, 5.0) == pytest.approx(0.6)
    assert profile.load_for(20.0, 20.0) == 0.9
    assert profile.load_for(0.5, None) is None
    assert profile.load_for(6.0, None, speed=0.5) == pytest.approx(0.6)


def test_capacity_for_a_latency_counts_that_slower_instances_take_longer():
    """At the capacity asked for, stretched times are just within the limit; with less they are not."""
    profile = PartitionResponse.over_ways("nf", 4.0, ((1, 4.0),), ((0.2, 1.0, 2.0), (0.6, 3.0, 5.0), (0.9, 9.0, 12.0)))
    capacity = profile.capacity_for(2.0, 9.0, None)

    speed = capacity / 4.0
    assert 2.0 / capacity == pytest.approx(profile.load_for(9.0, None, speed), rel=1e-3)
    assert 2.0 / (0.95 * capacity) > profile.load_for(9.0, None, 0.95 * speed)
    assert profile.capacity_for(3.9, 9.0, None) is None


def test_falling_neighbours_are_put_on_their_mean():
    """The rising sequence nearest to a noisy one keeps its mean."""
    values = [3.0, 1.0, 2.0, 5.0, 4.0]

    assert rising(values).tolist() == [2.0, 2.0, 2.0, 4.5, 4.5]
