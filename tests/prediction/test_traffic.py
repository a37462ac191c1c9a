"""Facts about traffic that was not profiled: interpolated, extrapolated within SLOMO's reach, or refused."""

from dataclasses import replace

import numpy as np
import pytest

from slomo.adaptation.adapt import at_workload
from slomo.adaptation.interpolation import monotone_cubic
from slomo.errors import UnknownNameError, UnsupportedPredictionError
from slomo.models.applicability import Verdict
from slomo.models.library import ModelLibrary
from slomo.models.responses.sensitivity import LinearSensitivity
from slomo.prediction.predictor import Predictor
from slomo.prediction.question import solve_server
from slomo.vocabulary.workload import Traffic, Workload

MACHINE = "silver-4110"


def at_traffic(library, workload):
    """Return the model for a workload, from all profiles of its NF."""
    return at_workload(library.profiles(workload.nf, MACHINE), workload)


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
    adapted = at_traffic(library, lpm(offered_mpps=1.0))
    assert (adapted.way, adapted.reasons) == ("profiled", ())
    assert adapted.model is library.find("lpm", MACHINE)


@pytest.mark.parametrize("flows", [80_000, 95_000, 120_000])
def test_near_flow_counts_are_extrapolated(library, flows):
    """Within 20 % of the profiled flow count rates and occupancy follow the working set; the answer says how far."""
    adapted = at_traffic(library, lpm(flow_count=flows))
    solo = library.find("lpm", MACHINE).solo_vector
    assert adapted.way == "extrapolated"
    assert adapted.model.solo_vector["L2MISS"] == pytest.approx(solo["L2MISS"] * flows / 1e5)
    assert adapted.model.solo_vector["L3OCC"] == pytest.approx(solo["L3OCC"] * flows / 1e5)
    assert "reach 20 %" in adapted.reasons[0]


def test_far_flow_counts_are_refused(library):
    """Beyond 20 % nothing is guessed."""
    with pytest.raises(UnsupportedPredictionError, match="no profile reaches lpm@64B,200000f"):
        at_traffic(library, lpm(flow_count=200_000))


def test_other_packet_sizes_are_refused(library):
    """A single profile does not reach another packet size."""
    with pytest.raises(UnsupportedPredictionError, match="1500B"):
        at_traffic(library, lpm(packet_size_b=1500))


def test_unknown_functions_stay_unknown(library):
    """An NF nobody profiled is unknown, whatever its traffic."""
    with pytest.raises(UnknownNameError):
        at_traffic(library, Workload("lpn"))


def test_between_profiles_time_per_packet_is_interpolated(two_profiles):
    """Halfway between two flow counts, on a logarithmic scale, solo time per packet is halfway too."""
    adapted = at_traffic(two_profiles, lpm(flow_count=316_228))
    assert adapted.way == "interpolated"
    assert 1.0 / adapted.model.solo_mpps == pytest.approx(0.5 * (1.0 / 5.0 + 1.0 / 2.5), rel=1e-4)
    assert "between profiles at 100000 and 1e+06" in adapted.reasons[0]


def test_interpolation_meets_the_profiles_at_its_ends(two_profiles):
    """Next to a profile the interpolated throughput is the profile's."""
    ask = [lpm(flow_count=100_001), "stats"]
    near = solve_server(two_profiles, ask, MACHINE, method="composed").tenants[0].throughput_mpps
    exact = solve_server(two_profiles, [lpm(), "stats"], MACHINE, method="composed").tenants[0].throughput_mpps
    assert near == pytest.approx(exact, rel=1e-3)


def test_the_verdict_says_what_was_done(library):
    """A whole-server prediction at other traffic is marked as extrapolated, with the reach."""
    tenants = solve_server(library, [lpm(flow_count=110_000), "stats"], MACHINE, method="composed").tenants
    assert tenants[0].verdict is Verdict.EXTRAPOLATED
    assert "+10 % away" in tenants[0].reasons[0]
    assert tenants[1].verdict is Verdict.EXTRAPOLATED  # what presses on it was not profiled either


def test_a_larger_working_set_loses_more(library):
    """More flows than profiled mean more pressure felt: less throughput beside the same neighbour."""
    more, same = (
        solve_server(library, [lpm(flow_count=flows), "stats"], MACHINE, method="composed").throughput_mpps[0]
        for flows in (120_000, 100_000)
    )
    assert more < same


def profiled_as(library, workload, solo_mpps):
    """Return 'lpm' as if it had been profiled as another workload, at another speed."""
    model = library.find("lpm", MACHINE)
    families = {name: replace(m, solo_mpps=solo_mpps) for name, m in model.sensitivity.items() if name == "slomo-xgb"}
    return replace(model, workload=workload, solo_mpps=solo_mpps, sensitivity=families)


def alone(library, workload):
    """Return a run alone of another workload: no family that reads pressure."""
    model = profiled_as(library, workload, 1.0)
    return lambda solo: replace(
        model, solo_mpps=solo, sensitivity={"none": library.find("lpm", MACHINE).sensitivity["none"]}
    )


@pytest.fixture
def corners(library):
    """Make a library with 'lpm' at two packet sizes by two flow counts; time per packet 0.2, 0.3, 0.4 and 0.6 us."""
    times = {(64, 100_000): 0.2, (64, 1_000_000): 0.3, (1500, 100_000): 0.4, (1500, 1_000_000): 0.6}
    made = [profiled_as(library, lpm(packet_size_b=b, flow_count=f), 1.0 / t) for (b, f), t in times.items()]
    return library.merge(ModelLibrary(made))


def test_two_attributes_at_once_need_four_corners(corners):
    """In the middle of four profiles time per packet is their mean, and both interpolations are named."""
    adapted = at_traffic(corners, lpm(packet_size_b=782, flow_count=316_228))
    assert 1.0 / adapted.model.solo_mpps == pytest.approx((0.2 + 0.3 + 0.4 + 0.6) / 4.0, rel=1e-3)
    assert adapted.way == "interpolated"
    assert [reason.split()[0] for reason in adapted.reasons] == ["flow_count", "packet_size_b"]


def test_outside_the_corners_is_refused(corners):
    """One attribute inside and one outside is outside."""
    with pytest.raises(UnsupportedPredictionError, match="no profile reaches"):
        at_traffic(corners, lpm(packet_size_b=782, flow_count=10_000))


def test_a_missing_corner_is_refused(library):
    """Three corners do not surround the fourth's traffic."""
    three = [lpm(), lpm(flow_count=1_000_000), lpm(packet_size_b=1500)]
    some = ModelLibrary([profiled_as(library, workload, 3.0) for workload in three])
    with pytest.raises(UnsupportedPredictionError, match="no profile reaches"):
        at_traffic(some, lpm(packet_size_b=782, flow_count=316_228))


def test_runs_alone_show_where_an_nf_slows_down(two_profiles):
    """Solo runs between two profiles say how far the way is, and are no profile themselves."""
    bend = lpm(flow_count=316_228)
    with_bend = two_profiles.merge(ModelLibrary([alone(two_profiles, bend)(5.0)]))
    at_bend = at_traffic(with_bend, bend)
    assert at_bend.way == "interpolated"
    assert at_bend.model.solo_mpps == pytest.approx(5.0)
    half = at_traffic(with_bend, lpm(flow_count=562_341))
    assert 1.0 / half.model.solo_mpps == pytest.approx(0.5 * (1.0 / 5.0 + 1.0 / 2.5), rel=1e-3)


@pytest.mark.parametrize(
    ("setting", "low", "high", "middle"),
    [("rules", 1_000, 100_000, 10_000), ("match_density", 0.0, 0.8, 0.4), ("match_density", 0.2, 0.8, 0.5)],
)
def test_numeric_settings_are_interpolated(library, setting, low, high, middle):
    """Rule sets count by their logarithm, shares as they are."""
    ends = [profiled_as(library, Workload("lpm", {setting: value}), mpps) for value, mpps in ((low, 4.0), (high, 2.0))]
    adapted = at_traffic(ModelLibrary(ends), Workload("lpm", {setting: middle}))
    assert 1.0 / adapted.model.solo_mpps == pytest.approx(0.5 * (0.25 + 0.5))
    assert adapted.reasons == (f"{setting} {middle:g} interpolated between profiles at {low:g} and {high:g}",)


def test_a_setting_and_flows_at_once(library):
    """A rule set between two sizes at a flow count between two: four corners answer."""
    grid = [(r, f) for r in (1_000, 100_000) for f in (10_000, 1_000_000)]
    profiled = [
        profiled_as(library, Workload("lpm", {"rules": r}, Traffic(flow_count=f)), 1.0 / t)
        for (r, f), t in zip(grid, (0.2, 0.3, 0.4, 0.7), strict=True)
    ]
    between = Workload("lpm", {"rules": 10_000}, Traffic(flow_count=100_000))
    adapted = at_traffic(ModelLibrary(profiled), between)
    assert 1.0 / adapted.model.solo_mpps == pytest.approx(0.4, rel=1e-6)
    assert len(adapted.reasons) == 2


@pytest.mark.parametrize("value", [100, 1_000_000])
def test_settings_outside_the_profiles_are_refused(library, value):
    """A rule set smaller or larger than any profiled is not guessed."""
    ends = [profiled_as(library, Workload("lpm", {"rules": rules}), 3.0) for rules in (1_000, 100_000)]
    with pytest.raises(UnsupportedPredictionError, match=f"rules={value}"):
        at_traffic(ModelLibrary(ends), Workload("lpm", {"rules": value}))


def test_settings_that_are_texts_must_agree(library):
    """Between two algorithms nothing lies; an unknown one is refused."""
    ends = [profiled_as(library, Workload("lpm", {"algorithm": name}), 3.0) for name in ("radix", "dir24")]
    with pytest.raises(UnknownNameError, match="algorithm=hash"):
        at_traffic(ModelLibrary(ends), Workload("lpm", {"algorithm": "hash"}))


def test_a_default_may_be_spelled_out(library):
    """A setting at its default is the workload without it."""
    router = replace(library.find("lpm", MACHINE), workload=Workload("ip-router"))
    adapted = at_traffic(ModelLibrary([router]), Workload("ip-router", {"routes": 131_072}))
    assert (adapted.way, adapted.model) == ("profiled", router)


def test_the_monotone_cubic_is_fritsch_and_carlsons():
    """Interpolation along an attribute agrees with scipy's PCHIP at every number of profiles."""
    from scipy.interpolate import PchipInterpolator

    generator = np.random.default_rng(3)
    for points in (2, 3, 4, 7):
        at, values = np.cumsum(generator.uniform(0.2, 2.0, points)), generator.normal(size=(20, points))
        for destination in generator.uniform(at[0], at[-1], 10):
            wanted = PchipInterpolator(at, values, axis=1)(destination)
            assert monotone_cubic(at, values, destination) == pytest.approx(wanted, abs=1e-12)


def test_what_pressure_adds_is_bent_where_the_profiles_bend(library):
    """Beside others, three flow counts that slow down late give less loss below the last than a straight line would."""
    slopes = {10_000: 0.0001, 100_000: 0.0002, 1_000_000: 0.002}
    made = []
    for flows, slope in slopes.items():
        model = profiled_as(library, lpm(flow_count=flows), 5.0)
        family = replace(model.sensitivity["slomo-xgb"], slopes=(slope, 0.0, 0.0))
        made.append(replace(model, sensitivity={"slomo-xgb": family}))
    between, pressure = lpm(flow_count=316_228), np.array([[200.0, 0.0, 0.0]])
    bent = at_traffic(ModelLibrary(made), between).model.sensitivity["slomo-xgb"].predict_mpps(pressure)
    ends = at_traffic(ModelLibrary(made[1:]), between).model.sensitivity["slomo-xgb"].predict_mpps(pressure)
    assert ends < bent < 5.0


def test_what_was_made_once_is_kept(two_profiles):
    """The same question of the same profiles gets the same model, whatever the load; of other profiles its own."""
    first = at_traffic(two_profiles, lpm(flow_count=316_228))
    assert at_traffic(two_profiles, lpm(flow_count=316_228, offered_mpps=1.0)) is first
    others = ModelLibrary([replace(model) for model in two_profiles.values()])
    assert at_traffic(others, lpm(flow_count=316_228)) is not first


def test_traffic_that_a_table_varied_over_is_honoured_or_refused(library):
    """A model that reads flow counts answers for the flow count asked about; what it does not read is refused."""
    model = library.find("lpm", MACHINE)
    line = LinearSensitivity("slomo-xgb", ("traffic.flow_count",), "pressure", 5.0, -1e-5)
    table = replace(model, sensitivity={"slomo-xgb": line}, traffic={"traffic.flow_count": 100_000.0})
    predictor = Predictor(library.merge(ModelLibrary([table])), MACHINE)
    predictions = [predictor.predict(name, ["nat"]) for name in ("lpm", "lpm@64B,200000f")]
    assert [prediction.throughput_mpps for prediction in predictions] == [4.0, 3.0]
    assert predictions[1].target.traffic.flow_count == 200_000
    with pytest.raises(UnsupportedPredictionError, match="does not read packet_size_b"):
        predictor.predict("lpm@1500B,100000f", ["nat"])
