"""Cost of moving tenants between nodes of a simulated server: a pause, then remote memory until pages have moved.

The simulator simulates milliseconds, but a loop's windows last seconds. The pause is a given time without service; it
lowers the mean throughput of its window. The throughput with remote memory is simulated and weighted by its share of
the window.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from slomo.enforce.backends.simulated import SimulatedServer
from slomo.placement.chains.moves import MoveCost, Mover
from slomo.simulator.result import SimulationResult


class PaidMoves:
    """Detects tenants that changed nodes between observations, and lowers their throughput as `movers` says."""

    def __init__(self, server: SimulatedServer, movers: Mapping[str, Mover], cost: MoveCost | None = None) -> None:
        self._server, self._movers, self._cost = server, dict(movers), cost or MoveCost()
        self._sockets, self._time_s = self._seats(), 0.0
        #: Tenant -> node of its pages, and remaining time until the pages have moved [s].
        self._behind: dict[str, tuple[int, float]] = {}

    def kept(self, time_s: float, beside: SimulationResult, seed: int) -> dict[str, float]:
        """Return each moved tenant's throughput since the last observation, as a share of that after the move.

        `time_s`: end of this observation [s]; moves count as made right after the previous observation. `beside`:
        simulation of all tenants with their data on the new nodes. `seed`: seed of the simulation with the data on the
        old nodes.
        """
        window_s, self._time_s = time_s - self._time_s, time_s
        if window_s <= 0.0:
            return {}
        pauses = self._departed()
        away = self._away(beside, seed)
        shares = {}
        for name in {**pauses, **self._behind}:
            remote = min(self._behind[name][1] / window_s, 1.0) if name in self._behind else 0.0
            shares[name] = max(1.0 - pauses.get(name, 0.0) / window_s, 0.0) * (
                1.0 - remote * (1.0 - away.get(name, 1.0))
            )
        self._behind = {
            name: (node, left_s - window_s) for name, (node, left_s) in self._behind.items() if left_s > window_s
        }
        return shares

    def _departed(self) -> dict[str, float]:
        """Return how long each tenant that changed nodes was paused [s]."""
        before, self._sockets = self._sockets, self._seats()
        pauses = {}
        for name, socket in self._sockets.items():
            if name in self._movers and before.get(name, socket) != socket:
                mover = self._movers[name]
                pauses[name] = self._cost.pause_s(mover)
                self._behind[name] = (before[name], self._cost.copy_s(mover))
        return pauses

    def _away(self, beside: SimulationResult, seed: int) -> dict[str, float]:
        """Return each tenant's throughput while moved pages are still remote, as a share of that with local pages."""
        if not self._behind:
            return {}
        with self._pages_behind():
            result = self._server.simulate(seed)
        pairs = zip(self._server.occupants, result.tenants, beside.tenants, strict=True)
        return {name: min(now.throughput_mpps / then.throughput_mpps, 1.0) for name, now, then in pairs}

    @contextmanager
    def _pages_behind(self) -> Iterator[None]:
        knobs = {f"node:{name}": str(node) for name, (node, _) in self._behind.items() if name in self._sockets}
        with self._server.lock:
            held = {knob: self._server.knobs[knob] for knob in knobs}
            self._server.knobs.update(knobs)
            try:
                yield
            finally:
                self._server.knobs.update(held)

    def _seats(self) -> dict[str, int]:
        cores = {name: int(self._server.knobs[f"core:{name}"] or 0) for name in self._server.occupants}
        return {name: self._server.machine.socket_of(core) for name, core in cores.items()}
