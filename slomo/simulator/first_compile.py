"""Tell listeners before the simulator is compiled for the first time on a machine, which takes about a minute.

Registered listeners are called before the compilation starts; the library itself prints nothing.
"""

import logging
from collections.abc import Callable
from typing import Any

Listener = Callable[[str], None]

NOTICE = "compiling the simulator for this processor; this happens once and takes up to a minute"
_listeners: list[Listener] = []
_announced: list[str] = []


def on_first_compile(listener: Listener) -> None:
    """Register `listener` to be called with one line of text before the first, slow, compilation.

    Without listeners the line goes to the logger ``slomo.simulator`` as a warning.
    """
    _listeners.append(listener)


def is_compiled(kernel: Any = None) -> bool:
    """Return whether the machine code of a simulator function is ready, in this process or on disk."""
    if kernel is None:
        from slomo.simulator.kernel import play as kernel  # needs numba, which registering a listener does not
    if getattr(kernel, "signatures", None):
        return True
    try:  # numba has no public way to ask; an unexpected shape means "not known to be compiled"
        return bool(kernel._cache._cache_file._load_index())
    except (AttributeError, OSError):
        return False


def announce(kernel: Any = None) -> None:
    """Tell the listeners, once per process, that a slow compilation is about to start."""
    if _announced or is_compiled(kernel):
        return
    _announced.append(NOTICE)
    for listener in _listeners:
        listener(NOTICE)
    if not _listeners:
        logging.getLogger("slomo.simulator").warning(NOTICE)
