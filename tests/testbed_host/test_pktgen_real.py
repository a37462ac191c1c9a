"""The real Pktgen in front of a real network function: sizes, rates and flows as they arrive, and a run under it.

Set SLOMO_PKTGEN to the folder of a built Pktgen-DPDK 23.06.1 (``build/app/pktgen`` in it). Its port is
``net_virtio_user``, the function's ``net_vhost``: the pair that takes Pktgen's MTU. It holds its rate on a free core.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slomo.errors import TestbedError
from slomo.host.tool import RunningTool
from slomo.testbed.host.build import slomo_nf_binary
from slomo.testbed.host.testbed import HostTestbed
from slomo.testbed.host.traffic.pktgen import PktgenGenerator
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.network_function import NetworkFunction
from slomo.vocabulary.workload import Traffic, Workload

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pktgen")]
PREFIX, PORT = "slomo-test-pktgen", 22041
EAL = f"--lcores 0@0,1@0 -n 1 --no-huge -m 3000 --no-pci --file-prefix={PREFIX}"
READINGS = {"match": {"event": "interval"}, "packets": "packets", "meaning": "interval", "time": "time_s"}


@pytest.fixture(scope="module")
def meeting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the socket where a running Pktgen waits for a network function."""
    folder = os.environ.get("SLOMO_PKTGEN", "")
    if not folder or not (Path(folder) / "build" / "app" / "pktgen").exists() or shutil.which("script") is None:
        pytest.skip("no Pktgen is built here; set SLOMO_PKTGEN to its folder")
    try:
        slomo_nf_binary("dpdk")
    except TestbedError as problem:
        pytest.skip(problem.message)
    place = tmp_path_factory.mktemp("pktgen") / "nf.sock"
    port = f"net_virtio_user0,path={place},server=1,queue_size=8192,speed=10000"
    words = f"./build/app/pktgen {EAL} --vdev {port} -- -P -g 127.0.0.1:{PORT} -m 1.0"
    with subprocess.Popen(
        ["script", "-qfc", words, "/dev/null"],
        cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            deadline_s = time.monotonic() + 30.0
            while not place.exists() and time.monotonic() < deadline_s:
                time.sleep(0.1)
            yield place
        finally:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
            for pid in (*map(int, children), process.pid):  # `script` gives its child a session of its own
                os.kill(pid, signal.SIGKILL)
            shutil.rmtree(f"/var/run/dpdk/{PREFIX}", ignore_errors=True)


def function(meeting: Path, core: str = "1") -> list[str]:
    """Return the command of a network function behind Pktgen."""
    words = [str(slomo_nf_binary("dpdk")), "--nf", "flowstats", "--cores", core, "--interval-s", "0.1", "--no-huge"]
    return [*words, "--memory-mib", "256", "--vdev", f"net_vhost0,iface={meeting},client=1"]


def intervals(running: RunningTool) -> list[dict[str, Any]]:
    """Return what the function told so far."""
    return [told for told in map(json.loads, running.lines()) if told["event"] == "interval"]


@pytest.mark.parametrize("size_b", [64, 256, 1518])
@pytest.mark.parametrize("rate_mpps", [0.1, 0.2, 0.3])
def test_the_real_one_holds_size_rate_and_flows(meeting: Path, size_b: int, rate_mpps: float) -> None:
    """As many packets a second as it was told arrive, within 2 %, of the size it was told, of as many flows."""
    if (os.cpu_count() or 1) < 2:
        pytest.skip("Pktgen and the function behind it need a core each")
    generator = PktgenGenerator(port=PORT, sends=0, receives=0, patience_s=20.0)
    flows = int(10_000 * rate_mpps)
    with RunningTool(function(meeting)) as running:
        generator.start(Traffic(packet_size_b=size_b, flow_count=flows, offered_mpps=rate_mpps))
        try:
            time.sleep(4.0)  # it makes up for what it could not send while it started
            before = len(intervals(running))
            time.sleep(2.0)
            told = intervals(running)
        finally:
            generator.stop()

    window = told[before:]
    packets, bytes_ = (sum(item[name] for item in window) for name in ("packets", "bytes"))
    assert bytes_ == packets * (size_b - 4)  # without the checksum
    assert told[-1]["nf_counters"]["flows"] == flows
    rate = packets / sum(item["interval_s"] for item in window) / 1e6
    assert rate == pytest.approx(rate_mpps, rel=0.02)


def test_a_run_under_the_real_one(
    meeting: Path, bed: Callable[..., HostTestbed], fake: Callable[..., NetworkFunction]
) -> None:
    """A function that slomo starts, twice, gets its packets from Pktgen; what it counts is its throughput."""
    nf = fake(
        "flowstats-behind-pktgen",
        command=function(meeting, "{core}"), traffic={"generator": True},
        throughput={"source": "json-lines", **READINGS}, stop={"signal": "SIGTERM", "limit_s": 3},
        ready={"json": {"event": "ready"}, "limit_s": 30},
    )  # fmt: skip
    testbed = bed(nf, generator=PktgenGenerator(port=PORT, patience_s=20.0), cores=[1, 0])
    traffic = Traffic(packet_size_b=256, flow_count=1000, offered_mpps=0.1)

    for _ in range(2):
        record = testbed.run(Colocation("test-host", Workload(nf.name, {}, traffic)))
        assert record.target.throughput_mpps == pytest.approx(0.1, rel=0.05)
