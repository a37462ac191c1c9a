"""Background jobs: started by a request, run with progress reports, resumed after an interruption.

A job is stored when it is accepted, during its work, and at its end. A job that runs when the service stops is stored
as ``interrupted`` with its partial result, and can be resumed from there.
"""

import asyncio
import contextlib
import hashlib
import secrets
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import msgspec

from slomo.errors import SlomoError
from slomo.service.door.problems import Problem
from slomo.service.state import journal
from slomo.service.state.store import Store

#: Function that does the work of a kind of job, given the request and a progress object.
Work = Callable[[Any, "JobProgress"], Awaitable[Any]]
MOST_WAITING = 32
_ENDED = ("done", "failed", "interrupted")
#: Reasons for an interruption of a job.
STOPPED = "the service stopped before it ended"


@dataclass(frozen=True)
class Job:
    """One background job."""

    #: Identifier, kind and time of acceptance.
    id: str
    kind: str
    at: str
    #: ``"waiting"``, ``"running"``, ``"done"``, ``"failed"`` or ``"interrupted"``.
    state: str = "waiting"
    #: Finished share, 0 to 1.
    done: float = 0.0
    #: Present step, or reason of the failure.
    message: str = ""
    #: Result; a partial result if the job was interrupted.
    result: Any = None

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended and will not change any more."""
        return self.state in _ENDED


@dataclass
class _Watched:
    """A job and its listeners."""

    job: Job
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def change(self, **changes: Any) -> None:
        """Replace the job by a changed one, and notify its listeners."""
        self.job = replace(self.job, **changes)
        event, self.changed = self.changed, asyncio.Event()
        event.set()


class JobProgress:
    """Reports a job's progress to listeners and stores it; `before` is the result before an interruption."""

    def __init__(self, watched: _Watched, store: Store) -> None:
        self._watched, self._store = watched, store
        self.before: Any = watched.job.result

    def tell(self, done: float, message: str, result: Any = None) -> None:
        """Report the finished share (0 to 1), a message and a partial result."""
        self._watched.change(done=min(max(done, 0.0), 1.0), message=message, result=result)

    def put(self, connection: "sqlite3.Connection", done: float, message: str, result: Any = None) -> None:
        """Store the progress in the same transaction as the work, so that after a kill both or neither exist."""
        row = {**asdict(self._watched.job), "done": done, "message": message, "result": result}
        journal.put_job(connection, row)

    def keep(self) -> None:
        """Store the last report without waiting for the write."""
        row = asdict(self._watched.job)
        self._store.write(lambda connection: journal.put_job(connection, row))


class Jobs:
    """Runs jobs one after the other, each by the function of its kind in `works`."""

    def __init__(self, store: Store, works: Mapping[str, Work]) -> None:
        self._store, self._works = store, works
        self._live: dict[str, _Watched] = {}
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        store.write(lambda connection: journal.interrupt_jobs(connection, STOPPED)).result()

    async def accept(self, kind: str, errand: Any, key: str | None = None) -> Job:
        """Store a job and start it; of several with one key only the first; `errand` is JSON, to resume the job by."""
        name = secrets.token_hex(8) if key is None else hashlib.sha256(f"{kind}\0{key}".encode()).hexdigest()[:16]
        if key is not None:
            with contextlib.suppress(Problem):
                return self.get(name)
        job = Job(name, kind, journal.now())
        await self._begin(job, errand, lambda connection: journal.add_job(connection, asdict(job), errand))
        return job

    async def resume(self, name: str) -> Job:
        """Resume an interrupted job; do nothing if the job already runs."""
        job = self.get(name)
        if not job.has_ended:
            return job
        errand = self._store.read(lambda connection: journal.asked_of_job(connection, name))
        if job.state != "interrupted" or errand is None or job.kind not in self._works:
            raise Problem(409, f"job {name} is {job.state} and cannot be resumed", hint="start a new job")
        again = replace(job, state="waiting", message=f"taken up again at {100 * job.done:.0f} %")
        await self._begin(again, errand, lambda connection: journal.put_job(connection, asdict(again)))
        return again

    async def _begin(self, job: Job, errand: Any, write: Callable[["sqlite3.Connection"], None]) -> None:
        """Store a job, then wait until the jobs before it have ended."""
        if sum(not item.job.has_ended for item in self._live.values()) >= MOST_WAITING:
            raise Problem(429, f"{MOST_WAITING} jobs wait already", hint="retry later", headers={"Retry-After": "5"})
        self._live[job.id] = _Watched(job)
        try:
            await asyncio.wrap_future(self._store.write(write))
        except BaseException:
            del self._live[job.id]
            raise
        task = asyncio.get_running_loop().create_task(self._run(job, errand))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def get(self, name: str) -> Job:
        """Return a job; Problem 404 for an unknown identifier."""
        if name in self._live:
            return self._live[name].job
        rows = self._store.read(lambda connection: journal.jobs(connection, 1, name))
        if not rows:
            raise Problem(404, "there is no such job", hint="list /v1/jobs")
        return Job(**rows[0])

    def all(self) -> list[Job]:
        """Return all jobs, newest first."""
        rows = [Job(**row) for row in self._store.read(journal.jobs)]
        return [self._live[row.id].job if row.id in self._live else row for row in rows]

    async def events(self, name: str) -> AsyncIterator[bytes]:
        """Yield a job's states as server-sent events until it ends; a comment every 15 s keeps the connection open."""
        job = self.get(name)
        watched = self._live.get(name)
        yield _event(job)
        while watched is not None and not job.has_ended:
            if watched.job == job:  # else the job has changed while the last event was sent
                try:
                    await asyncio.wait_for(watched.changed.wait(), 15.0)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
            job = watched.job
            yield _event(job)
            await asyncio.sleep(0.05)  # at most twenty events per second

    async def close(self) -> None:
        """Stop running jobs."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, job: Job, errand: Any) -> None:
        watched = self._live[job.id]
        try:
            async with self._turn:
                watched.change(state="running")
                result = await self._works[job.kind](errand, JobProgress(watched, self._store))
                watched.change(state="done", done=1.0, result=result)
        except asyncio.CancelledError:
            watched.change(state="interrupted", message="the service stopped")
            raise
        except SlomoError as error:
            watched.change(state="failed", message=str(error))
        except Exception:  # an error in a job must not end the service
            watched.change(state="failed", message="a fault of the service; see its log")
            raise
        finally:
            ending = self._store.write(lambda connection: _end(connection, watched.job))
            await asyncio.shield(asyncio.wrap_future(ending))
            ended = [name for name, item in self._live.items() if item.job.has_ended]
            for name in ended[:-50]:
                del self._live[name]


def _end(connection: "sqlite3.Connection", job: Job) -> None:
    """Store the end of a job; the finished part of an interrupted job is already stored."""
    if job.state == "interrupted":
        journal.interrupt_jobs(connection, STOPPED, job.id)
        return
    journal.put_job(connection, asdict(job))
    journal.forget_asked(connection, job.id)


def _event(job: Job) -> bytes:
    return b"event: job\nid: " + job.id.encode() + b"\ndata: " + msgspec.json.encode(asdict(job)) + b"\n\n"
