"""The built-in simulator as a testbed.

Both phases of SLOMO's protocol (SIGCOMM'20, section 4.1) are simulated line by line; competitors keep their cores
between the phases, as running processes do.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from slomo.errors import InvalidValueError, UnknownNameError
from slomo.records.provenance import describe_environment, describe_run, platform_fingerprint, versions
from slomo.records.run import Phase, RunRecord, TenantSample
from slomo.simulator.engine import DEFAULT_ACCESSES, Tenant, simulate
from slomo.simulator.programs.program import program
from slomo.simulator.result import TenantResult
from slomo.vocabulary.colocation import Colocation, Isolation
from slomo.vocabulary.machine import Machine, load_machine
from slomo.vocabulary.network_function import (
    NetworkFunction,
    load_network_function,
    network_function_names,
    one_core_chain,
    stage_names,
)
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Workload, fingerprint_of

#: Version of the simulator; increased whenever its numbers change, so that measurements of different versions are never
#: merged.
SIMULATOR_VERSION = 5
#: Wall time of one phase on one core of a 2020s server: fixed part, and part per million measured accesses [s].
_PHASE_S, _PER_MILLION_S = 0.01, 0.06


class SimulatedTestbed:
    """Runs network functions together on a simulated machine.

    Parameters
    ----------
    machine : str or Machine
        Name, YAML file, or the machine itself.
    network_functions : iterable of NetworkFunction
        Additional network functions; they replace shipped ones of the same name.
    scale : int, optional
        Factor by which the simulator scales sizes down; the default depends on the packets
        (`simulator.engine.simulate`).
    accesses : int
        Least number of line accesses to measure.

    Raises
    ------
    UnknownNameError
        For an unknown machine.

    Examples
    --------
    >>> testbed = SimulatedTestbed("e5-2620v4")
    >>> testbed.machine.cores_per_socket
    8
    """

    name = "simulated"
    exclusive = False

    def __init__(
        self,
        machine: str | Machine = "e5-2620v4",
        network_functions: Iterable[NetworkFunction] = (),
        *,
        scale: int | None = None,
        accesses: int = DEFAULT_ACCESSES,
    ) -> None:
        self.machine = load_machine(machine)
        self.scale = scale
        self.accesses = accesses
        self._own = {function.name: function for function in network_functions}
        self._host = {"versions": versions(), "platform": platform_fingerprint()}

    def run(self, colocation: Colocation, *, seed: int = 0) -> RunRecord:
        """Simulate the competitors alone, then together with the target.

        Raises InvalidValueError for another machine, more tenants than cores on the NIC's socket, or an impossible
        setting; UnknownNameError, with the nearest name, for an unknown NF.
        """
        seats = self._seats(colocation)
        competitors = seats[len(seats) - len(colocation.competitors) :]
        port = colocation.port_gbps
        core = self.machine.nic_socket if colocation.target is None else self._sockets(colocation)[0]
        nodes = core, (colocation.memory_nodes or (core,))[0]
        alone = self._phase(competitors, seed + 1, port, nodes) if competitors else None
        beside = self._phase(seats, seed, port, nodes) if colocation.target is not None else None
        stated = describe_run(colocation, seed, self.name, self._settings(), host=False)
        return RunRecord(colocation, seed, alone, beside, {**stated, **self._host})

    def check(self, colocation: Colocation) -> None:
        """Raise the errors of :meth:`run` for `colocation` without running it."""
        for seat in self._seats(colocation):
            program(seat.network_function, seat.workload)

    def environment(self) -> Mapping[str, Any]:
        """Return the machine, simulator settings and the fingerprint of every NF's definition."""
        names = {*network_function_names(), *self._own}
        return describe_environment(
            self.name,
            self._settings(),
            machines={self.machine.name: self.machine.to_dict()},
            network_functions={name: _fingerprint(self._function(name)) for name in sorted(names)},
            host=False,  # the simulator gives the same numbers everywhere
        )

    def estimate_s(self, colocation: Colocation) -> float:
        """Return the expected wall time of one run on one core [s]."""
        phases = (colocation.target is not None) + bool(colocation.competitors)
        return phases * (_PHASE_S + _PER_MILLION_S * self.accesses / 1e6)

    def _settings(self) -> dict[str, Any]:
        return {"simulator": SIMULATOR_VERSION, "scale": self.scale, "accesses": self.accesses}

    def _function(self, name: str) -> NetworkFunction:
        if name in self._own:
            return self._own[name]
        if len(parts := stage_names(name)) > 1:
            return one_core_chain([self._function(part) for part in parts])
        if name not in network_function_names():  # a path would be read as a file, but a co-location names functions
            raise UnknownNameError(
                "network function", name, {*network_function_names(), *self._own},
                also="One of your own: its name, and --nf FILE.yaml or own=[load_network_function('FILE.yaml')]",
            )  # fmt: skip
        return load_network_function(name)

    def _seats(self, colocation: Colocation) -> list[Tenant]:
        """Give every tenant a core on its socket (by default the NIC's socket), the target first."""
        machine, tenants = self.machine, colocation.tenants
        if colocation.machine != machine.name:
            raise InvalidValueError(
                f"{colocation.label}: this testbed simulates '{machine.name}'",
                hint=f"make a testbed of machine '{colocation.machine}'",
            )
        sockets = self._sockets(colocation)
        # the target's core stays free while the competitors run alone, unless cores are given
        free = dict.fromkeys(range(machine.sockets), 0)
        free[machine.nic_socket] += colocation.target is None and colocation.sockets is None
        isolation = colocation.isolation or (Isolation(),) * len(tenants)
        seats = []
        for workload, socket, apart, node in zip(
            tenants, sockets, isolation, colocation.memory_nodes or sockets, strict=True
        ):
            if free[socket] >= machine.cores_per_socket:
                raise InvalidValueError(
                    f"{colocation.label}: {len(tenants)} tenants, but machine '{machine.name}' has "
                    f"{machine.cores_per_socket} cores on socket {socket}, one per tenant and one for the target",
                    hint=f"at most {machine.cores_per_socket - 1} competitors beside one target",
                )
            core = socket * machine.cores_per_socket + free[socket]
            seats.append(
                Tenant(
                    _buffered(workload, apart.packet_buffers),
                    self._function(workload.nf),
                    core,
                    llc_way_mask=apart.llc_way_mask,
                    mba_percent=apart.memory_bandwidth_percent,
                    memory_socket=None if node == socket else node,
                )
            )
            free[socket] += 1
        return seats

    def _sockets(self, colocation: Colocation) -> tuple[int, ...]:
        """Return every tenant's socket, after checking that the machine has it."""
        machine = self.machine
        sockets = colocation.sockets or (machine.nic_socket,) * len(colocation.tenants)
        nodes = {*sockets, *(colocation.memory_nodes or ())}
        if max(nodes, default=0) >= machine.sockets:
            raise InvalidValueError(
                f"{colocation.label}: sockets {sorted(nodes)}, but machine '{machine.name}' has {machine.sockets}",
                hint=f"needed: sockets from 0 to {machine.sockets - 1}",
            )
        return sockets

    def _phase(self, seats: list[Tenant], seed: int, port_gbps: float | None, nodes: tuple[int, int]) -> Phase:
        core, memory = nodes
        result = simulate(self.machine, seats, seed=seed, scale=self.scale, accesses=self.accesses, port_gbps=port_gbps)
        samples = (_sample(tenant, seat.workload) for tenant, seat in zip(result.tenants, seats, strict=True))
        return Phase(
            tenants=tuple(samples),
            socket=MetricVector({**result.sockets[core], **_channel(result.sockets[memory])}),
            system=result.system,
            duration_s=result.duration_us / 1e6,
            socket_errors={**result.socket_errors[core], **_channel(result.socket_errors[memory])},
        )


def _channel(socket: Mapping[str, float]) -> dict[str, float]:
    """Return the traffic of a socket's memory channels, as PCM counts it."""
    return {name: socket[name] for name in ("READ", "WRITE")}


def _sample(tenant: TenantResult, workload: Workload) -> TenantSample:
    latency = {f"latency_{name}_us": tenant.latency_us.get(name) for name in ("p50", "p95", "p99")}
    # a saturating generator offers line rate; packets above the NF's capacity are no loss of the NF
    loss = None if workload.traffic.offered_mpps is None else tenant.loss
    return TenantSample(
        tenant.throughput_mpps,
        tenant.vector,
        loss=loss,
        **latency,
        standard_errors=tenant.standard_errors,
        effective_packets=tenant.effective_packets or None,
        converged=tenant.converged,
    )


def _buffered(workload: Workload, buffers: int | None) -> Workload:
    """Return the workload with at most `buffers` packet buffers."""
    if buffers is None:
        return workload
    own = workload.configuration.get("packet_buffers", buffers)
    settings = {**workload.configuration, "packet_buffers": min(int(own), buffers)}
    return Workload(workload.nf, settings, workload.traffic)


def _fingerprint(function: NetworkFunction) -> str:
    costs = {"settings": dict(function.settings), "simulated": function.simulated}
    return fingerprint_of(costs)
