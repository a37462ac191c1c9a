"""What killed campaigns left in resctrl: found by their mark, removed, and everybody's cores given back.

Removing a group sends its CPUs to the root group; what it took from others is written down before, in the user's cache,
so that the next campaign can give it back even after kill -9.
"""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from slomo.errors import TestbedError
from slomo.host.marker import RunMark
from slomo.host.places import cache_directory
from slomo.host.resctrl_tree import ResctrlTree, Snapshot

_LARGEST_B = 1 << 20


def remember(mark: RunMark, before: Snapshot) -> None:
    """Write down what a run found before it changes anything.

    Raises
    ------
    TestbedError
        If it cannot be written; then nothing should be changed.
    """
    path = _journal(mark)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(before), encoding="ascii")
    except OSError as problem:
        raise TestbedError(
            f"what resctrl holds cannot be written down in '{path}': {problem.strerror}",
            hint="set XDG_CACHE_HOME to a folder you may write to",
        ) from None


def forget(mark: RunMark) -> None:
    """Drop what was written down, once it is in force again."""
    with contextlib.suppress(OSError):
        _journal(mark).unlink()


def give_back(tree: ResctrlTree, before: Snapshot) -> None:
    """Give every group that is still there the CPUs and masks it had.

    Raises
    ------
    TestbedError
        If the kernel refuses one.
    """
    here = set(tree.groups())
    for name, files in before.items():
        for file, text in files.items():
            path = f"{name}/{file}" if name else file
            # The root group's CPUs are what all others leave over; they cannot be written.
            if name in here and (name or file == "schemata") and tree.read(path) != text:
                for line in text.splitlines() or [""]:
                    tree.write(path, line.strip())


def remove_orphaned_groups(tree: ResctrlTree | None = None) -> tuple[str, ...]:
    """Remove groups whose campaign is dead, give back what they had taken, and say which those were.

    Examples
    --------
    >>> remove_orphaned_groups(ResctrlTree(Path("/no/such/place")))
    ()
    """
    resctrl = tree or ResctrlTree()
    if not resctrl.mounted:
        return ()
    owners = {group: RunMark.parse(group.rpartition("/")[2]) for group in resctrl.groups() if group}
    orphans = {group: mark for group, mark in owners.items() if mark is not None and not mark.owner_is_alive()}
    for group in sorted(orphans, key=len, reverse=True):  # monitoring groups before those that hold them
        resctrl.remove_group(group)
    for mark in {mark.text: mark for mark in orphans.values()}.values():
        before = _remembered(mark)
        if before is not None:
            give_back(resctrl, before)
            forget(mark)
    return tuple(orphans)


def _journal(mark: RunMark) -> Path:
    return cache_directory() / "resctrl" / f"{mark.text}.json"


def _remembered(mark: RunMark) -> Snapshot | None:
    try:
        with _journal(mark).open("rb") as stream:
            data = json.loads(stream.read(_LARGEST_B))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(data, Mapping) or not all(isinstance(files, Mapping) for files in data.values()):
        return None
    return {str(name): {str(file): str(text) for file, text in files.items()} for name, files in data.items()}
