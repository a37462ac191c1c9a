"""Compile a loop with numba if it is installed; numba is imported on first use."""

import functools
import hashlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

from slomo.files.machine_code import in_turn


@functools.cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the function compiled by numba; None if numba is not installed.

    >>> def nothing(): pass
    >>> compiled(nothing) is compiled(nothing)
    True
    """
    try:
        import numba
    except ImportError:
        return None
    # numpy's division semantics: a check before each division would prevent vector instructions
    try:
        cached = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
        source = inspect.getsource(sys.modules[function.__module__])
        loop: Callable[..., Any] = in_turn(cached, hashlib.sha256(source.encode()).hexdigest())
    except (RuntimeError, OSError, TypeError):  # no folder to cache in, or no source; compile each time instead
        loop = numba.njit(nogil=True, error_model="numpy")(function)
    return loop
