"""The interface of drivers: a machine's settings as named "knobs", whose values are texts.

Every setting is a knob whose value is a text, or None if it does not exist (such as a group not yet made). Undoing is
therefore one rule: set every knob to the value of the next owner, or to the original one.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from slomo.errors import TestbedError

PRESENT = "present"


class VanishedError(TestbedError):
    """What a setting belongs to no longer exists: a task ended, or a group was removed."""


class InUseError(TestbedError):
    """A setting cannot be restored because others use its object, such as a group."""


@dataclass(frozen=True)
class Wish:
    """A setting ("knob") and the value that it shall have."""

    #: Its name, for instance ``"core:3"``.
    knob: str
    #: Its value; None if it should not exist.
    value: str | None
    #: Give the knob back instead, before the following wishes, to make room.
    give_back: bool = False


@dataclass(frozen=True)
class Change:
    """A setting with its values before and after.

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
    """A driver that reads and writes the settings of one kind (such as resctrl) of a machine."""

    name: str

    def place(self) -> str:
        """Return a text that identifies machine, kind of settings and boot."""
        ...

    def read(self, knob: str) -> str | None:
        """Return the present value of one setting.

        Raises TestbedError if it cannot be read.
        """
        ...

    def write(self, knob: str, value: str | None) -> None:
        """Give one setting a new value.

        Raises TestbedError if the machine refuses.
        """
        ...

    def lock(self) -> AbstractContextManager[object]:
        """Exclude other programs that write these settings while a `with` block runs."""
        ...
