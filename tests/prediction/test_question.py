"""The same question through any door gets the same answer, to the last bit (law 11)."""

import contextlib
import io
import json
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import slomo
from slomo.cli.main import main
from slomo.evaluation.evaluate import evaluate
from slomo.models.applicability import applicability
from slomo.models.contentiousness import ContentiousnessProfile, basis_size
from slomo.models.intervals import ConformalCalibration
from slomo.models.library import ModelLibrary
from slomo.models.responses.accelerator import AcceleratorUse
from slomo.models.responses.sensitivity import LinearSensitivity
from slomo.models.responses.server_response import ServerResponse
from slomo.placement.feasibility.estimates import ThroughputEstimates
from slomo.prediction.predictor import Predictor
from slomo.prediction.question import solve_server
from slomo.records.dataset import ProfileDataset
from slomo.records.measurement import Measurement, Stability
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Traffic, Workload

from .conftest import MACHINE, nf_model

CAR = ("L2MISS",)
#: Two that share an accelerator, one profiled without the competition beside it, one profiled at two flow counts.
USES = {"nat": AcceleratorUse("regex", 300.0), "stats": AcceleratorUse("regex", 200.0, pattern="run-to-completion")}
FEW = Traffic(flow_count=50_000)


def respond(model):
    """Return the model with saveable lines for both methods."""
    solo, car = model.solo_mpps, model.solo_vector["L2MISS"]
    vector = MetricVector({"L2MISS": car}, scope=Scope.CORE)
    weights = np.zeros((basis_size(1), 1))
    weights[0], weights[1] = car / solo, -0.3 * car / solo
    tables = {"scale": np.array([50.0]), "limit": np.array([300.0]), "weights": weights}
    profile = ContentiousnessProfile(CAR, CAR, vector, {1: vector}, **tables, low=0.3 * weights[0], high=weights[0])
    speed = np.zeros(len(weights))
    speed[0], speed[1] = solo, -0.4 * solo
    response = ServerResponse(
        profile,
        speed,
        0.1 * solo,
        solo,
        LinearSensitivity("equilibrium", CAR, "pressure", solo, -0.0021 * solo),
        ConformalCalibration(np.arange(1, 100) / 400.0, "mixes"),
        applicability(CAR, np.linspace(0.0, 150.0, 40)[:, np.newaxis]),
    )
    line = LinearSensitivity("slomo-xgb", CAR, "pressure", solo, -0.0025 * solo)
    families = {**model.sensitivity, "slomo-xgb": line}
    use = USES.get(model.workload.nf)
    return replace(
        model, sensitivity=families, response=None if model.workload.nf == "snort" else response, accelerator=use
    )


@dataclass(frozen=True)
class House:
    """One library, in memory and saved."""

    library: ModelLibrary
    folder: Path


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """Four NFs and a second profile of one of them; what they share differs from pair to pair."""
    made = [
        nf_model("lpm", 5.0, 20.0, 1500.0, 1.0),
        nf_model("nat", 2.7, 33.0, 2000.0, 2.0),
        nf_model("snort", 0.7, 17.0, 4000.0, 4.0),
        nf_model("stats", 3.7, 38.0, 3000.0, 3.0),
        replace(nf_model("lpm", 5.5, 12.0, 900.0, 0.6), workload=Workload("lpm", traffic=FEW)),
    ]
    library = ModelLibrary([respond(model) for model in made])
    return House(library, library.save(tmp_path_factory.mktemp("house")))


PROFILED = [Workload("lpm"), Workload("nat"), Workload("snort"), Workload("stats"), Workload("lpm", traffic=FEW)]
OTHERS = [
    Workload("lpm", traffic=Traffic(flow_count=70_000)),
    Workload("lpm", traffic=Traffic(offered_mpps=1.5)),
    Workload("stats", traffic=Traffic(offered_mpps=0.4)),
    Workload("nat", traffic=Traffic(offered_mpps=9.0)),
]
METHODS = st.sampled_from(["auto", "equilibrium", "composed"])
#: Method and model: a family of one's choice composes.
MANNERS = st.tuples(METHODS, st.just("default")) | st.tuples(
    st.sampled_from(["auto", "composed"]), st.sampled_from(["slomo-xgb", "dobrescu"])
)


def numbers(prediction):
    return (prediction.throughput_mpps, *prediction.interval)


def at_the_command_line(house, mix, method, model, coverage):
    words = ["predict", "--json", "--models", str(house.folder), "--method", method, "--model", model]
    words += ["--coverage", repr(coverage), "--machine", MACHINE, "--target", mix[0].key]
    for item in mix[1:]:
        words += ["--with", item.key]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main(words) == 0
    return json.loads(said.getvalue())


@given(st.lists(st.sampled_from(PROFILED + OTHERS), min_size=1, max_size=5), MANNERS, st.sampled_from([0.5, 0.9]))
@settings(max_examples=40)
def test_every_door_gives_the_same_bits(house, mix, manner, coverage):
    """slomo.predict, Predictor, its batches, whole servers and the command line answer alike, verdict included."""
    method, model = manner
    how = {"method": method, "model": model, "coverage": coverage}
    prediction = slomo.predict(mix[0], mix[1:], house.library, machine=MACHINE, **how)
    predictor = Predictor(house.library, MACHINE, model, method=method)
    alone = predictor.predict(mix[0], mix[1:], coverage)
    assert alone == prediction
    other = [Workload("stats"), Workload("nat"), Workload("lpm")]  # whoever else is asked about changes nothing
    batch = predictor.predict_batch([other[0], mix[0]], [other[1:], mix[1:]], coverage)
    assert (batch.throughput_mpps[1], batch.low_mpps[1], batch.high_mpps[1]) == numbers(prediction)
    assert batch.solo_mpps[1] == prediction.solo_mpps
    assert (batch.verdict[1], batch.reasons[1]) == (prediction.verdict, prediction.reasons)
    server = solve_server(house.library, mix, MACHINE, **how)
    assert numbers(server.tenants[0]) == numbers(prediction)
    assert (server.tenants[0].verdict, server.tenants[0].reasons) == (prediction.verdict, prediction.reasons)
    told = at_the_command_line(house, mix, method, model, coverage)
    assert (told["throughput_mpps"], *told["interval"]) == numbers(prediction)
    assert (told["verdict"], told["model"]) == (str(prediction.verdict), prediction.model)


LOADED = [Workload("stats", traffic=Traffic(offered_mpps=0.4)), Workload("nat", traffic=Traffic(offered_mpps=9.0))]


@given(st.lists(st.sampled_from([*PROFILED, *LOADED]), min_size=1, max_size=5), MANNERS)
@settings(max_examples=40)
def test_placement_says_what_prediction_says(house, mix, manner):
    """At any load, accelerators shared or not, placement starts from what `slomo.predict` says; bounds are its own."""
    method, model = manner
    prediction = slomo.predict(mix[0], mix[1:], house.library, method=method, model=model)
    estimates = ThroughputEstimates(house.library, model, confidence=0.95, method=method)
    mpps, bound, high = estimates.rates(MACHINE, [tuple(item.key for item in mix)], [1])[0][mix[0].key]
    offered = mix[0].traffic.offered_mpps or np.inf
    assert (mpps, high) == (prediction.throughput_mpps, min(prediction.interval[1], offered))
    assert 0.0 <= bound <= mpps


@given(st.lists(st.sampled_from(PROFILED), min_size=2, max_size=5), MANNERS)
@settings(max_examples=40)
def test_placement_and_evaluation_say_what_prediction_says(house, mix, manner):
    """Placement starts from the throughput of `slomo.predict`, bounds are its own; evaluation judges its numbers."""
    method, model = manner
    prediction = slomo.predict(mix[0], mix[1:], house.library, method=method, model=model)
    estimates = ThroughputEstimates(house.library, model, confidence=0.95, method=method)
    keys = tuple(sorted(item.key for item in mix))
    mpps, bound, high = estimates.rates(MACHINE, [keys], [1])[0][mix[0].key]
    assert (mpps, high) == (numbers(prediction)[0], numbers(prediction)[2])
    assert 0.0 <= bound <= mpps
    name, evaluated_method = (model, "composed") if model != "default" else (method, method)
    name = "default" if name == "auto" else name  # an evaluation composes by every family that it names
    as_evaluated = slomo.predict(mix[0], mix[1:], house.library, method=evaluated_method, model=model)
    rows = evaluate(house.library, judged(mix), [name]).rows
    assert (rows["predicted_mpps"][0], rows["low_mpps"][0], rows["high_mpps"][0]) == numbers(as_evaluated)


def judged(mix):
    measurement = Measurement(
        colocation=Colocation(MACHINE, mix[0], tuple(mix[1:])),
        throughput_mpps=(1.0,),
        competition=None,
        beside=None,
        contentiousness=MetricVector({}, scope=Scope.CORE),
        latency_us={},
        loss=None,
        stability=Stability.STABLE,
        provenance={"seed": 0},
    )
    return ProfileDataset.from_measurements([measurement], {}, plan="mix")


def test_no_door_forgets_the_accelerator(house):
    """Two that share an accelerator lose more than memory costs, through Predictor and placement as well."""
    without = ModelLibrary([replace(model, accelerator=None) for model in house.library.values()])
    names = ["nat", "stats", "stats"]
    for method in ("equilibrium", "composed"):
        memory = Predictor(without, MACHINE, method=method).predict(names[0], names[1:])
        both = Predictor(house.library, MACHINE, method=method).predict(names[0], names[1:])
        assert both.throughput_mpps < 0.98 * memory.throughput_mpps
        assert both.interval[0] < both.throughput_mpps < both.interval[1]


def test_the_order_of_those_who_share_an_accelerator_changes_no_bit(house):
    """Law 2 holds for accelerators, too: whoever is named first, the answer has the same bits."""
    for method in ("equilibrium", "composed"):
        predictor = Predictor(house.library, MACHINE, method=method)
        orders = permutations(["stats", "nat", "nat", "snort"])
        assert len({numbers(predictor.predict("nat", list(order))) for order in orders}) == 1


def test_what_was_not_profiled_is_marked_at_every_door(house):
    """Traffic between two profiles is interpolated, also by Predictor, and the verdict says so."""
    between = Workload("lpm", traffic=Traffic(flow_count=70_000))
    for prediction in (
        slomo.predict("stats", [between], house.library),
        Predictor(house.library, MACHINE).predict(between, ["stats"]),
        Predictor(house.library, MACHINE).predict(between.key, []),
    ):
        assert str(prediction.verdict) == "extrapolated"
        assert "interpolated between profiles" in prediction.reasons[0]
