"""Facts about mixes at reduced load at the command line: announced, measured on request, listed once."""

import json

from slomo.cli.main import main
from slomo.records.storage import load_dataset


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
