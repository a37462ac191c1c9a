"""Quantities with units: parse, convert, print; and numbers of things.

Prefixes follow IEC 80000-13 (MiB = 2**20 bytes) and SI (Mpps = 1e6 packets per second, Gbit/s = 1e9 bits per second).
"""

import math
import re

from slomo.errors import InvalidValueError

#: unit -> (dimension, factor to the dimension's base unit)
UNITS: dict[str, tuple[str, float]] = {
    "B": ("size", 1.0),
    "KB": ("size", 1e3),
    "MB": ("size", 1e6),
    "GB": ("size", 1e9),
    "KiB": ("size", 2.0**10),
    "MiB": ("size", 2.0**20),
    "GiB": ("size", 2.0**30),
    "pps": ("packet rate", 1.0),
    "kpps": ("packet rate", 1e3),
    "Mpps": ("packet rate", 1e6),
    "Gpps": ("packet rate", 1e9),
    "bit/s": ("bit rate", 1.0),
    "kbit/s": ("bit rate", 1e3),
    "Mbit/s": ("bit rate", 1e6),
    "Gbit/s": ("bit rate", 1e9),
    "B/s": ("byte rate", 1.0),
    "MB/s": ("byte rate", 1e6),
    "GB/s": ("byte rate", 1e9),
    "MiB/s": ("byte rate", 2.0**20),
    "GiB/s": ("byte rate", 2.0**30),
    "ns": ("time", 1e-9),
    "us": ("time", 1e-6),
    "ms": ("time", 1e-3),
    "s": ("time", 1.0),
    "min": ("time", 60.0),
    "h": ("time", 3600.0),
    "Hz": ("frequency", 1.0),
    "kHz": ("frequency", 1e3),
    "MHz": ("frequency", 1e6),
    "GHz": ("frequency", 1e9),
    "%": ("ratio", 0.01),
}
_QUANTITY = re.compile(r"^\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Za-z%/]*)\s*$")


def plural(number: int, noun: str, nouns: str | None = None) -> str:
    """Return a number with its noun, in the singular for one; `nouns`: a plural that does not end in "s" alone.

    >>> plural(1, "run"), plural(0, "mix", "mixes")
    ('1 run', '0 mixes')
    """
    return f"{number} {noun if number == 1 else nouns or f'{noun}s'}"


def unit_factor(source: str, target: str) -> float:
    """Return the factor that turns a number in `source` units into `target` units.

    Raises InvalidValueError if a unit is unknown or the two have different dimensions.

    >>> unit_factor("MiB", "KiB")
    1024.0
    """
    for unit in (source, target):
        if unit not in UNITS:
            raise InvalidValueError(f"unknown unit '{unit}'", hint=f"known units: {', '.join(UNITS)}")
    if UNITS[source][0] != UNITS[target][0]:
        raise InvalidValueError(f"cannot convert {source} ({UNITS[source][0]}) to {target} ({UNITS[target][0]})")
    return UNITS[source][1] / UNITS[target][1]


def convert(value: float, source: str, target: str) -> float:
    """Convert `value` from unit `source` to unit `target`.

    >>> convert(1.5, "Mpps", "kpps")
    1500.0
    """
    return value * unit_factor(source, target)


def parse_quantity(text: str | float, unit: str) -> float:
    """Read a number with an optional unit and return it in `unit`.

    A number without a unit is in `unit` already. Raises InvalidValueError if the text is no finite number, or its unit
    has another dimension.

    >>> parse_quantity("2 GiB", "MiB"), parse_quantity("40 %", "%"), parse_quantity(3, "MiB")
    (2048.0, 40.0, 3.0)
    """
    match = _QUANTITY.match(str(text))
    if match is None or not math.isfinite(float(match[1])):
        raise InvalidValueError(f"'{text}' is not a quantity in {unit}", hint=f"write for instance '12 {unit}'")
    return convert(float(match[1]), match[2] or unit, unit)
