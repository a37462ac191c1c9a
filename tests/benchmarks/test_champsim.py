"""The plans of benchmarks/champsim.py: what is profiled, and what is judged."""

import sys
from collections import Counter
from pathlib import Path

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
