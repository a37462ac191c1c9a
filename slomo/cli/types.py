"""Types of options that are numbers within a range; the ranges are those of `slomo.files.ranges`.

A number that is not finite or out of range is a usage error (exit code 2), reported before any file is loaded.
"""

import math
import re
from typing import Any

import click

#: Largest number of runs, instances or points; larger numbers count as typing errors.
MOST = 1_000_000


class Number(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.3 on
    """The type of an option that is a finite number within a range.

    `kind`: ``int`` or ``float``. `low`, `high`: bounds of the range. `above`: whether `low` itself is excluded.
    """

    name = "number"

    def __init__(self, kind: type[int] | type[float], low: float, high: float, *, above: bool = False) -> None:
        self.kind, self.low, self.high, self.above = kind, low, high, above

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert an option's text to the number.

        Anything else ends the command with a click error, exit code 2.
        """
        text = str(value)
        needed = f"a {'whole ' if self.kind is int else ''}number {'above' if self.above else 'from'} {self.low:g}"
        try:
            number = self.kind(value) if len(str(value)) <= 40 else math.nan
        except (ValueError, OverflowError):
            number = math.nan
        percentage = re.fullmatch(r"(\d{1,3}(?:\.\d{1,6})?) ?%", text) if self.high == 1.0 else None
        if math.isfinite(number) and self.low <= number <= self.high and not (self.above and number == self.low):
            return number
        if percentage is not None:
            number = float(percentage[1])
        percent = f"; {number:g} % is {number / 100:g}" if self.high == 1.0 and 0.0 <= number <= 100.0 else ""
        return self.fail(f"{text[:60]!r} is not {needed} to {self.high:g}{percent}", param, ctx)


POSITIVE_COUNT = Number(int, 1, MOST)
COUNT = Number(int, 0, MOST)
SEED = Number(int, 0, 2**63 - 1)
SHARE = Number(float, 0.0, 1.0)
AMOUNT = Number(float, 0.0, 1e9)
#: A time above 0, in seconds or milliseconds.
SECONDS = Number(float, 0.0, 1e9, above=True)
#: A rate above 0: millions of packets, or billions of bits, per second.
RATE = Number(float, 0.0, 1e6, above=True)
