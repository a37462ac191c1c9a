"""Long work: accepted at once, done in the background, told as it goes on.

A job is written down when it is accepted, and again when it ends. One that was at work when the service stopped is
found as ``interrupted``: what it had done until then is in the state, batch by batch.
"""

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import msgspec

from slomo.errors import SlomoError
from slomo.service.door.problems import Problem
from slomo.service.state import journal
from slomo.service.state.store import Store

#: Says how far a job is: a share from 0 to 1, and a few words.
Tell = Callable[[float, str], None]
Work = Callable[[Tell], Awaitable[Any]]
MOST_WAITING = 32
_ENDED = ("done", "failed", "interrupted")


@dataclass(frozen=True)
class Job:
    """One piece of long work.

    Attributes
    ----------
    id, kind, at : str
        Its name, what it does, when it was accepted.
    state : str
        ``"waiting"``, ``"running"``, ``"done"``, ``"failed"`` or ``"interrupted"``.
    done : float
        Share that is done, 0 to 1.
    message : str
        Where it is, or why it failed.
    result : object
        What came out.
    """

    id: str
    kind: str
    at: str
    state: str = "waiting"
    done: float = 0.0
    message: str = ""
    result: Any = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in _ENDED


@dataclass
class _Watched:
    """A job and those who listen."""

    job: Job
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class Jobs:
    """Runs jobs one after the other.

    Parameters
    ----------
    store : Store
        Where they are written down.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._live: dict[str, _Watched] = {}
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        for row in store.read(journal.jobs):
            if row["state"] not in _ENDED:
                row.update(state="interrupted", message="the service stopped before it ended")
                store.write(lambda connection, kept=row: journal.put_job(connection, kept)).result()  # type: ignore[misc]

    async def accept(self, kind: str, work: Work, key: str | None = None) -> Job:
        """Write a job down and begin it; one of the same key is begun once.

        Raises
        ------
        Problem
            429 where too many wait.
        """
        name = secrets.token_hex(8) if key is None else hashlib.sha256(f"{kind}\0{key}".encode()).hexdigest()[:16]
        if key is not None:
            with contextlib.suppress(Problem):
                return self.get(name)
        if sum(not item.job.has_ended for item in self._live.values()) >= MOST_WAITING:
            raise Problem(
                429, f"{MOST_WAITING} jobs wait already", hint="come back later", headers={"Retry-After": "5"}
            )
        job = Job(name, kind, journal.now())
        self._live[job.id] = _Watched(job)
        try:
            await self._write(job)
        except BaseException:
            del self._live[job.id]
            raise
        task = asyncio.get_running_loop().create_task(self._run(job.id, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return job

    def get(self, name: str) -> Job:
        """Return a job.

        Raises
        ------
        Problem
            404 for one there is none of.
        """
        if name in self._live:
            return self._live[name].job
        job_row = next((row for row in self._store.read(journal.jobs) if row["id"] == name), None)
        if job_row is None:
            raise Problem(404, "there is no such job", hint="list /v1/jobs")
        return Job(**job_row)

    def all(self) -> list[Job]:
        """Return all jobs, newest first."""
        rows = [Job(**row) for row in self._store.read(journal.jobs)]
        return [self._live[row.id].job if row.id in self._live else row for row in rows]

    async def events(self, name: str) -> AsyncIterator[bytes]:
        """Yield a job's states as server-sent events until it ends; a remark every 15 s keeps the line open."""
        job = self.get(name)
        watched = self._live.get(name)
        yield _event(job)
        while watched is not None and not job.has_ended:
            if watched.job == job:  # else it has changed while the last event was sent
                try:
                    await asyncio.wait_for(watched.changed.wait(), 15.0)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
            job = watched.job
            yield _event(job)
            await asyncio.sleep(0.05)  # no more than twenty a second

    async def close(self) -> None:
        """Stop what is at work."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, name: str, work: Work) -> None:
        def tell(done: float, message: str) -> None:
            self._change(name, done=min(max(done, 0.0), 1.0), message=message)

        async with self._turn:
            self._change(name, state="running")
            try:
                result = await work(tell)
                self._change(name, state="done", done=1.0, result=result)
            except asyncio.CancelledError:
                self._change(name, state="interrupted", message="the service stopped")
                raise
            except SlomoError as error:
                self._change(name, state="failed", message=str(error))
            except Exception:  # a job's fault must not end the service
                self._change(name, state="failed", message="a fault of the service; see its log")
                raise
            finally:
                await asyncio.shield(self._write(self._live[name].job))
                self._forget_old()

    def _change(self, name: str, **changes: Any) -> None:
        watched = self._live[name]
        watched.job = replace(watched.job, **changes)
        event, watched.changed = watched.changed, asyncio.Event()
        event.set()

    def _forget_old(self) -> None:
        ended = [name for name, item in self._live.items() if item.job.has_ended]
        for name in ended[:-50]:
            del self._live[name]

    async def _write(self, job: Job) -> None:
        await asyncio.wrap_future(self._store.write(lambda connection: journal.put_job(connection, asdict(job))))


def _event(job: Job) -> bytes:
    return b"event: job\nid: " + job.id.encode() + b"\ndata: " + msgspec.json.encode(asdict(job)) + b"\n\n"
