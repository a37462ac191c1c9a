"""Checks that all documents about placement share."""

import math
from collections.abc import Iterable, Mapping

from slomo.errors import InvalidValueError, UnknownNameError

SCHEMA_VERSION = 1
#: More servers or requests alike than this are a slip.
MOST_COPIES = 200_000
Amounts = tuple[tuple[str, float], ...]
#: Limited amounts of a server beside cores and cache ways, with their units.
RESOURCES = {
    "memory_gib": "GiB",
    "hugepages_gib": "GiB",
    "nic_gbps": "Gbit/s",
    "virtual_functions": "",
    "closids": "classes of service",
}


def check_unique(what: str, names: Iterable[str]) -> None:
    """Raise InvalidValueError with the name if a name occurs twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidValueError(f"two {what}s are called '{name}', needed names that differ")
        seen.add(name)


def checked_amounts(whose: str, amounts: Mapping[str, float]) -> Amounts:
    """Return amounts of resources in order of their names; raises an error for an invalid amount."""
    for name, amount in amounts.items():
        if name not in RESOURCES:
            raise UnknownNameError("resource", name, RESOURCES, where=f"of {whose}")
        if not (math.isfinite(amount) and amount >= 0.0):
            raise InvalidValueError(f"{whose}: {name} is {amount!r}, needed a number from 0")
    return tuple(sorted(amounts.items()))
