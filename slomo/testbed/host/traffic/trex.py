"""Cisco's TRex as traffic generator, through its stateless Python API.

By TRex's stateless API (trex-tgn.cisco.com, cp_stl_docs), one stream sends a frame whose destination a field engine
varies, and a second stream measures latency. The Python package is part of TRex and is imported on first use.
"""

import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

from slomo.errors import InvalidValueError, TestbedError
from slomo.testbed.host.traffic.base import TrafficStatistics, require_uniform
from slomo.testbed.host.traffic.pcap import write_pcap
from slomo.vocabulary.workload import Traffic

_DESTINATION_OFFSET = 30  # position of the IPv4 destination in an Ethernet frame
_IPV4_OFFSET = 14
_LATENCY_STREAM = 7
_LATENCY_PPS = 1000
_FRAME_AT = 24 + 16  # position of the frame behind the headers of the capture and of the first frame
_MOST_FLOWS = 1 << 24


class TrexGenerator:
    """Traffic generator that controls a running TRex server in stateless mode.

    `server`: host of the TRex server, which is reached over the network. `sends`, `receives`: TRex's ports that send
    and receive. `api_folder`: ``automation/trex_control_plane/interactive`` of TRex, needed if its package is not
    installed. `api`: the imported package, instead of `api_folder`.
    """

    name = "trex"

    def __init__(
        self,
        server: str = "127.0.0.1",
        *,
        sends: int = 0,
        receives: int = 1,
        api_folder: str | Path | None = None,
        api: Any = None,
    ) -> None:
        self.server, self.sends, self.receives = server, int(sends), int(receives)
        self._folder, self._given = api_folder, api
        self._client: Any = None

    def available(self) -> tuple[bool, str]:
        """Return whether the package can be imported and the server answers."""
        try:
            client = self._connected()
        except TestbedError as problem:
            return False, problem.message
        client.disconnect()
        return True, f"TRex at {self.server}"

    def start(self, traffic: Traffic) -> None:
        """Load the streams and start sending; see `TrafficGenerator.start`."""
        require_uniform(traffic, self.name)
        if traffic.flow_count > _MOST_FLOWS:
            raise InvalidValueError(f"TRex makes at most {_MOST_FLOWS} flows here, {traffic.flow_count} were asked for")
        if self._client is not None:
            raise TestbedError("traffic generator 'trex' sends already", hint="call `stop` first")
        self._client = self._connected()
        ports = sorted({self.sends, self.receives})
        try:
            self._client.acquire(ports=ports, force=True)
            self._client.reset(ports=ports)
            self._client.clear_stats()
            self._client.add_streams(self._streams(traffic), ports=[self.sends])
            self._client.start(ports=[self.sends], force=True)
        except Exception as problem:
            self._end()
            raise self._fault("does not take the traffic", problem) from None

    def statistics(self) -> TrafficStatistics:
        """Query TRex's counters; see `TrafficGenerator.statistics`."""
        if self._client is None:
            raise TestbedError("traffic generator 'trex' does not send", hint="call `start` first")
        try:
            port_statistics = self._client.get_stats()
            sent, received = port_statistics[self.sends], port_statistics[self.receives]
            stream = port_statistics.get("latency", {}).get(_LATENCY_STREAM, {}).get("latency", {})
            names = {"average": "mean", "total_max": "max"}
            return TrafficStatistics(
                int(sent["opackets"]),
                int(received["ipackets"]),
                float(sent.get("tx_pps", 0.0)) / 1e6,
                float(received.get("rx_pps", 0.0)) / 1e6,
                {name: float(stream[key]) for key, name in names.items() if key in stream},
            )
        except Exception as problem:
            raise self._fault("tells no statistics", problem) from None

    def stop(self) -> None:
        """Stop sending, and release the ports."""
        if self._client is not None:
            try:
                self._client.stop(ports=[self.sends])
                self._client.release()
            except Exception as problem:
                raise self._fault("does not stop", problem) from None
            finally:
                self._end()

    def _end(self) -> None:
        client, self._client = self._client, None
        client.disconnect()

    def _connected(self) -> Any:
        api = self._api()
        client = api.STLClient(server=self.server)
        try:
            client.connect()
        except Exception as problem:
            raise self._fault("does not answer", problem) from None
        return client

    def _api(self) -> Any:
        if self._given is None:
            if self._folder is not None and str(self._folder) not in sys.path:
                sys.path.append(str(self._folder))
            try:
                self._given = importlib.import_module("trex.stl.api")
            except ImportError as problem:
                raise TestbedError(
                    f"TRex's Python package cannot be imported: {problem}",
                    hint="give `api_folder`: automation/trex_control_plane/interactive of your TRex",
                ) from None
        return self._given

    def _streams(self, traffic: Traffic) -> list[Any]:
        api = self._api()
        load = {"percentage": 100.0} if traffic.offered_mpps is None else {"pps": traffic.offered_mpps * 1e6}
        packet = api.STLPktBuilder(pkt_buffer=_frame(traffic), vm=self._destinations(traffic.flow_count))
        probe = api.STLPktBuilder(pkt_buffer=_frame(traffic))
        measured = api.STLStream(
            packet=probe,
            mode=api.STLTXCont(pps=_LATENCY_PPS),
            flow_stats=api.STLFlowLatencyStats(pg_id=_LATENCY_STREAM),
        )
        return [api.STLStream(packet=packet, mode=api.STLTXCont(**load)), measured]

    def _destinations(self, flow_count: int) -> Any:
        api = self._api()
        first = 10 << 24
        variable = api.STLVmFlowVar(
            name="destination", min_value=first, max_value=first + flow_count - 1, size=4, op="random"
        )
        write = api.STLVmWrFlowVar(fv_name="destination", pkt_offset=_DESTINATION_OFFSET)
        return api.STLScVmRaw([variable, write, api.STLVmFixIpv4(offset=_IPV4_OFFSET)])

    def _fault(self, what: str, problem: Exception) -> TestbedError:
        # TRex's own exception classes are unknown before its package is imported, so every exception is handled
        text = " ".join(str(problem).split())[:300]
        return TestbedError(
            f"TRex at '{self.server}' {what}: {type(problem).__name__}: {text}",
            hint="start it with `./t-rex-64 -i`, and check its ports",
        )


def _frame(traffic: Traffic) -> bytes:
    """Return one frame of the traffic, built as in slomo's captures."""
    single = Traffic(packet_size_b=traffic.packet_size_b, flow_count=1)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "frame.pcap"
        write_pcap(single, file)
        size_b = max(traffic.packet_size_b - 4, 42)
        return file.read_bytes()[_FRAME_AT : _FRAME_AT + size_b]
