"""Read and set the LLC ways in which devices allocate (DDIO), on processors that allow it.

Model-specific register 0xC8B, IIO LLC WAYS, of Intel server processors since Skylake (Farshin et al., USENIX ATC'20,
"Reexamining Direct Cache Access", section 4.3; it is not in Intel's manuals). On other processors the number of DDIO
ways is fixed.
"""

import os
import struct
from pathlib import Path

from slomo.errors import InvalidValueError, TestbedError
from slomo.units import plural
from slomo.vocabulary.way_masks import has_hole

REGISTER = 0xC8B
_MOST_WAYS = 20


class DdioWays:
    """The DDIO way mask of one socket; a context manager that restores the original mask.

    Parameters
    ----------
    core : int
        Any core of the socket.
    devices : path
        Folder in which the kernel's `msr` module keeps its files.

    Examples
    --------
    >>> DdioWays(devices=Path("/no/such/place")).available()[0]
    False
    """

    def __init__(self, core: int = 0, devices: Path = Path("/dev/cpu")) -> None:
        self.path = Path(devices) / str(core) / "msr"
        self._before: int | None = None

    def __enter__(self) -> "DdioWays":
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()

    def available(self) -> tuple[bool, str]:
        """Return whether the mask can be read and written here, and the reason if not."""
        try:
            mask = self.read()
        except TestbedError as problem:
            return False, f"{problem.message} ({problem.hint})"
        if not os.access(self.path, os.W_OK):
            return False, f"'{self.path}' may not be written (run as root)"
        return True, f"{plural(mask.bit_count(), 'way')} ({mask:#x})"

    def read(self) -> int:
        """Return the mask of the cache ways that devices may fill (DDIO).

        Raises TestbedError if the register cannot be read: the module, the rights or the register itself is missing.
        """
        try:
            descriptor = os.open(self.path, os.O_RDONLY)
            try:
                raw = os.pread(descriptor, 8, REGISTER)
            finally:
                os.close(descriptor)
        except OSError as problem:
            raise self._fault("read", problem) from None
        if len(raw) != 8:
            raise TestbedError(
                f"'{self.path}' holds no register {REGISTER:#x}", hint="this processor has fixed DDIO ways"
            )
        (mask,) = struct.unpack("<Q", raw)
        return int(mask)

    def set(self, mask: int) -> None:
        """Let devices allocate only in the ways of `mask`; the original mask is remembered.

        Raises InvalidValueError for a mask that is not one contiguous block of 1 to 20 ways; TestbedError if the
        register cannot be written or does not keep the value.
        """
        if mask <= 0 or has_hole(mask) or mask >= 1 << _MOST_WAYS:
            raise InvalidValueError(f"DDIO way mask {mask:#x} is not one block of 1 to {_MOST_WAYS} ways", hint="0x600")
        before = self.read()
        self._write(mask)
        if self._before is None:
            self._before = before
        if self.read() != mask:
            self.undo()
            raise TestbedError(
                f"register {REGISTER:#x} did not take way mask {mask:#x}",
                hint="this processor has fixed DDIO ways, or its firmware locks them",
            )

    def undo(self) -> None:
        """Restore the original mask if `set` changed it."""
        before, self._before = self._before, None
        if before is not None:
            self._write(before)

    def _write(self, mask: int) -> None:
        try:
            descriptor = os.open(self.path, os.O_WRONLY)
            try:
                os.pwrite(descriptor, struct.pack("<Q", mask), REGISTER)
            finally:
                os.close(descriptor)
        except OSError as problem:
            raise self._fault("written", problem) from None

    def _fault(self, verb: str, problem: OSError) -> TestbedError:
        hints = {
            FileNotFoundError: "load the module as root: modprobe msr",
            PermissionError: "run as root, and check kernel lockdown with `slomo doctor`",
        }
        return TestbedError(
            f"DDIO ways cannot be {verb}: register {REGISTER:#x} in '{self.path}': {problem.strerror}",
            hint=hints.get(type(problem), "this processor has fixed DDIO ways"),
        )
