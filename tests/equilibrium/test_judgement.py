"""Whether neighbours move more past the cache than a profile saw: one server and arrays say the same, and say why."""

from dataclasses import replace

import numpy as np
import pytest

from slomo.equilibrium.judgement import (
    VerdictInputs,
    codes_of_first,
    division,
    held_out_errors,
    judged,
    moved_beside,
    moved_by_each,
)
from slomo.equilibrium.one_server import OneServer
from slomo.equilibrium.server import solve_joint
from slomo.models.applicability import Verdict
from slomo.models.evidence import FAR_OFF, NEGLIGIBLE_NEAR, trusted
from slomo.models.library import ModelLibrary
from slomo.models.local_errors import NEAREST, LocalErrors
from slomo.models.neighbourhood import UNKNOWN, beside
from slomo.models.responses.moved import MostMoved, most_moved
from slomo.models.responses.server_response import ServerResponse
from slomo.prediction.predictor import Predictor
from slomo.prediction.question import solve_server
from slomo.vocabulary.workload import Traffic, Workload


def profiled_beside(library: ModelLibrary, write_gb_s: float) -> ModelLibrary:
    """Return models whose competitors wrote at most so much."""
    return ModelLibrary(
        [
            replace(model, response=replace(model.response, most_moved=MostMoved((write_gb_s, np.inf))))
            for model in library.values()
        ]
    )


def with_calibration(model, **changed):
    """Return a model with other known errors for whole servers."""
    calibration = replace(model.response.calibration, **changed)
    return replace(model, response=replace(model.response, calibration=calibration))


@pytest.fixture(scope="module")
def narrow(toy_library):
    """Return the toy's models, profiled beside competitors that hardly wrote."""
    return profiled_beside(toy_library, 0.7)


def mixes():
    """Return random servers of the toy's three network functions."""
    members = np.random.default_rng(4).integers(-1, 3, (60, 6))
    members[:, 0] = np.abs(members[:, 0])
    return members


def test_a_profile_knows_what_its_competitors_moved(toy_library):
    """Training keeps the most that neighbours wrote; what the toy does not count (devices) is not judged."""
    wrote, devices = next(iter(toy_library.values())).response.most_moved.amounts
    assert 0.0 < wrote < np.inf == devices


def test_one_server_is_judged_as_a_row_of_many(narrow):
    """The verdict of every question is the code of the same server in an array, and both occur."""
    models, members = list(narrow.values()), mixes()
    codes = codes_of_first(models, members, solve_joint(models, members), 0.9)
    predictor, answers = Predictor(narrow, narrow.machines[0]), []
    for row in members.tolist():
        names = [models[number].workload.nf for number in row if number >= 0]
        answers.append(list(Verdict).index(predictor.predict(names[0], names[1:]).verdict))
    assert answers == codes.tolist()
    assert {0, 1} <= set(answers)


@pytest.mark.parametrize("by_pressure", [False, True])
def test_large_held_out_errors_are_not_supported(toy_library, by_pressure):
    """One by one and in an array: where they are above 1.25 times the average or far off, and only there."""
    known = np.array([0.002, 0.02, 0.05, 0.1])
    changed = {} if by_pressure else {"local": LocalErrors()}
    library = ModelLibrary(
        [
            with_calibration(model, average=average, **changed)
            for model, average in zip(toy_library.values(), known, strict=False)
        ]
    )
    models, members = list(library.values()), mixes()
    codes = codes_of_first(models, members, joint := solve_joint(models, members), 0.9)
    predictor, seen = Predictor(library, library.machines[0]), set()
    for row, code, pressure in zip(members.tolist(), codes.tolist(), joint.pressure, strict=True):
        names = [models[number].workload.nf for number in row if number >= 0]
        answer = predictor.predict(names[0], names[1:])
        assert list(Verdict).index(answer.verdict) == code
        if len(names) > 1:
            calibration, kind = models[row[0]].response.calibration, beside(np.array([row[1:]]))[0]
            usual = calibration.usual_error(1.0 - answer.throughput_mpps / answer.solo_mpps, kind)
            assert by_pressure or answer.evidence.error == pytest.approx(usual)
            wide = answer.evidence.error > trusted(calibration, *([NEGLIGIBLE_NEAR] if by_pressure else []))
            if by_pressure:
                low, high = answer.interval
                largest = calibration.local.near(pressure[0])[1]
                wide |= bool(largest > FAR_OFF * (high - low) / 2.0 / answer.solo_mpps)
            said = "mixes nearest in pressure" if by_pressure else "held-out errors at this loss"
            assert wide == any(said in reason for reason in answer.reasons)
            assert not (wide and answer.verdict is Verdict.SUPPORTED)
            seen.add(wide)
    assert seen == {True, False}


def test_an_error_counts_where_the_pressure_was_the_same(toy_library):
    """Of two mixes with one loss, the one is extrapolated whose like was predicted badly, and says how badly."""
    model = next(iter(toy_library.values()))
    pressures = np.repeat(model.response.applicability.high * [[0.1], [0.9]], NEAREST, axis=0)
    sizes = np.repeat([0.001, 0.03], NEAREST)
    local = LocalErrors(pressures, sizes, model.response.applicability.span)
    calibrated, solo = with_calibration(model, average=0.02, local=local), model.solo_mpps
    response = calibrated.response
    errors = [
        held_out_errors(calibrated, local.near(pressure), 0.9 * solo, UNKNOWN, (0.89 * solo, 0.91 * solo))
        for pressure in pressures[[0, -1]]
    ]
    good, bad = (judged(response, pressures[0], VerdictInputs(True), (), each, [model]) for each in errors)
    assert good == (Verdict.SUPPORTED, ())
    assert bad[0] is Verdict.EXTRAPOLATED
    assert "are 3 % of solo on average and up to 3 %, over all 2 %; half the interval is" in bad[1][0]


def test_a_load_that_is_served_anyway_is_supported(narrow):
    """Neighbours move more than was measured; what is offered would be served by twice the interval's width."""
    names = [model.workload.nf for model in narrow.values()]
    predictor = Predictor(narrow, narrow.machines[0])
    full = predictor.predict(names[0], names * 2)
    least = full.throughput_mpps - 2.0 * (full.throughput_mpps - full.interval[0])
    few, many = (
        solve_server(narrow, [Workload(names[0], {}, Traffic(offered_mpps=mpps)), *names * 2], narrow.machines[0])
        for mpps in (0.9 * least, 0.99 * full.throughput_mpps)
    )
    assert [full.verdict, few.tenants[0].verdict, many.tenants[0].verdict] == [
        "extrapolated",
        "supported",
        "extrapolated",
    ]


def test_amounts_are_the_same_bits_one_by_one(narrow):
    """Whatever the order of neighbours, and whoever else is asked about."""
    models, members = list(narrow.values()), mixes()
    whole = moved_beside(moved_by_each(models, members, solve_joint(models, members)), 0)
    for row, amounts in zip(members.tolist(), whole, strict=True):
        numbers = [number for number in row if number >= 0]
        one = OneServer([models[number] for number in numbers], [None] * len(numbers))
        assert moved_beside(one.moved, one.place[0])[0].tolist() == amounts.tolist()
        limits = np.array(models[numbers[0]].response.most_moved.limits)
        assert one.verdict_inputs(one.place[0]).may_move_more or not (amounts > limits).any()


def test_the_reason_names_what_is_moved(narrow):
    """Written past what the profile saw: extrapolated, with both numbers."""
    names = [model.workload.nf for model in narrow.values()]
    prediction = Predictor(narrow, narrow.machines[0]).predict(names[0], names * 2)
    assert prediction.verdict is Verdict.EXTRAPOLATED
    assert any("written to memory; the profile covers up to 0.7" in reason for reason in prediction.reasons)


def test_models_keep_it_and_those_of_before_do_not_know(toy_library):
    """It is stored with the model; without it nothing is judged."""
    response = next(iter(toy_library.values())).response
    document = response.to_dict()
    assert ServerResponse.from_dict(document).most_moved == response.most_moved
    del document["most_moved"]
    assert ServerResponse.from_dict(document).most_moved == MostMoved()


def test_a_metric_that_makes_half_an_amount_is_no_measurement():
    """Device lines need hits and misses."""
    assert most_moved(("PCIEHIT", "WRITE"), np.ones((2, 2))).amounts == (1.0, np.inf)


def test_a_full_channel_tells_by_which_rule_it_was_divided(toy_library):
    """Queues of cards first where what they read back was learned; waiting alone, and why, where it was not."""
    models = list(toy_library.values())
    response = replace(models[0].response, full_channel_ns=100.0)
    reading = replace(models[1], response=replace(models[1].response, read_back=np.ones(len(response.speed))))
    calm = response.applicability.low

    full = VerdictInputs(True, channel=0.95)
    _, (waiting,) = judged(response, calm, full, (), None, models)
    assert "95 % full" in waiting
    assert "(no PCIEMISS per core)" in waiting
    _, (queues,) = judged(response, calm, full, (), None, [models[0], reading])
    assert "queues of network cards become short first" in queues
    names = (*response.profile.metric_names[:-1], "PCIEMISS")
    counted = replace(models[0], response=replace(response, profile=replace(response.profile, metric_names=names)))
    assert division([counted]) == "requests wait (network cards read nothing back)"
