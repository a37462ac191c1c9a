"""Print errors of the command line in one form on stderr, and choose the exit code by the error's class.

As in DPDK DTS, the exit code follows from the error's class; as in uv, `hint:` follows the message; as in datasette,
all errors have one JSON form. Set ``SLOMO_DEBUG=1`` to see tracebacks.
"""

import errno
import json
import os
import re

import click

from slomo.errors import ConfigurationError, SlomoError, StoreError, UsageError

INTERRUPTED = 130
#: Number of the signal that ends this process after the command has unwound; set by the console script.
ended_by: list[int] = []
BROKEN_PIPE = 141


def report(error: BaseException, *, as_json: bool = False) -> int:
    """Print `error` on stderr, `as_json` as one object, and return the exit code."""
    if isinstance(error, (click.exceptions.Exit, SystemExit)):
        code = error.exit_code if isinstance(error, click.exceptions.Exit) else error.code
        return code if isinstance(code, int) else 0
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return UsageError.exit_code
    if os.environ.get("SLOMO_DEBUG", "") not in ("", "0"):
        raise error
    name, message, hint, code = describe(error)
    if ended_by:
        code = 128 + ended_by[0]
        if name == "InternalError":  # compilers swallow the interrupt and then fail in another way
            name, message, hint = "Interrupted", f"stopped at your request; then: {message}", None
    if as_json:
        click.echo(json.dumps({"error": {"type": name, "message": message, "hint": hint, "exit_code": code}}), err=True)
    else:
        click.echo(f"{name}: {message}" + (f"\nhint: {hint}" if hint else ""), err=True)
    return code


def describe(error: BaseException) -> tuple[str, str, str | None, int]:
    """Return the error's name, message, hint and exit code.

    Examples
    --------
    >>> describe(ValueError("boom"))[3]
    70
    >>> describe(OSError(28, "No space left on device", "out.parquet"))[:2]
    ('StoreError', "cannot write 'out.parquet': No space left on device")
    """
    if isinstance(error, SlomoError):
        return type(error).__name__, error.message, error.hint, error.exit_code
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        cause = str(error) or str(error.__cause__ or "")  # click wraps Ctrl-C; its cause states how many runs were kept
        return "Interrupted", cause or "stopped at your request", getattr(error, "hint", None), INTERRUPTED
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "slomo"
        example = re.search(r"Example: (.+)", (error.ctx and error.ctx.command.help) or "")
        hint = f"{f'for instance {example[1]}; ' if example else ''}see `{command} --help`"
        return UsageError.__name__, error.format_message(), hint, UsageError.exit_code
    if isinstance(error, click.ClickException):
        return UsageError.__name__, error.format_message(), None, UsageError.exit_code
    if isinstance(error, OSError) and (error.filename is not None or error.errno in _FULL_OR_FIXED):
        verb = "open" if error.errno in _EITHER else "write"
        where = "the answer" if error.filename is None else f"'{os.fsdecode(error.filename)}'"
        message = f"cannot {verb} {where}: {error.strerror}"
        kind = StoreError if error.errno in _FULL_OR_FIXED else ConfigurationError
        return (kind.__name__, message, _HINTS.get(error.errno or 0), kind.exit_code)
    if isinstance(error, MemoryError):
        return (
            "MemoryError",
            "this machine has not enough memory for what was asked",
            "ask for fewer runs or jobs at a time",
            70,
        )
    fault = f"BUG: {type(error).__name__}: {error}"
    return (
        "InternalError",
        fault,
        "please report it, with what SLOMO_DEBUG=1 shows for the same command",
        SlomoError.exit_code,
    )


_FULL_OR_FIXED = {errno.ENOSPC, errno.EROFS, errno.EDQUOT}
#: Errors whose message does not state whether the file was to be read or written.
_EITHER = {errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM}
_OWN_FILES = "XDG_CACHE_HOME names the folder of slomo's own files"
_HINTS = {
    errno.ENOENT: "check the path",
    errno.EEXIST: "a file has this name: name a folder",
    errno.EISDIR: "name a file, not a directory",
    errno.ENOSPC: "free some space, then run the same command again; finished runs are kept",
    errno.EACCES: f"choose a place you may write to, or ask for the right; {_OWN_FILES}",
    errno.EROFS: f"choose a place you may write to; {_OWN_FILES}",
}
