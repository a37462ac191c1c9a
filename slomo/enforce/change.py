"""What enforces a plan: a driver of knobs that knows what a plan asks of them."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from slomo.enforce.plan import EnforcementPlan
from slomo.host.knobs import Knobs, Wish


class Backend(Knobs, Protocol):
    """A way to set a machine's knobs; `slomo.testing.enforcer_contract` says what each owes as tests."""

    def available(self) -> tuple[bool, str]:
        """Return whether this machine lets it, and why not."""
        ...

    def wishes(self, plan: EnforcementPlan, own: Sequence[str] = ()) -> tuple[Wish, ...]:
        """Return what a plan asks of this backend's knobs, in the order in which it must be done.

        `plan`: what is asked for. `own`: knobs that the same receipt holds; those that are not wished again are given
        back. Beside them what setting another knob takes along (a core leaves the groups that count it), whichever
        receipt holds it. Raises SlomoError if the machine does not offer it; nothing is changed.
        """
        ...

    def knobs(self) -> Iterator[str]:
        """Return the names of what can be shown."""
        ...
