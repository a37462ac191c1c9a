"""Read PCM's counters over HTTP from ``pcm-sensor-server``, so that slomo needs no privileges.

JSON layout of opcm/pcm src/pcm-sensor-server.cpp (JSONPrinter), releases 202302 to 202604: counts are since the
server's start, so those of a window are the difference of two answers.
"""

import http.client
import json
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from slomo.errors import InvalidValueError, TestbedError
from slomo.testbed.host.counters.base import CounterSample, added
from slomo.testbed.host.counters.events import Events, total
from slomo.units import plural
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector

_LARGEST_B = 32 * 2**20
_LIMIT_S = 5.0
#: Largest unsigned number; as an occupancy it means that the occupancy could not be read.
_INVALID = 2**64 - 1
_EVENTS = {
    "instructions": "Instructions Retired Any",
    "cycles": "Clock Unhalted Thread",
    "reference_cycles": "Clock Unhalted Ref",
    "nominal_cycles": "Invariant TSC",
    "l3_misses": "L3 Cache Misses",
    "l3_hits": "L3 Cache Hits",
    "l2_misses": "L2 Cache Misses",
    "l2_hits": "L2 Cache Hits",
}
_BANDWIDTHS = {"LMB": "Local Memory Bandwidth", "RMB": "Remote Memory Bandwidth"}
_TRAFFIC = {"READ": "DRAM Reads", "WRITE": "DRAM Writes"}


class SensorServerReader:
    """Queries a ``pcm-sensor-server`` at the start and the end of a measurement.

    `url`: address of the server; by default this machine and PCM's own port. Raises InvalidValueError if `url` is no
    http address.

    >>> SensorServerReader("http://127.0.0.1:9738").name
    'pcm-sensor-server'
    """

    name = "pcm-sensor-server"

    def __init__(self, url: str = "http://127.0.0.1:9738") -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise InvalidValueError(f"'{url}' is no address of a pcm-sensor-server", hint="write http://HOST:9738")
        self.url = url
        self._address = (parts.hostname, parts.port or 9738)
        self._before: tuple[float, Mapping[str, Any]] | None = None
        self._cores: tuple[int, ...] = ()

    def available(self) -> tuple[bool, str]:
        """Query the server once to see whether it answers."""
        try:
            answer = self._ask()
        except TestbedError as problem:
            return False, problem.message
        return True, f"{plural(len(answer['Sockets']), 'socket')} at {self.url}"

    def start(self, cores: Sequence[int]) -> None:
        """Store the present counts; raise TestbedError if no server answers, or one that is no pcm-sensor-server."""
        self._cores = tuple(cores)
        self._before = (time.monotonic(), self._ask())

    def stop(self) -> CounterSample:
        """Return the increase of each count since `start`."""
        if self._before is None:
            raise TestbedError("'pcm-sensor-server' was not started", hint="call `start` first")
        (began_s, before), self._before = self._before, None
        after = self._ask()
        duration_s = time.monotonic() - began_s
        try:
            return self._difference(before, after, duration_s)
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise self._strange(f"its answer has another shape ({type(problem).__name__}: {problem})") from None

    def _difference(self, before: Mapping[str, Any], after: Mapping[str, Any], duration_s: float) -> CounterSample:
        cores: dict[int, MetricVector] = {}
        sockets: dict[int, MetricVector] = {}
        earlier = {socket["Socket ID"]: socket for socket in before["Sockets"]}
        for socket in after["Sockets"]:
            number = int(socket["Socket ID"])
            was, now = (_threads(item) for item in (earlier[number], socket))
            pairs = {core: (was[core], now[core]) for core in now if core in was}
            values = {core: _thread_values(*pair, duration_s) for core, pair in pairs.items()}
            events = total(_events(*pair) for pair in pairs.values())
            traffic = _uncore_values(earlier[number], socket, duration_s)
            sums = added([*values.values()], ("L3OCC", "LMB", "RMB"))
            sockets[number] = MetricVector({**events.metrics(duration_s), **sums, **traffic}, scope=Scope.SOCKET)
            for core in set(self._cores) & set(values):
                cores[core] = MetricVector(values[core], scope=Scope.CORE)
        return CounterSample(cores, sockets, None, duration_s)

    def _ask(self) -> Mapping[str, Any]:
        connection = http.client.HTTPConnection(*self._address, timeout=_LIMIT_S)
        try:
            connection.request("GET", "/", headers={"Accept": "application/json"})
            response = connection.getresponse()
            body = response.read(_LARGEST_B + 1)
            if response.status != 200:
                raise self._strange(f"it answers with status {response.status}")
            if len(body) > _LARGEST_B:
                raise self._strange(f"its answer is longer than {_LARGEST_B} bytes")
            answer = json.loads(body)
        except (OSError, http.client.HTTPException) as problem:
            raise TestbedError(
                f"no pcm-sensor-server answers at {self.url}: {problem}",
                hint="start it as root: pcm-sensor-server -p 9738",
            ) from None
        except (ValueError, RecursionError):
            raise self._strange("its answer is no JSON") from None
        finally:
            connection.close()
        if not isinstance(answer, dict) or not isinstance(answer.get("Sockets"), list) or not answer["Sockets"]:
            raise self._strange("its answer names no sockets")
        return answer

    def _strange(self, what: str) -> TestbedError:
        return TestbedError(
            f"what listens at {self.url} is no pcm-sensor-server of a known release: {what}",
            hint="check host and port; releases 202302 to 202604 are known",
        )


def _threads(socket: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    return {int(thread["OS ID"]): thread for core in socket["Cores"] for thread in core["Threads"]}


def _events(before: Mapping[str, Any], after: Mapping[str, Any]) -> Events:
    was, now = (thread.get("Core Counters", {}) for thread in (before, after))
    return Events(**{name: _grown(was.get(key), now.get(key)) for name, key in _EVENTS.items()})


def _thread_values(before: Mapping[str, Any], after: Mapping[str, Any], duration_s: float) -> dict[str, float | None]:
    occupancy = after.get("Core Counters", {}).get("L3 Cache Occupancy")
    was, now = (thread.get("Core Memory Bandwidth Counters", {}) for thread in (before, after))
    bandwidths = {name: _grown(was.get(key), now.get(key), duration_s) for name, key in _BANDWIDTHS.items()}
    held = None if occupancy is None or occupancy >= _INVALID else float(occupancy)
    return {**_events(before, after).metrics(duration_s), "L3OCC": held, **bandwidths}


def _uncore_values(before: Mapping[str, Any], after: Mapping[str, Any], duration_s: float) -> dict[str, float | None]:
    was, now = (item.get("Uncore", {}).get("Uncore Counters", {}) for item in (before, after))
    return {name: _grown(was.get(key), now.get(key), duration_s * 1e9) for name, key in _TRAFFIC.items()}


def _grown(before: Any, after: Any, per: float = 1.0) -> float | None:
    """Return by how much a count has grown, per `per`; None if it is missing, has fallen, or was never read."""
    if before is None or after is None or after < before or after == 0 or per <= 0.0:
        return None
    return float(after - before) / per
