"""The real Pktgen, where it is built and a core is free for it: sizes and rates as they leave its port.

Set SLOMO_PKTGEN to the folder of a built Pktgen-DPDK 23.06.1 (``build/app/pktgen`` in it).
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slomo.testbed.host.traffic.pktgen import PktgenGenerator
from slomo.vocabulary.workload import Traffic

PREFIX, PORT = "slomo-test-pktgen", 22041
WORDS = (
    f"./build/app/pktgen --lcores 0@0,1@1 -n 1 --no-huge -m 3000 --no-pci --file-prefix={PREFIX} "
    f"--vdev net_null0,size=64 -- -P -g 127.0.0.1:{PORT} -m 1.0"
)
TELEMETRY = Path(f"/var/run/dpdk/{PREFIX}/dpdk_telemetry.v2")


@pytest.fixture(scope="module")
def running() -> Iterator[None]:
    folder = os.environ.get("SLOMO_PKTGEN", "")
    if not folder or not (Path(folder) / "build" / "app" / "pktgen").exists() or shutil.which("script") is None:
        pytest.skip("no Pktgen is built here; set SLOMO_PKTGEN to its folder")
    with subprocess.Popen(
        ["script", "-qfc", WORDS, "/dev/null"],
        cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            deadline = time.monotonic() + 30.0
            while not PktgenGenerator(port=PORT).available()[0] and time.monotonic() < deadline:
                time.sleep(0.5)
            yield
        finally:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
            for pid in (*map(int, children), process.pid):  # `script` gives its child a session of its own
                os.kill(pid, signal.SIGKILL)
            shutil.rmtree(TELEMETRY.parent, ignore_errors=True)


def sent() -> tuple[int, float]:
    """Return packets sent so far, and when."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stream:
        stream.connect(str(TELEMETRY))
        stream.recv(1 << 14)
        stream.send(b"/ethdev/stats,0")
        return json.loads(stream.recv(1 << 14))["/ethdev/stats"]["opackets"], time.monotonic()


@pytest.mark.slow
@pytest.mark.parametrize("size_b", [64, 256, 1518])
@pytest.mark.parametrize("rate_mpps", [0.1, 0.4, 0.8])
def test_the_real_one_holds_size_and_rate(running: None, size_b: int, rate_mpps: float) -> None:
    """Whatever the size of its packets, it sends as many per second as it was told, within 2 %."""
    generator = PktgenGenerator(port=PORT, sends=0, receives=0)
    generator.start(Traffic(packet_size_b=size_b, flow_count=1000, offered_mpps=rate_mpps))
    try:
        time.sleep(0.6)
        first, began_s = sent()
        time.sleep(1.5)
        second, ended_s = sent()
    finally:
        generator.stop()

    assert (second - first) / (ended_s - began_s) / 1e6 == pytest.approx(rate_mpps, rel=0.02)
