"""RFC 2544 as VSPERF runs it: the real Pktgen before a real DPDK function, throughput by MLRsearch, and back-to-back.

Pktgen's port is `net_virtio_user`, the function's `net_vhost` (docs/guides/your-own-testbed.md): no network card, one
machine, so that generator and function share caches and memory. Pktgen's three threads poll: without two cores for them
and one for the function, that nothing else uses, packets are lost at any load.

    SLOMO_PKTGEN=~/Pktgen-DPDK python benchmarks/vsperf.py                # 64, 512 and 1518 B, minutes
    SLOMO_PKTGEN=~/Pktgen-DPDK python benchmarks/vsperf.py --size 64 --loss 0.001

Throughput is the highest load with at most the loss ratio (RFC 2544 section 26.1 asks for 0, telecommunication networks
for 0.001), back-to-back the longest burst at the generator's full speed of which nothing is lost (section 26.4).
"""

import argparse
import os
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from phenomena_runs import ANY, Line

from slomo.errors import TestbedError
from slomo.host.tool import RunningTool
from slomo.testbed.host.build import slomo_nf_binary
from slomo.testbed.host.traffic.pktgen import PktgenGenerator
from slomo.vocabulary.workload import Traffic
from slomo.workflow.acting.noisy_neighbour import search_throughput

PREFIX, PORT, LINK_MBPS = "slomo-vsperf", 22043, 10_000
SIZES = (64, 512, 1518)
FLOWS = 1000
#: Loads to search between [packets/s]; the upper end is the link's.
LEAST_PPS = 1e4
#: Descriptors of Pktgen's rings: its own 1024 are full when one of its other two threads has the core for some ms.
RING = 8192
LONGEST_BURST = 1 << 20


@contextmanager
def path(folder: Path, function: str) -> Iterator[PktgenGenerator]:
    """Run Pktgen on the first core, and a function that sends back what it gets on the last."""
    first, last = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as place:
        meeting = Path(place, "nf.sock")
        port = f"net_virtio_user0,path={meeting},server=1,queue_size={RING},speed={LINK_MBPS}"
        eal = f"--lcores 0@{first},1@{first} -n 1 --no-huge -m 3000 --no-pci --file-prefix={PREFIX}"
        rings = f"--rxd={RING} --txd={RING}"
        words = f"./build/app/pktgen {eal} --vdev {port} -- {rings} -P -g 127.0.0.1:{PORT} -m 1.0"
        with subprocess.Popen(
            ["script", "-qfc", words, "/dev/null"],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
        ) as process:  # fmt: skip
            try:
                deadline_s = time.monotonic() + 60.0
                while not meeting.exists() and time.monotonic() < deadline_s:
                    time.sleep(0.1)
                command = [str(slomo_nf_binary("dpdk")), "--nf", function, "--cores", str(last), "--no-huge"]
                vdev = f"net_vhost0,iface={meeting},client=1"
                with RunningTool([*command, "--memory-mib", "256", "--vdev", vdev]):
                    for pid in children(process.pid):
                        leave_the_core_to_packets(pid)
                    yield PktgenGenerator(port=PORT, patience_s=60.0)
            finally:
                for pid in (*children(process.pid), process.pid):  # `script` gives its child a session of its own
                    ends = os.pidfd_open(pid)
                    os.kill(pid, signal.SIGKILL)
                    select.select([ends], [], [], 30.0)  # until it ends, the next one's port would answer for it
                    os.close(ends)
                shutil.rmtree(f"/var/run/dpdk/{PREFIX}", ignore_errors=True)


def leave_the_core_to_packets(pid: int) -> None:
    """Let Pktgen's threads that poll for keys and for the time have what the thread of its port leaves."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text(encoding="utf-8").strip() == "pktgen":
            os.setpriority(os.PRIO_PROCESS, int(task.name), 19)


def children(pid: int) -> list[int]:
    """Return the processes that a process started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


def throughput_mpps(generator: PktgenGenerator, size_b: int, loss_ratio: float, seconds: float) -> tuple[float, int]:
    """Return the throughput at a loss ratio [Mpps], and how many trials it took."""
    trials = 0

    def trial(duration_s: float, load_pps: float) -> float:
        nonlocal trials
        trials += 1
        packets = max(1, round(load_pps * duration_s))
        traffic = Traffic(size_b, FLOWS, offered_mpps=load_pps / 1e6)
        counts = generator.trial(traffic, duration_s * 1.1, packets)
        return max(0.0, 1.0 - counts.received_packets / packets)  # what Pktgen could not send in time was not served

    most_pps = LINK_MBPS * 1e6 / ((size_b + 20) * 8)
    low, _ = search_throughput(trial, loss_ratio, least_pps=LEAST_PPS, most_pps=most_pps, trial_s=seconds)
    return low / 1e6, trials


def back_to_back(generator: PktgenGenerator, size_b: int) -> int:
    """Return the longest burst [packets], a power of two, that comes back whole."""
    longest, packets = 0, 64
    while packets <= LONGEST_BURST:
        counts = generator.trial(Traffic(size_b, FLOWS), 0.2 + packets / 2e5, packets)
        if counts.lost or counts.sent_packets < packets:
            break
        longest, packets = packets, 2 * packets
    return longest


def lines(seed: int) -> Iterator[Line]:  # noqa: ARG001 (what differs is the machine's noise)
    """Search once at each loss ratio, and judge the search by trials of a second at nine tenths of what it found."""
    with path(built_pktgen(), "l2fwd") as generator:
        least, _ = throughput_mpps(generator, 64, 0.0, 0.5)
        yield Line("vsperf", "l2fwd, 64 B, no loss: Mpps", "-", least, *ANY)
        yield Line(
            "vsperf", "l2fwd, 64 B, a second at 90 % of that: % lost", "0", lost(generator, 64, 0.9 * least), 0, 0
        )
        some, _ = throughput_mpps(generator, 64, 0.001, 0.5)
        yield Line("vsperf", "l2fwd, 64 B, at most 0.1 % lost: Mpps", "-", some, *ANY)
        yield Line(
            "vsperf",
            "l2fwd, 64 B, a second at 90 % of that, too: % lost",
            "0.1",
            lost(generator, 64, 0.9 * some),
            0,
            0.1,
        )
        burst = statistics.median(back_to_back(generator, 64) for _ in range(3))
        yield Line("vsperf", "l2fwd, 64 B, back-to-back: packets", "-", burst, *ANY)
        large, _ = throughput_mpps(generator, 1518, 0.0, 0.5)
        share = 100 * large * (1518 + 20) * 8 / LINK_MBPS
        yield Line("vsperf", "l2fwd, 1518 B, no loss: % of 10 Gbit/s", "-", share, 90, 100)


def lost(generator: PktgenGenerator, size_b: int, mpps: float) -> float:
    """Return the median of how much of a second's packets are lost at a load, in three trials [%]."""
    packets, traffic = round(mpps * 1e6), Traffic(size_b, FLOWS, offered_mpps=mpps)
    received = [generator.trial(traffic, 1.1, packets).received_packets for _ in range(3)]
    return 100 * statistics.median(1 - count / packets for count in received)


def built_pktgen() -> Path:
    """Return the folder in which Pktgen was built."""
    folder = Path(os.environ.get("SLOMO_PKTGEN", ""))
    if not (folder / "build/app/pktgen").exists():
        raise TestbedError("there is no Pktgen in SLOMO_PKTGEN", hint="name the folder in which it was built")
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, action="append", help="of frames [B], repeatable")
    parser.add_argument("--loss", type=float, action="append", help="loss ratio, repeatable; 0 and 0.001 by default")
    parser.add_argument("--nf", default="l2fwd", help="function behind Pktgen")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a trial")
    given = parser.parse_args()
    try:
        pktgen = built_pktgen()
    except TestbedError as problem:
        print(f"{problem.message}. hint: {problem.hint}", file=sys.stderr)
        return 3
    with path(pktgen, given.nf) as generator:
        for size_b in given.size or SIZES:
            for loss in given.loss or (0.0, 0.001):
                found = [throughput_mpps(generator, size_b, loss, given.seconds) for _ in range(given.rounds)]
                rates, trials = [rate for rate, _ in found], sum(count for _, count in found)
                told = f"{statistics.median(rates):.3f} ({min(rates):.3f}..{max(rates):.3f}) Mpps, {trials} trials"
                print(f"{given.nf}, {size_b} B, loss of at most {loss:g}: {told}", flush=True)
            bursts = sorted(back_to_back(generator, size_b) for _ in range(given.rounds))
            print(f"{given.nf}, {size_b} B, back-to-back: {bursts} packets", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
