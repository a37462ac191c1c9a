"""The interface of drivers: settings of a machine as named knobs that can be read and set.

Every setting is a knob whose value is a text, or None if it does not exist (such as a group not yet made). Undoing is
therefore one rule: set every knob to the value of the next owner, or to the original one.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from slomo.errors import TestbedError

PRESENT = "present"


class VanishedError(TestbedError):
    """The object of a knob no longer exists: a task ended, or a group was removed."""


class InUseError(TestbedError):
    """A knob cannot be restored because its object is in use, such as a group in which others have made subgroups."""


@dataclass(frozen=True)
class Wish:
    """Intended value of a knob."""

    #: Its name, for instance ``"core:3"``.
    knob: str
    #: Its value; None if it should not exist.
    value: str | None
    #: Give the knob back instead, before the following wishes, to make room.
    give_back: bool = False


@dataclass(frozen=True)
class Change:
    """A knob with its values before and after.

    Examples
    --------
    >>> Change("core:3", "", "slomo-lpm").text
    "core:3: '' -> 'slomo-lpm'"
    """

    #: Its name.
    knob: str
    #: What it held, and what it is to hold.
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
    """A driver that reads and sets the knobs of one tree (such as resctrl) of a machine."""

    name: str

    def place(self) -> str:
        """Return the machine, tree and boot to which the knobs belong."""
        ...

    def read(self, knob: str) -> str | None:
        """Return a knob's value. Raises TestbedError if it cannot be read."""
        ...

    def write(self, knob: str, value: str | None) -> None:
        """Set a knob. Raises TestbedError if the machine refuses."""
        ...

    def lock(self) -> AbstractContextManager[object]:
        """Exclude other writers of the same knobs while a context lasts."""
        ...
