"""Apply one function to many items: in this process, in processes of this machine, or on Dask workers.

Results come in the order of the items and do not depend on the number of workers. The work of a dead worker is
repeated, by Dask itself on a scheduler; an item that kills three workers is an error.
"""

import multiprocessing
import os
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from slomo.errors import ConfigurationError, InvalidValueError, TestbedError
from slomo.extras import need
from slomo.vocabulary.numbers import whole_number

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")
R = TypeVar("R")
#: Number of workers that one item may kill, and items given out ahead per worker.
_DEATHS, _AHEAD = 3, 2
#: Tasks per group that a scheduler is given, and groups given out ahead.
_IN_GROUP, _GROUPS = 32, 3
#: Least intended duration of a scheduler's task [s], and most items in one.
_TASK_S, _MOST_IN_TASK = 0.05, 64
#: Time limit for connecting to a scheduler [s], and interval at which a child checks for its parent.
CONNECTING_S, _LOOK_S = 10.0, 0.5


def spread(
    function: Callable[[T], R], items: Iterable[T], *, jobs: int | None = 1, scheduler: str | None = None
) -> Iterator[R]:
    """Yield `function(item)` for each item, in the items' order.

    `function` is of a module, or a `functools.partial` of one: it is sent by name. `jobs`: processes of this machine;
    every core where None or 0. `scheduler`: address of a Dask scheduler, ``tcp://HOST:8786``, whose workers compute
    instead.

    Raises TestbedError for a scheduler that does not answer, or an item whose computation ends its worker process;
    MissingExtraError for a scheduler without the extra `fleet`; InvalidValueError for fewer than 0 jobs.

    >>> list(spread(abs, [-1, 2]))
    [1, 2]
    """
    if jobs is not None and whole_number("jobs", jobs) < 0:
        raise InvalidValueError(f"jobs is {jobs}, needed 1 or more, or 0 for every core")
    workers = jobs or len(os.sched_getaffinity(0))
    if scheduler is not None:
        with connected(scheduler) as client:
            yield from _in_order(client, function, items)
    elif workers == 1:
        yield from map(function, items)
    else:
        yield from _in_processes(function, items, workers)


@contextmanager
def connected(address: str) -> "Iterator[Client]":
    """Connect to a Dask scheduler. Raises TestbedError if none answers, ConfigurationError for an invalid address."""
    need("distributed")
    from distributed import Client
    from distributed.comm.addressing import get_address_host_port

    try:
        # a Client that fails to connect is closed later by the garbage collector, which can deadlock in a starting
        # thread
        socket.create_connection(get_address_host_port(address), CONNECTING_S).close()
        client = Client(address, timeout=CONNECTING_S, set_as_default=False)  # type: ignore[no-untyped-call]
    except ValueError as error:
        raise ConfigurationError(f"'{address}' is no scheduler's address: {error}", hint="tcp://HOST:8786") from None
    except OSError as error:
        raise TestbedError(
            f"no scheduler answers at {address} within {CONNECTING_S:g} s: {error}",
            hint="start one with `dask scheduler`, and workers with `dask worker ADDRESS`",
        ) from None
    with client:
        yield client


def _in_order(client: "Client", function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Submit tasks in groups, some groups ahead of the results, and yield results in order.

    A scheduler gives a worker two tasks at a time, so each costs half a round trip: short items share one task. Long
    items have a task each, so that a worker's death loses one item.
    """
    groups: deque[list[Any]] = deque()
    source, together = iter(items), 1
    while True:
        while len(groups) < _GROUPS and (group := [*islice(_parts(source, together), _IN_GROUP)]):
            groups.append(client.map(_all_of, group, function=function, pure=False))
        if not groups:
            return
        made: list[tuple[list[R], float]] = client.gather(groups.popleft())  # type: ignore[no-untyped-call]
        for results, _ in made:
            yield from results
        each_s = sum(wall_s for _, wall_s in made) / sum(len(results) for results, _ in made)
        together = min(_MOST_IN_TASK, max(1, int(_TASK_S / max(each_s, 1e-6))))


def _parts(items: Iterator[T], size: int) -> Iterator[list[T]]:
    while part := list(islice(items, size)):
        yield part


def _all_of(items: list[T], function: Callable[[T], R]) -> tuple[list[R], float]:
    """Return a function's results for several items, and the time taken [s]."""
    begun = time.monotonic()
    return [function(item) for item in items], time.monotonic() - begun


def _in_processes(function: Callable[[T], R], items: Iterable[T], workers: int) -> Iterator[R]:
    """Compute in worker processes; if one dies, repeat its unfinished items in new processes."""
    context, deaths, source = multiprocessing.get_context("spawn"), 0, iter(items)
    waiting: deque[tuple[T, Future[R]]] = deque()
    with ExitStack() as pools:

        def fresh() -> ProcessPoolExecutor:
            pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(os.getpid(),))
            pools.callback(pool.shutdown, wait=True, cancel_futures=True)
            return pool

        def submitted(item: T) -> Future[R]:
            try:
                return pool.submit(function, item)
            except BrokenProcessPool as died:  # a worker died before this item was given out
                lost: Future[R] = Future()
                lost.set_exception(died)
                return lost

        pool = fresh()
        while True:
            while len(waiting) < _AHEAD * workers and (item := next(source, _END)) is not _END:
                waiting.append((item, submitted(item)))
            if not waiting:
                return
            try:
                result = waiting[0][1].result()
            except BrokenProcessPool:
                deaths += 1
                if deaths == _DEATHS:
                    raise TestbedError(
                        f"{_DEATHS} times a worker died over item {waiting[0][0]!r} or one given out with it",
                        hint="it may need more memory than there is: use fewer jobs",
                    ) from None
                pools.close()
                pool = fresh()
                finished = [future.done() and future.exception() is None for _, future in waiting]
                waiting = deque(
                    (item, future if slot else submitted(item))
                    for (item, future), slot in zip(waiting, finished, strict=True)
                )
                continue
            waiting.popleft()
            deaths = 0
            yield result


_END: Any = object()


def _begin(parent: int) -> None:
    """Set up a worker process: it ignores Ctrl-C and ends when its parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(parent)


def end_with(parent: int) -> None:
    """End this process as soon as the process `parent` has ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
