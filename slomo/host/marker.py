"""Mark slomo's processes by an environment variable that identifies the process that started them.

Process ids are reused, so a mark holds the process id, its start time, the boot and the PID namespace
(pid_namespaces(7)), which together identify one process. Processes in another container's PID namespace cannot be
looked up and count as running. Children inherit the mark, so that processes started by an NF are recognised too.
"""

import itertools
import os
import re
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "SLOMO_RUN_ID"
_SHAPE = re.compile(
    r"slomo-(?P<boot>[0-9a-f]{8})(-n(?P<namespace>[0-9a-f]+))?-(?P<pid>\d+)-(?P<started>\d+)-(?P<number>\d+)"
)
_numbers = itertools.count()


@dataclass(frozen=True)
class RunMark:
    """Identity of the process that started a run: boot, process id, start time, a number, PID namespace."""

    boot: str
    pid: int
    started: int
    number: int
    namespace: str = ""

    @property
    def text(self) -> str:
        """The mark as text, for environment variables, file prefixes and directory names."""
        where = f"-n{self.namespace}" if self.namespace else ""
        return f"slomo-{self.boot}{where}-{self.pid}-{self.started}-{self.number}"

    @classmethod
    def parse(cls, text: str) -> "RunMark | None":
        """Parse the mark at the beginning of a text; None if there is none."""
        match = _SHAPE.match(text)
        if match is None:
            return None
        pid, started, number = (int(match[name]) for name in ("pid", "started", "number"))
        return cls(match["boot"], pid, started, number, match["namespace"] or "")

    def owner_is_alive(self) -> bool:
        """Return whether the process that made this mark still runs, or is in another PID namespace."""
        if self.boot == boot_identity() and self.namespace not in ("", pid_namespace()):
            return True
        return self.boot == boot_identity() and start_time(self.pid) == self.started


def new_mark() -> RunMark:
    """Return a new, unique mark of this process."""
    return RunMark(boot_identity(), os.getpid(), start_time(os.getpid()) or 0, next(_numbers), pid_namespace())


def pid_namespace() -> str:
    """Return the number of this process's PID namespace in hexadecimal; empty if the kernel has none."""
    try:
        return f"{os.stat('/proc/self/ns/pid').st_ino:x}"
    except OSError:
        return ""


def boot_identity() -> str:
    """Return eight hexadecimal digits that change with every boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]


def start_time(pid: int) -> int | None:
    """Return a process's start time in clock ticks since boot; None if it no longer runs."""
    fields = stat_fields(pid)
    return None if fields is None or fields[0] in ("Z", "X") else int(fields[19])


def stat_fields(pid: int) -> list[str] | None:
    """Return the fields of ``/proc/PID/stat`` after the command's name, state first."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
