"""Evaluations compare every model with what was measured, on the same rows, in percent."""

import json

import numpy as np
import pytest

from slomo.errors import InvalidValueError, UnknownNameError, UnsupportedPredictionError
from slomo.evaluation.evaluate import errors, evaluate
from slomo.prediction.predictor import Predictor
from slomo.records.dataset import ProfileDataset
from slomo.records.measurement import Measurement, Stability
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Workload

MACHINE = "silver-4110"
NFS = ("lpm", "nat", "snort", "stats")


def measured(target, competitors, mpps, machine=MACHINE):
    """Return one measured mix."""
    return Measurement(
        colocation=Colocation(machine, Workload(target), tuple(Workload(name) for name in competitors)),
        throughput_mpps=(mpps,),
        competition=None,
        beside=None,
        contentiousness=MetricVector({}, scope=Scope.CORE),
        latency_us={},
        loss=None,
        stability=Stability.STABLE,
        provenance={"seed": 0},
    )


@pytest.fixture
def mixes(library):
    """Mixes whose throughput is 10 % below what slomo-xgb predicts for 'lpm', and as predicted for the others."""
    predictor = Predictor(library, MACHINE)
    random = np.random.default_rng(2)
    listed = []
    for size in (1, 2, 3, 4) * 3:
        target, *others = (NFS[i] for i in random.integers(0, 4, size + 1))
        factor = 0.9 if target == "lpm" else 1.0
        listed.append(measured(target, others, factor * predictor.predict(target, others).throughput_mpps))
    listed.append(measured("lpm", ("nat",), 0.9 * predictor.predict("lpm", ["nat"]).throughput_mpps))
    return ProfileDataset.from_measurements({item.colocation.key: item for item in listed}.values(), {}, plan="mix")


def test_errors_are_relative_to_what_was_measured():
    """MAPE, p95, shares, bias and coverage follow their definitions, and exactly 5 % off counts as within 5 %."""
    actual = np.array([1.0, 2.0, 4.0, 10.0])
    accuracy = errors(actual, actual * [1.05, 0.9, 1.2, 1.0], actual - 0.06, actual + np.array([0.1, 0.1, -0.01, 0.1]))
    assert accuracy.mape == pytest.approx((5 + 10 + 20 + 0) / 4)
    assert accuracy.p95 == pytest.approx(np.percentile([5, 10, 20, 0], 95))
    assert (accuracy.within_5, accuracy.within_10) == (50.0, 75.0)
    assert accuracy.bias == pytest.approx((5 - 10 + 20 + 0) / 4)
    assert accuracy.coverage == 75.0


@pytest.mark.parametrize("actual", [[], [0.0], [float("nan")]])
def test_errors_need_throughput(actual):
    """No predictions, or nothing measured to relate an error to, is refused."""
    numbers = np.array(actual)
    with pytest.raises(InvalidValueError, match="not above 0"):
        errors(numbers, numbers, numbers, numbers)


def test_every_model_is_judged_on_the_same_rows(library, mixes):
    """All models of the library are compared, on as many predictions each, and the one that made the data wins."""
    evaluation = evaluate(library, mixes)
    assert set(evaluation.models) == {"composed", "slomo-xgb", "dobrescu", "none"}
    assert evaluation.models["composed"] == evaluation.models["slomo-xgb"]  # nothing was chosen: the former default
    assert {item.predictions for item in evaluation.models.values()} == {len(mixes)}
    assert evaluation.models["slomo-xgb"].mape < min(evaluation.models[name].mape for name in ("dobrescu", "none"))
    assert evaluation.models["none"].bias > 0.0


def test_errors_per_nf(library, mixes):
    """Per network function, only the one whose throughput was lowered is off, by 1 / 0.9."""
    evaluation = evaluate(library, mixes, ["slomo-xgb"])
    by_nf = {nf: by_model["slomo-xgb"].mape for nf, by_model in evaluation.per_nf.items()}
    assert by_nf.pop("lpm") == pytest.approx(100 / 0.9 - 100)
    assert list(by_nf.values()) == pytest.approx([0.0] * len(by_nf), abs=1e-9)


def test_evaluation_has_the_stable_keys(library, mixes):
    """The mapping is JSON, in percent, with the keys tools rely on."""
    data = json.loads(json.dumps(evaluate(library, mixes).to_dict(), allow_nan=False))
    assert data["machine"] == MACHINE
    assert data["mixes"] == len(mixes)
    for row in data["models"].values():
        assert {"mape", "p95", "within_5", "within_10", "bias", "coverage"} <= set(row)
    assert set(data["per_nf"]) <= set(NFS)


def test_frame_has_a_row_per_prediction(library, mixes):
    """The frame holds every prediction with its error, from which the summary follows."""
    evaluation = evaluate(library, mixes)
    frame = evaluation.to_frame()
    assert len(frame) == 4 * len(mixes)
    ours = frame[frame["model"] == "slomo-xgb"]
    assert ours["error_percent"].abs().mean() == pytest.approx(evaluation.models["slomo-xgb"].mape)
    assert "slomo-xgb" in evaluation._repr_html_()


def test_rows_without_a_prediction_are_counted_by_name(gap_library, mixes):
    """Beside 'snort', which lacks a counter, a model is not predicted with predict's words, and figures stay finite."""
    evaluation = evaluate(gap_library, mixes, with_sources=True)
    data = json.loads(json.dumps(evaluation.to_dict(), allow_nan=False))
    reasons, frame = evaluation.not_predicted["slomo-xgb"], evaluation.to_frame()
    beside = [tuple(work.nf for work in others) for _, others in zip(*mixes.tenants, strict=True)]
    assert 0 < len(reasons) == sum("snort" in others for others in beside) < len(mixes)
    assert data["models"]["slomo-xgb"]["predictions"] == len(mixes) - len(reasons)
    assert (data["predictions"], data["models"]["none"]["predictions"]) == (len(mixes), len(mixes))
    assert "snort" not in " ".join(frame.loc[frame["model"] == "slomo-xgb", "competitors"])
    first = next(row for row, others in enumerate(beside) if "snort" in others)
    target = mixes.workload(mixes.frame["target"].iloc[first])
    with pytest.raises(UnsupportedPredictionError) as told:
        Predictor(gap_library, MACHINE, "slomo-xgb").predict(target, beside[first])
    assert reasons[0] == told.value.message
    assert f"slomo-xgb: {len(reasons)} of {len(mixes)} not predicted, the first: {reasons[0]}" in evaluation.gaps
    assert evaluation.reliability["slomo-xgb"][0.9] > 0.0
    alone = mixes.rows(np.array(["snort" in others for others in beside]))
    with pytest.raises(InvalidValueError, match="'slomo-xgb' predicts none of"):
        evaluate(gap_library, alone, ["slomo-xgb"])
    assert set(evaluate(gap_library, alone).models) == {"dobrescu", "none"}


def test_evaluation_needs_mixes_on_one_machine(library, mixes):
    """Without mixes, with two machines, or with an unknown model there is nothing to evaluate, and it says so."""
    with pytest.raises(InvalidValueError, match="no mixes among 0 rows"):
        evaluate(library, ProfileDataset.from_measurements([], {}))
    elsewhere = ProfileDataset.from_measurements([measured("vpn", ("vpn",), 0.3, "e5-2620v4")], {}, plan="mix")
    with pytest.raises(InvalidValueError, match="e5-2620v4, silver-4110"):
        evaluate(library, mixes.merge(elsewhere))
    with pytest.raises(UnknownNameError, match="slomo-xgb"):
        evaluate(library, mixes, ["slomo-gbx"])
