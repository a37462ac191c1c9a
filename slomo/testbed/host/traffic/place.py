"""The machine on which a generator runs: this one, or another one over SSH.

Commands are lists of words. SSH joins the words into a line for the remote shell, so each word is quoted. A remote
program has a terminal and therefore ends with its connection; `timeout` limits its run time.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slomo.errors import InvalidValueError, TestbedError
from slomo.host.tool import Finished, run_tool

_HOST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_][A-Za-z0-9_.:-]*")
_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "LogLevel=ERROR")
_OF_SSH = 255  # exit code of ssh's and scp's own failures; other codes are the remote command's
_LONGEST_RUN_S = 24 * 3600


@dataclass(frozen=True)
class Place:
    """A machine on which commands can run: this one, or another one over SSH.

    `host`: ``user@host`` for SSH; None for this machine. `ssh`, `scp`: names of the two programs.

    Examples
    --------
    >>> Place().words(["echo", "a b"])
    ['echo', 'a b']
    >>> Place("lab@gen1").words(["echo", "a b"])[-2:]
    ['lab@gen1', "timeout --signal=INT --kill-after=5 86400 echo 'a b'"]
    """

    host: str | None = None
    ssh: str = "ssh"
    scp: str = "scp"

    def __post_init__(self) -> None:
        if self.host is not None and not _HOST.fullmatch(self.host):
            raise InvalidValueError(f"'{self.host}' is no host for SSH", hint="write HOST or USER@HOST")

    def words(self, words: Sequence[str]) -> list[str]:
        """Return the local command that runs the given command on this place's machine."""
        if self.host is None:
            return list(words)
        bounded = ["timeout", "--signal=INT", "--kill-after=5", str(_LONGEST_RUN_S), *words]
        return [self.ssh, "-tt", *_OPTIONS, self.host, shlex.join(bounded)]

    def bring(self, file: Path) -> str:
        """Copy a local file to this place's machine if that is remote; return its path there. Raises TestbedError."""
        if self.host is None:
            return str(file)
        path = f"/tmp/{file.name}"  # noqa: S108  (on the other machine, whose other places we do not know)
        finished = run_tool([self.scp, *_OPTIONS, str(file), f"{self.host}:{path}"], 300.0)
        if finished.code != 0:
            raise self.unreachable(finished) or TestbedError(
                f"'{file.name}' cannot be copied to '{self.host}': {finished.last_words()}",
                hint=f"try by hand: ssh {self.host} true",
            )
        return path

    def unreachable(self, finished: Finished) -> TestbedError | None:
        """Return the error to raise if SSH itself failed; None if the remote command failed."""
        if self.host is None or finished.code != _OF_SSH:
            return None
        return TestbedError(
            f"'{self.host}' cannot be reached over SSH, or the connection broke: {finished.last_words()}",
            hint=f"`ssh {self.host} true` must work without a prompt: put its key into ~/.ssh/known_hosts, yours there",
        )

    def can_run(self, command: str) -> tuple[bool, str]:
        """Return whether a command exists on this place's machine, and the reason if not."""
        try:
            finished = run_tool(self.words(["which", command]), 20.0)
        except TestbedError as problem:
            return False, problem.message
        if finished.code == 0:
            return True, finished.stdout.strip().splitlines()[-1] if finished.stdout.strip() else command
        if (broken := self.unreachable(finished)) is not None:
            return False, broken.message
        where = self.host or "this machine"
        return False, f"'{command}' is not found on {where}: {finished.last_words()}"
