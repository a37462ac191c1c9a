"""Predictions keep law 1, do not depend on order, say how far they can be trusted, and refuse what makes no sense."""

import json
import subprocess
import sys
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from slomo.equilibrium import memo
from slomo.errors import (
    ConfigurationError,
    InvalidValueError,
    MissingMetricError,
    UnknownNameError,
    UnsupportedPredictionError,
    UsageError,
)
from slomo.models.applicability import Verdict
from slomo.models.library import ModelLibrary
from slomo.prediction.batch import predict_places
from slomo.prediction.options import PredictionOptions
from slomo.prediction.predictor import Predictor
from slomo.prediction.question import solve_server
from slomo.prediction.result import Prediction
from slomo.prediction.tenants import TenantModel
from slomo.vocabulary.workload import Traffic, Workload

from .test_question import respond

MACHINE = "silver-4110"


@pytest.fixture
def predictor(library):
    return Predictor(library, MACHINE)


@pytest.mark.parametrize("model", ["slomo-xgb", "dobrescu", "none"])
def test_alone_nothing_is_lost(library, model):
    """Without competitors the slowdown is exactly 0, and the interval as wide as repeats of the run differ."""
    prediction = Predictor(library, MACHINE, model).predict("lpm")
    assert prediction.slowdown == 0.0
    assert prediction.throughput_mpps == prediction.solo_mpps == 5.0
    assert prediction.interval == pytest.approx((5.0, 5.0), rel=1e-3)
    assert prediction.interval[0] < 5.0 < prediction.interval[1]
    assert prediction.verdict is Verdict.SUPPORTED
    assert prediction.carrier is None
    composed = None if prediction.composition is None else prediction.composition.vector["L2MISS"]
    assert composed == (None if model == "none" else 0.0)


@pytest.mark.parametrize("compat", [None, "published"])
def test_order_of_competitors_changes_no_bit(library, compat):
    """Any order of the competitors gives the same numbers, to the last bit."""
    predictor = Predictor(library, MACHINE, compat=compat)
    mix = ("nat", "snort", "stats", "nat")
    numbers = {predictor.predict("lpm", order).throughput_mpps for order in permutations(mix)}
    intervals = {predictor.predict("lpm", order).interval for order in permutations(mix)}
    assert len(numbers) == len(intervals) == 1


def test_unlike_competitors_differ_from_like(predictor):
    """Two unlike competitors do not count as twice one of them."""
    both = predictor.predict("lpm", ["nat", "snort"]).throughput_mpps
    assert both != predictor.predict("lpm", ["nat", "nat"]).throughput_mpps
    assert both != predictor.predict("lpm", ["snort", "snort"]).throughput_mpps


def test_prediction_reads_the_composed_vector(predictor):
    """The throughput is the model's answer to the composition shown."""
    prediction = predictor.predict("lpm", ["nat", "snort"])
    vector = prediction.composition.vector
    expected = 5.0 * np.exp(-(0.001 * vector["L2MISS"] + 0.00001 * vector["L3OCC"] + 0.01 * vector["READ"]))
    assert prediction.throughput_mpps == pytest.approx(expected, rel=1e-12)
    assert prediction.slowdown == pytest.approx(1.0 - expected / 5.0)
    assert prediction.interval[0] < expected < prediction.interval[1]


def test_competitors_press_less_than_solo(predictor, library):
    """A competitor that is slowed down itself presses less than its solo vector says."""
    composed = predictor.predict("lpm", ["nat", "stats"]).composition.vector
    assert composed["L2MISS"] < 33.0 + 38.0
    solo = Predictor(library, MACHINE, "dobrescu").predict("lpm", ["nat", "stats"]).composition.vector
    assert solo["L2MISS"] == pytest.approx(71.0)


def test_explanation_adds_up_to_the_loss(predictor):
    """The parts of the explanation are the whole loss, and the carrier has the largest."""
    prediction = predictor.predict("lpm", ["nat", "snort", "stats"])
    explained = prediction.explanation
    lost = prediction.solo_mpps - prediction.throughput_mpps
    assert sum(explained.metrics.values()) + explained.unattributed_mpps == pytest.approx(lost)
    name, share = prediction.carrier
    assert explained.metrics[name] == max(explained.metrics.values())
    assert share == pytest.approx(explained.metrics[name] / lost)
    assert predictor.predict("lpm", ["nat"], explain=False).explanation is None


def test_wider_coverage_is_wider(predictor):
    """A higher coverage never gives a narrower interval."""
    narrow, wide = (predictor.predict("lpm", ["nat"], coverage).interval for coverage in (0.5, 0.95))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_too_many_tenants_are_refused(predictor):
    """A mix that needs more cores than the socket has is a usage error that counts both."""
    assert predictor.predict("lpm", ["nat"] * 7).slowdown > 0.0
    with pytest.raises(InvalidValueError, match="need 9 cores, silver-4110 has 8") as raised:
        predictor.predict("lpm", ["nat"] * 8)
    assert raised.value.exit_code == 2
    with pytest.raises(InvalidValueError, match="need 9 cores"):
        predictor.predict_batch(["lpm"], [["nat"] * 8])


def test_unknown_names_are_answered_with_the_nearest(library, predictor):
    """Unknown targets, competitors, machines and models name the nearest there is."""
    with pytest.raises(UnknownNameError, match="did you mean 'stats'"):
        predictor.predict("stast")
    with pytest.raises(UnknownNameError, match="did you mean 'snort'"):
        predictor.predict("lpm", ["snrt"])
    with pytest.raises(UnknownNameError, match="slomo-xgb"):
        Predictor(library, MACHINE, "slomo-xbg").predict("lpm", ["nat"])
    with pytest.raises(UnknownNameError, match=MACHINE):
        Predictor(library, "silver-4111").predict("lpm")


def test_an_nf_known_elsewhere_names_the_machines(predictor):
    """An NF without a model on this machine is answered with the machines it has models for."""
    with pytest.raises(UnknownNameError, match="e5-2620v4"):
        predictor.predict("lpm", ["vpn"])


def test_several_machines_need_a_choice(library):
    """A library of several machines does not guess one."""
    with pytest.raises(UsageError, match="several machines"):
        Predictor(library).predict("lpm")


@pytest.mark.parametrize("coverage", [0.0, 1.0, -1.0, float("nan")])
def test_coverage_is_a_probability(predictor, coverage):
    """A coverage outside 0 to 1 is refused before anything else, alone and in batches."""
    with pytest.raises(InvalidValueError, match="coverage"):
        predictor.predict("lpm", (), coverage)
    with pytest.raises(InvalidValueError, match="coverage"):
        predictor.predict_batch(["lpm"], [["nat"]], coverage)


def test_a_text_is_no_list_of_competitors(predictor):
    """One NF's name given for the list is refused, not taken letter by letter; a list counts as everywhere."""
    with pytest.raises(InvalidValueError, match="needed a list"):
        predictor.predict("lpm", "nat")
    with pytest.raises(InvalidValueError, match="needed a list"):
        solve_server(predictor.library, "nat", MACHINE)
    counted = solve_server(predictor.library, ["lpm", "nat:2"], MACHINE)
    assert counted == solve_server(predictor.library, ["lpm", "nat", "nat"], MACHINE)


def test_verdict_depends_on_what_was_measured(predictor):
    """Within the profile a prediction is supported; beyond it reasons say which metric, and strict refuses."""
    assert (
        predictor.predict_vector("lpm", {"L2MISS": 150.0, "L3OCC": 5000.0, "READ": 20.0}).verdict is Verdict.SUPPORTED
    )
    far = {"L2MISS": 3000.0, "L3OCC": 5000.0, "READ": 20.0}
    prediction = predictor.predict_vector("lpm", far)
    assert prediction.verdict is Verdict.UNSUPPORTED
    assert "L2MISS 3000 M/s" in prediction.reasons[0]
    with pytest.raises(UnsupportedPredictionError, match="L2MISS 3000") as raised:
        predictor.predict_vector("lpm", far, strict=True)
    assert raised.value.exit_code == 5


def test_the_verdict_does_not_depend_on_the_model(library):
    """Whether a mix lies within what was profiled is not a matter of who predicts."""
    mix = ["nat", "snort", "stats"]
    predictions = [Predictor(library, MACHINE, model).predict("lpm", mix) for model in ("slomo-xgb", "dobrescu")]
    assert len({(prediction.verdict, prediction.reasons) for prediction in predictions}) == 1


def test_missing_metric_is_not_zero(gap_library):
    """A competitor that lacks a metric the model reads makes the prediction impossible, not cheap."""
    predictor = Predictor(gap_library, MACHINE)
    with pytest.raises(UnsupportedPredictionError, match="READ"):
        predictor.predict("lpm", ["nat", "snort"])
    batch = predictor.predict_batch(["lpm", "lpm"], [["nat", "snort"], ["nat"]])
    assert np.isnan(batch.throughput_mpps[0])
    assert batch.throughput_mpps[1] == predictor.predict("lpm", ["nat"]).throughput_mpps
    with pytest.raises(MissingMetricError, match="READ"):
        predictor.predict_vector("lpm", {"L2MISS": 1.0, "L3OCC": 1.0})


@pytest.mark.parametrize("model", ["slomo-xgb", "dobrescu", "none"])
@pytest.mark.parametrize("compat", [None, "published"])
def test_batch_equals_one_by_one(library, model, compat):
    """A batch of mixes of all sizes, targets and kinds of naming gives the numbers of single predictions."""
    predictor = Predictor(library, MACHINE, model, compat)
    random = np.random.default_rng(4)
    names = [workload.nf for workload in predictor.workloads]
    targets = [names[i] for i in random.integers(0, 4, 40)]
    mixes = [[names[i] for i in random.integers(0, 4, size)] for size in random.integers(0, 8, 40)]
    batch = predictor.predict_batch(targets, mixes, 0.8)
    singles = [predictor.predict(*pair, 0.8) for pair in zip(targets, mixes, strict=True)]
    np.testing.assert_allclose(batch.throughput_mpps, [p.throughput_mpps for p in singles], rtol=1e-12)
    np.testing.assert_allclose(batch.slowdown, [p.slowdown for p in singles], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(batch.low_mpps, [p.interval[0] for p in singles], rtol=1e-12)
    np.testing.assert_allclose(batch.high_mpps, [p.interval[1] for p in singles], rtol=1e-12)
    places = np.full((40, 7), -1)
    for row, mix in zip(places, mixes, strict=True):
        row[: len(mix)] = [names.index(name) for name in mix]
    by_index = predictor.predict_batch(np.array([names.index(name) for name in targets]), places, 0.8)
    np.testing.assert_allclose(by_index.throughput_mpps, batch.throughput_mpps, rtol=1e-12)
    by_value = predictor.predict_batch(
        [Workload(n) for n in targets], [[Workload(n) for n in mix] for mix in mixes], 0.8
    )
    np.testing.assert_array_equal(by_value.throughput_mpps, batch.throughput_mpps)


def test_whole_servers_at_low_load_say_what_single_questions_say(library):
    """A load far below what an NF can serve leaves no interval of width 0, whoever is composed beside whom."""
    idle = Workload("lpm", traffic=Traffic(offered_mpps=0.5))
    tenants = (
        TenantModel(idle, library.find("lpm", MACHINE), 0.5),
        TenantModel(Workload("nat"), library.find("nat", MACHINE)),
    )
    places = predict_places(tenants, np.array([[0, 1], [0, 0]]), MACHINE, PredictionOptions(method="composed"))
    for row, (target, competitor) in enumerate([(idle, "nat"), (idle, idle)]):
        prediction = Predictor(library, MACHINE, method="composed").predict(target, [competitor])
        assert prediction.throughput_mpps == places.mpps[row, 0] == 0.5
        assert prediction.interval == (places.low[row, 0], places.high[row, 0])
        assert places.low[row, 0] < 0.5 < places.high[row, 0]


def test_counts_stand_for_that_many_competitors(predictor):
    """`"snort:2"` is two instances in single predictions and in batches; a target has no count."""
    twice = predictor.predict_batch(["lpm"], [["nat", "snort", "snort"]]).throughput_mpps
    np.testing.assert_array_equal(predictor.predict_batch(["lpm"], [["nat", "snort:2"]]).throughput_mpps, twice)
    assert predictor.predict("lpm", ["nat", "snort:2"]).throughput_mpps == pytest.approx(twice[0])
    np.testing.assert_array_equal(predictor.predict_batch(["lpm"], [{"nat": 1, "snort": 2}]).throughput_mpps, twice)
    assert predictor.predict("lpm", {"nat": 1, "snort": 2}).throughput_mpps == pytest.approx(twice[0])
    with pytest.raises(InvalidValueError, match="the text 'snort'"):
        predictor.predict_batch(["lpm"], ["snort"])
    with pytest.raises(UnknownNameError, match="lpm:2"):
        predictor.predict_batch(["lpm:2"], [["snort:2"]])


def test_compiled_batch_equals_the_plain_one(predictor):
    """A batch large enough for the compiled loop gives the numbers of small ones."""
    random = np.random.default_rng(5)
    targets, places = random.integers(0, 4, 9000), random.integers(-1, 4, (9000, 5))
    large = predictor.predict_batch(targets, places)
    small = predictor.predict_batch(targets[:100], places[:100])
    np.testing.assert_allclose(large.throughput_mpps[:100], small.throughput_mpps, rtol=1e-12)


def test_empty_batch_is_empty(predictor):
    """No mixes, no predictions."""
    assert len(predictor.predict_batch([], [])) == 0


def test_batches_that_do_not_fit_are_refused(predictor):
    """Targets without a mix, and indices of nobody, are named."""
    with pytest.raises(InvalidValueError, match="2 targets for 1 mix,"):
        predictor.predict_batch(["lpm", "nat"], [["nat"]])
    with pytest.raises(InvalidValueError, match=r"mix 1 is target 0 beside \[9\]"):
        predictor.predict_batch(np.array([0, 0]), np.array([[1], [9]]))
    with pytest.raises(InvalidValueError, match="mix 0 is target -1"):
        predictor.predict_batch(np.array([-1]), np.array([[1]]))
    with pytest.raises(InvalidValueError, match="shape"):
        predictor.predict_batch(np.array([0, 0]), np.array([[1]]))


def test_prediction_has_the_stable_keys_and_survives_json(predictor):
    """A prediction written as JSON has the keys tools rely on and reads back equal."""
    prediction = predictor.predict("lpm", ["nat", "snort"], 0.8)
    data = json.loads(json.dumps(prediction.to_dict(), allow_nan=False))
    keys = ("target", "competitors", "machine", "model", "solo_mpps", "throughput_mpps", "slowdown", "interval")
    assert {*keys, "coverage", "verdict", "carrier"} <= set(data)
    assert (data["target"], data["competitors"]) == ("lpm", ["nat", "snort"])
    assert Prediction.from_dict(data) == prediction
    with pytest.raises(ConfigurationError, match="schema version 0"):
        Prediction.from_dict({**data, "schema_version": 0})


def test_notebook_view_shows_what_matters(predictor):
    """The notebook view gives throughput, slowdown, interval, verdict and carrier, with names escaped."""
    prediction = predictor.predict("lpm", ["nat"])
    shown = prediction._repr_html_()
    assert f"{100 * prediction.slowdown:.1f} %" in shown
    assert prediction.carrier[0] in shown
    assert "supported" in shown


def test_predicting_loads_no_heavy_package():
    """Importing the predictor loads none of the packages that training and drawing need."""
    code = "import sys, slomo.prediction.predictor; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"sklearn", "xgboost", "numba", "pandas", "matplotlib", "scipy", "pyarrow"}
    assert heavy.isdisjoint(loaded)


def test_saved_models_predict_the_same(library, tmp_path):
    """Save, load, predict: the same numbers, to the last bit (law 7)."""
    models = [library[key] for key in library]
    plain = [replace(model, sensitivity={"dobrescu": model.sensitivity["dobrescu"]}) for model in models]
    kept = ModelLibrary(plain)
    again = ModelLibrary.load(kept.save(tmp_path / "models"))
    before, after = (
        Predictor(stored, MACHINE, "dobrescu").predict("lpm", ["nat", "snort"]) for stored in (kept, again)
    )
    assert before == after


def test_a_kept_mix_is_not_solved_again(library, monkeypatch: pytest.MonkeyPatch) -> None:
    """Solved ahead, kept or neither: the same numbers, and the verdicts of single predictions."""
    here = ModelLibrary(
        [replace(respond(each), accelerator=None) for each in library.values() if each.machine == MACHINE]
    )
    predictor, asked = Predictor(here, MACHINE), (["lpm", "nat"], [["nat", "stats", "stats"], ["lpm"]])
    fresh = predictor.predict_batch(*asked)
    for step in predictor.ahead():
        step()
    monkeypatch.setattr(memo, "solve_joint", None)
    kept = predictor.predict_batch(*asked, keep=True)

    assert predictor.solves_in_arrays({*asked[0], *asked[1][0]})
    assert not any(map(predictor.solves_in_arrays, (["lpm:2"], ["lpm@64B,7f"], ["nobody"])))
    for name in ("throughput_mpps", "low_mpps", "high_mpps"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(fresh, name))
    single = [predictor.predict(*each, explain=False) for each in zip(*asked, strict=True)]
    assert kept.predictions() == [replace(each, composition=None) for each in single]


def test_a_mix_that_arrays_cannot_solve_is_kept_nowhere(library) -> None:
    """Without a response the mix is composed, with the numbers of a single prediction."""
    predictor = Predictor(library, MACHINE)

    assert predictor.predict_batch(["lpm"], [["nat"]], keep=True).throughput_mpps == [
        predictor.predict("lpm", ["nat"]).throughput_mpps
    ]
    assert not predictor.solves_in_arrays(["lpm"])
