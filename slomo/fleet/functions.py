"""Copy native network functions to hosts: folders named by their content, written completely or not at all.

The name is the sha256 of the content, so two versions never collide and a changed file is detected (as in Nix and
OSTree). Shared libraries of the programs are not copied.
"""

import hashlib
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from slomo.errors import ConfigurationError, StoreError, TestbedError
from slomo.files.durable import sync_folder, write_durably
from slomo.files.opening import read_bytes
from slomo.vocabulary.workload import canonical_json

#: Variable for the folder behind `{functions}` in a network function's command; a fleet worker sets it.
VARIABLE = "SLOMO_FUNCTIONS"
#: Largest total size sent to a host [B], and number of files.
MOST_BYTES, MOST_FILES = 2**26, 1000
_DRAFT = ".draft-"


@dataclass(frozen=True)
class FunctionFolder:
    """Content of a folder of native network functions: path -> bytes, and whether the file is executable."""

    files: dict[str, tuple[bytes, bool]]

    @property
    def digest(self) -> str:
        """The sha256 of the folder's names, contents and executable flags."""
        stated = {name: [hashlib.sha256(data).hexdigest(), runs] for name, (data, runs) in self.files.items()}
        return hashlib.sha256(canonical_json(stated).encode()).hexdigest()


def read_functions(folder: str | Path) -> FunctionFolder:
    """Read a folder of native network functions.

    Raises ConfigurationError for a missing, empty or too large folder, or one with anything but files.
    """
    place, hint = Path(folder), "name a folder of programs and what they read"
    if not place.is_dir() or place.is_symlink():
        raise ConfigurationError(f"{place}: is no folder of network functions", hint=hint)
    files, left = dict[str, tuple[bytes, bool]](), MOST_BYTES
    for path in sorted(place.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            continue
        if path.is_symlink():
            raise ConfigurationError(f"{path}: is a link, needed a file", hint="put the file itself there")
        data = read_bytes(path, left, f"all files together may have {MOST_BYTES} B")
        left -= len(data)
        files[path.relative_to(place).as_posix()] = (data, bool(path.stat().st_mode & stat.S_IXUSR))
        if len(files) > MOST_FILES:
            raise ConfigurationError(f"{place}: has more than {MOST_FILES} files", hint=hint)
    if not files:
        raise ConfigurationError(f"{place}: holds no file", hint=hint)
    return FunctionFolder(files)


def publish_functions(functions: FunctionFolder, under: Path) -> Path:
    """Write a folder below `under`, named by its digest, completely or not at all.

    Only the process that holds the host's lock does so. Raises TestbedError if an existing folder was changed;
    StoreError if it cannot be written.
    """
    digest = functions.digest
    if (under / digest).exists():
        return checked_functions(under, digest)
    for left in under.glob(f"{_DRAFT}*"):
        shutil.rmtree(left, ignore_errors=True)
    draft = under / f"{_DRAFT}{digest}"
    try:
        for name, (data, runs) in functions.files.items():
            write_durably(draft / name, data, 0o755 if runs else 0o644)
        checked_functions(under, digest, draft.name)
        os.rename(draft, under / digest)
        sync_folder(under)
    except OSError as error:
        raise StoreError(f"{under / digest}: cannot be published: {error.strerror}", hint="free some space") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return under / digest


def checked_functions(under: Path, digest: str, name: str = "") -> Path:
    """Return the folder with a given digest after checking all of it; TestbedError if it is missing or was changed."""
    place = under / (name or digest)
    try:
        there = read_functions(place).digest
    except ConfigurationError as error:
        raise TestbedError(f"network functions {digest[:12]}: {error.message}", hint=f"remove {place}") from None
    if there != digest:
        raise TestbedError(
            f"{place}: holds network functions {there[:12]}, needed {digest[:12]}: it was changed since",
            hint="remove it; the coordinator sends it again",
        )
    return place
