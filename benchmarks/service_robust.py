"""What the service must stand: kills under writes, a full disk, a million requests, a fuzzer, slow callers.

    python benchmarks/service_robust.py [kills|memory|fuzz|soak|attack] ...     all by default
    SLOMO_KILLS=500 SLOMO_REQUESTS=1000000 SLOMO_FUZZ=300 SLOMO_MINUTES=60     how often, how long
    SLOMO_SEED=7               other moments of the kills
    SLOMO_KEEP=FOLDER          kills go on where a run before ended: state, models and what was acknowledged stay there

A service that is killed is a process forked from one that has imported everything, so that a kill takes half a second;
what it writes to is a file, and the process that asks is another one. Memory is measured in this process, without a
network.
"""

# ruff: noqa: S311 - dice are no secrets

import asyncio
import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from service import MACHINE, NAMES, models, questions, service

from slomo.models.library import ModelLibrary
from slomo.prediction.batch import MOST_MIXES
from slomo.service.api.routes import OPERATIONS
from slomo.service.application import Service, make_app
from slomo.service.door.bodies import Questions
from slomo.service.knowledge.questions import MOST_KEPT
from slomo.service.server import serve
from slomo.service.settings import ServiceSettings

WRITERS = 6


class Forked:
    """A service forked off this process."""

    def __init__(self, folder: Path, state: Path) -> None:
        ours, theirs = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(ours)
            try:
                serve(ServiceSettings(folder, state=state, port=0), on_ready=lambda url: _tell(theirs, url))
            finally:
                os._exit(0)
        os.close(theirs)
        with os.fdopen(ours) as told:
            self.port = int(told.readline().strip().rsplit(":", 1)[1])

    def kill(self) -> None:
        """Kill without warning."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def line(self) -> http.client.HTTPConnection:
        """Return a connection."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)


def _tell(pipe: int, url: str) -> None:
    os.write(pipe, f"{url}\n".encode())


def ask(line: http.client.HTTPConnection, method: str, path: str, body: Any = None, key: str = "") -> tuple[int, Any]:
    """Return status and document of an answer."""
    headers = {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
    line.request(method, path, None if body is None else json.dumps(body), headers)
    answer = line.getresponse()
    text = answer.read()
    return answer.status, json.loads(text) if text else None


class Ledger:
    """What was asked and what was acknowledged, over all lives of the service."""

    def __init__(self) -> None:
        self.placed: set[str] = set()
        self.removed: set[str] = set()
        self.open: dict[str, tuple[str, str, Any]] = {}
        self.acknowledged = self.kills = 0
        self._lock = threading.Lock()

    def save(self, path: Path) -> None:
        """Keep it for another run."""
        names = {"placed": sorted(self.placed), "removed": sorted(self.removed), "open": self.open}
        path.write_text(json.dumps({**names, "acknowledged": self.acknowledged, "kills": self.kills}), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "Ledger":
        """Return what a run before kept, or an empty one."""
        ledger = cls()
        if path.exists():
            kept = json.loads(path.read_text(encoding="utf-8"))
            ledger.placed, ledger.removed, ledger.open = set(kept["placed"]), set(kept["removed"]), kept["open"]
            ledger.acknowledged, ledger.kills = kept["acknowledged"], kept["kills"]
        return ledger

    def write(self, line: http.client.HTTPConnection, verb: str, name: str) -> None:
        """Place or remove a request; note it as open until it is acknowledged."""
        body = {"requests": [{"id": name, "nf": "vpn", "slo": {"kind": "on-demand"}}]} if verb == "place" else None
        call = ("POST", "/v1/place", body) if verb == "place" else ("DELETE", f"/v1/cluster/requests/{name}", None)
        with self._lock:
            self.open[f"{verb}-{name}"] = call
            self.placed -= {name} if verb == "remove" else set()
        status, _ = ask(line, *call, key=f"{verb}-{name}")
        assert status == 200, (verb, name, status)
        self.done(verb, name)

    def done(self, verb: str, name: str) -> None:
        """Note an acknowledgement."""
        with self._lock:
            self.open.pop(f"{verb}-{name}", None)
            (self.placed if verb == "place" else self.removed).add(name)
            self.acknowledged += 1

    def check(self, forked: Forked) -> None:
        """Compare with what the service says; ask again, by their keys, for what was never acknowledged."""
        line = forked.line()
        for key, call in list(self.open.items()):
            verb, name = key.split("-", 1)
            status, _ = ask(line, *call, key=key)
            assert status == 200, (key, status)
            self.done(verb, name)
        _, told = ask(line, "GET", "/v1/cluster/requests")
        ids = [item["id"] for item in told["requests"]]
        assert len(ids) == len(set(ids)), "something was doubled"
        assert set(ids) == self.placed, (self.placed - set(ids), set(ids) - self.placed)
        _, told = ask(line, "GET", "/v1/receipts?limit=400")
        changed = [(row["verb"], name) for row in told["receipts"] for name in row["after"]]
        assert len(changed) == len(set(changed)), "a change has two receipts"
        line.close()


def kills(count: int = int(os.environ.get("SLOMO_KILLS", "500"))) -> None:
    """Kill -9 at a random moment while six writers place and remove; compare after every restart."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as made:
        place = Path(os.environ.get("SLOMO_KEEP", made))
        place.mkdir(parents=True, exist_ok=True)
        state, kept, folder = place / "state.sqlite", place / "ledger.json", place / "models"
        if not folder.exists():  # one model loads quickly
            ModelLibrary([ModelLibrary.load(models()).find("vpn", MACHINE)]).save(folder)
        ledger = Ledger.load(kept)
        dice = random.Random(f"{os.environ.get('SLOMO_SEED', '')}{ledger.kills}")
        forked = Forked(folder, state)
        if not kept.exists():
            rows = [{"name": f"s{number}", "machine": MACHINE} for number in range(60)]
            assert ask(forked.line(), "POST", "/v1/cluster/servers", {"servers": rows})[0] == 201
        while ledger.kills < count:
            forked = _killed(forked, ledger, dice.uniform(0.01, 0.3), (folder, state))
            ledger.save(kept)
            if ledger.kills % 25 == 0:
                print(f"{ledger.kills} kills, {ledger.acknowledged} acknowledged writes: nothing lost", flush=True)
        forked.kill()
    took = time.monotonic() - begun
    print(
        f"{ledger.kills} kills, {ledger.acknowledged} acknowledged writes, {took:.0f} s in this run: nothing lost, "
        "nothing doubled"
    )


def _killed(forked: Forked, ledger: Ledger, after_s: float, files: tuple[Path, Path]) -> Forked:
    """Let writers write, kill the service meanwhile, start another one and compare; return that."""
    turn = ledger.kills
    threads = [threading.Thread(target=_writes, args=(forked, ledger, turn, n)) for n in range(WRITERS)]
    for thread in threads:
        thread.start()
    time.sleep(after_s)
    forked.kill()
    for thread in threads:
        thread.join()
    again = Forked(*files)
    ledger.check(again)
    ledger.kills += 1
    return again


def _writes(forked: Forked, ledger: Ledger, turn: int, writer: int) -> None:
    line = forked.line()
    try:
        mine = sorted(name for name in ledger.placed if name.endswith(f"w{writer}"))
        for name in mine:
            ledger.write(line, "remove", name)
        for number in range(40):
            ledger.write(line, "place", f"t{turn}n{number}w{writer}")
    except (OSError, http.client.HTTPException):
        return  # killed
    finally:
        line.close()


def soak(minutes: float = float(os.environ.get("SLOMO_MINUTES", "60"))) -> None:
    """Write, ask and look for so long while models are exchanged every 20 s; memory every minute; then kill -9."""
    both = ModelLibrary.load(models())
    libraries = [both, ModelLibrary([both[key] for key in both if key[0] == MACHINE])]  # what is asked is in both
    with tempfile.TemporaryDirectory() as made:
        state, folder = Path(made) / "state.sqlite", Path(made) / "models"
        both.save(folder)
        forked, ledger, codes, marks, swaps = Forked(folder, state), Ledger(), Counter[int](), list[float](), 0
        rows = [{"name": f"s{number}", "machine": MACHINE} for number in range(60)]
        assert ask(forked.line(), "POST", "/v1/cluster/servers", {"servers": rows})[0] == 201
        bodies = [json.loads(body) for body in questions(2_000, 7)]
        begun, line, turn = time.monotonic(), forked.line(), 0
        while time.monotonic() - begun < 60.0 * minutes:
            _writes(forked, ledger, turn, turn % WRITERS)
            for body in random.Random(turn).sample(bodies, 40):
                codes[ask(line, "POST", "/v1/predict", body)[0]] += 1
            for path in ("/v1/cluster", "/v1/cluster/at-risk", "/v1/receipts", "/v1/drift", "/readyz"):
                codes[ask(line, "GET", path)[0]] += 1
            took_s, turn = time.monotonic() - begun, turn + 1
            if took_s > 20.0 * (swaps + 1):
                swaps += 1
                shutil.rmtree(folder)
                libraries[swaps % 2].save(folder)
            if took_s > 60.0 * (len(marks) + 1):
                marks.append(resident_mib(forked.pid))
                print(f"minute {len(marks)}: {marks[-1]:.0f} MiB, {swaps} swaps, {ledger.acknowledged} writes, "
                      f"answers {dict(codes)}", flush=True)  # fmt: skip
        forked.kill()
        again = Forked(folder, state)
        ledger.check(again)
        again.kill()
    print(f"{minutes:g} minutes, {swaps} swaps, {ledger.acknowledged} acknowledged writes, none lost after kill -9; "
          f"answers {dict(codes)}; memory each minute [MiB]:", " ".join(f"{mark:.0f}" for mark in marks))  # fmt: skip


def resident_mib(pid: int | str = "self") -> float:
    """Return the memory of a process, by default of this one [MiB]."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * 4096 / 2**20


def memory(count: int = int(os.environ.get("SLOMO_REQUESTS", "1000000"))) -> None:
    """Memory after each tenth of so many requests through the whole application, one in ten about a mix never seen.

    Before it is looked at, one batch fills the memory of mixes to its bound, as any service of some hours has.
    """
    running = Service(ServiceSettings(models()))
    app = make_app(running, OPERATIONS)
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/predict", "query_string": b"", "headers": headers,
             "client": ("127.0.0.1", 1), "path_params": {}}  # fmt: skip
    wrong = 0

    async def one(body: bytes) -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        async def send(message: dict[str, Any]) -> None:
            nonlocal wrong
            wrong += message.get("status", 200) != 200

        await app(dict(scope), receive, send)

    async def everything() -> list[float]:
        repeated, marks = questions(1_000, 200), []
        filled = [json.loads(body) for body in questions(MOST_MIXES, 300)]
        running.model_store.answers.columns(
            Questions([q["target"] for q in filled], [q["competitors"] for q in filled], machine=MACHINE)
        )
        for number in range(MOST_KEPT // 50):
            await asyncio.gather(*(one(body) for body in questions(50, 400 + number)))
        print(f"filled: {resident_mib():.0f} MiB", flush=True)
        dice = random.Random(4)
        for part in range(10):
            fresh = questions(count // 100, 1000 + part)
            for _ in range(count // 10 // 50):
                bodies = [dice.choice(fresh) if dice.random() < 0.1 else dice.choice(repeated) for _ in range(50)]
                await asyncio.gather(*(one(body) for body in bodies))
            marks.append(resident_mib())
            print(f"{(part + 1) * count // 10} requests: {marks[-1]:.0f} MiB", flush=True)
        return marks

    begun = time.process_time()
    marks = asyncio.run(everything())
    took = time.process_time() - begun
    print(f"{count} requests, {wrong} not answered with 200, {took:.0f} s of CPU; memory after each tenth [MiB]:",
          " ".join(f"{mark:.0f}" for mark in marks))  # fmt: skip
    running.store.close()


def fuzz() -> None:
    """Send what schemathesis makes up from the OpenAPI document, some 35 times SLOMO_FUZZ requests."""
    with service("--control") as ours:
        line = http.client.HTTPConnection(ours.url.removeprefix("http://"))
        rows = [{"name": f"s{number}", "machine": MACHINE} for number in range(4)]
        ask(line, "POST", "/v1/cluster/servers", {"servers": rows})
        ask(line, "POST", "/v1/place", {"requests": [{"id": name, "nf": name} for name in NAMES]})
        command = [
            str(Path(sys.executable).parent / "schemathesis"), "run", ours.url + "/openapi.json",
            "--max-examples", os.environ.get("SLOMO_FUZZ", "300"), "--phases", "fuzzing", "--request-timeout", "20",
            "--checks", "not_a_server_error,status_code_conformance,content_type_conformance",
            "--exclude-path-regex", "events$|^/v1/control$", "--continue-on-failure",
        ]  # fmt: skip
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        print(done.stdout[-6000:])
        line = http.client.HTTPConnection(ours.url.removeprefix("http://"))
        assert ask(line, "GET", "/healthz")[0] == 200
        assert done.returncode == 0


def attack() -> None:
    """Measure /healthz, quiet and under 5,000 half-open connections, 4 endless heads and 100 dripping bodies."""
    with service() as ours:
        port = int(ours.url.rsplit(":", 1)[1])
        times = {"quiet": health(port)}
        lines = [socket.create_connection(("127.0.0.1", port), source_address=(f"127.0.1.{1 + n % 20}", 0))
                 for n in range(5_100)]  # fmt: skip
        body = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n"
        for line in lines[:100]:
            line.sendall(body)
        ended = threading.Event()
        drips = [threading.Thread(target=_endless, args=(port, ended)) for _ in range(4)]
        drips.append(threading.Thread(target=_drip, args=(lines[:100], ended)))
        for thread in drips:
            thread.start()
        times["under attack"] = health(port)
        ended.set()
        for thread in drips:
            thread.join()
        for line in lines:
            line.close()
    for name, taken in times.items():
        taken.sort()
        print(f"/healthz {name}: median {taken[500]:.1f}, p99 {taken[990]:.1f}, at most {taken[-1]:.1f} ms")


def health(port: int) -> list[float]:
    """Return the times of a thousand questions on one connection, 5 ms apart [ms]."""
    line, taken = http.client.HTTPConnection("127.0.0.1", port, timeout=600), []
    for _ in range(1_000):
        begun = time.monotonic()
        status, _ = ask(line, "GET", "/healthz")
        taken.append(1e3 * (time.monotonic() - begun))
        assert status == 200
        time.sleep(0.005)
    return taken


def _endless(port: int, ended: threading.Event) -> None:
    """Send a head that never ends, again and again."""
    while not ended.is_set():
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as line:
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
            while not ended.wait(0.002):
                line.sendall(b"x-more: " + b"y" * 1000 + b"\r\n")


def _drip(lines: list[socket.socket], ended: threading.Event) -> None:
    """Send a byte of every body now and then."""
    while not ended.wait(0.5):
        for line in lines:
            with contextlib.suppress(OSError):
                line.sendall(b" ")


PARTS: dict[str, Any] = {"kills": kills, "memory": memory, "fuzz": fuzz, "soak": soak, "attack": attack}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        print(f"-- {part}")
        PARTS[part]()
