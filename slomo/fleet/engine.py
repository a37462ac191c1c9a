"""A testbed whose runs are simulated by the workers of a Dask scheduler."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from slomo.errors import UsageError
from slomo.fleet.spread import connected
from slomo.records.run import RunRecord
from slomo.testbed.base import Testbed
from slomo.vocabulary.colocation import Colocation

if TYPE_CHECKING:
    from distributed import Client


class EngineTestbed:
    """A testbed that passes each run to a Dask scheduler; if a worker dies, another one repeats its run.

    `testbed`: what runs are made on; each worker gets a copy. `client`: of the scheduler.
    """

    exclusive = False

    def __init__(self, testbed: Testbed, client: "Client") -> None:
        if testbed.exclusive:
            raise UsageError(
                f"testbed '{testbed.name}' is one machine, which a scheduler cannot move",
                hint="for campaigns over hosts: slomo fleet profile",
            )
        self.name, self._testbed, self._client = testbed.name, testbed, client

    @property
    def workers(self) -> int:
        """Number of runs given out at a time: one more per worker than it makes at once."""
        return 2 * sum(self._client.nthreads().values())  # type: ignore[no-untyped-call]

    def run(self, colocation: Colocation, *, seed: int = 0) -> RunRecord:
        """Make a run on a worker; see `Testbed.run`."""
        return self._client.submit(self._testbed.run, colocation, seed=seed, pure=False).result()

    def environment(self) -> Mapping[str, Any]:
        """Return the testbed's environment, which does not include the computing workers."""
        return self._testbed.environment()

    def estimate_s(self, colocation: Colocation) -> float:
        """Return the estimated time of one run on the wrapped testbed [s]."""
        return self._testbed.estimate_s(colocation)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_testbed"], name)


@contextmanager
def on_engine(testbed: Testbed, scheduler: str) -> Iterator[EngineTestbed]:
    """Let a Dask scheduler's workers make a testbed's runs while the context lasts.

    Raises TestbedError where no scheduler answers; UsageError for a testbed that is one machine.
    """
    with connected(scheduler) as client:
        yield EngineTestbed(testbed, client)
