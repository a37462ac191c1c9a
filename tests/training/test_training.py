"""Training: what is fitted, what is not, and how well it predicts mixes that were never run."""

import filecmp
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from slomo.equilibrium.mixes import MixRows, predict_mixes
from slomo.errors import InvalidValueError, MissingMetricError, UnknownNameError
from slomo.models.intervals import ConformalCalibration, symmetric
from slomo.models.library import ModelLibrary
from slomo.models.neighbourhood import beside
from slomo.models.nf_model import NFModel
from slomo.records.dataset import ProfileDataset
from slomo.records.importing.door import import_table
from slomo.training.calibration import calibrated_on, mix_rows
from slomo.training.families.registry import make_families, make_family, model_names
from slomo.training.remarks import remarks
from slomo.training.training import train


def _errors(library: ModelLibrary, mixes: ProfileDataset, name: str) -> np.ndarray:
    models = list(library.values())
    rows = mix_rows(mixes, models, models[0].machine)
    return np.abs(predict_mixes(models, rows, name) / rows.mpps - 1.0)


def test_every_family_is_trained_for_every_nf(toy_library: ModelLibrary) -> None:
    """A library holds one model per NF, each with every family of the registry."""
    assert [model.workload.nf for model in toy_library.values()] == ["ids", "lpm", "nat"]
    assert all(set(model.sensitivity) == set(model_names()) for model in toy_library.values())


def test_unseen_mixes_are_predicted_within_a_few_per_cent(toy_library: ModelLibrary, toy_mixes: ProfileDataset) -> None:
    """On mixes never run, slomo-xgb is within 3 % on average and at least twice as good as either baseline."""
    error = {name: _errors(toy_library, toy_mixes, name).mean() for name in model_names()}
    assert error["slomo-xgb"] < 0.03
    assert 2.0 * error["slomo-xgb"] < min(error["dobrescu"], error["bubbleup"], error["none"])


def test_intervals_hold_what_they_state(toy_library: ModelLibrary, toy_mixes: ProfileDataset) -> None:
    """Intervals of nominal 90 % by half of all mixes cover 90 % of the other half, over ten ways to halve them.

    The toy's 46 mixes are soon all run: those that calibrated would say nothing about others.
    """
    models = list(toy_library.values())
    rows = mix_rows(toy_mixes, models, models[0].machine)
    tenants = np.sort(np.column_stack([rows.target, rows.members]), axis=1)
    run = np.unique(tenants, axis=0, return_inverse=True)[1].ravel()
    for name in ("slomo-gbr", "slomo-xgb"):
        assert all(model.calibration[name].source == "mixes" for model in models)
        predicted, held = predict_mixes(models, rows, name), []
        for draw in range(10):
            seen = np.isin(run, np.random.default_rng(draw).permutation(run.max() + 1)[::2])
            scored = calibrated_on(models, _those(rows, seen), predicted[seen])
            held.append(_inside(scored, models, _those(rows, ~seen), predicted[~seen]).mean())
        assert 0.88 < np.mean(held) < 0.98


def _those(rows: MixRows, chosen: np.ndarray) -> MixRows:
    return MixRows(rows.target[chosen], rows.members[chosen], rows.mpps[chosen])


def _inside(
    scored: list[ConformalCalibration], models: list[NFModel], rows: MixRows, predicted: np.ndarray
) -> np.ndarray:
    """Return which measurements lie in the 90 % intervals of their predictions."""
    inside, kind = np.zeros(len(predicted), dtype=bool), beside(rows.members)
    for number, (model, calibration) in enumerate(zip(models, scored, strict=True)):
        here = rows.target == number
        low, high = calibration.interval_mpps(predicted[here], model.solo_mpps, 0.9, kind[here])
        inside[here] = (low <= rows.mpps[here]) & (rows.mpps[here] <= high)
    return inside


def test_remarks_say_what_a_model_lacks(toy_library: ModelLibrary) -> None:
    """Nothing is said of a good model; rows missing for intervals, and rows that are all alike, are."""
    model = toy_library.find("lpm")
    few = {name: symmetric(np.array([0.1, 0.2]), "cross-validation") for name in model.calibration}
    alike = {**model.manifest, "rows": {"settings": 9, "throughputs": 1, "fitted": 12}}
    assert remarks(model) == ()
    (lacking,) = remarks(replace(model, calibration=few))
    assert lacking.startswith("intervals of 90 % need 5 more rows than the 4 there are")
    (nothing,) = remarks(replace(model, manifest=alike))
    assert nothing == "its throughput is the same in all 12 rows: there is nothing to learn from them"


def test_no_family_learns_mixes(toy_profile: ProfileDataset, toy_library: ModelLibrary) -> None:
    """Taking the mixes away changes no sensitivity and no contentiousness, only the intervals."""
    without = train(
        toy_profile.select(plan=["solo", "pressure"]), models=["slomo-xgb", "slomo-gbr"], targets=["lpm"]
    ).find("lpm")
    with_mixes = toy_library.find("lpm")
    for name in ("slomo-gbr", "slomo-xgb"):
        assert without.sensitivity[name].to_dict() == with_mixes.sensitivity[name].to_dict()
        assert without.calibration[name].source == "cross-validation"
    np.testing.assert_array_equal(without.contentiousness.weights, with_mixes.contentiousness.weights)
    assert without.manifest["intervals"]["slomo-gbr"]["source"] == "cross-validation"


def test_same_seed_same_bytes(toy_profile: ProfileDataset, tmp_path: Path) -> None:
    """Training twice with one seed writes the same files."""
    one, two = (
        train(toy_profile, targets=["ids"], models=["slomo-xgb", "slomo-gbr"], seed=5).save(tmp_path / name)
        for name in ("one", "two")
    )
    files = [str(path.relative_to(one)) for path in one.rglob("*.json")]
    assert filecmp.cmpfiles(one, two, files, shallow=False) == (files, [], [])


def test_features_of_slomo_xgb_add_up(toy_library: ModelLibrary) -> None:
    """The default model reads pressures that compose exactly; the published one reads ratios too."""
    model = toy_library.find("lpm")
    assert set(model.sensitivity["slomo-xgb"].feature_names) <= {"L2MISS", "L3MISS", "L3OCC", "READ", "WRITE"}
    assert "IPC" in model.sensitivity["slomo-gbr"].feature_names
    assert model.sensitivity["dobrescu"].feature_names == ("L2MISS",)
    assert model.sensitivity["bubbleup"].feature_names == ("L3OCC",)


def test_a_model_that_lacks_its_metric_is_left_out_or_refused(toy_profile: ProfileDataset) -> None:
    """Without occupancy, bubbleup is left out with a reason; asked for by name, it is an error."""
    frame = toy_profile.frame
    frame[["competition.L3OCC", "own.L3OCC"]] = np.nan
    blind = ProfileDataset(frame)
    model = train(blind, targets=["lpm"]).find("lpm")
    assert "bubbleup" not in model.sensitivity
    assert "L3OCC" in model.manifest["left_out"]["bubbleup"]
    with pytest.raises(MissingMetricError, match="L3OCC"):
        train(blind, targets=["lpm"], models=["bubbleup"])


def test_solo_rows_alone_train_only_the_baselines(toy_profile: ProfileDataset) -> None:
    """An NF measured solo only has no sensitivity, but its contentiousness can be composed."""
    model = train(toy_profile.select(plan="solo")).find("nat")
    assert tuple(model.sensitivity) == ("mean", "none")
    assert model.contentiousness.under(np.zeros((1, 0))).shape == (1, len(model.solo_vector))
    with pytest.raises(MissingMetricError):
        train(toy_profile.select(plan="solo"), models=["slomo-xgb"])


def test_nothing_to_train_on_is_an_error(toy_profile: ProfileDataset) -> None:
    """A dataset of a few mixes only, or of nothing, says what is missing."""
    few = np.arange(len(toy_profile)) >= len(toy_profile) - 5
    for dataset in (toy_profile.rows(few), toy_profile.select(plan="imported")):
        with pytest.raises(MissingMetricError, match="none to train on"):
            train(dataset)


@pytest.mark.parametrize(
    ("arguments", "nearest"), [({"models": ["slomo-xbg"]}, "slomo-xgb"), ({"targets": ["lpn"]}, "lpm")]
)
def test_unknown_names_are_answered_with_the_nearest(
    toy_profile: ProfileDataset, arguments: dict[str, list[str]], nearest: str
) -> None:
    """A model or target that does not exist is answered with the nearest that does."""
    with pytest.raises(UnknownNameError, match=nearest):
        train(toy_profile, **arguments)  # type: ignore[arg-type]


def test_two_models_may_not_share_a_name() -> None:
    """Naming a family twice is refused, and so is an object that is no family."""
    with pytest.raises(InvalidValueError, match="share a name"):
        make_families(["none", "none"])
    with pytest.raises(InvalidValueError, match="lacks"):
        make_family(3)  # type: ignore[arg-type]


@pytest.fixture
def imported(tmp_path: Path) -> ProfileDataset:
    """A table as measured elsewhere: counters, a traffic column, throughput; no solo runs, no vectors of its own."""
    random = np.random.default_rng(4)
    car, flows = random.uniform(0, 80, 80), random.uniform(1000, 30000, 80)
    columns = {"L2MISS": car, "READ": 0.5 + car / 50, "IPC": 1.0 + car / 100, "flows": flows}
    table = pd.DataFrame({**columns, "mpps": 0.9 / (1 + car / 200 + flows / 40000)})
    table.to_csv(tmp_path / "table.csv", index=False)
    read = {name: {"metric": name} for name in ("L2MISS", "READ", "IPC")}
    read |= {"flows": {"feature": "flows"}, "mpps": {"target": "throughput"}}
    return import_table(tmp_path / "table.csv", {"machine": "bluefield-2", "nf": "monitor", "columns": read})


def test_imported_table_trains_over_traffic_and_counters(imported: ProfileDataset) -> None:
    """A table measured elsewhere trains on counters and traffic, and predicts from a vector given directly."""
    model = train(imported, models=["slomo-xgb"]).find("monitor")
    assert model.manifest["solo_source"] == "best measured"
    assert "traffic.flows" in model.sensitivity["slomo-xgb"].feature_names
    assert model.manifest["cross_validation"]["slomo-xgb"]["mape_percent"] < 5.0
    few = model.predict_vector("slomo-xgb", {"L2MISS": 20.0, "READ": 0.9}, {"flows": 2000.0})
    many = model.predict_vector("slomo-xgb", {"L2MISS": 20.0, "READ": 0.9}, {"traffic.flows": 28000.0})
    assert many < few
    with pytest.raises(MissingMetricError, match="READ"):
        model.predict_vector("slomo-xgb", {"L2MISS": 20.0})
    with pytest.raises(UnknownNameError, match=r"traffic\.flows"):
        model.predict_vector("slomo-xgb", {"L2MISS": 20.0, "READ": 1.0}, {"flow": 1.0})


def test_imported_rows_of_many_traffics_are_one_nf(imported: ProfileDataset) -> None:
    """Rows whose flow count is a column of the schema are one model with the flow count as feature."""
    frame = imported.frame
    frame["flow_count"] = frame.pop("traffic.flows").round().astype(int)
    frame["target"] = [f"monitor@64B,{flows}f" for flows in frame["flow_count"]]
    library = train(ProfileDataset(frame), models=["slomo-xgb"])
    assert len(library) == 1
    assert "traffic.flow_count" in library.find("monitor").sensitivity["slomo-xgb"].feature_names
