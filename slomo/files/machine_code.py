"""Let only one process compile a function that several processes need, and keep the machine code on disk."""

import gc
import logging
import time
from pathlib import Path
from typing import Any

from slomo.files.lock import LockFile, LockHeldError

#: Longest time that a process waits for another process that compiles the same function, before it compiles itself [s].
PATIENCE_S = 300.0
_LOOK_S = 0.05


def in_turn(dispatcher: Any, digest: str) -> Any:
    """Make a function that numba compiles and caches wait while another process compiles it; return the function.

    Machine code is valid while the source has this `digest`; numba itself compares size and date of the file. If the
    cache's folder cannot be written or has an unknown layout, each process compiles for itself.
    """
    try:
        dispatcher._cache._cache_file._source_stamp = digest
    except AttributeError:
        logging.getLogger("slomo.files").debug("numba's cache has another shape; it goes by file dates")
    try:
        path = Path(dispatcher._cache._cache_path, f"{dispatcher.__name__}.compiling")
    except AttributeError:
        return dispatcher
    from numba.core.compiler_lock import global_compiler_lock

    alone = dispatcher.compile

    def compile_in_turn(signature: Any) -> Any:
        with global_compiler_lock:  # first: threads that compile other functions must not wait for each other's files
            lock = LockFile(path)
            _take(lock)
            collects = gc.isenabled()
            gc.disable()  # garbage collection of the compiler's many small objects would take a fifth of the time
            try:
                return alone(signature)
            finally:
                lock.release()
                if collects:
                    gc.enable()

    dispatcher.compile = compile_in_turn
    return dispatcher


def _take(lock: LockFile) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            return lock.acquire()
        except LockHeldError:
            time.sleep(_LOOK_S)
        except OSError:
            return None
    return None
