"""Debian's own sshd on the loop-back interface: own port, own keys, own folder."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin{os.pathsep}/usr/local/sbin")
#: sshd run by root needs this empty folder as long as it runs; it stays, since another test's may run
SEPARATION = Path("/run/sshd")
SERVER = """Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
PidFile none
MaxStartups 200
PermitRootLogin yes
Subsystem sftp internal-sftp
SetEnv PATH={folder}/remote:{path}
"""
CLIENT = """Host gen1
  HostName 127.0.0.1
  Port {port}
  IdentityFile {folder}/user
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known
  GlobalKnownHostsFile /dev/null
"""


class RealSshd:
    """A running sshd that calls itself ``gen1``; ``ssh`` and ``scp`` in its folder ``bin`` reach it.

    Parameters
    ----------
    folder : Path
        For keys, configurations and programs; programs in ``remote`` come first on its PATH.
    """

    def __init__(self, folder: Path) -> None:
        if SSHD is None or shutil.which("ssh-keygen") is None or shutil.which("ssh") is None:
            pytest.skip("no OpenSSH server and client are installed (openssh-server, openssh-client)")
        self.folder, self.bin, self.remote = folder, folder / "bin", folder / "remote"
        self.bin.mkdir()
        self.remote.mkdir()
        for name in ("host", "user", "stranger"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port = int(listener.getsockname()[1])
        values = {"port": self.port, "folder": folder, "path": os.environ["PATH"]}
        (folder / "sshd.conf").write_text(SERVER.format(**values), encoding="ascii")
        (folder / "ssh.conf").write_text(CLIENT.format(**values), encoding="ascii")
        for name in ("ssh", "scp"):
            self._script(self.bin / name, f'exec {shutil.which(name)} -F {folder}/ssh.conf "$@"')
        self.know("host")
        if os.getuid() == 0:
            SEPARATION.mkdir(exist_ok=True)
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(folder / "sshd.conf")], stderr=log)
        self._wait()

    def know(self, key: str) -> None:
        """Write down a key as the one the client knows this host by."""
        kind, text = (self.folder / f"{key}.pub").read_text(encoding="ascii").split()[:2]
        (self.folder / "known").write_text(f"[127.0.0.1]:{self.port} {kind} {text}\n", encoding="ascii")

    def identify(self, key: str) -> None:
        """Let the client show another key."""
        self._replace(f"{self.folder}/user", f"{self.folder}/{key}")

    def move(self, port: int) -> None:
        """Let the client look for the host at another port."""
        self._replace(f"Port {self.port}", f"Port {port}")

    def offer(self, name: str, program: Path) -> None:
        """Put a Python program on the PATH of the other side."""
        self._script(self.remote / name, f'exec {sys.executable} -S {program} "$@"')

    def sessions(self) -> list[int]:
        """Return processes that serve a connection, and what those started."""
        rows = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout.split()
        parents = dict(zip(map(int, rows[::2]), map(int, rows[1::2]), strict=True))
        mine = {self._process.pid}
        for _ in range(8):
            mine |= {pid for pid, parent in parents.items() if parent in mine}
        return sorted(mine - {self._process.pid})

    def drop(self) -> None:
        """Kill the processes that serve connections: the network is gone, what was started there is not asked."""
        for pid in self.sessions():
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                if Path(f"/proc/{pid}/comm").read_text(encoding="ascii").startswith("sshd"):
                    os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """End it and what it serves."""
        left = self.sessions()
        self._process.terminate()
        self._process.wait(10.0)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _wait(self) -> None:
        deadline_s = time.monotonic() + 20.0
        while time.monotonic() < deadline_s and self._process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
                return
            time.sleep(0.02)
        self.close()
        pytest.skip(f"sshd does not start here: {(self.folder / 'log').read_text(encoding='utf-8')[-300:]}")

    def _replace(self, old: str, new: str) -> None:
        file = self.folder / "ssh.conf"
        file.write_text(file.read_text(encoding="ascii").replace(old, new), encoding="ascii")

    @staticmethod
    def _script(file: Path, line: str) -> None:
        file.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        file.chmod(0o755)
