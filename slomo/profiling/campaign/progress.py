"""The interface of objects to which a campaign reports its progress.

The command line draws a bar; a notebook or a log may do something else (as Optuna's and npf's callbacks).
"""

from typing import Protocol

from slomo.profiling.plans.plan import PlannedRun


class Progress(Protocol):
    """An object to which a campaign reports its progress."""

    def start(self, total: int) -> None:
        """Receive the number of runs to be made now, without those already in the store.

        Unstable co-locations may need more runs than that.
        """
        ...

    def advance(self, run: PlannedRun) -> None:
        """Note that one more run is stored, or has finally failed."""
        ...

    def finish(self) -> None:
        """Take note that the campaign has ended, by success, error or interruption."""
        ...


class Silent:
    """A progress listener that does nothing.

    Examples
    --------
    >>> Silent().start(3)
    """

    def start(self, total: int) -> None:
        """Do nothing."""

    def advance(self, run: PlannedRun) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""
