"""Network functions that need neither a compiler nor a quiet machine, and a testbed that is quick and not strict."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from slomo.host.marker import boot_identity
from slomo.host.orphans import marked_processes, run_directories
from slomo.testbed.host.probe.calibration import Calibration
from slomo.testbed.host.probe.reporters import candidates
from slomo.testbed.host.settings import HostSettings
from slomo.testbed.host.testbed import HostTestbed
from slomo.vocabulary.knobs import knobs
from slomo.vocabulary.network_function import NetworkFunction

FAKE = str(Path(__file__).with_name("fake_nf.py"))
#: Inherited by whatever a test starts, so that two workers' tests, and two people's, never count each other's.
os.environ["SLOMO_TEST_PROCESS"] = str(os.getpid())
METRICS = ("FELTLLC", "FELTL3", "FELTREAD", "FELTWRITE")


def host_section(mode: str = "good", **changes: Any) -> dict[str, Any]:
    """Return a `host:` section that runs the stand-in."""
    section: dict[str, Any] = {
        "command": [sys.executable, "-S", FAKE, mode],
        "polling": False,
        "ready": {"json": {"event": "ready"}, "limit_s": 20},
        "throughput": {
            "source": "json-lines",
            "match": {"event": "interval"},
            "packets": "packets",
            "time": "time_s",
            "latency": {"p50": "latency.p50", "p99": "latency.p99"},
            "latency_unit": "ns",
        },
        "stop": {"signal": "SIGTERM", "limit_s": 0.3},
        "steady": {"limit_s": 1, "stretch_s": 0.06, "tolerance": 0.5},
    }
    return {**section, **changes}


@pytest.fixture
def fake() -> Callable[..., NetworkFunction]:
    """Return a maker of network functions that run the stand-in."""

    def make(name: str = "fake", mode: str = "good", **changes: Any) -> NetworkFunction:
        settings = {key: knob.default for key, knob in knobs().items()} if name == "synthetic" else {"size": 4}
        return NetworkFunction(name, "stand-in", settings=settings, host=host_section(mode, **changes))

    return make


@pytest.fixture
def quick() -> HostSettings:
    """Return settings for which any machine is quiet enough; a window without a report is repeated."""
    return HostSettings(
        window_s=0.12, settle_s=0.0, pairs=2, most_pairs=2, limit=100.0, minimum_cpu_share=0.0, attempts=3,
        probe_pairs=1, probe_window_s=0.12, probe_budget_s=0.0, drift_limit=100.0,
    )  # fmt: skip


@pytest.fixture
def bed(
    fake: Callable[..., NetworkFunction], quick: HostSettings, tmp_path: Path
) -> Iterator[Callable[..., HostTestbed]]:
    """Return a maker of testbeds with a calibration of their own and a stand-in for the synthetic competitor."""
    made: list[HostTestbed] = []

    def make(*nfs: NetworkFunction, reporters: Sequence[str] = METRICS[:1], **changes: Any) -> HostTestbed:
        first = {item.metric: item for item in reversed(candidates(2.0, 14.0)) if item.metric in reporters}
        calibration = Calibration(2.0, 14.0, tuple(first.values()), full=3.0, identity="test")
        given = {"counters": "probe", "settings": quick, "calibration": calibration, "lock_path": tmp_path / "lock"}
        made.append(HostTestbed("test-host", [fake("synthetic"), *nfs], **{**given, **changes}))
        return made[-1]

    yield make
    for testbed in made:
        testbed.close()


def left_running() -> set[int]:
    """Return marked processes below this test process, however they came there; other workers' are their own affair."""
    marked = marked_processes().items()
    return {pid for pid, mark in marked if mark.pid == os.getpid() or _inherited_from_us(pid)}


def _inherited_from_us(pid: int) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return f"SLOMO_TEST_PROCESS={os.getpid()}".encode() in environment


@pytest.fixture
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """Fail a test that leaves processes, run directories or the lock behind."""
    before = left_running()
    yield
    assert left_running() <= before
    folder = run_directories()
    ours = f"slomo-{boot_identity()}-"
    left = [path.name for path in folder.iterdir() if path.name.startswith(ours)] if folder.exists() else []
    assert left == [name for name in left if f"-{os.getpid()}-" not in name]


@pytest.fixture
def running() -> Callable[[], set[int]]:
    """Return the function that lists what still runs of ours."""
    return left_running
