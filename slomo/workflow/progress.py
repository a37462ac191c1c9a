"""Show progress on stderr: a bar with remaining time on a terminal and in notebooks, nothing elsewhere."""

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slomo.profiling.campaign.progress import Progress


class ProgressBar:
    """Draws progress on stderr; called as ``start(total)``, ``advance(run)``, ``finish()``.

    `what`: words before the bar. `unit`: what is counted. `drawn`: whether to draw; by default where stderr is a
    terminal.
    """

    def __init__(self, what: str, *, unit: str = "run", drawn: bool | None = None) -> None:
        self.what, self.unit = what, unit
        self.drawn = sys.stderr.isatty() if drawn is None else drawn
        self._bar: Any = None

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *failure: object) -> None:
        self.finish()

    def start(self, total: int, done: int = 0) -> None:
        """Begin with `total` units, of which `done` are finished."""
        if not self.drawn:
            return
        from tqdm import tqdm  # loads nothing else

        # an erased bar leaves an empty red box in a notebook, a full one says how long it took
        left = in_notebook()
        self._bar = tqdm(desc=self.what, total=total, initial=done, leave=left, dynamic_ncols=True, unit=self.unit)

    def advance(self, run: object) -> None:  # noqa: ARG002 - part of the protocol
        """Count one more finished unit."""
        if self._bar is not None:
            self._bar.update()

    def remark(self, text: str) -> None:
        """Show a text after the bar."""
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)

    def finish(self) -> None:
        """End the progress bar; outside notebooks it disappears."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def listening(progress: "Progress | bool | None", what: str, unit: str = "run") -> "Progress | None":
    """Return the object to which progress is reported: the given one, or a bar if `progress` is True."""
    if progress is None:
        progress = in_notebook()
    if isinstance(progress, bool):
        return ProgressBar(what, unit=unit, drawn=True) if progress else None
    return progress


def in_notebook() -> bool:
    """Return whether a Jupyter kernel runs this program, without importing anything."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and getattr(shell, "kernel", None) is not None
