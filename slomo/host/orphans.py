"""Find and remove the leftovers of a killed campaign: processes, run directories and DPDK files with slomo's mark.

The next run does this before it starts. Processes and files without a mark, or with the mark of a running process, are
left alone.
"""

import contextlib
import os
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from slomo.errors import TestbedError
from slomo.host.family import end_group, left_groups
from slomo.host.marker import VARIABLE, RunMark, stat_fields

_HUGE_DIRECTORIES = (Path("/dev/hugepages"), Path("/mnt/huge"))
_RUNTIME_DIRECTORIES = (Path("/var/run/dpdk"), Path("/tmp/dpdk"))  # noqa: S108  (DPDK's own places, as root and as user)
_GRACE_S = 2.0


@dataclass(frozen=True)
class Removed:
    """Leftovers that were found and removed."""

    #: Ids of the killed processes.
    processes: tuple[int, ...]
    #: Deleted run directories and DPDK files.
    files: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.processes or self.files)


def run_directories() -> Path:
    """Return the folder that holds one directory per run of this user."""
    return Path(tempfile.gettempdir()) / f"slomo-host-{os.getuid()}"


def make_run_directory(name: str, what: str) -> Path:
    """Make and return a directory below `run_directories` that only this user can read; TestbedError on failure."""
    path = run_directories() / name
    try:
        path.mkdir(mode=0o700, parents=True)
    except OSError as problem:
        raise TestbedError(
            f"no directory for {what} can be made: '{problem.filename}': {problem.strerror}",
            hint="set TMPDIR to a folder you may write to",
        ) from None
    return path


def marked_processes() -> dict[int, RunMark]:
    """Return all processes of this user that slomo has marked, by process id."""
    pids = [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]
    return {pid: mark for pid in pids if (mark := mark_of(pid)) is not None}


def mark_of(pid: int) -> RunMark | None:
    """Return slomo's mark in a process's environment; None if there is none."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    prefix = f"{VARIABLE}=".encode("ascii")
    for item in environment.split(b"\0"):
        if item.startswith(prefix):
            return RunMark.parse(item[len(prefix) :].decode("ascii", "replace"))
    return None


def remove_orphans() -> Removed:
    """Kill and delete the leftovers of runs whose process has died; return what was removed."""
    orphans = [pid for pid, mark in marked_processes().items() if pid != os.getpid() and not mark.owner_is_alive()]
    killed = tuple(pid for pid in orphans if _kill(pid))
    for group in left_groups():
        end_group(group)
    files = [path for path, mark in _marked_files() if not mark.owner_is_alive()]
    return Removed(killed, tuple(str(path) for path in files if remove_path(path)))


def kill_marked(mark: RunMark) -> tuple[int, ...]:
    """Kill every process that has exactly this mark."""
    return tuple(
        pid
        for pid, carried in marked_processes().items()
        if carried == mark and pid != os.getpid() and _kill(pid, mark)
    )


def remove_files_of(mark: RunMark) -> None:
    """Delete the hugepage files, runtime and run directories of one run."""
    for path, carried in _marked_files():
        if carried == mark:
            remove_path(path)


def remove_path(path: Path) -> bool:
    """Delete a file or directory without following links; return whether it existed."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError:
        return False
    return True


def _marked_files() -> list[tuple[Path, RunMark]]:
    files: list[tuple[Path, RunMark]] = []
    for folder in (*_HUGE_DIRECTORIES, *_RUNTIME_DIRECTORIES, run_directories()):
        with contextlib.suppress(OSError):
            files += [(path, mark) for path in folder.iterdir() if (mark := RunMark.parse(path.name)) is not None]
    return files


def _kill(pid: int, mark: RunMark | None = None) -> bool:
    """Kill a process by its pidfd, so that another process that reuses the id is never killed."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        current_mark = mark_of(pid)
        if current_mark is None or (current_mark != mark if mark else current_mark.owner_is_alive()):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    _wait_until_gone(pid)
    return True


def _wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + _GRACE_S
    while time.monotonic() < deadline:
        fields = stat_fields(pid)
        if fields is None or fields[0] in ("Z", "X"):
            return
        time.sleep(0.005)
