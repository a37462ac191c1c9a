"""The counter readers in order of preference, and the choice of one that works on this host.

As for every family of plug-ins, one lazy registry holds all readers.

perf counts instructions and misses, resctrl occupancy and bandwidth. On AMD, which PCM does not support, the two
together have most of PCM's metrics. If several readers have a metric, the first reader's value is used.
"""

import contextlib
from collections.abc import Mapping, Sequence

from slomo.errors import TestbedError
from slomo.plugins import imported, load_plugin, require_name
from slomo.testbed.host.counters.base import CounterReader, CounterSample
from slomo.vocabulary.vector import MetricVector

#: Entry points under which other packages register readers.
GROUP = "slomo.counter_readers"
_ROOM = "slomo.testbed.host.counters"
#: alias -> "module:class", in order of preference; each class takes no arguments. Two aliases joined by a plus sign are
#: read together.
READERS: dict[str, str] = {
    "pcm": f"{_ROOM}.pcm:PcmReader",
    "pcm-sensor-server": f"{_ROOM}.sensor_server:SensorServerReader",
    "perf": f"{_ROOM}.perf:PerfReader",
    "resctrl": f"{_ROOM}.resctrl:ResctrlReader",
    "pqos": f"{_ROOM}.pqos:PqosReader",
    "pcm-memory": f"{_ROOM}.pcm:PcmMemoryReader",
    "pcm-pcie": f"{_ROOM}.pcm:PcmPcieReader",
}
#: Readers tried by default, in this order: only those with core-level readings.
AUTOMATIC = ("pcm", "pcm-sensor-server", "perf+resctrl", "pqos")
#: Alias for measuring pressure by probe programs, without counters.
PROBE = "probe"


def choose_reader(
    asked: str | CounterReader | None = None, readers: Mapping[str, str] | None = None
) -> CounterReader | None:
    """Return the counter reader to use; None if pressure is to be measured by probe programs.

    `asked`: an alias, several joined by ``+``, ``"probe"``, an instance, or None for the first one that works, in the
    order of `readers`. UnknownNameError for an unknown alias; TestbedError if the requested reader does not work here.
    """
    table = READERS if readers is None else readers
    if asked == PROBE:
        return None
    if asked is None:
        candidates = (_named(name, table) for name in (AUTOMATIC if readers is None else table))
        return next((reader for reader in candidates if reader.available()[0]), None)
    if isinstance(asked, str):
        asked = _named(asked, table)
    usable, why = asked.available()
    if not usable:
        raise TestbedError(
            f"counters cannot be read with '{asked.name}': {why}",
            hint="see `slomo doctor`, or use 'probe', which needs no counters",
        )
    return asked


def _named(name: str, table: Mapping[str, str]) -> CounterReader:
    aliases = name.split("+")
    members = [
        load_plugin(GROUP, alias)()
        if require_name("counter reader", alias, (*table, PROBE), GROUP)
        else imported(table[alias])()
        for alias in aliases
    ]
    return members[0] if len(members) == 1 else CombinedReader(members)


class CombinedReader:
    """Combines all given readers that work on this host."""

    def __init__(self, members: Sequence[CounterReader]) -> None:
        self.members = tuple(members)
        #: names of the members in use, joined by plus signs, for the provenance
        self.name = "+".join(member.name for member in members)
        self._usable: tuple[CounterReader, ...] | None = None

    def available(self) -> tuple[bool, str]:
        """Return whether at least one member works on this host."""
        verdicts = {member.name: member.available() for member in self.members}
        self._used()  # `name` now lists the usable members
        text = "; ".join(f"{name}: {why}" for name, (_, why) in verdicts.items())
        return any(usable for usable, _ in verdicts.values()), text

    def start(self, cores: Sequence[int]) -> None:
        """Start all usable members; if one fails to start, stop the others."""
        used = self._used()
        if not used:
            raise TestbedError(f"counters cannot be read: {self.available()[1]}", hint="see `slomo doctor`")
        with contextlib.ExitStack() as stack:
            for member in used:
                member.start(cores)
                stack.callback(_end, member)
            stack.pop_all()

    def stop(self) -> CounterSample:
        """Stop all members and merge their readings."""
        samples: list[CounterSample] = []
        problems: list[TestbedError] = []
        for member in self._used():
            try:
                samples.append(member.stop())
            except TestbedError as problem:
                problems.append(problem)
        if problems:
            raise problems[0]
        return CounterSample(
            _merged([sample.cores for sample in samples]),
            _merged([sample.sockets for sample in samples]),
            next((sample.system for sample in samples if sample.system is not None), None),
            max((sample.duration_s for sample in samples), default=0.0),
            next((sample.zero_throughout for sample in samples if sample.zero_throughout), {}),
        )

    def _used(self) -> tuple[CounterReader, ...]:
        if self._usable is None:
            self._usable = tuple(member for member in self.members if member.available()[0])
            self.name = "+".join(member.name for member in self._usable or self.members)
        return self._usable


def _end(member: CounterReader) -> None:
    with contextlib.suppress(TestbedError):
        member.stop()


def _merged(parts: Sequence[Mapping[int, MetricVector]]) -> dict[int, MetricVector]:
    merged: dict[int, MetricVector] = {}
    for part in parts:
        for number, vector in part.items():
            earlier = merged.get(number)
            both = {**dict(vector), **(dict(earlier) if earlier else {})}
            merged[number] = MetricVector(both, scope=vector.scope)
    return merged
