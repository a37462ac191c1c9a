"""Facts about predicted latency: where it comes from, how wide it is, and when there is none."""

from dataclasses import replace

import numpy as np
import pytest

from slomo.errors import InvalidValueError
from slomo.models.applicability import Verdict
from slomo.models.library import ModelLibrary
from slomo.models.responses.latency import LatencyCurve, LatencyModel
from slomo.prediction.latency_result import LatencyPrediction
from slomo.vocabulary.server_setting import ServerSetting
from slomo.vocabulary.workload import Traffic, Workload
from slomo.workflow.predict import predict

from .test_question import respond

MACHINE = "silver-4110"


@pytest.fixture
def timed(library):
    """Make a library in which 'lpm' has a latency model: latency is the time per packet over 1 - load."""
    scores = np.arange(1, 40) / 400.0
    curves = {
        name: LatencyCurve(np.array([np.log(times), 1.0, 0.0]), scores, np.array([1.0, 0.0, 1.0]))
        for name, times in (("p50", 1.0), ("p95", 3.0), ("p99", 4.0))
    }
    model = library.find("lpm", MACHINE)
    knots = -np.log1p(-np.array([0.0, 0.95]))
    return library.merge(ModelLibrary([replace(model, latency=LatencyModel(5.0, knots, curves, (0.1, 0.95), 1.0))]))


def latency_of(library, offered, beside=("stats",), **options):
    asked = {"machine": MACHINE, "offered_mpps": offered, "method": "composed", **options}
    return predict("lpm", list(beside), library, **asked).latency


def test_alone_the_load_is_relative_to_solo_throughput(timed):
    """2.5 of 5 Mpps is half the load, and 1/5 us per packet takes twice as long."""
    latency = latency_of(timed, 2.5, ())
    assert latency.load == pytest.approx(0.5)
    assert latency.percentiles_us["p50"] == pytest.approx(0.4)
    assert latency.percentiles_us["p95"] == pytest.approx(1.2)
    assert latency.verdict is Verdict.SUPPORTED


def test_neighbours_raise_load_and_latency(timed):
    """The same offered rate is more load beside others, and every percentile rises."""
    alone, beside = latency_of(timed, 2.5, ()), latency_of(timed, 2.5, ("stats", "snort"))
    assert beside.possible_mpps < alone.possible_mpps
    assert beside.load > alone.load
    assert all(beside.percentiles_us[name] > alone.percentiles_us[name] for name in ("p50", "p95", "p99"))


def test_intervals_contain_the_error_of_the_throughput(timed):
    """Alone it is as wide as the curve's errors, beside others wider, in proportion; both contain the prediction."""
    widths = []
    for beside in ((), ("stats",)):
        latency = latency_of(timed, 2.5, beside)
        low, high = latency.intervals_us["p95"]
        assert low < latency.percentiles_us["p95"] < high
        widths.append(high / low)
    assert np.log(widths[0]) == pytest.approx(2.0 * 36 / 400, rel=1e-2)
    assert widths[1] > widths[0]


def test_overload_has_no_number(timed):
    """Offered more than can be served, no latency is given and the reason names the load."""
    latency = latency_of(timed, 5.5)
    assert latency.percentiles_us == {}
    assert latency.verdict is Verdict.UNSUPPORTED
    assert "packets are lost" in latency.reasons[0]


def test_where_overload_is_possible_nothing_bounds_latency(timed):
    """Where the low end of what may be served is overloaded, the interval has no upper end and says so."""
    possible = latency_of(timed, 1.0).possible_mpps
    latency = latency_of(timed, 0.94 * possible)
    assert latency.intervals_us["p95"][1] is None
    assert latency.verdict is Verdict.EXTRAPOLATED
    assert "no upper bound" in " ".join(latency.reasons)
    assert LatencyPrediction.from_dict(latency.to_dict()) == latency


def test_without_a_latency_model_there_is_no_number(library):
    """An NF that was not profiled at several loads has no latency, and the answer says how to get one."""
    latency = latency_of(library, 1.0)
    assert latency.percentiles_us == {}
    assert "slomo profile NF --latency" in latency.reasons[0]


@pytest.mark.parametrize("offered", [-1.0, float("nan"), float("inf")])
def test_a_load_is_a_number(timed, offered):
    """A load that is no number of packets is refused."""
    with pytest.raises(InvalidValueError, match="offered_mpps"):
        latency_of(timed, offered)


def test_the_load_may_stand_in_the_name(timed):
    """A workload with an offered load needs no other."""
    named = Workload("lpm", traffic=Traffic(offered_mpps=2.5))
    for target in (named, "lpm@64B,100000f,2.5Mpps"):
        prediction = predict(target, ["stats"], timed, machine=MACHINE, method="composed")
        assert prediction.latency == latency_of(timed, 2.5)


def test_interpolated_traffic_is_marked(timed):
    """Latency at traffic that was not profiled is marked, since it comes from the nearest profile."""
    unlike = Workload("lpm", traffic=Traffic(flow_count=110_000, offered_mpps=2.5))
    latency = predict(unlike, [], timed, machine=MACHINE).latency
    assert latency.percentiles_us
    assert latency.verdict is Verdict.EXTRAPOLATED
    assert "nearest profile" in " ".join(latency.reasons)


def test_the_front_door_adds_latency_where_a_load_is_given(timed):
    """`slomo.predict` with an offered load serves at most that and tells latency; without one it does not."""
    prediction = predict("lpm", ["stats"], timed, machine=MACHINE, offered_mpps=2.0)
    assert prediction.throughput_mpps == 2.0
    assert prediction.latency.load == pytest.approx(2.0 / prediction.latency.possible_mpps)
    assert type(prediction).from_dict(prediction.to_dict()) == prediction
    assert "p95" in prediction._repr_html_()
    assert predict("lpm", ["stats"], timed, machine=MACHINE).latency is None


def test_the_front_door_interpolates_traffic_and_says_so(timed):
    """`slomo.predict` answers for traffic within reach of a profile with a verdict of extrapolated."""
    near = predict("lpm@64B,110000f", ["stats"], timed, machine=MACHINE)
    exact = predict("lpm", ["stats"], timed, machine=MACHINE)
    assert near.verdict is Verdict.EXTRAPOLATED
    assert "reach 20 %" in near.reasons[0]
    assert near.throughput_mpps < exact.throughput_mpps
    assert exact.reasons == ()


def test_alone_at_other_traffic_is_no_measurement(timed):
    """Extrapolated solo throughput has a wider interval than a measured one."""
    near, exact = (predict(f"lpm@64B,{flows}f", [], timed, machine=MACHINE) for flows in (110_000, 100_000))
    assert near.interval[0] < exact.interval[0] < exact.throughput_mpps < exact.interval[1] < near.interval[1]


def test_a_neighbour_on_another_socket_presses_on_no_latency(timed):
    """Sockets share no cache and no memory channel: a neighbour on the other socket changes no percentile."""
    known = ModelLibrary(respond(replace(model, accelerator=None)) for model in timed.values())
    alone = latency_of(known, 2.5, (), method="auto")
    here, there = (
        latency_of(known, 2.5, method="auto", setting=ServerSetting(sockets=(0, socket))) for socket in (0, 1)
    )

    assert here.percentiles_us["p95"] > alone.percentiles_us["p95"]
    assert there.percentiles_us == alone.percentiles_us


def test_neighbours_that_share_a_core_press_on_latency(timed):
    """Two neighbours on one core slow packets more than none, and less than on a core each."""
    known = ModelLibrary(respond(replace(model, accelerator=None)) for model in timed.values())
    none, one, two = (
        latency_of(known, 1.0, beside, method="auto", setting=ServerSetting(cores=cores)).percentiles_us["p95"]
        for beside, cores in (((), (0,)), (("stats", "stats"), (0, 1, 1)), (("stats", "stats"), (0, 1, 2)))
    )

    assert none < one < two
