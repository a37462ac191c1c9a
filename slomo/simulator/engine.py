"""Simulate tenants that share a machine: put them on cores, warm the caches, measure, report.

The simulator is the ground truth for predictions without a rack. It shares no equation with composition or prediction:
each line access is simulated through L2, LLC, DDIO and memory (DESIGN section 4; the method follows ResQ, NSDI'18,
section 4).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slomo.errors import InvalidValueError
from slomo.simulator import state as s
from slomo.simulator.convergence import LEAST_BATCHES, Batch, Measured, Series
from slomo.simulator.programs.layout import SLACK_NS, Seat, build
from slomo.simulator.programs.prefill import prefill
from slomo.simulator.programs.program import program
from slomo.simulator.result import SimulationResult, assemble
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.network_function import NetworkFunction
from slomo.vocabulary.workload import Workload

DEFAULT_SCALE = 16
#: Line accesses measured at least.
DEFAULT_ACCESSES = 350_000
#: Tolerance of each tenant's rate, compared with twice its standard error.
DEFAULT_TOLERANCE = 0.005
#: Number of line accesses after which a simulation stops and reports that it did not converge.
DEFAULT_BUDGET = 40_000_000
_PILOT_NS = 20_000.0
_LONGEST_NS = 2e9


@dataclass(frozen=True)
class Tenant:
    """One workload on one core.

    Attributes
    ----------
    workload : Workload
        Running NFs and their traffic.
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
    tolerance: float = DEFAULT_TOLERANCE,
    budget: int = DEFAULT_BUDGET,
    least_warm_up_us: float = 0.0,
    slack_ns: float = SLACK_NS,
    port_gbps: float | None = None,
) -> SimulationResult:
    """Simulate tenants that share a machine, and count events.

    Pure function: equal arguments give equal results, byte for byte.

    Parameters
    ----------
    machine : Machine
        The server.
    tenants : sequence of Tenant
        The tenants and their cores; may be empty.
    seed : int
        Of the tenants' random accesses and arrivals.
    scale : int
        Factor by which cache sets, footprints and buffers are scaled down together, 1 to 64.
    accesses : int
        Line accesses to measure over at least, 10 000 or more.
    tolerance : float
        Share of each tenant's rate that twice its standard error may be, above 0 to 0.1.
    budget : int
        Line accesses, warm-up included, after which it ends in any case and says that it has not converged.
    least_warm_up_us : float
        Simulated time that is left out at least before measuring [us].
    slack_ns : float
        How far one core may run ahead of the others [ns].
    port_gbps : float, optional
        Line rate of the one port that all tenants share [Gbit/s]; by default they share the machine's ports.

    Returns
    -------
    SimulationResult
        Per tenant throughput [Mpps], loss, latency [us] and core-level metrics; socket and system metrics; all with
        standard errors, and whether every tenant has converged.

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
    if not 0.0 < tolerance <= 0.1:
        raise InvalidValueError(f"tolerance is {tolerance}, needed above 0 to 0.1")
    if budget < accesses:
        raise InvalidValueError(f"budget is {budget} accesses, needed at least the {accesses} to measure over")
    seats = _seats(machine, tenants)
    if not seats:
        return _nobody(machine)
    if port_gbps is not None and not port_gbps > 0.0:
        raise InvalidValueError(f"line rate of the shared port is {port_gbps} Gbit/s, needed above 0")
    state = build(machine, seats, seed=seed, scale=scale, slack_ns=slack_ns, port_gbps=port_gbps)
    prefill(state)
    # latencies of competitors are not reported, so they are not collected
    timed = np.array([not tenant.network_function.synthetic for tenant in tenants])
    series = Series(state, timed, tolerance, least_warm_up_us * 1e3)
    first = _play(state, series, accesses, budget)
    return assemble(machine, seats, series.measured(first, scale))


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


def _play(state: s.State, series: Series, accesses: int, budget: int) -> int:
    """Run until every tenant is warm and its rate precise, or the budget is spent; return the batches to discard."""
    kernel = _kernels()
    kernel.run_until(state, _PILOT_NS)
    step = max(_PILOT_NS, _PILOT_NS * accesses / max(1, s.accesses(state.counters)) / LEAST_BATCHES)
    now, meter = _PILOT_NS, _Meter(state)
    first = None
    while now < _LONGEST_NS:
        now += step
        kernel.run_until(state, now)
        if series.add(meter.batch(step)):
            step *= 2.0
        if len(series.batches) % 4 or len(series.batches) < LEAST_BATCHES:
            continue
        spent = series.accesses() >= budget
        first = series.warm_up(0 if spent else accesses)
        if spent or (first is not None and series.precise(first).all()):
            break
    return len(series.batches) // 2 if first is None else first


class _Meter:
    """Reads the counts of one batch after another."""

    def __init__(self, state: s.State) -> None:
        self._state = state
        ddio = int(state.machine[s.M_DDIO_MASK])
        self._owners = state.llc_owner.reshape(-1, 1 << state.machine[s.M_LLC_SHIFT])[
            :, ddio.bit_length() - ddio.bit_count() : ddio.bit_length()
        ]
        # for each tenant, the accesses of a packet up to the end of each operation
        self._accesses = [
            np.cumsum(
                np.append(
                    row[s.T_TOUCHED_LINES] + 1.0,
                    state.demand[row[s.T_FIRST_STRUCTURE] : row[s.T_LAST_STRUCTURE], s.D_ACCESSES],
                )
            ).tolist()
            for row in state.tenants
        ]
        self._before = self._look()

    def batch(self, span_ns: float) -> Batch:
        """Return the counts since the last call."""
        state, after = self._state, self._look()
        change: Any = [late - early for early, late in zip(self._before, after, strict=True)]
        counters, sums, busy, own, packets, noted = change
        latest = tuple(_latest(*row) for row in zip(state.latency, after[-1].tolist(), noted.tolist(), strict=True))
        self._before = after
        held = state.occupancy.astype(np.float64)
        played = s.accesses(counters)
        return Batch(span_ns, counters, sums, busy, packets, own, held, self._ddio_lines(), latest, played)

    def _look(self) -> tuple[s.Ints, s.Floats, s.Floats, s.Floats, s.Floats, s.Ints]:
        """Return the values whose differences make a batch: counters, sums, clocks, packets, latencies."""
        state = self._state
        return (
            state.counters.copy(),
            state.sums.copy(),
            state.channels[:, s.H_BUSY_TOTAL].copy(),
            state.clock.copy(),
            state.counters[:, s.C_PACKETS] + self._progress(),
            state.tenants[:, s.T_SAMPLES].copy(),
        )

    def _progress(self) -> s.Floats:
        """Return the finished share of each tenant's current packet."""
        at = self._state.tenants[:, [s.T_OPERATION, s.T_REMAINING]].tolist()
        done = [
            (up_to[operation] - remaining) / up_to[-1] if operation >= 0 else 0.0
            for up_to, (operation, remaining) in zip(self._accesses, at, strict=True)
        ]
        return np.array([min(1.0, max(0.0, share)) for share in done])

    def _ddio_lines(self) -> s.Floats:
        """Count, per tenant, the packet-buffer lines in the DDIO ways."""
        count = 2 * self._state.clock.size
        owners = (self._owners >> 1).ravel() + 1  # no line, then buffers and data in turns
        lines = np.bincount(owners, minlength=count + 1)
        return lines[1:count:2].astype(float)


def _latest(ring: s.Floats, end: int, count: int) -> s.Floats:
    """Return the last `count` numbers of a ring, at most its length; `end` numbers were written in all."""
    last = end % ring.size
    count = min(count, ring.size)
    if count <= last:
        return ring[last - count : last].copy()
    return np.concatenate((ring[last - count :], ring[:last]))


def _nobody(machine: Machine) -> SimulationResult:
    """Return the result for an idle machine: every rate is 0, ratios are missing."""
    channels = np.zeros(machine.sockets + 2)
    none, rows = np.zeros(0), np.zeros((0, s.A_COLUMNS))
    batch = Batch(1e3, np.zeros((0, s.C_COLUMNS), dtype=np.int64), rows, channels, none, none, none, none, (), 0)
    return assemble(machine, [], Measured([batch, batch], 1, 0.0, 0, np.zeros(0, dtype=bool)))
