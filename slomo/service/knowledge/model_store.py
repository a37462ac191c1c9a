"""Load the service's models, and replace them all at once when their files change.

A half-written or damaged library never replaces a working one, since a new library is read and checked completely
before the replacement. Until then the old library answers, and `fault` describes the problem of the new one.
"""

import ctypes
import functools
import gc
import hashlib
import sys
import threading
import time
from pathlib import Path

from slomo.errors import SlomoError
from slomo.files.opening import read_bytes
from slomo.models.library import load_library
from slomo.models.storage import MAX_BYTES
from slomo.service.knowledge.questions import ServiceAnswers
from slomo.vocabulary.identity import require_same

#: Subpackages whose caches have models, or parts of models, as keys.
_ROOMS = ("slomo.compose", "slomo.equilibrium", "slomo.models", "slomo.placement", "slomo.prediction")
_Cached = type(functools.lru_cache(len))


def fingerprint_of(directory: Path) -> str:
    """Return a digest of a library's index and manifests; it identifies the state of the library's files."""
    digest = hashlib.sha256()
    files = sorted([*directory.glob("library.json"), *directory.glob("*/manifest.json")])
    for path in files:
        try:
            content = read_bytes(path, MAX_BYTES)
            digest.update(path.name.encode() + b"\0" + path.parent.name.encode() + b"\0" + content)
        except SlomoError:
            return ""
    return digest.hexdigest()[:16] if files else ""


def forget_models() -> None:
    """Clear caches that would keep replaced models in memory; unbounded ones hold constants and loops."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(_ROOMS)]
    holders = [*modules, *(item for module in modules for item in vars(module).values() if isinstance(item, type))]
    for holder in holders:
        for value in list(vars(holder).values()):
            if isinstance(value, _Cached) and value.cache_parameters()["maxsize"] is not None:
                value.cache_clear()


def give_memory_back() -> None:
    """Free objects in reference cycles, and return free memory to the system if the C library can (glibc)."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class ModelStore:
    """Keeps the newest library of models that could be read.

    `answers`: answers by the library in force, which was loaded at `loaded_at_s` [s since the epoch]. `fault`: why the
    present files are not in force; empty if they are.
    """

    def __init__(self, directory: Path) -> None:
        self._directory, self._lock = directory, threading.Lock()
        self._seen = fingerprint_of(directory)
        self.fault: str | None = None
        self.answers = self._read(self._seen)
        self.loaded_at_s = time.time()

    def refresh(self) -> bool:
        """Reload the library if its files changed; return whether it was replaced."""
        with self._lock:
            now = fingerprint_of(self._directory)
            if now in (self._seen, ""):
                self.fault = None if now else "the library's files cannot be read"
                return False
            try:
                fresh = self._read(now)
                for machine in {*fresh.library.machines} & {*self.answers.library.machines}:
                    new, old = fresh.library.fingerprint_of(machine), self.answers.library.fingerprint_of(machine)
                    require_same(machine, new, old, "what this service answers for", "the new models were measured on")
            except (SlomoError, OSError, ValueError) as error:
                self.fault = str(error)
                return False
            if fingerprint_of(self._directory) != now:
                return False  # the files are still being written
            self.answers, self._seen, self.fault, self.loaded_at_s = fresh, now, None, time.time()
            forget_models()
            return True

    def _read(self, fingerprint: str) -> ServiceAnswers:
        library = load_library(self._directory)
        for key in library:
            library[key]  # reads and checks the model
        return ServiceAnswers(library, fingerprint)
