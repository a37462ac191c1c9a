"""Pktgen-DPDK as traffic generator, driven through its remote Lua socket.

The driver uses these Lua functions of Pktgen and was tested with release 23.06.1: `set`, `range.*`, `set_range`,
`start`, `stop`, `portStats`, `linkState`. Flows are a range of destination addresses, rates a percentage of the link's
speed. Pktgen makes the packets of a range once, one per buffer, so the number of flows is at most its number of buffers
(`maxMbufsPerPort`).

In Pktgen 23.03 and 23.06 (lib/lua/lua_socket.c) the socket sends no prompt, echo or length, and values and errors go to
Pktgen's own terminal. Every request is therefore wrapped in Lua code that writes the result or error and an end mark to
the socket.
"""

import re
import socket
import time

from slomo.errors import InvalidValueError, TestbedError
from slomo.testbed.host.traffic.base import TrafficStatistics, require_uniform
from slomo.vocabulary.workload import Traffic

_END = "@@END@@"
_LARGEST_B = 4 * 2**20
#: Wrapper of a request: it writes values, or an error in the same way, then an end mark.
WRAP = (
    "do local function W(x) io.write(tostring(x), '\\n') end "
    "local ok,e=pcall(function() {body} end) "
    "if not ok then W('ERROR '..tostring(e)) end W('@@END@@') io.flush() end\n"
)
_GAP_B = 20  # preamble and gap of every frame on the wire
_TOTALS = ("opackets", "ipackets")
_RATES = ("pkts_tx", "pkts_rx")
_LOOK_S = 0.1
#: Longest time to wait for the last counts [s]; Pktgen updates its counts once a second.
_COUNTED_S = 1.5


class LuaSocket:
    """A connection to a Lua socket; `limit_s`: longest time to wait for an answer."""

    def __init__(self, host: str = "127.0.0.1", port: int = 22022, limit_s: float = 5.0) -> None:
        self.address = f"{host}:{port}"
        try:
            self._socket = socket.create_connection((host, port), timeout=limit_s)
        except OSError as problem:
            raise TestbedError(
                f"no Pktgen answers at {self.address}: {problem}",
                hint=f"start it with `pktgen ... -- -g {host}:{port}`; over SSH, forward the port: ssh -L",
            ) from None

    def ask(self, body: str) -> list[str]:
        """Run Lua statements and return the lines that they wrote with ``W(...)``."""
        if "\n" in body:
            raise ValueError("one line is one chunk")
        try:
            self._socket.sendall(WRAP.replace("{body}", body).encode("ascii"))
            lines = self._lines()
        except OSError as problem:
            raise TestbedError(
                f"Pktgen at {self.address} does not answer '{body[:60]}': {problem}",
                hint="it serves one client at a time; end the other one",
            ) from None
        for line in lines:
            if line.startswith("ERROR "):
                raise TestbedError(
                    f"Pktgen at {self.address} refuses '{body[:60]}': {line[6:]}",
                    hint="releases 23.03 and 23.06 are known",
                )
        return lines

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _lines(self) -> list[str]:
        text = b""
        while not text.endswith(f"{_END}\n".encode("ascii")):
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise ConnectionResetError("the connection was closed")
            text += chunk
            if len(text) > _LARGEST_B:
                raise ConnectionAbortedError(f"more than {_LARGEST_B} bytes came")
        return text.decode("utf-8", "replace").splitlines()[:-1]


class PktgenGenerator:
    """Traffic generator that controls a running Pktgen process.

    `host`, `port`: address of its Lua socket; for another machine, forward the port over SSH. `sends`, `receives`:
    Pktgen's ports that send and receive. `limit_s`: longest time to wait for an answer [s]. `patience_s`: longest time
    to wait for the link [s], which comes up when the NF at the other end opens its port.
    """

    name = "pktgen"

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 22022,
        *,
        sends: int = 0,
        receives: int = 0,
        limit_s: float = 5.0,
        patience_s: float = 10.0,
    ) -> None:
        self.host, self.port, self.limit_s, self.patience_s = host, port, limit_s, patience_s
        self.sends, self.receives = int(sends), int(receives)
        self._socket: LuaSocket | None = None

    def available(self) -> tuple[bool, str]:
        """Return whether Pktgen answers."""
        try:
            lua = LuaSocket(self.host, self.port, self.limit_s)
        except TestbedError as problem:
            return False, problem.message
        try:
            return True, f"{lua.ask('W(pktgen.portCount())')[0]} ports at {lua.address}"
        except (TestbedError, IndexError) as problem:
            return False, str(getattr(problem, "message", "it says nothing"))
        finally:
            lua.close()

    def start(self, traffic: Traffic, packets: int = 0) -> None:
        """Wait for the link, then send at most `packets` packets (0: no limit); see `TrafficGenerator.start`."""
        require_uniform(traffic, self.name)
        if self._socket is not None:
            raise TestbedError("traffic generator 'pktgen' sends already", hint="call `stop` first")
        self._socket, link_mbps = self._connected()
        try:
            assert self._socket is not None
            most = int(self._socket.ask("W(pktgen.info.maxMbufsPerPort)")[0])
            if traffic.flow_count > most:
                raise InvalidValueError(
                    f"Pktgen makes at most {most} flows, one per buffer, {traffic.flow_count} were asked for",
                    hint="use fewer flows, or 'pcap', which replays up to 65535",
                )
            percent = _percent(traffic, link_mbps)
            self._socket.ask(f"pktgen.stop('{self.sends}'); pktgen.clr()")
            self._socket.ask("; ".join(_settings(self.sends, traffic, percent, packets)))
            self._socket.ask(f"pktgen.start('{self.sends}')")
        except BaseException:
            self._socket.close()
            self._socket = None
            raise

    def trial(self, traffic: Traffic, seconds: float, packets: int = 0) -> TrafficStatistics:
        """Send for `seconds` s, and return the counts after the last packet has come back."""
        self.start(traffic, packets)
        try:
            assert self._socket is not None
            time.sleep(seconds)
            self._socket.ask(f"pktgen.stop('{self.sends}')")
            deadline_s, counts = time.monotonic() + _COUNTED_S, self.statistics()
            while (packets == 0 or counts.received_packets < packets) and time.monotonic() < deadline_s:
                time.sleep(_LOOK_S)
                counts = self.statistics()
            return counts
        finally:
            self.stop()

    def statistics(self) -> TrafficStatistics:
        """Query Pktgen's counters; see `TrafficGenerator.statistics`."""
        sent, received = self._numbers("port", self.sends, _TOTALS[0]), self._numbers("port", self.receives, _TOTALS[1])
        rates = self._numbers("rate", self.sends, _RATES[0]), self._numbers("rate", self.receives, _RATES[1])
        return TrafficStatistics(int(sent), int(received), rates[0] / 1e6, rates[1] / 1e6)

    def stop(self) -> None:
        """Stop sending, and disconnect so that other clients can connect."""
        lua, self._socket = self._socket, None
        if lua is not None:
            try:
                lua.ask(f"pktgen.stop('{self.sends}'); pktgen.set_range('{self.sends}', 'off')")
            finally:
                lua.close()

    def _numbers(self, kind: str, port: int, key: str) -> float:
        if self._socket is None:
            raise TestbedError("traffic generator 'pktgen' does not send", hint="call `start` first")
        answer = self._socket.ask(f"W(pktgen.portStats('{port}', '{kind}')[{port}].{key})")
        try:
            return float(answer[0])
        except (IndexError, ValueError):
            raise TestbedError(
                f"Pktgen at {self._socket.address} reports no '{key}' of port {port}: {answer[:1]}",
                hint="check `sends` and `receives` against its ports",
            ) from None

    def _connected(self) -> tuple[LuaSocket, int]:
        """Wait until the link is up; return a connection to Pktgen, and the link's speed [Mbit/s].

        Over ``net_virtio_user`` Pktgen does not answer before an NF connects to its socket, so the method waits for
        both.
        """
        deadline_s = time.monotonic() + self.patience_s
        while True:
            late = time.monotonic() > deadline_s
            lua = self._connection(late)
            if lua is not None:
                try:
                    state = " ".join(lua.ask(f"W(pktgen.linkState('{self.sends}')[{self.sends}])"))
                    if match := re.search(r"UP-(\d+)", state):
                        return lua, int(match[1])
                    if late:
                        raise TestbedError(
                            f"port {self.sends} of Pktgen is down ('{state}') and did not come up within "
                            f"{self.patience_s:g} s",
                            hint="check cable and driver, and that the NF opens the port at the other end",
                        )
                except BaseException:
                    lua.close()
                    raise
                lua.close()
            time.sleep(_LOOK_S)

    def _connection(self, late: bool) -> LuaSocket | None:
        try:
            return LuaSocket(self.host, self.port, self.limit_s)
        except TestbedError:
            if late:
                raise
            return None


def _percent(traffic: Traffic, link_mbps: int) -> float:
    """Return the offered load as a percentage of the link's speed."""
    if traffic.offered_mpps is None:
        return 100.0
    needed_mbps = traffic.offered_mpps * (traffic.packet_size_b + _GAP_B) * 8
    percent = 100.0 * needed_mbps / link_mbps
    if percent > 100.0:
        raise InvalidValueError(
            f"{traffic.offered_mpps:g} Mpps of {traffic.packet_size_b} bytes are {needed_mbps / 1e3:.1f} Gbit/s, "
            f"the link carries {link_mbps / 1e3:g} Gbit/s",
            hint="offer less, or saturate the link by leaving the rate out",
        )
    return percent


def _settings(port: int, traffic: Traffic, percent: float, packets: int) -> list[str]:
    """Return the Lua calls that configure traffic, in order.

    `set` must include the packet size even if a range also sets it, since Pktgen derives the rate from the size in
    `set`.
    """
    size_b, last = traffic.packet_size_b, _address(traffic.flow_count - 1)
    ranges = [("pkt_size", kind, str(value)) for kind, value in _steps(size_b, 0, size_b, size_b)]
    ranges += [("dst_ip", kind, f"'{value}'") for kind, value in _steps(_address(0), "0.0.0.1", _address(0), last)]
    ranges += [("src_ip", "inc", "'0.0.0.0'"), ("src_port", "inc", "0"), ("dst_port", "inc", "0")]
    return [
        f"pktgen.set('{port}', 'count', {packets})",
        f"pktgen.set('{port}', 'size', {size_b})",
        *(f"pktgen.range.{field}('{port}', '{kind}', {value})" for field, kind, value in ranges),
        f"pktgen.range.ip_proto('{port}', 'udp')",
        f"pktgen.set_range('{port}', 'on')",
        f"pktgen.set('{port}', 'rate', {percent:.4f})",
    ]


def _steps(start: object, step: object, least: object, most: object) -> tuple[tuple[str, object], ...]:
    return ("start", start), ("inc", step), ("min", least), ("max", most)


def _address(number: int) -> str:
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
