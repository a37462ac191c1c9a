"""Compare locked versions with a clone of the Python packaging advisory database, where no database can be asked.

``python locks/audit.py FOLDER LOCK...``: FOLDER is a clone of github.com/pypa/advisory-database. Exit code 1 where an
advisory names a locked version, 2 where the newest advisory is older than a month: such a clone cannot judge.
"""

import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from packaging.version import Version

_LOCKED = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)
_MOST_DAYS = 31


def is_affected(version: str, affected: dict[str, Any]) -> bool:
    """Return whether an advisory's list of versions, or its ranges, hold a version."""
    if version in map(str, affected.get("versions", ())):
        return True
    for part in affected.get("ranges", ()):
        inside = False
        for event in part["events"] if part["type"] == "ECOSYSTEM" else ():
            (kind, bound), *_ = event.items()
            if Version(version) >= Version(str(bound)):
                inside = kind == "introduced"
        if inside:
            return True
    return False


def main(folder: str, *locks: str) -> int:
    """Print what is known; return the exit code."""
    files = list(Path(folder, "vulns").glob("*/*.yaml"))
    newest, known = "", 0
    locked = {item for lock in locks for item in _LOCKED.findall(Path(lock).read_text(encoding="utf-8"))}
    for file in files:
        advisory = yaml.load(file.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - a safe one
        newest = max(newest, str(advisory.get("modified", "")))
        versions = [version for name, version in locked if name.lower().replace("_", "-") == file.parent.name]
        for version in versions if not advisory.get("withdrawn") else ():
            if any(is_affected(version, each) for each in advisory.get("affected", ())):
                known += 1
                print(f"{file.parent.name} {version}: {advisory['id']} {' '.join(advisory.get('aliases', ()))}")
    day = newest[:10] or "never"
    print(f"{len(locked)} locked versions, {len(files)} advisories, the newest of {day}: {known} known")
    if known:
        return 1
    if not newest or datetime.fromisoformat(day).replace(tzinfo=UTC) < datetime.now(UTC) - timedelta(_MOST_DAYS):
        print(f"cannot judge: what was released after {day} is in no advisory. hint: git -C {folder} pull")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
