"""Progress on stderr: a bar with what is left and an ETA on a terminal, silence anywhere else (npf, Optuna)."""

import sys
from types import TracebackType
from typing import Any

from slomo.cli.output import note


class ProgressBar:
    """Draws a campaign's progress; keeps the protocol ``start(total) / advance(run) / finish()`` of profiling.

    Parameters
    ----------
    what : str
        Words before the bar.

    Examples
    --------
    >>> with ProgressBar("measuring") as bar:  # stderr is no terminal here: nothing is drawn
    ...     bar.start(2)
    ...     bar.advance(None)
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._bar: Any = None

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()

    def start(self, total: int, done: int = 0) -> None:
        """Begin with `total` runs, of which `done` are already there."""
        if not sys.stderr.isatty():
            return
        from tqdm import tqdm  # loads nothing else

        self._bar = tqdm(desc=self.what, total=total, initial=done, leave=False, dynamic_ncols=True, unit="run")

    def advance(self, run: object) -> None:  # noqa: ARG002 - part of the protocol
        """Count one more run."""
        if self._bar is not None:
            self._bar.update()

    def finish(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def announce_compilation() -> None:
    """Say on stderr, in one line, when the simulator is about to be compiled."""
    from slomo.simulator.first_compile import on_first_compile

    said: set[str] = set()

    def say(line: str) -> None:
        if line not in said:  # campaigns simulate in several threads, each of which may be the first
            said.add(line)
            note(f"note: {line}")

    on_first_compile(say)
