"""Simulated plants for control loops, in simulated time: a server, and chains on shared cores."""

from collections.abc import Callable, Mapping

from slomo.control.moving import PaidMoves
from slomo.control.observation import MachineReading, TenantReading
from slomo.enforce.backends.simulated import SimulatedBackend, SimulatedServer
from slomo.enforce.backends.simulated_cores import SimulatedCores, SimulatedCoresBackend
from slomo.vocabulary.service_chains import ChainSystem

#: Length of a probe, in observation windows.
PROBE = 4


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
