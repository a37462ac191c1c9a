"""Types of options: numbers within a range (those of `slomo.files.ranges`), paths, and names.

A number that is not finite or out of range is a usage error (exit code 2), reported before any file is loaded. The help
shows the name of an option's type, unless the option has a `metavar`.
"""

import math
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from slomo.vocabulary.numbers import MOST_SEED

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: Largest number of runs, instances or points; larger numbers count as typing errors.
MOST = 1_000_000


class Number(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.3 on
    """A finite number from `low` (without `low` itself if `above` is set) to `high`; the help shows it as `name`."""

    def __init__(
        self, kind: type[int] | type[float], low: float, high: float, name: str = "number", *, above: bool = False
    ) -> None:
        self.kind, self.low, self.high, self.name, self.above = kind, low, high, name, above

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert an option's text to the number."""
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


class Name(click.ParamType):  # type: ignore[type-arg]
    """A name; the shell completes those that the functions `sources`, each ``module:function``, return."""

    def __init__(self, name: str, *sources: str) -> None:
        self.name, self.sources = name, sources

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":  # noqa: ARG002
        """Return the names that begin with the word typed so far; only this imports their sources."""
        from click.shell_completion import CompletionItem

        homes = (source.partition(":") for source in self.sources)
        names = (name for home, _, function in homes for name in getattr(import_module(home), function)())
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _path(name: str) -> click.Path:
    kind = click.Path()
    kind.name = name
    return kind


FILE, DIR, DATASET = map(_path, ("file", "dir", "dataset"))
NF = Name("nf", "slomo.vocabulary.network_function:network_function_names")
MACHINE = Name("name|file", "slomo.vocabulary.machine:machine_names")
MODEL = Name("name", "slomo.training.families.registry:model_names")
POLICY = Name(
    "name", "slomo.placement.policies.registry:policy_names", "slomo.placement.chains.policies:chain_policy_names"
)
POSITIVE_COUNT = Number(int, 1, MOST, "n")
COUNT = Number(int, 0, MOST, "n")
SEED = Number(int, 0, MOST_SEED, "n")
SHARE = Number(float, 0.0, 1.0, "share")
AMOUNT = Number(float, 0.0, 1e9)
#: A time above 0, in seconds or milliseconds.
SECONDS = Number(float, 0.0, 1e9, "s", above=True)
#: A rate above 0: millions of packets, or billions of bits, per second.
RATE = Number(float, 0.0, 1e6, above=True)
