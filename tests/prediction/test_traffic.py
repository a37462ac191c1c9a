"""Facts about traffic that was not profiled: interpolated, extrapolated within SLOMO's reach, or refused."""

from dataclasses import replace

import pytest

from slomo.errors import UnknownNameError, UnsupportedPredictionError
from slomo.models.applicability import Verdict
from slomo.models.library import ModelLibrary
from slomo.models.traffic import at_traffic
from slomo.prediction.equilibrium import solve_server
from slomo.vocabulary.workload import Traffic, Workload

MACHINE = "silver-4110"


def lpm(**traffic):
    return Workload("lpm", traffic=Traffic(**traffic))


@pytest.fixture
def two_profiles(library):
    """Make a library in which 'lpm' was also profiled at a million flows, where it is slower."""
    model = library.find("lpm", MACHINE)
    other = replace(model, workload=lpm(flow_count=1_000_000), solo_mpps=2.5)
    slow = {name: replace(m, solo_mpps=2.5) for name, m in model.sensitivity.items() if name in ("slomo-xgb", "none")}
    return library.merge(ModelLibrary([replace(other, sensitivity={**slow})]))


def test_profiled_traffic_is_used_as_it_is(library):
    """Traffic that was profiled needs nothing."""
    found = at_traffic(library, lpm(offered_mpps=1.0), MACHINE)
    assert (found.way, found.reasons) == ("profiled", ())
    assert found.model is library.find("lpm", MACHINE)


@pytest.mark.parametrize("flows", [80_000, 95_000, 120_000])
def test_near_flow_counts_are_extrapolated(library, flows):
    """Within 20 % of the profiled flow count rates and occupancy follow the working set; the answer says how far."""
    found = at_traffic(library, lpm(flow_count=flows), MACHINE)
    solo = library.find("lpm", MACHINE).solo_vector
    assert found.way == "extrapolated"
    assert found.model.solo_vector["L2MISS"] == pytest.approx(solo["L2MISS"] * flows / 1e5)
    assert found.model.solo_vector["L3OCC"] == pytest.approx(solo["L3OCC"] * flows / 1e5)
    assert "reach 20 %" in found.reasons[0]


def test_far_flow_counts_are_refused(library):
    """Beyond 20 % nothing is guessed."""
    with pytest.raises(UnsupportedPredictionError, match="no profile reaches lpm@64B,200000f"):
        at_traffic(library, lpm(flow_count=200_000), MACHINE)


def test_other_packet_sizes_are_refused(library):
    """A single profile does not reach another packet size."""
    with pytest.raises(UnsupportedPredictionError, match="1500B"):
        at_traffic(library, lpm(packet_size_b=1500), MACHINE)


def test_unknown_functions_stay_unknown(library):
    """An NF nobody profiled is unknown, whatever its traffic."""
    with pytest.raises(UnknownNameError):
        at_traffic(library, Workload("lpn"), MACHINE)


def test_between_profiles_time_per_packet_is_interpolated(two_profiles):
    """Halfway between two flow counts, on a logarithmic scale, solo time per packet is halfway too."""
    found = at_traffic(two_profiles, lpm(flow_count=316_228), MACHINE)
    assert found.way == "interpolated"
    assert 1.0 / found.model.solo_mpps == pytest.approx(0.5 * (1.0 / 5.0 + 1.0 / 2.5), rel=1e-4)
    assert "between profiles at 100000 and 1e+06" in found.reasons[0]


def test_interpolation_meets_the_profiles_at_its_ends(two_profiles):
    """Next to a profile the interpolated throughput is the profile's."""
    ask = [lpm(flow_count=100_001), "stats"]
    near = solve_server(two_profiles, ask, MACHINE, method="slomo").tenants[0].throughput_mpps
    exact = solve_server(two_profiles, [lpm(), "stats"], MACHINE, method="slomo").tenants[0].throughput_mpps
    assert near == pytest.approx(exact, rel=1e-3)


def test_the_verdict_says_what_was_done(library):
    """A whole-server prediction at other traffic is marked as extrapolated, with the reach."""
    found = solve_server(library, [lpm(flow_count=110_000), "stats"], MACHINE, method="slomo").tenants
    assert found[0].verdict is Verdict.EXTRAPOLATED
    assert "+10 % away" in found[0].reasons[0]
    assert found[1].verdict is Verdict.SUPPORTED


def test_a_larger_working_set_loses_more(library):
    """More flows than profiled mean more pressure felt: less throughput beside the same neighbour."""
    more, same = (
        solve_server(library, [lpm(flow_count=flows), "stats"], MACHINE, method="slomo").throughput_mpps[0]
        for flows in (120_000, 100_000)
    )
    assert more < same
