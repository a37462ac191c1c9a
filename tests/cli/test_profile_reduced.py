"""Facts about `slomo profile` at the command line: what it announces, measures on request, and says at the end."""

import json
from pathlib import Path

import pytest

from slomo.cli.main import main
from slomo.records.dataset import ProfileDataset
from slomo.records.schema import PACKED
from slomo.records.storage import load_dataset
from slomo.workflow.profile import profile


def test_profile_runs_mixes_at_reduced_load_on_request(tmp_path, capsys) -> None:
    """`profile --reduced-mixes` adds mixes at offered loads; --dry-run says so, and the targets stay the same."""
    line = ["profile", "l2fwd", "lpm", "--plan", "solo", "--reduced-mixes", "2"]
    assert main([*line, "--dry-run"]) == 0
    assert "2 mixes at reduced load" in capsys.readouterr().out

    assert main([*line, "--out", f"{tmp_path}/p.parquet", "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["targets"] == ["l2fwd@64B,100000f", "lpm@64B,100000f"]
    frame = load_dataset(tmp_path / "p.parquet").frame
    mixes = frame[frame["plan"] == "mix"]
    assert mixes["run_key"].nunique() == 2
    assert (mixes.groupby("run_key")["offered_mpps"].count() > 0).all()


def test_mixes_at_reduced_load_need_solo_runs(capsys) -> None:
    """Plan `mixes` measures nobody alone, so that no share of it can be offered: usage fault, nothing is run."""
    assert main(["profile", "lpm", "stats", "--plan", "mixes", "--reduced-mixes", "5", "--out", "x.parquet"]) == 2
    assert "use plan solo, pressure or all" in capsys.readouterr().err


def test_the_end_counts_mixes_of_packed_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mixes drawn as placement fills servers are counted beside the others, in text and JSON."""
    measured = profile("l2fwd", plan="solo")
    packed = ProfileDataset(measured.frame, measured.environment | {PACKED: ["a", "b"]})
    monkeypatch.setattr("slomo.workflow.profile.profile", lambda *_, **__: packed)
    line = ["profile", "l2fwd", "--packed-mixes", "3", "--out", f"{tmp_path}/p.parquet"]

    assert main(line) == 0
    assert "2 mixes as placement fills servers" in capsys.readouterr().err
    assert main([*line, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["packed_mixes"] == 2


def test_an_own_function_of_a_shipped_name_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--nf` with the name of a shipped function replaces it, and says so; a copy of the shipped one does not."""
    simulated = "simulated: {compute_cycles: 99, instructions: 99}"
    (tmp_path / "mine.yaml").write_text(f"name: stats\ndescription: mine\n{simulated}\n")
    line = ["profile", "stats", "--plan", "solo", "--dry-run", "--nf"]

    assert main([*line, f"{tmp_path}/mine.yaml"]) == 0
    assert "not the shipped network function of this name" in capsys.readouterr().err
    assert main(["nf", "show", "stats", "--yaml"]) == 0
    (tmp_path / "same.yaml").write_text(capsys.readouterr().out)
    assert main([*line, f"{tmp_path}/same.yaml"]) == 0
    assert capsys.readouterr().err == ""
