"""Runs on this machine whose counters a noisy stand-in of pcm tells."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from slomo.host.cores import available_cores
from slomo.records.proved_zeros import ZERO_THROUGHOUT, with_proved_zeros
from slomo.testbed.host.counters.pcm import PcmReader
from slomo.testbed.host.testbed import HostTestbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.network_function import NetworkFunction
from slomo.vocabulary.workload import Workload
from tests.counter_noise.told import Truth, pcm_csv

_PROGRAM = Path(__file__).parents[1] / "testbed_host_counters" / "programs" / "fake_pcm.py"
_BUSY = {"IPC": 1.2, "INST": 2500.0, "FREQ": 1.0, "L2MISS": 80.0, "L3MISS": 10.0, "L3HIT": 0.875, "L3OCC": 8704.0}
pytestmark = [
    pytest.mark.skipif(len(available_cores()) < 2, reason="co-locations need two cores"),
    pytest.mark.usefixtures("nothing_left"),
]


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that says what pcm will write."""
    monkeypatch.setenv("FAKE_TOLD", str(tmp_path / "told"))
    return tmp_path / "told"


def test_noisy_samples_become_a_run_in_our_units(
    fake: Callable[..., NetworkFunction], bed: Callable[..., HostTestbed], told: Path, tmp_path: Path
) -> None:
    """Rounded, stale, late and missing samples of a program end as vectors per second; true zeros come back."""
    program = tmp_path / "pcm"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "{_PROGRAM}" "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    testbed, runs = None, []
    for bandwidth in (900.0, 0.0):
        truth = {core: {**_BUSY, "LMB": bandwidth, "RMB": 0.0} for core in available_cores()}
        told.write_text(pcm_csv(Truth(truth, {}), np.random.default_rng(1)), encoding="ascii")
        testbed = testbed or bed(fake("one"), fake("two"), counters=PcmReader(str(program)))
        runs.append(testbed.run(Colocation("test-host", Workload("one"), (Workload("two"),))))
    busy, gentle = with_proved_zeros(runs)
    assert busy.alone is not None
    assert gentle.alone is not None
    vector = busy.alone.tenants[0].vector
    assert vector["LMB"] == pytest.approx(900.0, rel=0.05)
    assert vector["L2MISS"] == pytest.approx(80.0, rel=0.05)
    assert vector["L3OCC"] == pytest.approx(8704.0, rel=0.05)
    assert "LMB" in gentle.provenance["host"]["alone"][ZERO_THROUGHOUT]["core"]
    assert "LMB" not in runs[1].alone.socket  # type: ignore[union-attr]
    assert gentle.alone.socket["LMB"] == gentle.target.vector["RMB"] == 0.0
