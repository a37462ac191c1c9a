"""Simulate tenants that share a machine: seat them, warm the caches, measure, report.

The ground truth of everything that is predicted without a rack. It shares no equation with composition or prediction:
each line access is played through L2, LLC, DDIO and memory (DESIGN section 4; the method follows ResQ, NSDI'18,
section 4).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slomo.errors import InvalidValueError
from slomo.simulator import state as s
from slomo.simulator.programs.layout import SLACK_NS, Seat, build
from slomo.simulator.programs.prefill import prefill
from slomo.simulator.programs.program import program
from slomo.simulator.result import Readings, SimulationResult, assemble
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.network_function import NetworkFunction
from slomo.vocabulary.workload import Workload

DEFAULT_SCALE = 16
#: Line accesses measured by default: the spread over seeds is in docs/concepts/simulator.md.
DEFAULT_ACCESSES = 350_000
#: Turnovers of the LLC by references before measuring.
WARM_TURNOVERS = 2.0
_CHUNKS = 4
_PILOT_NS = 20_000.0
_LONGEST_NS = 2e8


@dataclass(frozen=True)
class Tenant:
    """One workload on one core.

    Attributes
    ----------
    workload : Workload
        What runs and what arrives.
    network_function : NetworkFunction
        Its description.
    core : int
        Core of the machine, each used once.
    llc_way_mask : int or None
        LLC ways it may fill (Intel CAT); None means all.
    mba_percent : float or None
        Memory bandwidth throttle (Intel MBA), 10 to 100 [%].
    memory_socket : int or None
        Socket of its memory; None means its own.
    """

    workload: Workload
    network_function: NetworkFunction
    core: int
    llc_way_mask: int | None = None
    mba_percent: float | None = None
    memory_socket: int | None = None


def simulate(
    machine: Machine,
    tenants: Sequence[Tenant],
    *,
    seed: int = 0,
    scale: int = DEFAULT_SCALE,
    accesses: int = DEFAULT_ACCESSES,
    slack_ns: float = SLACK_NS,
    port_gbps: float | None = None,
) -> SimulationResult:
    """Play tenants that share a machine and count what happens.

    Pure: no input or output, and equal arguments give equal results, byte for byte.

    Parameters
    ----------
    machine : Machine
        The server.
    tenants : sequence of Tenant
        Who runs where; may be empty.
    seed : int
        Of the tenants' random accesses and arrivals.
    scale : int
        Factor by which cache sets, footprints and buffers are scaled down together, 1 to 64.
    accesses : int
        Line accesses to measure over, at least 10 000; more of them, less noise.
    slack_ns : float
        How far one core may run ahead of the others [ns].
    port_gbps : float, optional
        Line rate of the one port that all tenants share [Gbit/s]; by default they share the machine's ports.

    Returns
    -------
    SimulationResult
        Per tenant throughput [Mpps], loss, latency [us] and core-level metrics; socket and system metrics.

    Raises
    ------
    InvalidValueError
        For a core used twice or absent, a way mask or throttle the machine does not have, or a setting out of range.

    Examples
    --------
    >>> from slomo.vocabulary.machine import load_machine
    >>> from slomo.vocabulary.network_function import load_network_function
    >>> tenant = Tenant(Workload("l2fwd"), load_network_function("l2fwd"), core=0)
    >>> result = simulate(load_machine("e5-2620v4"), [tenant], seed=1, accesses=20_000)
    >>> result.tenants[0].throughput_mpps > 5
    True
    """
    if not 1 <= scale <= 64:
        raise InvalidValueError(f"scale is {scale}, needed 1 to 64")
    if accesses < 10_000:
        raise InvalidValueError(f"accesses is {accesses}, needed at least 10 000")
    seats = _seats(machine, tenants)
    if not seats:
        return _nobody(machine)
    if port_gbps is not None and not port_gbps > 0.0:
        raise InvalidValueError(f"line rate of the shared port is {port_gbps} Gbit/s, needed above 0")
    state = build(machine, seats, seed=seed, scale=scale, slack_ns=slack_ns, port_gbps=port_gbps)
    before = _warm_up(state)
    readings = _measure(state, accesses, scale)
    return assemble(machine, seats, readings, before + _accesses(state))


def _seats(machine: Machine, tenants: Sequence[Tenant]) -> list[Seat]:
    taken = [tenant.core for tenant in tenants]
    for core in taken:
        if taken.count(core) > 1:
            raise InvalidValueError(
                f"machine '{machine.name}': core {core} is given to {taken.count(core)} tenants", hint="one core each"
            )
    return [_seat(machine, tenant) for tenant in tenants]


def _seat(machine: Machine, tenant: Tenant) -> Seat:
    name = f"tenant '{tenant.workload.nf}' on core {tenant.core}"
    mask = machine.full_way_mask if tenant.llc_way_mask is None else tenant.llc_way_mask
    if not 0 < mask <= machine.full_way_mask:
        raise InvalidValueError(f"{name}: way mask {mask:#x}, but '{machine.name}' has {machine.llc_ways} ways")
    percent = 100.0 if tenant.mba_percent is None else float(tenant.mba_percent)
    if not 10.0 <= percent <= 100.0:
        raise InvalidValueError(f"{name}: memory bandwidth throttle is {percent:g} %, needed 10 to 100 %")
    home = machine.socket_of(tenant.core) if tenant.memory_socket is None else tenant.memory_socket
    if not 0 <= home < machine.sockets:
        raise InvalidValueError(f"{name}: memory socket {home}, but '{machine.name}' has {machine.sockets} sockets")
    return Seat(program(tenant.network_function, tenant.workload), tenant.core, home, mask, percent)


def _kernels() -> Any:
    from slomo.simulator import first_compile, kernel

    first_compile.announce()
    return kernel


def _accesses(state: s.State) -> int:
    wanted = [s.C_L2_HIT, s.C_L2_MISS, s.C_RX_HIT, s.C_RX_MISS, s.C_TX_HIT, s.C_TX_MISS]
    return int(state.counters[:, wanted].sum())


def _warm_up(state: s.State) -> int:
    """Run until references have turned the LLC over; return the accesses that took."""
    kernel = _kernels()
    prefill(state)
    lines = state.llc_clock.size * int(state.machine[s.M_LLC_WAYS])
    now = 0.0
    step = _PILOT_NS
    while now < _LONGEST_NS / 4:
        now += step
        kernel.run_until(state, now)
        references = int(state.counters[:, s.C_L2_MISS].sum() + state.counters[:, s.C_RX_HIT : s.C_TX_HIT].sum())
        wanted = WARM_TURNOVERS * lines
        if references >= wanted:
            break
        step = min(max(_PILOT_NS, now * (wanted / max(references, 1) - 1.0)), 4.0 * now)
    total = _accesses(state)
    s.zero_counters(state)
    state.tenants[:, s.T_SAMPLES] = 0
    return total


def _measure(state: s.State, accesses: int, scale: int) -> Readings:
    kernel = _kernels()
    start = float(state.clock.min())
    begun = state.clock.copy()
    partial = _progress(state)
    now = start + _PILOT_NS
    kernel.run_until(state, now)
    rate = max(1, _accesses(state)) / (now - start)
    end = start + min(max(accesses / rate, 2 * _PILOT_NS), _LONGEST_NS)
    held, in_ddio = np.zeros(state.occupancy.size), np.zeros(state.clock.size)
    for chunk in range(1, _CHUNKS + 1):
        kernel.run_until(state, now + (end - now) * chunk / _CHUNKS)
        held += state.occupancy / _CHUNKS
        in_ddio += _ddio_lines(state) / _CHUNKS
    packets = state.counters[:, s.C_PACKETS] + _progress(state) - partial
    span = end - start
    # each clock runs a little past the end; give every tenant the packets of the common span
    packets = packets * span / np.maximum(1.0, state.clock - begun)
    return Readings(state, span, held, in_ddio, packets, scale)


def _progress(state: s.State) -> s.Floats:
    """Return the share of its current packet that each tenant has worked off."""
    share = np.zeros(state.clock.size)
    for tenant, row in enumerate(state.tenants):
        if row[s.T_OPERATION] < 0:
            continue
        first, last = int(row[s.T_FIRST_STRUCTURE]), int(row[s.T_LAST_STRUCTURE])
        per_packet = np.concatenate(([row[s.T_TOUCHED_LINES] + 1.0], state.demand[first:last, s.D_ACCESSES]))
        done = per_packet[: int(row[s.T_OPERATION]) + 1].sum() - row[s.T_REMAINING]
        share[tenant] = min(1.0, max(0.0, done / per_packet.sum()))
    return share


def _ddio_lines(state: s.State) -> s.Floats:
    """Count, per tenant, the packet-buffer lines that sit in the ways devices fill."""
    mask = int(state.machine[s.M_DDIO_MASK])
    if mask == 0:
        return np.zeros(state.clock.size)
    ways = np.arange(state.llc_owner.size) % s.LLC_LANES
    inside = (state.llc_owner >= 0) & (state.llc_owner % 2 == 0) & ((mask >> ways) & 1 == 1)
    return np.bincount(state.llc_owner[inside] >> 1, minlength=state.clock.size).astype(float)


def _nobody(machine: Machine) -> SimulationResult:
    """Report an idle machine: every rate is 0, ratios have no value."""
    empty = np.zeros((0, 0))
    channels = np.zeros((machine.sockets + 2, s.H_COLUMNS))
    fields = dict.fromkeys(s.State._fields, empty) | {"channels": channels}
    readings = Readings(s.State(**fields), 1e3, np.zeros(0), np.zeros(0), np.zeros(0), 1)  # type: ignore[arg-type]
    return assemble(machine, [], readings, 0)
