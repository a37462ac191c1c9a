"""Open files from untrusted sources: regular files only, without blocking, up to a size limit.

These are refused: a FIFO, which would block; a device, which has no end; and another user's link in a shared folder,
which may point anywhere (as with the kernel's `protected_symlinks`, Documentation/admin-guide/sysctl/fs.rst).
"""

import errno
import hashlib
import os
import stat
from pathlib import Path

from slomo.errors import ConfigurationError, SlomoError, StoreError

#: Size limit of documents that people write.
DOCUMENT_BYTES = 1_000_000
_PIECE_BYTES = 2**20
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a directory",
}


def open_regular(path: str | Path, limit: int, hint: str | None = None) -> int:
    """Return the descriptor of a regular file of at most `limit` bytes, opened for reading."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        try:
            descriptor = os.open(path, flags | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            descriptor = _through_link(path, flags)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise ConfigurationError(f"{path}: is a socket, needed a regular file", hint=hint) from None
        raise _unreadable(path, error, hint or "check the path") from None
    except ValueError as error:
        raise ConfigurationError(f"{str(path)[:200]!r}: cannot be read: {error}", hint="check the path") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise ConfigurationError(f"{path}: is {kind}, needed a regular file", hint=hint)
    if status.st_size > limit:
        os.close(descriptor)
        raise too_large(path, limit, hint, status.st_size)
    return descriptor


def read_bytes(path: str | Path, limit: int = DOCUMENT_BYTES, hint: str | None = None, sha256: str = "") -> bytes:
    """Return the content of a regular file of at most `limit` bytes, checked against a digest if one is given.

    >>> read_bytes("/dev/null")
    Traceback (most recent call last):
    slomo.errors.ConfigurationError: /dev/null: is a device, needed a regular file
    """
    descriptor = open_regular(path, limit, hint)
    try:
        with os.fdopen(descriptor, "rb") as file:
            parts, left = [], limit + 1  # read in pieces, since Python allocates the whole limit for a single read
            while left and (part := file.read(min(left, _PIECE_BYTES))):
                parts.append(part)
                left -= len(part)
            data = b"".join(parts)
    except OSError as error:
        raise _unreadable(path, error, hint) from None
    if len(data) > limit:
        raise too_large(path, limit, hint)
    if sha256 and hashlib.sha256(data).hexdigest() != sha256:
        raise ConfigurationError(f"{path}: is not the file its manifest describes (sha256 differs)", hint=hint)
    return data


def read_text(path: str | Path, limit: int = DOCUMENT_BYTES, hint: str | None = None, sha256: str = "") -> str:
    """Return the text (UTF-8, with or without byte order mark) of a regular file; errors as for :func:`read_bytes`."""
    return decoded(read_bytes(path, limit, hint, sha256), path, hint)


def decoded(data: bytes, path: str | Path, hint: str | None = None, encoding: str = "utf-8-sig") -> str:
    """Return a file's text. Raises ConfigurationError with the line that is not text in this encoding."""
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        found = "UTF-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "LATIN1"
        raise ConfigurationError(
            f"{path}: line {line} is not text in {encoding.upper().removesuffix('-SIG')}",
            hint=hint or f"convert the file, for instance: iconv -f {found} -t UTF-8",
        ) from None


def _through_link(path: str | Path, flags: int) -> int:
    """Open the target of a link owned by this user, by root, or by the target's owner."""
    owner = os.lstat(path).st_uid
    descriptor = os.open(path, flags)
    if owner not in (0, os.geteuid(), os.fstat(descriptor).st_uid):
        os.close(descriptor)
        raise ConfigurationError(
            f"{path}: is a link made by user {owner}, who does not own what it leads to",
            hint="name the file itself",
        )
    return descriptor


def _unreadable(path: str | Path, error: OSError, hint: str | None) -> SlomoError:
    kind = StoreError if error.errno == errno.EIO else ConfigurationError
    return kind(f"{path}: cannot be read: {error.strerror or error}", hint=hint)


def too_large(path: str | Path, limit: int, hint: str | None = None, size: int | None = None) -> ConfigurationError:
    """Return the error for a file above the size limit."""
    has = f"has {size} bytes" if size is not None else "grows while it is read"
    return ConfigurationError(f"{path}: {has}, needed at most {limit}", hint=hint)
