"""DPDK's ``testpmd`` as traffic generator: generated packets (txonly, flowgen) or a replayed capture, on any DPDK port.

Commands and output were tested with DPDK 22.11 of Debian (testpmd_app_ug). Memif connects testpmd to an NF in another
process without a NIC; a port with a colon is the PCI address of a NIC.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from slomo.errors import InvalidValueError, TestbedError
from slomo.host.marker import new_mark
from slomo.host.orphans import remove_files_of
from slomo.host.places import cache_directory
from slomo.host.tool import RunningTool, package_hint
from slomo.testbed.host.telemetry import TelemetrySocket
from slomo.testbed.host.traffic.base import (
    TrafficStatistics,
    frame_without_checksum_b,
    require_saturating,
    require_uniform,
)
from slomo.testbed.host.traffic.pcap import cached_pcap, require_frames
from slomo.testbed.host.traffic.place import Place
from slomo.vocabulary.workload import Traffic

_READY_LIMIT_S = 30.0
_COMMAND = "dpdk-testpmd"
_PORT = re.compile(r"NIC statistics for port (\d+)")
_VALUE = re.compile(r"(RX-packets|TX-packets|Rx-pps|Tx-pps):\s+(\d+)")
_MOST_REPLAYED = 65_535  # frames that fit into the packet pool of a replay
_POOL, _REPLAY_POOL = 16_384, 131_071


def memif(socket: str | Path, *, server: bool = False, number: int = 0) -> str:
    """Return a DPDK port that connects to another process through a socket.

    `socket`: path of the socket that both processes use. `server`: whether this process makes the socket; start the
    server first. `number`: identifier of the connection, the same in both processes.

    Examples
    --------
    >>> memif("/run/nf.sock")
    'net_memif0,role=client,id=0,socket=/run/nf.sock,socket-abstract=no'
    """
    if "," in str(socket):
        raise InvalidValueError(f"memif socket '{socket}' has a comma in its name", hint="choose another name")
    return f"net_memif{number},role={'server' if server else 'client'},id={number},socket={socket},socket-abstract=no"


class TestpmdGenerator:
    """Sends packets by a testpmd process, which runs until `stop`.

    `port`: DPDK virtual device (see `memif`), or the PCI address of a NIC. `core`: CPU that sends. `place`: machine on
    which testpmd runs. `mode`: by default ``txonly`` for one flow, ``flowgen`` for several. `hugepages`: whether DPDK
    may use hugepages; without them it is about half as fast. `memory_mib`: memory for DPDK [MiB].
    """

    name = "testpmd"
    _pool = _POOL
    __test__ = False  # not a test class, whatever its name suggests to pytest

    def __init__(
        self,
        port: str,
        core: int,
        *,
        place: Place | None = None,
        mode: str | None = None,
        hugepages: bool = True,
        memory_mib: int = 512,
    ) -> None:
        if mode not in (None, "flowgen", "txonly"):
            raise InvalidValueError(f"testpmd mode is '{mode}', needed 'flowgen' or 'txonly'")
        self.port, self.core, self.mode = port, core, mode
        self.place = place or Place()
        self._memory = ["-m", str(memory_mib), "--in-memory" if hugepages else "--no-huge"]
        self._running: RunningTool | None = None
        self._mark = new_mark()
        self._telemetry = TelemetrySocket(self._mark.text)

    def available(self) -> tuple[bool, str]:
        """Return whether testpmd is installed on the generator's machine."""
        return self.place.can_run(_COMMAND)

    def start(self, traffic: Traffic) -> None:
        """Start testpmd and wait for its first statistics; see `TrafficGenerator.start`."""
        if self._running is not None:
            raise TestbedError(f"traffic generator '{self.name}' sends already", hint="call `stop` first")
        self._running = RunningTool(self.place.words(self.command(traffic)))
        if not self._running.wait(lambda: self._counts() is not None, _READY_LIMIT_S):
            finished = self._running.stop()
            self.stop()
            raise self.place.unreachable(finished) or TestbedError(
                f"traffic generator '{self.name}' did not start (exit code {finished.code}): {finished.last_words(4)}",
                hint=package_hint(_COMMAND) if finished.code == 127 else f"try by hand: {' '.join(finished.words)}",
            )

    def statistics(self) -> TrafficStatistics:
        """Return testpmd's counts (a second old if it runs on another machine); see `TrafficGenerator.statistics`."""
        counts = self._counts()
        if self._running is None or not self._running.alive or counts is None:
            raise self._not_running()
        fresh = self._counts_of_now()
        return TrafficStatistics(
            sent_packets=fresh.get("opackets", counts["TX-packets"]),
            received_packets=fresh.get("ipackets", counts["RX-packets"]),
            sent_mpps=counts.get("Tx-pps", 0) / 1e6,
            received_mpps=counts.get("Rx-pps", 0) / 1e6,
        )

    def _not_running(self) -> TestbedError:
        if self._running is None:
            return TestbedError(f"traffic generator '{self.name}' does not run", hint="call `start` first")
        finished = self._running.stop()
        return self.place.unreachable(finished) or TestbedError(
            f"traffic generator '{self.name}' ended while it sent (exit code {finished.code}): {finished.last_words()}",
            hint=f"try by hand: {' '.join(finished.words)}",
        )

    def stop(self) -> None:
        """End the testpmd process."""
        running, self._running = self._running, None
        self._telemetry.close()
        if running is not None:
            running.stop()
            remove_files_of(self._mark)

    def command(self, traffic: Traffic) -> list[str]:
        """Return testpmd's command line for `traffic`; raise InvalidValueError if testpmd cannot make that traffic."""
        require_uniform(traffic, self.name)
        require_saturating(traffic, self.name)
        mode = self.mode or ("txonly" if traffic.flow_count == 1 else "flowgen")
        if mode == "txonly" and traffic.flow_count != 1:
            raise InvalidValueError(
                f"testpmd's txonly sends one flow, {traffic.flow_count} were asked for", hint="use mode 'flowgen'"
            )
        flows = [f"--flowgen-flows={traffic.flow_count}"] if mode == "flowgen" else []
        size = f"--txpkts={frame_without_checksum_b(traffic)}"
        return self._words([self.port], [f"--forward-mode={mode}", size, *flows, "--port-topology=loop"])

    def _words(self, ports: Sequence[str], options: Sequence[str]) -> list[str]:
        devices = [word for port in ports for word in (("-a", port) if ":" in port else ("--vdev", port))]
        nothing_else = [] if any(":" in port for port in ports) else ["--no-pci"]
        lcores = f"--lcores=0@{self.core},1@{self.core}"
        eal = [lcores, "-n", "1", *self._memory, f"--file-prefix={self._mark.text}", *nothing_else]
        rest = ["--no-mlockall", "--stats-period=1", f"--total-num-mbufs={self._pool}", *options]
        return [_COMMAND, *eal, *devices, "--", *rest, "-a"]

    def _number(self) -> int:
        """Return testpmd's number for the port that is connected to the NF."""
        return 0

    def _counts_of_now(self) -> dict[str, int]:
        """Return testpmd's present counts from DPDK's telemetry; empty if the telemetry socket cannot be reached."""
        if self.place.host is not None:
            return {}
        try:
            answer = self._telemetry.ask(f"/ethdev/stats,{self._number()}")
            return {name: int(answer[name]) for name in ("opackets", "ipackets")}
        except (TestbedError, KeyError, ValueError, TypeError):
            return {}

    def _counts(self) -> dict[str, int] | None:
        return None if self._running is None else last_counts(self._running.lines(), self._number())


class PcapReplay(TestpmdGenerator):
    """Replays a capture repeatedly: the workload's generated traffic, or the user's own recording.

    `port`, `core`, `place`, `hugepages`, `memory_mib`: as for `TestpmdGenerator`. `pcap`: your own capture; by default
    one is generated from the workload's traffic. `folder`: where generated captures are kept. `seed`: seed of generated
    captures.
    """

    name = "pcap"
    _pool = _REPLAY_POOL

    def __init__(
        self,
        port: str,
        core: int,
        *,
        place: Place | None = None,
        hugepages: bool = True,
        memory_mib: int = 1024,
        pcap: str | Path | None = None,
        folder: Path | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(port, core, place=place, hugepages=hugepages, memory_mib=memory_mib)
        self.pcap = None if pcap is None else Path(pcap)
        self.folder = folder or cache_directory() / "captures"
        self.seed = seed

    def command(self, traffic: Traffic) -> list[str]:
        """Write the capture, copy it if the generator's machine is remote, and return testpmd's command line."""
        require_saturating(traffic, self.name)
        if self.pcap is None and traffic.flow_count > _MOST_REPLAYED:
            raise InvalidValueError(
                f"a replay holds at most {_MOST_REPLAYED} frames, the traffic has {traffic.flow_count} flows",
                hint="use fewer flows, or 'pktgen' or 'trex', which make them on the fly",
            )
        file = cached_pcap(traffic, self.folder, self.seed) if self.pcap is None else require_frames(self.pcap)
        source = f"net_pcap0,rx_pcap={self.place.bring(file)},infinite_rx=1"
        return self._words([source, self.port], ["--forward-mode=io", "--port-topology=paired"])

    def _number(self) -> int:
        return 0 if ":" in self.port else 1  # NICs are numbered before virtual devices


def last_counts(lines: Sequence[str], port: int) -> dict[str, int] | None:
    """Return a port's last complete statistics in testpmd's output; None if there are none yet.

    >>> last_counts(["## NIC statistics for port 0  ##", "RX-packets: 5   RX-missed: 0", "TX-packets: 9",
    ...              "Rx-pps:   3", "Tx-pps:   4"], 0)
    {'RX-packets': 5, 'TX-packets': 9, 'Rx-pps': 3, 'Tx-pps': 4}
    """
    current: int | None = None
    counts: dict[str, int] = {}
    complete: dict[str, int] | None = None
    for line in lines:
        if match := _PORT.search(line):
            current, counts = int(match[1]), {}
        elif current == port:
            counts |= {name: int(value) for name, value in _VALUE.findall(line)}
            if "Tx-pps" in counts:
                complete = counts
    return complete
