"""Simulated plants for control loops, in simulated time: a server, and chains on shared cores.

The simulator simulates milliseconds, but a loop's windows last seconds. Of a tenant's move, the pause is a given time
without service; it lowers the mean throughput of its window. The throughput with remote memory is simulated and
weighted by its share of the window.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from slomo.control.observation import MachineReading, TenantReading
from slomo.enforce.backends.simulated import SimulatedBackend, SimulatedServer
from slomo.enforce.backends.simulated_cores import SimulatedCores, SimulatedCoresBackend
from slomo.placement.chains.moves import MoveCost, Mover
from slomo.simulator.result import SimulationResult
from slomo.vocabulary.service_chains import ChainSystem

#: Length of a probe, in observation windows.
PROBE = 4


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


class SimulatedTime:
    """A simulated plant, whose time advances only while the loop waits."""

    def __init__(self) -> None:
        self.time_s = 0.0

    def observe(self, times: int = 1) -> MachineReading:
        """Simulate `times` windows and return the readings."""
        raise NotImplementedError

    def probe(self) -> MachineReading:
        """Observe four times as long as usual."""
        return self.observe(PROBE)

    def now_s(self) -> float:
        """Return the simulated time [s]."""
        return self.time_s

    def wait(self, seconds: float) -> None:
        """Let simulated time pass."""
        self.time_s += seconds


class SimulatedPlant(SimulatedTime):
    """A simulated server whose tenants have promised throughputs and loads that may vary over time.

    `targets_mpps`: promises by tenant. `loads`: called with server and time before each observation, to change loads.
    `seed`: seed of the simulations. `moves`: cost of moving tenants between nodes; by default nothing.

    >>> from slomo.enforce.backends.simulated import Occupant
    >>> from slomo.vocabulary.machine import load_machine
    >>> from slomo.vocabulary.workload import Workload
    >>> server = SimulatedServer(load_machine("e5-2620v4"), [Occupant("a", Workload("l2fwd"))])
    >>> SimulatedPlant(server, {"a": 1.0}).observe().broken
    ()
    """

    def __init__(
        self,
        server: SimulatedServer,
        targets_mpps: Mapping[str, float],
        loads: Callable[[SimulatedServer, float], None] | None = None,
        *,
        seed: int = 0,
        moves: PaidMoves | None = None,
    ) -> None:
        super().__init__()
        self._moves = moves
        self.server, self.targets_mpps, self.backend = server, dict(targets_mpps), SimulatedBackend(server)
        self._loads, self._seed, self._runs = loads, seed, 0

    def observe(self, times: int = 1) -> MachineReading:
        """Simulate all tenants under the settings in force for `times` windows."""
        if self._loads is not None:
            self._loads(self.server, self.time_s)
        self._runs += 1
        seed = self._seed + self._runs
        result = self.server.simulate(seed, times=times)
        shares_kept = {} if self._moves is None else self._moves.kept(self.time_s, result, seed)
        readings = {}
        for occupant, tenant in zip(self.server.occupants.values(), result.tenants, strict=True):
            # arrivals in this window, as a NIC counts them; in a short window they differ from the offered rate
            offered = None if occupant.workload.traffic.offered_mpps is None else tenant.arrived_mpps
            readings[occupant.name] = TenantReading(
                tenant.throughput_mpps * shares_kept.get(occupant.name, 1.0),
                self.targets_mpps.get(occupant.name),
                offered,
                tenant.vector.get("L3OCC"),
                tenant.vector.get("L3MISS"),
                latency_us=None if offered is None else tenant.latency_us.get("p95"),
            )
        return MachineReading(self.time_s, readings, probed=times > 1)


class SharedCoresPlant(SimulatedTime):
    """Chains of NFs on simulated shared cores; `loads` returns the system with the loads of a time."""

    def __init__(
        self, cores: SimulatedCores, loads: Callable[[float], ChainSystem] | None = None, *, seed: int = 0
    ) -> None:
        super().__init__()
        self.cores, self.backend = cores, SimulatedCoresBackend(cores)
        self._loads, self._runs = loads, seed

    def observe(self, times: int = 1) -> MachineReading:
        """Simulate all chains under the weights in force for `times` windows."""
        if self._loads is not None:
            self.cores.system = self._loads(self.time_s)
        self._runs += 1
        played = self.cores.simulate(self._runs, times)
        readings = {
            name: TenantReading(
                stage.processed_mpps, offered_mpps=stage.arrived_mpps, cost_cycles=stage.cycles_per_packet or None
            )
            for name, stage in played.stages.items()
        }
        return MachineReading(self.time_s, readings, probed=times > 1)
