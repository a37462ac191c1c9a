"""The interface of backends: each converts a plan to values of a machine's settings (knobs), and sets them."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from slomo.enforce.plan import EnforcementPlan
from slomo.host.knobs import Knobs, Wish


class Backend(Knobs, Protocol):
    """Reads and writes one kind of a machine's settings; `slomo.testing.enforcer_contract` tests its obligations.

    Backends inherit from this class and override the defaults that do not hold for them.
    """

    @property
    def acts_on_processes(self) -> bool:
        """Whether the backend sets processes of this host."""
        return False

    @property
    def sets_the_rest(self) -> bool:
        """Whether the backend sets the cache ways of tasks without a class of their own."""
        return False

    def foreign_masks(self) -> dict[str, int]:
        """Return the cache ways of groups that other programs made, by name."""
        return {}

    def available(self) -> tuple[bool, str]:
        """Return whether the backend works on this machine, and the reason if not."""
        ...

    def wishes(self, plan: EnforcementPlan, own: Sequence[str] = ()) -> tuple[Wish, ...]:
        """Return the settings, with values, that a plan requires this backend to write, in order.

        `plan`: the requested settings. `own`: knobs that the same receipt has set; those no longer required are
        restored. The result includes side effects on other knobs, whichever receipt has set them (moving a core removes
        it from monitoring groups). Raises SlomoError, before any change, if the machine does not support the plan.
        """
        ...

    def knobs(self) -> Iterator[str]:
        """Return the names of the settings that can be shown."""
        ...
