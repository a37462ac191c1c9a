"""Check numbers and paths in arguments of functions, before any computation."""

import math
import operator
import os
from pathlib import Path

from slomo.errors import InvalidValueError

#: Largest seed that datasets can hold.
MOST_SEED = 2**63 - 1


def whole_number(what: str, value: object, least: int | None = None, most: int | None = None) -> int:
    """Return a whole number from `least` to `most`; InvalidValueError for anything else, including booleans and 2.0."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or (least is not None and number < least) or (most is not None and number > most):
        limit = "" if least is None else f", at least {least}" if most is None else f" from {least} to {most}"
        raise InvalidValueError(f"{what} is {value!r}, needed a whole number{limit}")
    return number


def positive_number(what: str, value: object, unit: str) -> float:
    """Return a finite number above 0. Raises InvalidValueError for anything else.

    >>> positive_number("offered_mpps", "2", "Mpps")
    Traceback (most recent call last):
    slomo.errors.InvalidValueError: offered_mpps is '2', needed a number above 0 [Mpps]
    """
    try:
        number = math.nan if isinstance(value, (str, bytes, bool)) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number > 0.0):
        raise InvalidValueError(f"{what} is {value!r}, needed a number above 0 [{unit}]")
    return number


def share_hint(value: float, otherwise: str) -> str:
    """Return the hint for a wrong share: how to write it, if it looks like a percentage.

    >>> share_hint(90, "0.9 is usual"), share_hint(0.0, "0.9 is usual")
    ('a share, not a percentage: 0.9 for 90 %', '0.9 is usual')
    """
    return f"a share, not a percentage: {value / 100:g} for {value:g} %" if 1.0 < value <= 100.0 else otherwise


def digits(text: str, most: int) -> int | None:
    """Return the whole number, 0 to `most`, that a text of ASCII digits states; None for any other text.

    >>> digits("16", 100), digits("101", 100), digits("-1", 100)
    (16, None, None)
    """
    fits = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    return number if fits and (number := int(text)) <= most else None


def path_of(what: str, value: object) -> Path:
    """Return a path; InvalidValueError unless it is a text or a path."""
    if not isinstance(value, (str, os.PathLike)):
        raise InvalidValueError(f"{what} is {value!r}, needed text or a path")
    return Path(value)
