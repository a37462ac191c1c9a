"""Ctrl-C and SIGTERM end a campaign between two runs, never inside one.

The first signal asks; a second one insists and interrupts at once. What is finished is in the store in either case.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Yield an event that is set by Ctrl-C or SIGTERM; the former handlers come back afterwards.

    Outside the main thread Python delivers no signals, and the event is simply never set.

    Examples
    --------
    >>> with interruptible() as stop:
    ...     stop.is_set()
    False
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  (signal's signature)
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    former = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in former.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
