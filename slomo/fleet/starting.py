"""Start the workers of all hosts of a fleet over SSH, wait until they connect, and restart lost ones."""

import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from slomo.fleet.hosts import Fleet, FleetHost
from slomo.testbed.host.traffic.place import Place

if TYPE_CHECKING:
    from distributed import Client

#: Time limit for hosts to start their worker [s].
START_S = 180.0
#: Time after the last reconnection for further workers of an earlier coordinator to reconnect [s].
RETURN_S = 10.0
#: Interval of checks, longest pause between two starts of a worker [s], and largest number of starts.
_LOOK_S, _MOST_PAUSE_S, _MOST_STARTS = 0.5, 10.0, 100


class Starter:
    """Starts the workers of a fleet's hosts, and restarts lost ones.

    `fleet`: whose. `folder`: for what they say. `returning`: whether workers of an earlier coordinator may come back by
    themselves.
    """

    def __init__(self, fleet: Fleet, folder: Path, *, returning: bool) -> None:
        self._fleet, self._folder = fleet, folder
        self._scheduler = ""
        self._present: Callable[[], set[str]] = set
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._begin_at = dict.fromkeys(fleet.names, 0.0)
        self._patience_s = RETURN_S if returning else 0.0
        self._deaths = dict.fromkeys(fleet.names, 0)
        self._ended = threading.Event()
        self.left_out: dict[str, str] = {}

    def start(self, scheduler: str, present: Callable[[], set[str]]) -> dict[str, str]:
        """Start every worker that does not connect by itself; return the hosts that stay missing, with reasons.

        `scheduler`: address that workers connect to. `present`: tells the names of workers that are connected.
        """
        self._scheduler, self._present = scheduler, present
        begun = arrived = time.monotonic()
        waiting = len(self._fleet.hosts)
        while (now := time.monotonic()) < begun + START_S and (missing := self._missing()):
            arrived, waiting = (now if len(missing) < waiting else arrived), len(missing)
            for host in missing:
                process = self._processes.get(host)
                if process is None and now >= arrived + self._patience_s:
                    self._begin(host)
                elif process is not None and process.poll() is not None:
                    if now >= begun + 6.0 * self._patience_s:
                        self.left_out[host] = self._said(host)
                    elif now >= self._begin_at[host] + self._patience_s:  # the one before it is about to leave
                        self._begin(host)
            time.sleep(0.05)
        self.left_out |= dict.fromkeys(sorted(self._missing()), f"its worker did not come within {START_S:g} s")
        return self.left_out

    @contextmanager
    def keeping_up(self, client: "Client") -> Iterator[None]:
        """Within the context, restart lost workers and end those of excluded hosts; give up when no host is left."""
        thread = threading.Thread(target=self._keep_up, args=(client,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _keep_up(self, client: "Client") -> None:
        gone: dict[str, float] = {}
        while not self._ended.wait(_LOOK_S):
            if idle := self._present() & self.left_out.keys():
                client.retire_workers(names=[*idle], close_workers=True)
            gone = {host: gone.get(host, time.monotonic()) for host in self._missing()}
            for host, since in gone.items():
                process = self._processes.get(host)
                if process is not None and process.poll() is None:
                    continue  # it forks another one, or stands still
                if process is None and time.monotonic() < since + RETURN_S:
                    continue  # so may whatever an earlier coordinator started
                if time.monotonic() < self._begin_at[host] + min(self._deaths[host], _MOST_PAUSE_S):
                    continue
                self._deaths[host] += 1
                if self._deaths[host] > _MOST_STARTS:
                    self.left_out[host] = self._said(host)
                else:
                    self._begin(host)
            if len(self.left_out) == len(self._fleet.hosts):
                client.close()  # type: ignore[no-untyped-call]
                return

    def end(self) -> None:
        """End the workers started here, after the scheduler has asked them to close."""
        for process in self._processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(5.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _missing(self) -> set[str]:
        return self._fleet.names.keys() - self._present() - self.left_out.keys()

    def _begin(self, host: str) -> None:
        entry: FleetHost = self._fleet.names[host]
        self._begin_at[host] = time.monotonic()
        words = [entry.python, "-m", "slomo.fleet.worker", self._scheduler, "--name", host, "--state", entry.state]
        with (self._folder / f"{host}.log").open("wb") as log:
            try:
                self._processes[host] = subprocess.Popen(
                    Place(entry.ssh).words(words),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C is for the coordinator, which lets runs end
                )
            except OSError as error:
                self.left_out[host] = f"'{error.filename}' cannot be started: {error.strerror}"

    def _said(self, host: str) -> str:
        text = (self._folder / f"{host}.log").read_text(encoding="utf-8", errors="replace")
        lines = text.strip().splitlines()
        return lines[-1] if lines else f"its worker ended with code {self._processes[host].returncode}"


def free_port(host: str, port: int) -> int:
    """Return the given port if it is free, else 0, which stands for any free port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return 0
    return port
