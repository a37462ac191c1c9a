"""Which readers there are, best first, and which of them this host can use.

One lazy registry per family of plug-ins, as everywhere in slomo.
"""

import importlib
from collections.abc import Mapping

from slomo.errors import TestbedError, UnknownNameError
from slomo.testbed.host.counters.base import CounterReader

#: alias -> "module:class", in order of preference; each class takes no arguments.
READERS: dict[str, str] = {}
#: alias of measuring pressure without counters
PROBE = "probe"


def choose_reader(
    wanted: str | CounterReader | None = None, readers: Mapping[str, str] | None = None
) -> CounterReader | None:
    """Return the reader to use; None means probing.

    Parameters
    ----------
    wanted : str or CounterReader, optional
        An alias, ``"probe"``, an instance, or nothing for the first one that works.
    readers : mapping, optional
        Registry to choose from.

    Raises
    ------
    UnknownNameError
        For an alias there is not.
    TestbedError
        If the reader asked for cannot read here.

    Examples
    --------
    >>> choose_reader("probe") is None
    True
    """
    table = READERS if readers is None else readers
    if wanted == PROBE:
        return None
    if wanted is None:
        return next((reader for reader in map(_make, table.values()) if reader.available()[0]), None)
    if isinstance(wanted, str):
        if wanted not in table:
            raise UnknownNameError("counter reader", wanted, [*table, PROBE])
        wanted = _make(table[wanted])
    usable, why = wanted.available()
    if not usable:
        raise TestbedError(
            f"counters cannot be read with '{wanted.name}': {why}",
            hint="see `slomo doctor`, or use 'probe', which needs no counters",
        )
    return wanted


def _make(path: str) -> CounterReader:
    module, _, name = path.partition(":")
    made: CounterReader = getattr(importlib.import_module(module), name)()
    return made
