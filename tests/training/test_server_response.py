"""Facts about what is learned from the competition measured beside an NF."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from slomo.equilibrium.server import Joint, joint_vectors, solve_joint
from slomo.equilibrium.settling import responses_of
from slomo.errors import ConfigurationError, MissingMetricError
from slomo.models.contentiousness import pressure_basis
from slomo.models.intervals import FLOOR, symmetric
from slomo.models.library import ModelLibrary
from slomo.models.neighbourhood import PART_LOAD, UNKNOWN
from slomo.models.responses.arrivals import arrival_half_width_mpps
from slomo.models.responses.server_response import ServerResponse
from slomo.records.catalog import find_dataset
from slomo.records.dataset import ProfileDataset
from slomo.training.calibration import calibrated_on, distinct, mix_rows
from slomo.training.features import subjects
from slomo.training.mixes_fit import learned_from_mixes
from slomo.training.server_response_fit import fit_server_response, widened
from slomo.training.training import train, with_responses


@pytest.fixture(scope="module")
def models(toy_library):
    """Return the toy's models in the library's order."""
    return list(toy_library.values())


def solved(models, mixes) -> tuple[Joint, np.ndarray, np.ndarray]:
    rows = mix_rows(mixes, models, "e5-2620v4")
    members = np.column_stack([rows.target, rows.members])
    return solve_joint(models, members), members, rows.mpps


def test_whole_servers_of_unseen_mixes_are_predicted_closely(models, toy_mixes):
    """On mixes never seen the mean error of throughput at the fixed point is below 3 %."""
    joint, _, measured = solved(models, toy_mixes)
    assert joint.converged.all()
    assert np.mean(np.abs(joint.throughput_mpps[:, 0] - measured) / measured) < 0.03


def test_vectors_of_whole_servers_are_predicted_closely(models, toy_mixes):
    """Accesses and occupancy of every NF are within 10 % (median) of what it did beside the others."""
    joint, members, _ = solved(models, toy_mixes)
    names = ("L2MISS", "L3OCC", "READ")
    vectors = joint_vectors(models, members, joint, names)[:, 0]
    measured = toy_mixes.vectors("own", names).to_numpy()
    assert (np.median(np.abs(vectors - measured) / measured, axis=0) < 0.10).all()


def test_intervals_hold_what_they_promise(models, toy_mixes):
    """Intervals calibrated on other mixes hold 90 % of new ones; of many that are equal to those, more."""
    joint, _, measured = solved(models, toy_mixes)
    inside = (joint.low_mpps[:, 0] <= measured) & (measured <= joint.high_mpps[:, 0])
    assert 0.87 <= inside.mean() <= 0.99
    assert np.median(joint.high_mpps[:, 0] - joint.low_mpps[:, 0]) < 0.1 * np.median(measured)
    assert all(model.response.calibration.source == "mixes" for model in models)


def test_each_error_is_known_with_its_pressure(models):
    """The errors behind all functions' scores are those that the functions know by pressure."""
    known = [model.response.calibration for model in models]
    assert sum(len(each.local.sizes) for each in known) == known[0].count
    errors = np.concatenate([each.local.sizes for each in known])
    assert errors.mean() == pytest.approx(known[0].average)


def test_errors_of_others_stand_in_where_a_function_has_too_few(models, toy_mixes):
    """Of a carried model, in proportion to the losses predicted of both functions; its own errors are as measured."""
    models = [replace(model, manifest={**model.manifest, "transfer": {}}) for model in models]
    rows = mix_rows(toy_mixes, models, "e5-2620v4")
    kept = np.append(np.flatnonzero(rows.target == 0)[:3], np.flatnonzero(rows.target != 0))
    few = rows.chosen(kept[distinct(rows.chosen(kept))])
    first, *others = [model.response.calibration.local for model in widened(models, few)]
    untouched = widened([replace(models[0], manifest={}), *models[1:]], few)[0].response.calibration.local
    assert len(untouched.sizes) == 3
    assert [first.of_all, *(each.of_all for each in others)] == [True, *(False for _ in others)]
    members = np.column_stack([few.target, few.members])
    joint, solo = solve_joint(models, members), np.array([model.solo_mpps for model in models])[few.target]
    predicted, target = joint.throughput_mpps[:, 0], models[0]
    would = target.response.rows_mpps(joint.pressure[:, 0], (few.members >= 0).sum(axis=1).astype(float))
    loss, here = (np.maximum(1.0 - each, 0.0) for each in (predicted / solo, would / target.solo_mpps))
    expected = np.abs(predicted - few.mpps) / solo * np.where(few.target == 0, 1.0, (here + FLOOR) / (loss + FLOOR))
    assert first.sizes.tolist() == pytest.approx(expected.tolist())


def test_errors_beside_neighbours_below_full_load_are_those_of_such_mixes(models, toy_mixes):
    """Mixes whose first neighbour is offered a load, predicted too low, shift no interval of saturated mixes."""
    rows = mix_rows(toy_mixes, models, "e5-2620v4")
    offered = np.full((len(rows.mpps), 1 + rows.members.shape[1]), np.nan)
    offered[::2, 1] = 1.0
    low = np.where(np.isfinite(offered[:, 1]), 0.9, 1.0) * rows.mpps
    for each in calibrated_on(models, replace(rows, offered_mpps=offered), low):
        others = np.delete(each.centre, [PART_LOAD, UNKNOWN])
        assert each.centre[PART_LOAD] > others.max()


def test_one_without_a_response_leaves_the_others_calibrated_on_their_mixes(models, toy_mixes):
    """Too few rows of one NF cost the intervals of nobody else: the others' are calibrated on mixes without it."""
    unsure = [replace(m, response=replace(m.response, calibration=symmetric(np.ones(1), "none"))) for m in models]
    rows = mix_rows(toy_mixes, unsure, "e5-2620v4")
    without = widened([replace(unsure[0], response=None), *unsure[1:]], rows)
    alone = widened(unsure[1:], mix_rows(toy_mixes, unsure[1:], "e5-2620v4"))
    assert without[0].response is None
    for model, other in zip(without[1:], alone, strict=True):
        assert model.response.calibration.source == "mixes"
        assert model.response.calibration.to_dict() == other.response.calibration.to_dict()


def test_a_mix_is_judged_by_responses_that_have_not_seen_it(toy_profile, monkeypatch):
    """Another throughput of one mix changes the predictions of the mixes of other folds, but not its own."""
    monkeypatch.setattr("slomo.training.mixes_fit._FOLDS", 2)
    frame = toy_profile.frame
    mixes = frame[frame["plan"] == "mix"].index
    few = frame.drop(mixes[60:]).reset_index(drop=True)
    changed, moved = few.copy(), few[few["plan"] == "mix"].index[0]
    changed.loc[moved, "throughput_mpps"] *= 0.7
    library = train(type(toy_profile)(few[few["plan"] != "mix"], toy_profile.environment), models=["none"])
    models, predicted = list(library.values()), []
    for rows in (few, changed):
        dataset = type(toy_profile)(rows, toy_profile.environment)
        of_models = {subject.workload.key: subject for subject in subjects(dataset)}
        mixed = mix_rows(dataset, models, "e5-2620v4")
        learn = partial(with_responses, models, channel=(0.0, np.inf), seed=0)
        learned, held_out = learned_from_mixes(dataset, of_models, models, mixed, learn, 0)
        predicted.append(held_out)
        assert all(a.response.speed.tolist() != b.response.speed.tolist() for a, b in zip(models, learned, strict=True))
    assert np.isfinite(predicted).all()
    assert predicted[0][0] == predicted[1][0]
    assert (predicted[0] != predicted[1]).any()


def test_saved_responses_give_the_same_numbers(toy_library, models, tmp_path):
    """Save, load, solve: the same bits (law 7)."""
    again = list(ModelLibrary.load(toy_library.save(tmp_path)).values())
    members = np.array([[0, 1, 2, 2], [1, 1, -1, -1]])
    assert np.array_equal(solve_joint(models, members).throughput_mpps, solve_joint(again, members).throughput_mpps)
    here, there = (model.response.calibration.local for model in (models[0], again[0]))
    assert np.array_equal(here.near(here.pressures), there.near(here.pressures))


def test_no_response_without_the_competition_beside(toy_composed):
    """A dataset without the competition beside the target gives models without a response; solving says so."""
    library = train(toy_composed, models=["none"], targets=["lpm"])
    with pytest.raises(MissingMetricError, match="without the competition beside it"):
        responses_of(list(library.values()))


def test_smooth_speed_is_solo_without_pressure(models):
    """Without pressure the smooth speed is within 5 % of solo throughput, and it falls under the most measured."""
    for model in models:
        response = model.response
        calm, hard = response.speed_mpps(np.array([np.zeros(len(response.pressure_names)), response.profile.limit]))
        assert calm == pytest.approx(model.solo_mpps, rel=0.05)
        assert hard < calm


def test_a_response_whose_parts_differ_is_refused(models):
    """A mapping whose parts read different pressures is refused."""
    data = models[0].response.to_dict()
    data["speed"] = data["speed"][:-1]
    with pytest.raises(ConfigurationError, match="different pressures"):
        ServerResponse.from_dict(data)


def test_part_load_is_judged_by_the_profiles_own_runs_there():
    """Half of a profile's runs at part load set intervals that hold 80 % or more of the others."""
    shipped = find_dataset("slomo-silver-4110")
    frame = shipped.frame[shipped.frame["nf"].isin(["snort", "maglev"])]
    frame = frame[frame["plan"].isin(["solo", "pressure"])]
    idle = frame.index[(frame["plan"] == "pressure") & frame["offered_mpps"].notna()]
    profile = ProfileDataset(frame.drop(idle[1::2]).reset_index(drop=True), shipped.environment)
    held = []
    for model in train(profile, models=["none"]).values():
        rows = frame.loc[idle[1::2]]
        rows = rows[(rows["nf"] == model.workload.nf) & (rows["throughput_mpps"] >= 0.985 * rows["offered_mpps"])]
        offered = rows["offered_mpps"].to_numpy()
        width = arrival_half_width_mpps(offered, offered / model.solo_mpps, model.response.arrivals, 0.9)
        assert (width < 0.01 * offered).all()
        held += (np.abs(rows["throughput_mpps"].to_numpy() - offered) <= width).tolist()
    assert len(held) >= 15
    assert np.mean(held) >= 0.8


def test_traffic_of_packets_is_learned_where_rows_load_the_channel():
    """It is learned with the mixes alone, follows measured rows better than the ridge of the rounds, and is stored."""
    shipped = find_dataset("slomo-silver-4110")
    frame = shipped.frame[shipped.frame["nf"] == "maglev"]
    subject = next(iter(subjects(ProfileDataset(frame.reset_index(drop=True), shipped.environment))))
    column, beside = subject.own_names.index("LMB"), subject.beside_names.index("LMB")
    moved = subject.own[:, column] + subject.beside[:, beside]
    first = fit_server_response(subject, 0)
    loaded = fit_server_response(subject, 0, (0.0, float(np.median(moved))), first)
    assert loaded.traffic is not None
    assert first.traffic is None
    assert fit_server_response(subject, 0, (0.0, 1e3 * float(moved.max())), first).traffic is None
    pressure = subject.beside[:, [subject.beside_names.index(name) for name in loaded.pressure_names]]
    packet = subject.own[:, column] / subject.mpps
    told = loaded.traffic.predict_mpps(loaded.inputs(pressure, subject.counts.astype(float)))
    basis = pressure_basis(pressure, loaded.profile.scale, loaded.profile.limit)
    smooth = (basis @ loaded.profile.weights)[:, loaded.profile.metric_names.index("LMB")]
    assert np.abs(told - packet).mean() < np.abs(smooth - packet).mean()
    again = ServerResponse.from_dict(json.loads(json.dumps(loaded.to_dict())))
    np.testing.assert_array_equal(again.traffic.weights, loaded.traffic.weights)
