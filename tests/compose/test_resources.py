"""Resources compose in time per packet, and the base is counted once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slomo.compose.resources import (
    PATTERNS,
    Stage,
    compose_resources,
    core_share_ns,
    pcie_ns,
    stages_mpps,
    wire_ns,
)
from slomo.errors import InvalidValueError, UnknownNameError

shares = st.lists(st.floats(0.05, 1.0), min_size=1, max_size=5)


def test_one_resource_composes_to_itself():
    """With one resource, both patterns give its throughput back."""
    for pattern in PATTERNS:
        assert float(compose_resources(2.0, {"memory": 1.5}, pattern)) == pytest.approx(1.5)


def test_no_resource_costs_nothing():
    """Without competition for anything, throughput is solo."""
    for pattern in PATTERNS:
        assert float(compose_resources(2.0, {}, pattern)) == 2.0


@given(shares)
def test_the_sum_of_times_counts_the_base_once(fractions):
    """Run-to-completion adds what each resource costs to one base: 1 / (sum 1/T_r - (n - 1)/T_solo)."""
    under = {f"r{i}": 3.0 * share for i, share in enumerate(fractions)}
    published = 1.0 / (sum(1.0 / value for value in under.values()) - (len(under) - 1) / 3.0)
    assert float(compose_resources(3.0, under)) == pytest.approx(published)


@given(shares)
def test_a_pipeline_is_never_slower_than_run_to_completion(fractions):
    """The slowest stage takes at most the time of all of them."""
    under = {f"r{i}": share for i, share in enumerate(fractions)}
    line, sum_ = (float(compose_resources(1.0, under, pattern)) for pattern in PATTERNS)
    assert sum_ <= line + 1e-12
    assert line == pytest.approx(min(fractions))


def test_stages_agree_with_measured_throughputs():
    """Waiting added to stages gives what composing the throughputs under each waiting gives."""
    core, regex = Stage("memory", 300.0, 60.0), Stage("regex", 500.0, 240.0)
    solo = stages_mpps([Stage("memory", 300.0), Stage("regex", 500.0)])
    under = {
        "memory": stages_mpps([core, Stage("regex", 500.0)]),
        "regex": stages_mpps([Stage("memory", 300.0), regex]),
    }
    assert stages_mpps([core, regex]) == pytest.approx(float(compose_resources(solo, under)))


def test_unknown_stays_unknown():
    """A resource whose throughput is not known makes the composition unknown, in both patterns."""
    for pattern in PATTERNS:
        composed = compose_resources(1.0, {"memory": [0.5, np.nan], "regex": 0.6}, pattern)
        assert np.isnan(composed).tolist() == [False, True]


def test_more_than_solo_counts_as_solo():
    """A resource measured a little faster than solo does not speed the others up."""
    assert float(compose_resources(1.0, {"memory": 1.02, "regex": 0.5})) == pytest.approx(0.5)


def test_links_are_shared_in_turns():
    """Twice the sharers, twice the time; a smaller share of a core, more time."""
    assert wire_ns(1500, 40.0, 2) == pytest.approx(2 * wire_ns(1500, 40.0))
    assert pcie_ns(64, 63.0, 3) == pytest.approx(3 * pcie_ns(64, 63.0))
    assert core_share_ns(100.0, 0.25) == pytest.approx(400.0)


def test_impossible_values_are_refused():
    """Times below 0, stages without any time, links without speed, shares above 1 and unknown patterns are refused."""
    with pytest.raises(InvalidValueError, match="-1 ns"):
        Stage("regex", -1.0)
    with pytest.raises(InvalidValueError, match="no time"):
        stages_mpps([])
    with pytest.raises(InvalidValueError, match="0 Gbit/s"):
        wire_ns(64, 0.0)
    with pytest.raises(InvalidValueError, match=r"1\.5"):
        core_share_ns(100.0, 1.5)
    with pytest.raises(InvalidValueError, match="'memory' is 0"):
        compose_resources(1.0, {"memory": 0.0})
    with pytest.raises(UnknownNameError, match="pipelines"):
        compose_resources(1.0, {}, "pipelines")  # type: ignore[arg-type]
