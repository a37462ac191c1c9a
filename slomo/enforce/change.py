"""The interface of backends: each converts a plan to values of a machine's settings (knobs), and sets them."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from slomo.enforce.plan import EnforcementPlan
from slomo.host.knobs import Knobs, Wish
from slomo.host.resctrl_tree import ResctrlTree


class Backend(Knobs, Protocol):
    """Reads and writes one kind of a machine's settings; `slomo.testing.enforcer_contract` tests its obligations.

    Backends inherit from this class and override the defaults that do not hold for them.
    """

    #: Whether the backend sets processes of this host.
    acts_on_processes: bool = False
    #: Whether it sets the cache ways of cores or processes, and those of tasks without a class of their own.
    divides_the_cache: bool = False
    sets_the_rest: bool = False
    #: The resctrl tree in which it divides the cache; None if it uses none.
    resctrl_tree: ResctrlTree | None = None

    def foreign_masks(self) -> dict[str, int]:
        """Return the cache ways of groups that other programs made, by name."""
        return {}

    def available(self) -> tuple[bool, str]:
        """Return whether the backend works on this machine, and the reason if not."""
        ...

    def wishes(self, plan: EnforcementPlan) -> tuple[Wish, ...]:
        """Return the settings, with values, that a plan requires this backend to write, in order.

        The result includes side effects on other knobs (moving a core removes it from monitoring groups). Raises
        SlomoError, before any change, if the machine does not support the plan.
        """
        ...

    def revised_wishes(self, plan: EnforcementPlan, own: Sequence[str]) -> tuple[Wish, ...]:  # noqa: ARG002
        """Return the values to write if the plan's receipt already holds the knobs `own`.

        They include side effects of knobs under any receipt, and what must be restored first to make room.
        """
        return self.wishes(plan)

    def knobs(self) -> Iterator[str]:
        """Return the names of the settings that can be shown."""
        ...
