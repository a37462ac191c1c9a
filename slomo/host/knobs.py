"""What can be set on a machine: a named knob, what it held, and what it is to hold.

Everything that is set is a knob with a text for its value, or None where it does not exist (a group that is not made
yet). That makes undoing one rule: give every knob back what the next owner, or the machine, had.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from slomo.errors import TestbedError

PRESENT = "present"


class VanishedError(TestbedError):
    """What a knob belongs to is there no more: a task that ended, a group that was removed."""


class InUseError(TestbedError):
    """A knob cannot be given back, since others use what it belongs to: a group with groups of theirs in it."""


@dataclass(frozen=True)
class Wish:
    """What a knob is to hold."""

    #: Its name, for instance ``"core:3"``.
    knob: str
    #: What it is to hold; None: not to exist.
    value: str | None
    #: Give the knob back instead, before what follows: it makes room.
    give_back: bool = False


@dataclass(frozen=True)
class Change:
    """A knob, what was there before, and what is there afterwards.

    Attributes
    ----------
    knob : str
        Its name.
    before, after : str or None
        What it held, and what it is to hold.

    Examples
    --------
    >>> Change("core:3", "", "slomo-lpm").text
    "core:3: '' -> 'slomo-lpm'"
    """

    knob: str
    before: str | None
    after: str | None

    @property
    def text(self) -> str:
        """One line for people."""
        shown = [_shown(value) for value in (self.before, self.after)]
        return f"{self.knob}: {shown[0]} -> {shown[1]}"


def _shown(value: str | None) -> str:
    if value is None:
        return "absent"
    return repr(value if len(value) <= 60 else f"{value[:57]}...")


class Knobs(Protocol):
    """A driver: reads and sets the knobs of one tree of a machine."""

    name: str

    def place(self) -> str:
        """Return which machine, tree and boot its knobs are of."""
        ...

    def read(self, knob: str) -> str | None:
        """Return what a knob holds; TestbedError if the machine does not say."""
        ...

    def write(self, knob: str, value: str | None) -> None:
        """Set a knob; TestbedError if the machine refuses."""
        ...

    def lock(self) -> AbstractContextManager[object]:
        """Keep others who set the same knobs out while changes are made."""
        ...
