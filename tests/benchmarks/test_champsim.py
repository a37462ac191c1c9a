"""benchmarks/champsim.py: what is profiled, what is judged, and that the shipped dataset is what it makes."""

import sys
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from slomo.records.catalog import find_dataset
from slomo.records.storage import load_dataset
from slomo.testbed.replay import ReplayTestbed

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import champsim  # noqa: E402


def test_every_function_is_profiled_beside_neighbours_that_read_and_that_write() -> None:
    """As often each; a smaller profile has fewer settings that only read, and the same that write."""
    plan, smaller = champsim.profile_plan(), champsim.profile_plan(0)
    settings = Counter(run.target.nf for run in plan.colocations if run.target is not None)
    writing = {run.competitors for run in plan.colocations if "writes_per_packet" in repr(run.competitors)}

    assert settings == dict.fromkeys((nf.nf for nf in champsim.FUNCTIONS), 1 + champsim.RUNS + 9)
    assert sorted(Counter(map(len, writing)).items()) == [(1, 3), (2, 3), (3, 3)]
    assert {run.competitors for run in smaller.colocations} == writing | {()}


def test_mixes_are_of_two_to_four_functions() -> None:
    """Sixty of them, each another; fewer are the first of these."""
    mixes = champsim.mixes_plan().colocations

    assert len({run.key for run in mixes}) == champsim.MIXES
    assert {len(run.tenants) for run in mixes} == {2, 3, 4}
    assert champsim.mixes_plan(12).colocations == mixes[:12]
    assert {nf.key for run in mixes for nf in run.tenants} == {nf.key for nf in champsim.FUNCTIONS}


def test_the_command_makes_the_shipped_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Played by what was recorded, the default plans give every row back, again from what is kept, and with a card."""
    shipped = find_dataset(champsim.NAME)
    monkeypatch.setattr(champsim, "ChampSimTestbed", lambda **_: ReplayTestbed(shipped))
    monkeypatch.setattr(champsim, "report", lambda _: None)
    words = ["champsim.py", "--make", str(tmp_path / "kept"), "--out", str(tmp_path / "out"), "--jobs", "1"]
    monkeypatch.setattr(sys, "argv", words)

    assert champsim.main() == 0
    monkeypatch.setattr(ReplayTestbed, "run", None)  # the second time nothing is run
    assert champsim.main() == 0

    made = load_dataset(tmp_path / "out").frame
    keys = ["run_key", "tenant"]
    pd.testing.assert_frame_equal(
        made.sort_values(keys, ignore_index=True),
        shipped.frame.sort_values(keys, ignore_index=True)[made.columns.tolist()],
        rtol=1e-12,  # sums over competitors in another order
    )
    card = (tmp_path / "out" / "CARD.md").read_text(encoding="utf-8")
    assert f"--variant base --runs {champsim.RUNS} --mixes {champsim.MIXES}`" in card
    assert "20 settings, 9 of them write" in card
