"""Compile the simulator's kernels with numba once, keep the result on disk, and say so when it is slow.

numba's ``cache=True`` keeps machine code beside the source (or in the user's cache directory); the very first call on a
machine takes some seconds. Listeners registered here hear of it before it happens; the library itself prints nothing.
"""

import functools
import hashlib
import importlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])
Listener = Callable[[str], None]

NOTICE = "compiling the simulator for this processor; this happens once and takes up to a minute"
#: No kernel allocates, so reference counting (`_nrt`) would only cost time: with it every call is 30 times slower.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}
KERNEL_SOURCES = (
    "accelerator",
    "cache",
    "compilation",
    "dma",
    "hierarchy",
    "kernel",
    "lanes",
    "memory",
    "random_numbers",
    "state",
    "traffic",
)
_listeners: list[Listener] = []
_announced: list[str] = []


def compiled(function: Function) -> Function:
    """Compile `function`; its code is inlined wherever another kernel calls it.

    Floating-point operations are neither reordered nor fused, so results are equal byte for byte on every machine.
    """
    return cast(Function, numba.njit(**_OPTIONS, forceinline=True)(function))


def kernel(function: Function) -> Function:
    """Compile `function` as an entry point that Python calls, and keep its machine code on disk."""
    dispatcher: Any = numba.njit(**_OPTIONS, cache=True)(function)
    try:  # numba looks at the date of one file only; the code of all of them is in the kernel
        dispatcher._cache._cache_file._source_stamp = source_digest()
    except AttributeError:
        logging.getLogger("slomo.simulator").debug("numba's cache has another shape; it goes by file dates")
    return cast(Function, dispatcher)


def inner(function: Function) -> Function:
    """Compile `function` for other kernels to call now and then; it is not inlined."""
    return cast(Function, numba.njit(**_OPTIONS)(function))


@functools.cache
def source_digest() -> str:
    """Return the fingerprint of all source code that goes into the kernels.

    Examples
    --------
    >>> len(source_digest())
    64
    """
    digest = hashlib.sha256()
    for name in KERNEL_SOURCES:
        digest.update((Path(__file__).parent / f"{name}.py").read_bytes())
    return digest.hexdigest()


def on_first_compile(listener: Listener) -> None:
    """Call `listener` with one line of text before the first, slow, compilation.

    Without any listener the line goes to the logger ``slomo.simulator`` as a warning.

    Examples
    --------
    >>> on_first_compile(lambda line: None)
    """
    _listeners.append(listener)


def is_compiled() -> bool:
    """Return whether the kernel's machine code is ready, in this process or on disk.

    Examples
    --------
    >>> isinstance(is_compiled(), bool)
    True
    """
    # by name, for the kernels themselves import this module
    dispatcher: Any = importlib.import_module("slomo.simulator.kernel").run_until
    if getattr(dispatcher, "signatures", None):
        return True
    try:  # numba has no public way to ask; an unexpected shape means "not known to be compiled"
        return bool(dispatcher._cache._cache_file._load_index())
    except (AttributeError, OSError):
        return False


def announce() -> None:
    """Tell the listeners, once per process, that a slow compilation is about to start."""
    if _announced or is_compiled():
        return
    _announced.append(NOTICE)
    for listener in _listeners:
        listener(NOTICE)
    if not _listeners:
        logging.getLogger("slomo.simulator").warning(NOTICE)
