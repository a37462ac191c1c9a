"""The interface of objects to which a campaign, or training, reports its progress.

The command line draws a bar; a notebook or a log may do something else (as Optuna's and npf's callbacks).
"""

from typing import Any, Protocol


class Progress(Protocol):
    """An object to which a campaign, or training, reports its progress."""

    def start(self, total: int) -> None:
        """Receive the number of runs, or steps of training, to be made now, without runs already in the store.

        Unstable co-locations may need more runs than that.
        """
        ...

    def advance(self, run: Any) -> None:
        """Note that a `PlannedRun` is stored, or has finally failed; in training, that models are made."""
        ...

    def finish(self) -> None:
        """Take note of the end, by success, error or interruption."""
        ...


class Silent:
    """A progress listener that does nothing."""

    def start(self, total: int) -> None:
        """Do nothing."""

    def advance(self, run: Any) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""
