"""`slomo drift`: an NF that became slower is named, and a refit by a few runs mends its model."""

import json
from pathlib import Path

import numpy as np
import pytest

from slomo.cli.main import main
from slomo.models.library import ModelLibrary
from slomo.records.dataset import ProfileDataset
from slomo.records.storage import save_dataset


@pytest.fixture
def models(toy_library: ModelLibrary, tmp_path: Path) -> str:
    """Save the toy's models."""
    return str(toy_library.save(tmp_path / "models"))


def slower(dataset: ProfileDataset, nf: str, share: float) -> ProfileDataset:
    """Return the dataset with one NF slower than it was."""
    frame = dataset.frame.copy()
    frame["throughput_mpps"] = np.where(frame["nf"] == nf, share * frame["throughput_mpps"], frame["throughput_mpps"])
    return ProfileDataset(frame, dataset.environment)


def checked(
    dataset: ProfileDataset, models: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> dict[str, object]:
    """Return what `slomo drift check` says about a dataset."""
    save_dataset(dataset, folder / "live.parquet")
    line = [
        "drift",
        "check",
        str(folder / "live.parquet"),
        "--models",
        models,
        "--false-alarm-every",
        "10000",
        "--json",
    ]
    assert main(line) == 0
    said: dict[str, object] = json.loads(capsys.readouterr().out)
    return said


def test_models_that_hold_raise_no_alarm(
    toy_mixes: ProfileDataset, models: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mixes of the machine the models were trained on are judged, all of them, and raise no alarm."""
    said = checked(toy_mixes, models, tmp_path, capsys)

    assert said["alarms"] == []
    assert (said["read"], said["passed_over"]) == (len(toy_mixes), 0)


def test_a_slower_function_is_named(
    toy_mixes: ProfileDataset, models: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An NF that became 15 % slower is the one to profile again."""
    assert checked(slower(toy_mixes, "nat", 0.85), models, tmp_path, capsys)["again"] == ["nat@64B,100000f"]


def test_a_refit_mends_it(
    toy_profile: ProfileDataset,
    toy_mixes: ProfileDataset,
    models: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """After a refit by runs of the slower NF its mixes raise no alarm, and the others' models are as before."""
    before = ModelLibrary.load(models).find("lpm").solo_mpps
    runs = slower(toy_profile, "nat", 0.85).select(target="nat", plan=["solo", "pressure"])
    save_dataset(runs, tmp_path / "runs.parquet")
    assert main(["drift", "refit", str(tmp_path / "runs.parquet"), "--models", models, "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["refit"]

    assert entry["target"] == "nat@64B,100000f"
    assert entry["solo_ratio"] == pytest.approx(0.85, rel=0.02)
    assert ModelLibrary.load(models).find("lpm").solo_mpps == before
    assert checked(slower(toy_mixes, "nat", 0.85), models, tmp_path, capsys)["alarms"] == []


def test_readings_of_strangers_are_refused(
    toy_mixes: ProfileDataset, models: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dataset without a row that the models could judge is an error, no clean bill."""
    frame = toy_mixes.frame.copy()
    frame["nf"], frame["target"] = "vpn", "vpn@64B,100000f"
    save_dataset(ProfileDataset(frame, {}), tmp_path / "live.parquet")

    assert main(["drift", "check", str(tmp_path / "live.parquet"), "--models", models]) == 2
    assert "workloads with models" in capsys.readouterr().err
