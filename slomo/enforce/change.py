"""The interface of backends: each is a driver of knobs that also translates a plan to values of them."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from slomo.enforce.plan import EnforcementPlan
from slomo.host.knobs import Knobs, Wish


class Backend(Knobs, Protocol):
    """A way to set a machine's knobs; `slomo.testing.enforcer_contract` tests its obligations."""

    def available(self) -> tuple[bool, str]:
        """Return whether the backend works on this machine, and the reason if not."""
        ...

    def wishes(self, plan: EnforcementPlan, own: Sequence[str] = ()) -> tuple[Wish, ...]:
        """Return the knob values that a plan requires of this backend, in order of execution.

        `plan`: the requested settings. `own`: knobs that the same receipt holds; those no longer required are
        restored. The values include side effects of other knobs, under any receipt (moving a core removes it from
        monitoring groups). Raises SlomoError, before any change, if the machine does not support the plan.
        """
        ...

    def knobs(self) -> Iterator[str]:
        """Return the names of the knobs that can be shown."""
        ...
