"""A control loop on real processes and real control groups: what is throttled is slower, and all is given back."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from slomo.control.host_plant import HostPlant
from slomo.control.loop import ControlLoop, Step
from slomo.control.observation import Patience
from slomo.control.throttle import ThrottleController
from slomo.enforce.backends.cgroup import CgroupBackend
from slomo.errors import InvalidValueError
from slomo.host.cores import available_cores
from slomo.host.journal import open_receipts
from slomo.testbed.host.nf.definition import host_definition
from slomo.testbed.host.run import Run
from slomo.vocabulary.workload import Workload

STREAM = Workload("synthetic", {"data_size_mib": 64, "pattern": "sequential"})
pytestmark = [
    pytest.mark.usefixtures("nothing_left"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler `cc`"),
    pytest.mark.skipif(len(available_cores()) < 2, reason="victim and noise need a core each"),
    pytest.mark.skipif(
        not CgroupBackend().available()[0], reason=f"no control groups: {CgroupBackend().available()[1]}"
    ),
]


@pytest.fixture
def pair() -> Iterator[dict[str, object]]:
    """Return a victim and a stream on the other core."""
    with Run() as run:
        first, second = available_cores()[:2]
        yield {
            "victim": run.start(host_definition("ip-router"), Workload("ip-router"), (first,)),
            "noise": run.start(host_definition("synthetic"), STREAM, (second,)),
        }


def groups() -> set[str]:
    """Return the groups of this test's tenants; other tests make groups meanwhile."""
    root = CgroupBackend().root
    return {str(path) for path in root.glob("**/slomo/*") if path.is_dir() and path.name in ("victim", "noise")}


def member_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")


def test_noise_is_throttled_and_everything_undone(pair: dict, tmp_path: Path) -> None:  # type: ignore[type-arg]
    """A promise that nothing can keep drives the noise to the least quota; after the loop its groups are as before."""
    before, pid = groups(), pair["noise"].process.pid
    there = member_of(pid)
    plant = HostPlant(pair, {"victim": 1e6}, CgroupBackend(), window_s=0.6)  # reports take long beside other tests
    controller = ThrottleController("here", {"noise": plant.settings()["noise"]})
    steps: list[Step] = []
    loop = ControlLoop(plant, controller, Patience(0.05, 0.05, 0.05), receipts=tmp_path)

    free = max(plant.observe().tenants["noise"].throughput_mpps for _ in range(3))  # others may use its core
    loop.run(7, steps.append)

    held = steps[-1].observation
    assert held is not None
    assert held.tenants["noise"].throughput_mpps < 0.5 * free
    assert steps[-1].decision.escalated == ("victim",)
    assert [step.fault for step in steps if step.fault] == []
    assert groups() == before
    assert member_of(pid) == there
    assert open_receipts(tmp_path) == ()


def test_a_victim_is_measured_alone_while_others_pause(pair: dict) -> None:  # type: ignore[type-arg]
    """Solo is what it does per CPU time it had; after that the others run again."""
    plant = HostPlant(pair, {}, CgroupBackend(), window_s=0.3)

    assert plant.solo_mpps("victim") > 0.0
    assert not pair["noise"].process.paused
    assert pair["noise"].process.alive
    with pytest.raises(InvalidValueError, match="'nobody'"):
        HostPlant(pair, {"nobody": 1.0}, CgroupBackend())
