"""`slomo profile --design adaptive`: its options, its report, and what it refuses."""

from pathlib import Path

import pytest

from slomo.cli.main import main
from slomo.profiling.adaptive.campaign import adaptive_plan
from slomo.profiling.adaptive.design import RESOURCES
from slomo.records.dataset import ProfileDataset
from slomo.records.storage import load_dataset
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.workload import Workload


def test_it_says_what_was_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report names the reason, the error and the runs saved against the grid."""
    out = tmp_path / "profile.parquet"
    options = ["--design", "adaptive", "--runs", "3", "--target-error", "2%", "--plan", "pressure", "--out", str(out)]
    assert main(["profile", "l2fwd", *options]) == 0
    said = capsys.readouterr().err
    assert "budget spent after 3 runs" in said
    assert "586 of the grid's 589 runs saved" in said
    assert out.exists()


def test_a_target_below_the_noise_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report says that a target error of a hundred-thousandth is below what repeats disagree by."""
    options = ["--design", "adaptive", "--runs", "4", "--target-error", "0.001%", "--plan", "pressure"]
    assert main(["profile", "stats", *options, "--out", str(tmp_path / "profile.parquet")]) == 0
    assert "the target error of 0.001 % is below the noise floor" in capsys.readouterr().err


def test_a_dry_run_shows_the_sure_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run names the target error and the most runs, and how many are sure."""
    assert main(["profile", "l2fwd", "--design", "adaptive", "--target-error", "3%", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "adaptive to 3 % with at most 60 runs" in said
    assert "17 runs" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--design", "adaptive", "--runs", "0"], "'--runs'"),
        (["--design", "adaptive", "--target-error", "0"], "target_error is 0"),
        (["--design", "adaptive", "--target-error", "little"], "target error is 'little'"),
        (["--design", "adaptive", "--replicates", "3"], "replicates is 3"),
        (["--target-error", "2%"], "--target-error was given to design 'sources'"),
    ],
)
def test_what_makes_no_sense_is_refused(options: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each impossible combination ends with exit code 2 and says what is wrong."""
    assert main(["profile", "l2fwd", "--dry-run", *options]) == 2
    assert words in capsys.readouterr().err


def test_a_measurement_that_contradicts_the_rest_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A recorded run under more pressure than those that suffered is named where it was given the best throughput."""
    measured = tmp_path / "measured.parquet"
    adaptive = "--machine silver-4110 --plan pressure --design adaptive --runs 22"
    assert main(["profile", "flowstats", *adaptive.split(), "--out", str(measured)]) == 0
    recorded = load_dataset(measured)
    plan = adaptive_plan([Workload("flowstats")], load_machine("silver-4110"), budget=22)
    opening = plan.sure().colocations
    opening_mixes = {place.competitors for place in opening if place.competitors}
    frame, throughput = recorded.frame, recorded.throughput
    pressure = frame[[f"competition.{name}" for name in RESOURCES]].to_numpy()
    suffered = throughput < 0.8 * throughput.max()
    above = {
        row: int(((pressure[row] >= pressure).all(axis=1) & suffered).sum())
        for row in range(len(recorded))
        if recorded.competitors(row) in opening_mixes
    }
    frame.loc[max(above, key=lambda row: above[row]), "throughput_mpps"] = throughput.max()
    mixed_up = tmp_path / "mixed-up.parquet"
    ProfileDataset(frame, recorded.environment).to_parquet(mixed_up)

    options = f"--testbed replay --source {mixed_up} {adaptive}"
    assert main(["profile", "flowstats", *options.split(), "--out", str(tmp_path / "out.parquet")]) == 0
    assert "contradictory, under more pressure than others and yet faster" in capsys.readouterr().err
