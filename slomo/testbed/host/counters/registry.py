"""The counter readers in order of preference, and the choice of one that works on this host.

As for every family of plug-ins, one lazy registry holds all readers.
"""

from collections.abc import Mapping

from slomo.errors import TestbedError
from slomo.plugins import imported, load_plugin, require_name
from slomo.testbed.host.counters.base import CounterReader
from slomo.testbed.host.counters.combined import CombinedReader

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
    "pcm-memory": f"{_ROOM}.pcm_tools:PcmMemoryReader",
    "pcm-pcie": f"{_ROOM}.pcm_tools:PcmPcieReader",
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
