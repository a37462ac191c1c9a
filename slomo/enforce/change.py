"""One change to a machine: a named knob, what it held, and what it is to hold.

Everything that is enforced is a knob with a text for its value, or None where it does not exist (a group that is not
made yet). That makes undoing one rule: in reverse order, give every knob back what it held.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from slomo.enforce.plan import EnforcementPlan
from slomo.errors import TestbedError

PRESENT = "present"


class VanishedError(TestbedError):
    """What a knob belongs to is there no more: a task that ended, a group that was removed."""


@dataclass(frozen=True)
class Wish:
    """What a knob is to hold.

    Attributes
    ----------
    knob : str
        Its name, for instance ``"core:3"``.
    value : str or None
        What it is to hold; None: not to exist.
    """

    knob: str
    value: str | None


@dataclass(frozen=True)
class Change:
    """A wish, and what was there before.

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


class Backend(Protocol):
    """A way to set a machine's knobs; `slomo.testing.enforcer_contract` says what each owes as tests."""

    name: str

    def available(self) -> tuple[bool, str]:
        """Return whether this machine lets it, and why not."""
        ...

    def place(self) -> str:
        """Return which machine, tree and boot a receipt is good for."""
        ...

    def wishes(self, plan: EnforcementPlan) -> tuple[Wish, ...]:
        """Return what a plan asks of this backend's knobs, in the order in which it must be done.

        Raises
        ------
        SlomoError
            If the machine does not offer it; nothing is changed.
        """
        ...

    def read(self, knob: str) -> str | None:
        """Return what a knob holds.

        Raises
        ------
        TestbedError
            If the machine does not say.
        """
        ...

    def write(self, knob: str, value: str | None) -> None:
        """Set a knob.

        Raises
        ------
        TestbedError
            If the machine refuses.
        """
        ...

    def knobs(self) -> Iterator[str]:
        """Return the names of what can be shown."""
        ...

    def lock(self) -> AbstractContextManager[object]:
        """Keep other enforcers of the same machine out while changes are made."""
        ...
