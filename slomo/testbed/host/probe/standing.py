"""Keep reporters on one core for a whole campaign; each starts on first use and is paused between measurements.

A restarted program has other memory pages and runs 3 to 8 % faster or slower; a program that is paused and resumed does
not.
"""

import contextlib
from collections.abc import Iterator

from slomo.testbed.host.nf.definition import HostDefinition
from slomo.testbed.host.run import Run
from slomo.testbed.host.tenant import HostTenant, paused
from slomo.vocabulary.workload import Workload


class StandingPrograms:
    """Programs that stay on one core; at most one of them runs, the others are paused."""

    def __init__(self, definition: HostDefinition, core: int) -> None:
        self.definition, self.core = definition, core
        self._run: Run | None = None
        self._tenants: dict[str, HostTenant] = {}

    @contextlib.contextmanager
    def awake(self, workload: Workload) -> Iterator[HostTenant]:
        """Let one program run while the others stay paused."""
        tenant = self._standing(workload)
        try:
            paused([tenant], False)
            yield tenant
        finally:
            if tenant.process.alive:
                paused([tenant], True)

    def close(self) -> None:
        """End all programs on the core."""
        run, self._run = self._run, None
        self._tenants.clear()
        if run is not None:
            run.__exit__()

    def _standing(self, workload: Workload) -> HostTenant:
        tenant = self._tenants.get(workload.key)
        if tenant is None or not tenant.process.alive:
            self._run = self._run or Run()
            tenant = self._tenants[workload.key] = self._run.start(self.definition, workload, (self.core,))
            paused([tenant], True)
        return tenant
