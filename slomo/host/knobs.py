"""The interface of drivers: a machine's settings as named "knobs", whose values are texts.

The value of a knob is a text, or None if the object does not exist (such as a group not yet made). One rule therefore
undoes every change: set the knob to the next owner's value or, if there is none, to its original value.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from slomo.errors import TestbedError
from slomo.host.locks import MachineLock
from slomo.host.places import this_place

PRESENT = "present"


class VanishedError(TestbedError):
    """The object of a setting no longer exists: a task ended, or a group was removed."""


class InUseError(TestbedError):
    """A setting cannot be restored because others use its object, such as a group."""


@dataclass(frozen=True)
class Wish:
    """A setting ("knob") and the value that it shall have."""

    #: Name of the knob, for instance ``"core:3"``.
    knob: str
    #: Intended value; None if the knob's object shall not exist.
    value: str | None
    #: Whether to restore the knob instead, before the following wishes are carried out, to make room for them.
    give_back: bool = False


@dataclass(frozen=True)
class Change:
    """A setting with its values before and after.

    >>> Change("core:3", "", "slomo-lpm").text
    "core:3: '' -> 'slomo-lpm'"
    """

    #: Name of the knob.
    knob: str
    #: Value before the change, and value after it.
    before: str | None
    after: str | None

    @property
    def text(self) -> str:
        """One line that describes the change, for display."""
        shown = [_shown(value) for value in (self.before, self.after)]
        return f"{self.knob}: {shown[0]} -> {shown[1]}"


def _shown(value: str | None) -> str:
    if value is None:
        return "absent"
    return repr(value if len(value) <= 60 else f"{value[:57]}...")


class Knobs(Protocol):
    """A driver that reads and writes one kind of a machine's settings, such as resctrl."""

    name: str

    def place(self) -> str:
        """Return a text that identifies the kind of settings, the machine and its boot."""
        return this_place(self.name)

    def read(self, knob: str) -> str | None:
        """Return the present value of one setting; TestbedError if it cannot be read."""
        ...

    def write(self, knob: str, value: str | None) -> None:
        """Give one setting a new value; TestbedError if the machine refuses."""
        ...

    def part(self, knob: str) -> tuple["Knobs", str]:
        """Return the driver to which a setting belongs, and the setting's name in that driver."""
        return self, knob

    def followed(self, knob: str, others: Mapping[str, str | None]) -> Sequence[str]:  # noqa: ARG002
        """Return which other settings also change this one, as a CPU set decides its processes' CPUs."""
        return ()

    def lock(self) -> AbstractContextManager[object]:
        """Exclude other programs that write these settings while a `with` block runs."""
        return MachineLock(self.name)
