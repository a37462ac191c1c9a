"""Find traffic generators by name.

Each family of plug-ins has one lazy registry; a generator is named by its alias or given as an instance.
"""

from typing import Any

from slomo.errors import InvalidValueError, UnknownNameError
from slomo.plugins import imported
from slomo.testbed.host.traffic.base import TrafficGenerator

_ROOM = "slomo.testbed.host.traffic"
#: alias -> "module:class"
GENERATORS: dict[str, str] = {
    "pcap": f"{_ROOM}.testpmd:PcapReplay",
    "testpmd": f"{_ROOM}.testpmd:TestpmdGenerator",
    "pktgen": f"{_ROOM}.pktgen:PktgenGenerator",
    "trex": f"{_ROOM}.trex:TrexGenerator",
}


def make_generator(generator: str | TrafficGenerator, **settings: Any) -> TrafficGenerator:
    """Create the traffic generator of a given name.

    `generator`: alias, or an instance that is returned as it is. `settings`: arguments of the generator's class. Raises
    UnknownNameError for an unknown alias; InvalidValueError for unknown or missing settings.

    Examples
    --------
    >>> make_generator("pktgen", port=22022).name
    'pktgen'
    """
    if not isinstance(generator, str):
        return generator
    if generator not in GENERATORS:
        raise UnknownNameError("traffic generator", generator, GENERATORS)
    try:
        made: TrafficGenerator = imported(GENERATORS[generator])(**settings)
    except TypeError as problem:
        raise InvalidValueError(
            f"traffic generator '{generator}' cannot be made with {sorted(settings)}: {problem}",
            hint="see its class for its settings",
        ) from None
    return made
