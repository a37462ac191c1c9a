"""Functions compiled by numba, if it is installed and that saves time; numba is imported on first use.

Compiling takes seconds the first time on a machine, and loading compiled code takes a tenth of a second. Both are too
long for one server but short for many. Compiled code is therefore used once the rounds in numpy have taken as long.
"""

import functools
import hashlib
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from slomo.files.machine_code import in_turn

#: Number of servers whose solution in numpy takes as long as loading compiled code: first if numba must be imported,
#: then if it already is.
LOADING_SERVERS, LOADED_SERVERS = 1024, 64
#: A function, and where it makes the function to be compiled, the numbers for which it does.
_Source = tuple[Callable[..., Any], *tuple[int, ...]]


@functools.cache
def compiled(function: Callable[..., Any], *sizes: int) -> Callable[..., Any] | None:
    """Return the function compiled by numba, or what it returns for `sizes`; None without numba, or if it is disabled.

    >>> def nothing(): pass
    >>> compiled(nothing) is compiled(nothing)
    True
    """
    try:
        import numba
    except ImportError:
        return None
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]  # vectors exist in compiled code only
        return None
    function = function(*sizes) if sizes else function
    # numpy's division semantics: a check before each division would prevent vector instructions
    try:
        cached = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
        source = inspect.getsource(sys.modules[function.__module__])
        loop: Callable[..., Any] = in_turn(cached, hashlib.sha256(source.encode()).hexdigest())
    except (RuntimeError, OSError, TypeError):  # no folder to cache in, or no source; compile each time instead
        loop = numba.njit(nogil=True, error_model="numpy")(function)
    return loop


class _Spent:
    """State of this process: number of servers solved in numpy, compiled functions, and a setting of each thread.

    The setting says that the thread never waits for the compiler (:func:`never_compiling`).
    """

    servers = 0
    loops: ClassVar[dict[_Source, Callable[..., Any] | None]] = {}
    ready: ClassVar[dict[tuple[Callable[..., Any], ...], list[Callable[..., Any]]]] = {}
    thread = threading.local()


@contextmanager
def never_compiling() -> Iterator[None]:
    """Solve in numpy in this thread until another thread has compiled the code, so that this thread never waits."""
    outside = getattr(_Spent.thread, "never_compiling", False)
    _Spent.thread.never_compiling = True
    try:
        yield
    finally:
        _Spent.thread.never_compiling = outside


def loop_for(servers: int, function: Callable[..., Any], *sizes: int) -> Callable[..., Any] | None:
    """Count these servers as solved, and return the compiled code; None if numpy should be used.

    numpy should be used if too few servers were counted for compiling to save time, or if the code is not compiled and
    this thread never compiles. `function` and `sizes`: as in :func:`compiled`.
    """
    _Spent.servers += servers
    if _is_early():
        return None
    loop = _Spent.loops.get((function, *sizes))
    if getattr(_Spent.thread, "never_compiling", False):
        return loop if getattr(loop, "signatures", None) else None
    if loop is None:
        loop = _Spent.loops[function, *sizes] = compiled(function, *sizes)
    return loop


def _is_early() -> bool:
    """Return whether so few servers were solved so far that compiling would not save time."""
    return _Spent.servers < (LOADED_SERVERS if "numba" in sys.modules else LOADING_SERVERS)


def code_for(functions: tuple[Callable[..., Any], ...]) -> list[Callable[..., Any]] | None:
    """Return the compiled code of several functions; None if one of them is not compiled."""
    if _is_early():
        return None
    code = _Spent.ready.get(functions)
    if code is None:
        loops = [loop_for(0, each) for each in functions]
        code = [each for each in loops if each is not None]
        if len(code) < len(functions):
            return None
        if all(getattr(each, "signatures", None) for each in code):  # no function waits for the compiler any more
            _Spent.ready[functions] = code
    return code
