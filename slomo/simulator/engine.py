"""Simulate network functions that share a machine: put them on cores, warm the caches, measure, report.

The simulator is the ground truth for predictions without a rack. It shares no equation with composition or prediction:
each line access is simulated through L2, LLC, DDIO and memory (DESIGN section 4; the method follows ResQ, NSDI'18,
section 4).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slomo.errors import InvalidValueError
from slomo.simulator import first_compile
from slomo.simulator import state as s
from slomo.simulator.convergence import LEAST_BATCHES, Measured, Series
from slomo.simulator.kernel import play
from slomo.simulator.programs.layout import SLACK_NS, Seat, build, scale_of, seat_of
from slomo.simulator.programs.prefill import prefill
from slomo.simulator.programs.program import program
from slomo.simulator.result import SimulationResult, assemble
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.network_function import NetworkFunction
from slomo.vocabulary.workload import Workload

#: Least number of line accesses to measure.
DEFAULT_ACCESSES = 350_000
#: Tolerance of each tenant's rate, compared with twice its standard error.
DEFAULT_TOLERANCE = 0.005
#: Number of line accesses after which a simulation stops and reports that it did not converge.
DEFAULT_BUDGET = 40_000_000
_PILOT_NS = 20_000.0
_LONGEST_NS = 2e9


@dataclass(frozen=True)
class Tenant:
    """One workload (network function with traffic) on one core."""

    #: The NF, its settings and its traffic.
    workload: Workload
    #: Description of the NF.
    network_function: NetworkFunction
    #: Core of the machine; each core runs at most one tenant.
    core: int
    #: Mask of the LLC ways that the tenant may fill (Intel CAT); None means all.
    llc_way_mask: int | None = None
    #: Memory bandwidth throttle (Intel MBA), 10 to 100 [%].
    mba_percent: float | None = None
    #: Socket of the tenant's memory; None means the socket of its core.
    memory_socket: int | None = None


def simulate(
    machine: Machine,
    tenants: Sequence[Tenant],
    *,
    seed: int = 0,
    scale: int | None = None,
    accesses: int = DEFAULT_ACCESSES,
    tolerance: float = DEFAULT_TOLERANCE,
    budget: int = DEFAULT_BUDGET,
    least_warm_up_us: float = 0.0,
    slack_ns: float = SLACK_NS,
    port_gbps: float | None = None,
) -> SimulationResult:
    """Simulate network functions that share a machine, and return throughput, counters and latency of each.

    Pure function: equal arguments give equal results, byte for byte.

    Parameters
    ----------
    machine : Machine
        The server.
    tenants : sequence of Tenant
        The tenants and their cores; may be empty.
    seed : int
        Seed of the tenants' random accesses and arrivals.
    scale : int, optional
        Factor by which cache sets, footprints and buffers are scaled down together, 1 to 64; by default 16, or less if
        the DDIO ways would hold few packets (`layout.scale_of`).
    accesses : int
        Least number of line accesses to measure, 10 000 or more.
    tolerance : float
        Largest relative error: twice the standard error of each tenant's rate, as a share of that rate; above 0 to 0.1.
    budget : int
        Number of line accesses, warm-up included, after which the simulation ends; the result then states that it has
        not converged.
    least_warm_up_us : float
        Least simulated time to discard before measuring [us].
    slack_ns : float
        How far one core may run ahead of the others [ns].
    port_gbps : float, optional
        Line rate of the one NIC port that all tenants, on any socket, share [Gbit/s]; by default they share the
        machine's ports.

    Returns
    -------
    SimulationResult
        Per tenant throughput [Mpps], loss, latency [us] and core-level metrics; socket and system metrics; all with
        standard errors, and whether every tenant has converged.

    Raises
    ------
    InvalidValueError
        If a core is used twice or does not exist, the machine has no such way mask or throttle, or a setting is out of
        range.

    Examples
    --------
    >>> from slomo.vocabulary.machine import load_machine
    >>> from slomo.vocabulary.network_function import load_network_function
    >>> tenant = Tenant(Workload("l2fwd"), load_network_function("l2fwd"), core=0)
    >>> result = simulate(load_machine("e5-2620v4"), [tenant], seed=1, accesses=20_000)
    >>> result.tenants[0].throughput_mpps > 5
    True
    """
    if scale is not None and not 1 <= scale <= 64:
        raise InvalidValueError(f"scale is {scale}, needed 1 to 64")
    if accesses < 10_000:
        raise InvalidValueError(f"accesses is {accesses}, needed at least 10 000")
    if not 0.0 < tolerance <= 0.1:
        raise InvalidValueError(f"tolerance is {tolerance}, needed above 0 to 0.1")
    if budget < accesses:
        raise InvalidValueError(f"budget is {budget} accesses, needed at least the {accesses} to measure over")
    seats = _seats(machine, tenants)
    if not seats:  # every rate is 0, ratios are missing
        batches = s.no_batches(2, 0, machine.sockets + 2)._replace(span_ns=np.full(2, 1e3))
        return assemble(machine, [], Measured(batches, 1, 0.0, 0, np.zeros(0, dtype=bool)))
    if port_gbps is not None and not port_gbps > 0.0:
        raise InvalidValueError(f"line rate of the shared port is {port_gbps} Gbit/s, needed above 0")
    scale = scale_of(machine, seats) if scale is None else scale
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
    return [
        seat_of(
            machine,
            f"tenant '{tenant.workload.nf}' on core {tenant.core}",
            program(tenant.network_function, tenant.workload),
            tenant.core,
            tenant.llc_way_mask,
            tenant.mba_percent,
            tenant.memory_socket,
        )
        for tenant in tenants
    ]


def _play(state: s.State, series: Series, accesses: int, budget: int) -> int:
    """Run until every tenant is warm and its rate precise, or the budget is spent; return the batches to discard."""
    first_compile.announce()
    batches, first = series.batches, None
    now, _ = play(state, batches, 0, 1, 0.0, _PILOT_NS, _LONGEST_NS)
    step = max(_PILOT_NS, _PILOT_NS * accesses / max(1, int(batches.accesses[0])) / LEAST_BATCHES)
    while now < _LONGEST_NS:
        now, count = play(state, batches, series.count, series.until_next_look, now, step, _LONGEST_NS)
        if series.is_at(count):
            step *= 2.0
        if series.count % 4 or series.count < LEAST_BATCHES:
            continue
        spent = series.accesses() >= budget
        first = series.warm_up(0 if spent else accesses)
        if spent or (first is not None and series.precise(first).all()):
            break
    return series.count // 2 if first is None else first
