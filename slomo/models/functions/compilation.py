"""Compile a loop with numba where it is installed; numba is imported on first use."""

import functools
from collections.abc import Callable


@functools.cache
def compiled(function: Callable[..., None]) -> Callable[..., None] | None:
    """Return the compiled function, or None where numba is not installed.

    Examples
    --------
    >>> def nothing(): pass
    >>> compiled(nothing) is compiled(nothing)
    True
    """
    try:
        import numba
    except ImportError:
        return None
    # divisions as numpy's: asking before each whether it is by zero keeps loops from becoming vector instructions
    try:
        loop: Callable[..., None] = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # no folder to cache in can be written; compile each time instead
        loop = numba.njit(nogil=True, error_model="numpy")(function)
    return loop
