"""How a campaign tells others how far it is, without knowing who listens.

The command line draws a bar with these calls; a notebook or a log may do something else (Optuna's and npf's callbacks).
"""

from typing import Protocol

from slomo.profiling.plans.plan import PlannedRun


class Progress(Protocol):
    """Listener of a campaign; all calls come from the thread that called `run_campaign`."""

    def start(self, total: int) -> None:
        """Hear how many runs are to be done now; runs already in the store are not counted.

        Co-locations that turn out to be unstable may need more than this.
        """
        ...

    def advance(self, run: PlannedRun) -> None:
        """Hear that one more run is durable, or has failed for good."""
        ...

    def finish(self) -> None:
        """Hear that the campaign has ended, in whatever way."""
        ...


class Silent:
    """A listener that says nothing.

    Examples
    --------
    >>> Silent().start(3)
    """

    def start(self, total: int) -> None:
        """Say nothing."""

    def advance(self, run: PlannedRun) -> None:
        """Say nothing."""

    def finish(self) -> None:
        """Say nothing."""
