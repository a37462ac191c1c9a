"""Run a process and its descendants in a control group of their own, which the kernel can kill at once.

`cgroup.kill` (Linux 5.14, Documentation/admin-guide/cgroup-v2.rst) kills a whole group, even if its members fork,
ignore signals or clear their environments. Without such a group, marks and sessions identify the descendants.
"""

import contextlib
import time
from pathlib import Path

from slomo.host.cgroup import groups_of
from slomo.host.marker import RunMark

_GONE_S = 5.0


def place_of_groups() -> Path | None:
    """Return the folder of this process's own version-2 control group; None if version 2 is not mounted."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    except OSError:
        return None
    mounted = next((words[1] for words in mounts if words[2] == "cgroup2"), None)
    own = groups_of(Path("/proc/self/cgroup")).get("")
    return None if mounted is None or own is None else Path(mounted + own)


class Family:
    """One process and its descendants, in a control group; the run's mark in its name lets the next run find it.

    Children that the process forked before it was moved there are outside; the mark in their environment identifies
    them.
    """

    def __init__(self, mark: RunMark, pid: int) -> None:
        self._folder: Path | None = None
        place = place_of_groups()
        if place is not None:
            folder = place / f"{mark.text}-{pid}"
            with contextlib.suppress(OSError):  # this user may not make groups, as most users
                folder.mkdir()
                self._folder = folder
                (folder / "cgroup.procs").write_text(str(pid), encoding="ascii")

    def end(self) -> None:
        """Kill the process and its descendants; return when none is left and the group is removed."""
        if self._folder is not None:
            end_group(self._folder)
            self._folder = None


def end_group(folder: Path) -> bool:
    """Kill all members of a group and remove the group; return whether that succeeded."""
    with contextlib.suppress(OSError):
        if (folder / "cgroup.kill").exists():
            (folder / "cgroup.kill").write_text("1", encoding="ascii")
    deadline = time.monotonic() + _GONE_S
    while time.monotonic() < deadline:
        try:
            folder.rmdir()
        except FileNotFoundError:
            return True
        except OSError:  # a process is still in the group
            time.sleep(0.005)
        else:
            return True
    return False


def left_groups() -> list[Path]:
    """Return the control groups of runs whose owner process has ended."""
    place, groups = place_of_groups(), []
    with contextlib.suppress(OSError):
        for folder in () if place is None else place.iterdir():
            mark = RunMark.parse(folder.name)
            if mark is not None and not mark.owner_is_alive() and (folder / "cgroup.kill").exists():
                groups.append(folder)
    return groups
