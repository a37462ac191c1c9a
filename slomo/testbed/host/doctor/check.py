"""One finding about a host: subject, result, and the command that repairs it.

As with ``brew doctor`` and ``perf``, a check never changes anything and never fails for lack of rights; properties that
it cannot see are reported as unknown.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ParamSpec

_LARGEST_B = 1 << 20
P = ParamSpec("P")


class Status(StrEnum):
    """How serious a finding is: ok, warn or fail."""

    OK = "ok"
    WARN = "warn"  # a feature is missing, or measurements will be disturbed
    FAIL = "fail"  # network functions cannot be measured here


#: Status, what was found, and the command that repairs it.
Finding = tuple[Status, str, str | None]


@dataclass(frozen=True)
class Check:
    """One finding about a host, with the command that repairs it.

    `remedy` is the command that repairs the finding; None only if the status is ok.
    """

    group: str
    name: str
    status: Status
    finding: str
    remedy: str | None = None

    def __post_init__(self) -> None:
        assert self.status is Status.OK or self.remedy, f"check '{self.name}' needs a remedy"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a mapping that can be written as JSON."""
        return {
            "group": self.group,
            "name": self.name,
            "status": str(self.status),
            "found": self.finding,
            "remedy": self.remedy,
        }


def ok(finding: str) -> Finding:
    """Return a finding that reports no problem."""
    return Status.OK, finding, None


def warn(finding: str, remedy: str) -> Finding:
    """Return a finding about something that disturbs measurements."""
    return Status.WARN, finding, remedy


def fail(finding: str, remedy: str) -> Finding:
    """Return a finding about something that prevents measurements."""
    return Status.FAIL, finding, remedy


def check(group: str, name: str) -> Callable[[Callable[P, Finding]], Callable[P, Check]]:
    """Decorate a function that returns a finding, so that it returns the check of this group and name."""

    def named(look: Callable[P, Finding]) -> Callable[P, Check]:
        @functools.wraps(look)
        def checked(*args: P.args, **options: P.kwargs) -> Check:
            return Check(group, name, *look(*args, **options))

        return checked

    return named


@dataclass(frozen=True)
class System:
    """Access to a host's files and tools for checks."""

    #: Folder with ``/proc``, ``/sys`` and ``/dev``.
    root: Path
    #: CPUs that this process may use.
    cores: tuple[int, ...]
    #: Function from the words of a command to its output; None if the command is not installed.
    version_of: Callable[[tuple[str, ...]], str | None]

    def read(self, path: str) -> str | None:
        """Return a file's stripped text; None if it cannot be read."""
        try:
            with (self.root / path.lstrip("/")).open("rb") as stream:
                return stream.read(_LARGEST_B).decode("utf-8", "replace").strip()
        except OSError:
            return None

    def glob(self, pattern: str) -> list[Path]:
        """Return the paths that match a pattern, sorted."""
        try:
            return sorted(self.root.glob(pattern.lstrip("/")))
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        """Return whether a path exists."""
        try:
            return (self.root / path.lstrip("/")).exists()
        except OSError:
            return False

    def texts(self, pattern: str) -> Mapping[str, str]:
        """Return the texts of all files that match a pattern, by path below the root."""
        contents = {
            f"/{path.relative_to(self.root)}": self.read(f"/{path.relative_to(self.root)}")
            for path in self.glob(pattern)
        }
        return {path: text for path, text in contents.items() if text is not None}

    def flags(self) -> frozenset[str]:
        """Return the processor's feature flags, by the names in ``/proc/cpuinfo``."""
        text = self.read("/proc/cpuinfo") or ""
        line = next((line for line in text.splitlines() if line.startswith("flags")), "")
        return frozenset(line.partition(":")[2].split())
