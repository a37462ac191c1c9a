"""Our own network functions, compiled and run for real: packets and knobs are asserted, never speed."""

import shutil
from pathlib import Path

import pytest

from slomo.errors import TestbedError
from slomo.host.cores import available_cores
from slomo.testbed.host import build
from slomo.testbed.host.nf.definition import host_definition, runnable_names
from slomo.testbed.host.probe.calibration import Calibration
from slomo.testbed.host.probe.reporters import candidates
from slomo.testbed.host.run import Run
from slomo.testbed.host.settings import HostSettings
from slomo.testbed.host.tenant import take_windows
from slomo.testbed.host.testbed import HostTestbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.workload import Traffic, Workload

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler `cc`")
pytestmark = pytest.mark.usefixtures("nothing_left")


@needs_compiler
@pytest.mark.parametrize("name", runnable_names())
def test_every_shipped_network_function_serves_packets(name: str) -> None:
    """Each shipped NF starts, serves packets of the traffic asked for, and ends."""
    with Run() as run:
        tenant = run.start(
            host_definition(name), Workload(name, traffic=Traffic(flow_count=5000)), available_cores()[:1]
        )
        (window,) = take_windows([tenant], 0.4)
        assert window.rate_mpps > 0.0
        assert window.latency_us["p99"] >= window.latency_us["p50"] > 0.0


@needs_compiler
@pytest.mark.skipif(len(available_cores()) < 2, reason="co-locations need two cores")
def test_a_real_pair_is_measured(tmp_path: Path) -> None:
    """A real NF beside the real competitor yields both phases, with the knobs in the command."""
    settings = HostSettings(
        window_s=0.2, pairs=2, most_pairs=2, limit=100.0, minimum_cpu_share=0.0, attempts=0, probe_pairs=1,
        probe_budget_s=0.0, drift_limit=100.0,
    )  # fmt: skip
    reader = tuple(item for item in candidates(2.0, 14.0) if item.name == "stream-read")
    calibration = Calibration(2.0, 14.0, reader, identity="test")
    competitor = Workload("synthetic", {"data_size_mib": 32, "pattern": "sequential"})
    given = {"settings": settings, "calibration": calibration, "lock_path": tmp_path / "lock", "counters": "probe"}
    with HostTestbed("test-host", **given) as testbed:  # type: ignore[arg-type]
        record = testbed.run(Colocation("test-host", Workload("ip-router", {"routes": 5000}), (competitor,)))
    assert record.target.throughput_mpps > 0.0
    assert record.alone is not None
    assert "FELTREAD" in record.alone.socket
    assert set(record.provenance["host"]["drift"]["rates"]) == {"cache", "memory", "stream"}
    router, synthetic = record.provenance["host"]["commands"]
    assert router[router.index("--routes") + 1] == "5000"
    assert synthetic[synthetic.index("--data-size-mib") + 1] == "32"


def test_a_missing_compiler_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be compiled, the error says what failed and what to install."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.delenv("SLOMO_NF_PORTABLE", raising=False)
    with pytest.raises(TestbedError, match="cannot be compiled") as caught:
        build.slomo_nf_binary()
    assert "install" in str(caught.value.hint)
    monkeypatch.setenv("SLOMO_NF_PORTABLE", str(tmp_path / "none"))
    with pytest.raises(TestbedError, match="SLOMO_NF_PORTABLE"):
        build.slomo_nf_binary()
