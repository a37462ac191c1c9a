"""Imported tables: families that read every column are tried and averaged, and columns left out are told."""

from dataclasses import replace

import numpy as np
import pytest

from slomo.drift.refit import refit
from slomo.errors import ConfigurationError
from slomo.models.library import ModelLibrary
from slomo.models.responses.sensitivity import AveragedSensitivity
from slomo.records.dataset import ProfileDataset
from slomo.records.importing.door import import_table
from slomo.training.features import subjects
from slomo.training.remarks import remarks
from slomo.training.training import train

COLUMNS = {"IPC": 3.0, "L2MISS": 200.0, "L3OCC": 20_000.0}


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> ProfileDataset:
    """A table whose rate depends on the competition's IPC, up and down, which no monotone family reads."""
    draw = np.random.default_rng(0)
    shares = draw.uniform(0.0, 1.0, (120, 3))
    mpps = 3.0 + np.where(np.abs(shares[:, 0] - 0.5) < 0.25, 1.0, 0.0) - 0.3 * shares[:, 1] + draw.normal(0, 0.02, 120)
    path = tmp_path_factory.mktemp("table") / "table.csv"
    rows = np.column_stack([shares * np.array(list(COLUMNS.values())), np.full(120, 7.0), mpps])
    np.savetxt(path, rows, delimiter=",", header=",".join([*COLUMNS, "rules", "mpps"]), comments="")
    mapping = {name: {"metric": name} for name in COLUMNS}
    mapping |= {"rules": {"feature": "rules"}, "mpps": {"target": "throughput"}}
    return import_table(path, {"machine": "rack", "nf": "acl", "columns": mapping})


@pytest.fixture(scope="module")
def library(table) -> ModelLibrary:
    """Trained on the table; few families, as each costs time."""
    return train(table, models=["slomo-xgb", "extra-trees", "boosted-trees", "linear"])


def test_no_family_of_forced_shape_answers(library):
    """A column that a forced shape leaves out may hold most of what there is to tell; the others err far less."""
    model = library.find("acl")
    errors = model.manifest["default"]["error_percent_of_solo"]
    assert model.chosen in ("averaged", min(errors, key=errors.get))
    assert errors[model.chosen] < min(0.3 * errors["slomo-xgb"], 1.1 * errors["boosted-trees"])
    assert "IPC" in model.model(model.chosen).feature_names


def test_columns_read_and_left_out_are_told(library):
    """Which family answers, what it reads, and why a column is left out."""
    told = " ".join(remarks(library.find("acl")))
    assert "it reads IPC, " in told
    assert "traffic.rules is left out: the same in all rows" in told


def test_intervals_are_as_wide_as_errors_where_nothing_was_fitted(library):
    """They are those of split conformal, and hold at every loss alike."""
    model = library.find("acl")
    calibration = model.calibration[model.chosen]
    low, high = calibration.interval_mpps(np.array([2.5, 3.5, 4.0]), model.solo_mpps, 0.9)
    assert np.ptp(high - low) < 1e-9
    assert (high - low)[0] / 2.0 < 0.25


def test_an_average_comes_back_from_files(library, table, tmp_path):
    """It gives the same bits though only weights are stored; weights of families that are not there are refused."""
    model = library.find("acl")
    weights = {"boosted-trees": 0.7, "extra-trees": 0.3}
    average = AveragedSensitivity({name: model.sensitivity[name] for name in weights}, weights)
    told = replace(model, sensitivity={**model.sensitivity, "averaged": average}, chosen="averaged")
    folder = ModelLibrary([told]).save(tmp_path / "models")
    again = ModelLibrary.load(folder).find("acl")
    rows = table.vectors("competition", list(average.feature_names)).to_numpy(dtype=float)
    assert again.named("default") == "averaged"
    assert (again.model("default").predict_mpps(rows) == average.predict_mpps(rows)).all()
    other = AveragedSensitivity({}, {"boosted-trees": 0.7, "lost": 0.3})
    broken = replace(told, sensitivity={**model.sensitivity, "averaged": other})
    with pytest.raises(ConfigurationError, match="weights of boosted-trees, lost"):
        ModelLibrary.load(ModelLibrary([broken]).save(tmp_path / "broken")).find("acl").model("averaged")


def test_a_few_rows_bring_an_average_up_to_date(library, table):
    """Twelve rows that are 30 % slower leave a third of the average's error, and of each averaged family's."""
    model, frame = library.find("acl"), table.frame.iloc[:36]
    weights = {"boosted-trees": 0.7, "linear": 0.3}
    average = AveragedSensitivity({name: model.sensitivity[name] for name in weights}, weights)
    old = replace(model, sensitivity={**model.sensitivity, "averaged": average}, chosen="averaged")
    slower = frame.assign(throughput_mpps=0.7 * frame["throughput_mpps"])
    new = refit(old, ProfileDataset(slower.iloc[:12].reset_index(drop=True), table.environment))
    rows = table.vectors("competition", list(average.feature_names)).to_numpy(dtype=float)[12:36]
    errors = [
        np.abs(each.model("averaged").predict_mpps(rows) - slower["throughput_mpps"].to_numpy()[12:]).mean()
        for each in (old, new)
    ]
    assert errors[1] < 0.34 * errors[0]
    assert new.sensitivity["averaged"].models["linear"] is new.sensitivity["linear"]


def scenarios(folder, count, seed, label):
    """Return a table of scenarios, each with its own number of users and its own throughput."""
    draw = np.random.default_rng(seed)
    rows = [
        (f"s{number}", users, misses, 6.0 + offset - 0.01 * misses + draw.normal(0.0, 0.02))
        for number, (users, offset) in enumerate(
            zip(draw.uniform(0, 99, count), draw.normal(0, 0.5, count), strict=True)
        )
        for misses in draw.uniform(0.0, 100.0, 9)
    ]
    text = "\n".join(["scenario,users,misses,mpps", *(",".join(map(str, row)) for row in rows)])
    (folder / f"{seed}.csv").write_text(text + "\n")
    columns = {"users": {"feature": "users"}, "misses": {"metric": "L2MISS"}, "mpps": {"target": "throughput"}}
    if label:
        columns["scenario"] = {"label": "scenario"}
    return import_table(folder / f"{seed}.csv", {"machine": "rack", "nf": "web", "columns": columns})


def test_rows_without_a_scenario_are_scenarios_of_their_own(tmp_path):
    """Where a table names the scenarios of some rows alone, the others do not form one group."""
    rows = [f"{name},{number},{6 - number}" for number, name in enumerate(("a", "a", "", "b", "", ""))]
    (tmp_path / "some.csv").write_text("\n".join(["scenario,misses,mpps", *rows]))
    columns = {"scenario": {"label": "scenario"}, "misses": {"metric": "L2MISS"}, "mpps": {"target": "throughput"}}
    dataset = import_table(tmp_path / "some.csv", {"machine": "rack", "nf": "web", "columns": columns})
    groups = next(subjects(dataset)).groups.tolist()

    assert groups[0] == groups[1]
    assert len(set(groups)) == 5


def test_whole_scenarios_are_left_out_where_the_table_names_them(tmp_path):
    """Trees recognise a scenario by its users; left out whole, its error is told, and intervals hold in new ones."""
    new, held, errors = scenarios(tmp_path, 40, 7, label=True), {}, {}
    for label in (False, True):
        library = train(scenarios(tmp_path, 20, 3, label=label), models=["boosted-trees", "linear"])
        model = library.find("web")
        family = model.model(model.chosen)
        rows = new.vectors("competition", ["L2MISS"]).assign(users=new.frame["traffic.users"])
        mpps = family.predict_mpps(rows.to_numpy(dtype=float)[:, [0, 1]])
        low, high = model.calibration[model.chosen].interval_mpps(mpps, model.solo_mpps, 0.9)
        held[label] = float(((low <= new.throughput) & (new.throughput <= high)).mean())
        errors[label] = model.manifest["default"]["error_percent_of_solo"][model.chosen]
        assert ("leaves out whole scenarios (20)" in " ".join(remarks(model))) is label
    assert held[False] < 0.6
    assert held[True] > 0.8
    assert errors[True] > 2.0 * errors[False]
