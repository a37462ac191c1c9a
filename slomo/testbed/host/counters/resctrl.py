"""Read cache occupancy and memory bandwidth of each core through resctrl, on Intel and AMD.

The reader makes one monitoring group per core, below the group whose masks apply to that core, so that no allocation
changes (Documentation/arch/x86/resctrl.rst, "Monitoring"). It removes these groups afterwards.
"""

import contextlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from slomo.errors import TestbedError
from slomo.host.cores import available_cores, line_in, socket_of
from slomo.host.marker import new_mark
from slomo.host.resctrl_tree import ROOT, ResctrlTree
from slomo.testbed.host.counters.base import CounterSample, added
from slomo.testbed.host.isolation import undo_killed_campaigns
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector

_CPU = Path("/sys/devices/system/cpu")
_OCCUPANCY, _TOTAL, _LOCAL = "llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"
_METRICS = ("L3OCC", "LMB", "RMB")
_SNAPSHOTS, _BETWEEN_S = 3, 0.02
_READINGS = 4

Counts = Mapping[str, Mapping[int, int | None]]


class ResctrlReader:
    """Reads the metrics L3OCC, LMB and RMB from resctrl monitoring groups.

    `tree`: resctrl tree; by default the kernel's. `socket_of_domain`: socket of each last-level cache domain; by
    default from sysfs.
    """

    name = "resctrl"

    def __init__(self, tree: ResctrlTree | None = None, socket_of_domain: Callable[[int], int] | None = None) -> None:
        self.tree = tree or ResctrlTree(ROOT)
        self._socket_of_domain = socket_of_domain or _socket_of_domain
        self._groups: dict[int, str] = {}
        self._before: dict[str, Counts] = {}
        self._began_s = 0.0

    def available(self) -> tuple[bool, str]:
        """Return whether the resctrl tree can monitor, and which metrics."""
        try:
            features = self._features()
        except TestbedError as problem:
            return False, f"{problem.message} ({problem.hint})"
        return True, f"it monitors {', '.join(features)}"

    def start(self, cores: Sequence[int]) -> None:
        """Make a monitoring group per core and read all counters."""
        self._features()
        undo_killed_campaigns(self.tree)
        mark = new_mark().text
        try:
            for core in cores:
                control = self.tree.control_group_of(core)
                group = f"{control}/mon_groups/{mark}-{core}".lstrip("/")
                self.tree.make_group(group)
                self._groups[core] = group
                self.tree.write(f"{group}/cpus_list", str(core))
        except BaseException:
            self._end()
            raise
        self._before = {group: self._counts(group) for group in (*self.tree.control_groups(), *self._groups.values())}
        self._began_s = time.monotonic()

    def stop(self) -> CounterSample:
        """Read all counters again, and remove the groups."""
        if not self._groups:
            raise TestbedError("'resctrl' was not started", hint="call `start` first")
        duration_s = time.monotonic() - self._began_s
        try:
            for group in self._groups.values():
                if not self.tree.files.is_directory(group):
                    raise TestbedError(
                        f"counters vanished: resctrl group '{group}' was removed while it was needed",
                        hint="let no other program unmount or clean resctrl during a campaign",
                    )
            after = {group: self._counts(group) for group in self._before}
            occupancy = self._occupancy()
        finally:
            self._end()
        return self._sample(after, occupancy, duration_s)

    def _sample(
        self, after: Mapping[str, Counts], occupancy: Mapping[str, Mapping[int, float | None]], duration_s: float
    ) -> CounterSample:
        values = {
            group: {
                domain: _values(self._before[group], counts, occupancy[group], domain, duration_s)
                for domain in counts[_TOTAL]
            }
            for group, counts in after.items()
        }
        cores = {
            int(group.rpartition("-")[2]): MetricVector(added([*by_domain.values()], _METRICS), scope=Scope.CORE)
            for group, by_domain in values.items()
            if "mon_groups/" in group
        }
        controls = [group for group in values if "mon_groups/" not in group]
        by_socket: dict[int, list[Mapping[str, float | None]]] = {}
        for group in controls:
            for domain, domain_values in values[group].items():
                by_socket.setdefault(self._socket_of_domain(domain), []).append(domain_values)
        sockets = {
            number: MetricVector(added(domains, _METRICS), scope=Scope.SOCKET) for number, domains in by_socket.items()
        }
        return CounterSample(cores, sockets, None, duration_s)

    def _counts(self, group: str) -> Counts:
        return {file: self._counted(group, file) for file in (_TOTAL, _LOCAL)}

    def _counted(self, group: str, file: str) -> dict[int, int | None]:
        """Return a counter by domain; read it again if the hardware first reports `Unavailable`, as AMD's does."""
        counts = self.tree.counters(group, file)
        for _ in range(_READINGS - 1):
            if None not in counts.values():
                break
            time.sleep(_BETWEEN_S)
            again = self.tree.counters(group, file)
            counts = {domain: again.get(domain) if count is None else count for domain, count in counts.items()}
        return counts

    def _occupancy(self) -> dict[str, dict[int, float | None]]:
        """Return the median of a few occupancy readings, since occupancy is a level and not a count."""
        readings: dict[str, list[dict[int, int | None]]] = {group: [] for group in self._before}
        for snapshot in range(_SNAPSHOTS):
            time.sleep(_BETWEEN_S if snapshot else 0.0)
            for group in readings:
                readings[group].append(self.tree.counters(group, _OCCUPANCY))
        return {
            group: {d: _median([item.get(d) for item in seen]) for d in seen[0]} for group, seen in readings.items()
        }

    def _features(self) -> tuple[str, ...]:
        self.tree.require("monitoring (info/L3_MON)", self.tree.exists("info/L3_MON/mon_features"))
        return tuple(self.tree.read("info/L3_MON/mon_features").split())

    def _end(self) -> None:
        groups, self._groups = self._groups, {}
        with contextlib.ExitStack() as stack:
            for group in groups.values():
                stack.callback(self.tree.remove_group, group)


def _values(
    before: Counts, after: Counts, occupancy: Mapping[int, float | None], domain: int, duration_s: float
) -> dict[str, float | None]:
    total, local = (_grown(before[file].get(domain), after[file].get(domain)) for file in (_TOTAL, _LOCAL))
    remote = None if total is None or local is None else max(0, total - local)
    held = occupancy.get(domain)
    per = duration_s * 2**20
    return {
        "L3OCC": None if held is None else held / 1024.0,
        "LMB": None if local is None else local / per,
        "RMB": None if remote is None else remote / per,
    }


def _grown(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None or after < before else after - before


def _median(values: Sequence[int | None]) -> float | None:
    reported = [value for value in values if value is not None]
    return float(statistics.median(reported)) if reported else None


def _socket_of_domain(domain: int) -> int:
    for core in available_cores():
        if line_in(_CPU / f"cpu{core}/cache/index3/id") == str(domain):
            return socket_of(core)
    return domain
