"""Results of a simulation: counts converted to slomo's metrics, in the units of Intel PCM.

The counters are those of Intel PCM (metrics table of SLOMO, SIGCOMM'20, section 5); everything is free of noise.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from slomo.errors import SlomoError
from slomo.simulator import state as s
from slomo.simulator.convergence import DRIFT_DEVIATIONS, PERCENTILE_PACKETS, Measured, ratio, served, standard_error
from slomo.simulator.hardware.port import AHEAD, WAITING
from slomo.simulator.programs.layout import POLL_IPC, Seat, arrival_mpps
from slomo.simulator.programs.program import LINE_B
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector

#: Relative excess of requests over a channel's capacity that is tolerated: its queue at the end, and rounding.
QUEUED_NS, POSSIBLE_ROUNDING = 5000.0, 0.005
_PERCENTILES = np.array([0.5, 0.95, 0.99])


@dataclass(frozen=True)
class TenantResult:
    """Simulated throughput, metrics and latency of one tenant."""

    #: Packets processed [Mpps]; with an offered load, that load times the share of arrivals that was processed.
    throughput_mpps: float
    #: Share of the packets offered (for a saturating load: of the line rate) that were not processed, 0 to 1.
    loss: float
    #: ``p50``, ``p95``, ``p99`` of the time from arrival to departure [us]; empty below 5000 packets.
    latency_us: Mapping[str, float]
    #: Core-level metrics.
    vector: MetricVector
    #: Packets that arrive, processed or not [Mpps]; for a saturating load the line rate.
    arrived_mpps: float
    #: Per packet, as ResQ (NSDI'18) Table 1 reports them.
    instructions_per_packet: float
    cycles_per_packet: float
    l3_references_per_packet: float
    #: Standard errors of ``throughput_mpps``, ``loss``, ``latency_p50_us`` and so on, and of every metric of the
    #: vector.
    standard_errors: Mapping[str, float]
    #: Number of independent packets whose mean latency would have the same standard error; 0 without latencies.
    effective_packets: float
    #: Whether the tenant's rate and occupancy did not drift and the error of its rate is within the tolerance.
    converged: bool


@dataclass(frozen=True)
class SimulationResult:
    """Result of a simulation of one machine."""

    #: In the order of the tenants simulated.
    tenants: tuple[TenantResult, ...]
    #: One socket-level vector for each socket; READ and WRITE count the socket's memory traffic for cores of all
    #: sockets.
    sockets: tuple[MetricVector, ...]
    #: Metrics of the whole machine.
    system: MetricVector
    #: Standard errors of the sockets' metrics.
    socket_errors: tuple[Mapping[str, float], ...]
    #: Simulated time that was measured, and that was discarded before [us].
    duration_us: float
    warm_up_us: float
    #: Line accesses simulated, warm-up included.
    accesses: int

    @property
    def converged(self) -> bool:
        """Whether every tenant has converged."""
        return all(tenant.converged for tenant in self.tenants)


class Totals(NamedTuple):
    """Counts of several tenants or sockets, in all and per batch of simulated time.

    All of shape ``(tenants, 1 + batches)``, the sum over all batches first.
    """

    instructions: s.Floats
    cycles: s.Floats
    l2_hit: s.Floats
    l2_miss: s.Floats
    l3_hit: s.Floats
    l3_miss: s.Floats
    local_lines: s.Floats
    remote_lines: s.Floats
    read_lines: s.Floats
    write_lines: s.Floats
    latency_ns: s.Floats
    occupancy_lines: s.Floats
    ddio_lines: s.Floats
    pcie_hit: s.Floats
    pcie_miss: s.Floats

    def of(self, members: Sequence[int]) -> "Totals":
        """Return the sums over some rows, always added in the same order, each of shape ``(1 + batches,)``."""
        return Totals(*(sum(each[members], np.zeros(each.shape[1])) for each in self))


def _whole_first(values: s.Floats) -> s.Floats:
    return np.concatenate([values.sum(axis=0)[None], values])


def totals(machine: Machine, seats: Sequence[Seat], measured: Measured, span_ns: s.Floats, packets: s.Floats) -> Totals:
    """Return all tenants' counts, in all and per batch; `packets`, shape (1 + batches, tenants): processed."""
    batches, share = measured.batches, span_ns[1:, None] / span_ns[0]
    count = _whole_first(batches.counters.astype(np.float64)).T
    idle_ns, latency_ns = _whole_first(batches.sums).T[[s.A_IDLE, s.A_DRAM_LATENCY]]
    held, in_ddio = (
        np.concatenate([(share * lines).sum(axis=0)[None], lines]).T for lines in (batches.held, batches.in_ddio)
    )
    polled = np.minimum(span_ns, idle_ns) * machine.frequency_ghz * POLL_IPC
    per_packet = np.array([seat.program.instructions for seat in seats])
    return Totals(
        instructions=(packets * per_packet).T + polled,
        cycles=np.tile(span_ns * machine.frequency_ghz, (len(seats), 1)),
        l2_hit=count[s.C_L2_HIT],
        l2_miss=count[s.C_L2_MISS],
        l3_hit=count[s.C_L3_HIT],
        l3_miss=count[s.C_L3_MISS],
        local_lines=count[s.C_READ_LOCAL] + count[s.C_WRITE_LOCAL],
        remote_lines=count[s.C_READ_REMOTE] + count[s.C_WRITE_REMOTE],
        read_lines=count[s.C_READ_LOCAL] + count[s.C_READ_REMOTE],
        write_lines=count[s.C_WRITE_LOCAL] + count[s.C_WRITE_REMOTE],
        latency_ns=latency_ns,
        occupancy_lines=(held[::2] + held[1::2]) * measured.scale,
        ddio_lines=in_ddio * measured.scale,
        pcie_hit=count[s.C_RX_HIT] + count[s.C_TX_HIT],
        pcie_miss=count[s.C_RX_MISS] + count[s.C_TX_MISS],
    )


def vectors(
    machine: Machine, counts: Totals, whose: Sequence[tuple[Scope, int]], span_ns: s.Floats, link: s.Floats | None
) -> list[tuple[MetricVector, dict[str, float]]]:
    """Convert counts to metrics with standard errors; a ratio without events is left out.

    `whose`: scope and number of cores of each vector. `link`: utilisation of the link between sockets, a metric that
    cores do not have.
    """
    per_us = 1e3 / span_ns  # counts per microsecond are millions per second
    to_gb_s = LINE_B / span_ns
    to_mib_s = to_gb_s * 1e9 / 2**20
    nominal = span_ns * machine.frequency_ghz * np.array([[cores] for _, cores in whose])
    reads, references = counts.l2_hit + counts.l2_miss, counts.l3_hit + counts.l3_miss
    quotients = {
        "IPC": (counts.instructions, counts.cycles),
        "EXEC": (counts.instructions, nominal),
        "FREQ": (counts.cycles, nominal),
        "L3MPI": (counts.l3_miss, counts.instructions),
        "L3HIT": (counts.l3_hit, references),
        "L2MPI": (counts.l2_miss, counts.instructions),
        "L2HIT": (counts.l2_hit, reads),
        "LLCMISSLAT": (counts.latency_ns, counts.l3_miss),
    }
    levels = {
        "INST": counts.instructions * per_us,
        "L3MISS": counts.l3_miss * per_us,
        "L3OCC": counts.occupancy_lines * LINE_B / 1024,
        "L2MISS": counts.l2_miss * per_us,
        "LMB": counts.local_lines * to_mib_s,
        "RMB": counts.remote_lines * to_mib_s,
        "READ": counts.read_lines * to_gb_s,
        "WRITE": counts.write_lines * to_gb_s,
        "DDIOOCC": counts.ddio_lines * LINE_B / 1024,
        "PCIEHIT": counts.pcie_hit * per_us,
        "PCIEMISS": counts.pcie_miss * per_us,
    }
    if link is not None:
        levels["UPI"] = np.broadcast_to(link, counts.cycles.shape)
    parts, wholes = (_by_batch(each) for each in zip(*quotients.values(), strict=True))
    level_of = _by_batch(levels.values())
    shape = (-1, len(whose))
    known = (wholes[0] > 0.0).reshape(shape).T.tolist()
    values = (parts[0] / np.where(wholes[0] > 0.0, wholes[0], 1.0)).reshape(shape).T.tolist()
    errors = ratio(parts[1:], wholes[1:]).error.reshape(shape).T.tolist()
    level_values = level_of[0].reshape(shape).T.tolist()
    level_errors = standard_error(level_of[1:]).reshape(shape).T.tolist()
    found = []
    for i, (scope, _) in enumerate(whose):
        here = [*zip(quotients, known[i], values[i], errors[i], strict=True)][: None if scope is Scope.SOCKET else -1]
        rows = [("AFREQ", 1.0, 0.0)] if counts.cycles[i, 0] else []
        rows += [(name, value, error) for name, is_known, value, error in here if is_known]
        rows += [
            row
            for row in zip(levels, level_values[i], level_errors[i], strict=True)
            if scope is not Scope.CORE or row[0] != "UPI"
        ]
        found.append(
            (
                MetricVector({name: value for name, value, _ in rows}, scope=scope),
                {name: error for name, _, error in rows},
            )
        )
    return found


def _by_batch(counts: Iterable[s.Floats]) -> s.Floats:
    """Return counts of shape (vectors, 1 + batches) with each column contiguous, so that numpy sums it pairwise."""
    rows = np.array([*counts])
    return rows.reshape(-1, rows.shape[-1]).T


def assemble(machine: Machine, seats: Sequence[Seat], measured: Measured) -> SimulationResult:
    """Convert the counts of a finished simulation to its result.

    Raises SlomoError (an internal fault) if more was moved than a channel, the link, the ports or the IIO can move, or
    if packets vanished.
    """
    batches, span_ns = measured.batches, _whole_first(measured.batches.span_ns)
    busy_ns, packets = _whole_first(batches.busy_ns), _whole_first(batches.packets)
    # clocks run slightly past the end; scale every tenant's packets to the common time span
    packets[0] *= span_ns[0] / np.maximum(1.0, batches.own_ns.sum(axis=0))
    # the time to send the frames that may still wait when the simulation ends
    on_wire_ns = sum(
        (AHEAD if seat.program.offered_mpps is None else WAITING) * seat.program.wire_bits / machine.shared_wire_gbps()
        for seat in seats
    )
    require_possible(machine, busy_ns[0], float(span_ns[0]), on_wire_ns)
    _require_counted(seats, batches.counters.sum(axis=0))
    cores, sockets = totals(machine, seats, measured, span_ns, packets), []
    link = np.minimum(1.0, busy_ns[:, machine.sockets] / span_ns) if machine.sockets > 1 else None
    for socket in range(machine.sockets):
        inside = cores.of([i for i, seat in enumerate(seats) if machine.socket_of(seat.core) == socket])
        # as PCM counts at a socket's memory controllers, for requests from all sockets
        held = cores.of([i for i, seat in enumerate(seats) if seat.memory_socket == socket])
        sockets.append(inside._replace(read_lines=held.read_lines, write_lines=held.write_lines))
    by_socket = Totals(*map(np.array, zip(*sockets, strict=True)))
    system = by_socket.of(range(machine.sockets))
    counts = Totals(*(np.vstack(each) for each in zip(cores, by_socket, system, strict=True)))
    whose = [(Scope.CORE, 1)] * len(seats) + [(Scope.SOCKET, machine.cores_per_socket)] * machine.sockets
    all_vectors = vectors(machine, counts, [*whose, (Scope.SYSTEM, machine.cores)], span_ns, link)
    of_sockets = all_vectors[len(seats) : -1]
    return SimulationResult(
        tenants=tuple(
            _tenant(machine, seats[i], measured, counts, packets[:, i], i, all_vectors[i]) for i in range(len(seats))
        ),
        sockets=tuple(values for values, _ in of_sockets),
        system=all_vectors[-1][0],
        socket_errors=tuple(errors for _, errors in of_sockets),
        duration_us=float(span_ns[0]) / 1e3,
        warm_up_us=measured.warm_up_ns / 1e3,
        accesses=measured.accesses,
    )


def require_possible(machine: Machine, busy_ns: s.Floats, span_ns: float, on_wire_ns: float = 0.0) -> None:
    """Raise an internal error if more was moved than the hardware can move.

    Raises SlomoError with the amount moved and the largest possible amount.
    """
    names = [*(f"memory channels of socket {socket}" for socket in range(machine.sockets)), "link between sockets"]
    for name, busy in [*zip(names, busy_ns, strict=False), ("ports and IIO", busy_ns[-1] - on_wire_ns)]:
        if busy > span_ns * (1.0 + POSSIBLE_ROUNDING) + QUEUED_NS:
            raise SlomoError(
                f"machine '{machine.name}': the {name} were asked for {busy:.0f} ns of service in {span_ns:.0f} ns",
                hint="this is a fault of the simulator; please report the call that led here",
            )


def _require_counted(seats: Sequence[Seat], counters: s.Ints) -> None:
    """Raise an internal error for a packet that arrived but is neither processed, lost nor waiting."""
    for seat, count in zip(seats, counters, strict=True):
        if seat.program.offered_mpps is None:
            continue
        missing = int(count[s.C_ARRIVED] - count[s.C_LOST] - count[s.C_PACKETS])
        if abs(missing) > 2 * seat.program.packet_buffers + 1:
            raise SlomoError(
                f"of {count[s.C_ARRIVED]} packets of the tenant on core {seat.core} {missing} are unaccounted for",
                hint="this is a fault of the simulator; please report the call that led here",
            )


def _tenant(
    machine: Machine,
    seat: Seat,
    measured: Measured,
    counts: Totals,
    packets: s.Floats,
    tenant: int,
    vector: tuple[MetricVector, dict[str, float]],
) -> TenantResult:
    batches, (values, errors) = measured.batches, vector
    arrived = arrival_mpps(machine, seat.program)
    if seat.program.offered_mpps is None:
        throughput = float(packets[0]) * 1e3 / float(batches.span_ns.sum())
        loss = max(0.0, 1.0 - throughput / arrived)
        share_error = float(ratio(packets[1:], batches.span_ns).error) * 1e3 / arrived
    else:
        share, loss, share_error = _served(batches, packets[1:], tenant, arrived)
        throughput = share * arrived
        loss = 1.0 - (1.0 - loss) * min(arrived / seat.program.offered_mpps, 1.0)
    samples = zip(batches.latency_ns[:, tenant], batches.samples[:, tenant].tolist(), strict=True)
    latency_us, latency_errors, effective = _latency([row[:count] for row, count in samples])
    processed = float(packets[0])
    return TenantResult(
        throughput_mpps=throughput,
        loss=loss,
        latency_us=latency_us,
        vector=values,
        arrived_mpps=arrived,
        instructions_per_packet=float(counts.instructions[tenant, 0]) / processed if processed else 0.0,
        cycles_per_packet=float(counts.cycles[tenant, 0]) / processed if processed else 0.0,
        l3_references_per_packet=float(counts.l2_miss[tenant, 0]) / processed if processed else 0.0,
        standard_errors={
            "throughput_mpps": share_error * arrived,
            "loss": share_error,
            **{f"latency_{name}_us": error for name, error in latency_errors.items()},
            **errors,
        },
        effective_packets=effective,
        converged=bool(measured.converged[tenant]),
    )


def _served(batches: s.Batches, packets: s.Floats, tenant: int, arrived_mpps: float) -> tuple[float, float, float]:
    """Return the processed share of arrivals, the lost share, and the standard error of the processed share.

    Arrivals that lengthen the queue by more than chance count as lost.
    """
    arrived, lost = batches.counters[:, tenant, [s.C_ARRIVED, s.C_LOST]].T.astype(np.float64)
    if not arrived.any():
        return 1.0, 0.0, float("nan")
    expected = batches.own_ns[:, tenant] * arrived_mpps / 1e3
    served_share = ratio(served(packets, arrived, expected), expected)
    share = min(1.0, float(served_share.value))
    dropped = max(0.0, float(ratio(served(lost, arrived, expected), expected).value))
    growing = 1.0 - share > dropped + DRIFT_DEVIATIONS * float(served_share.error)
    return share, 1.0 - share if growing else dropped, float(served_share.error)


def _latency(batches: Sequence[s.Floats]) -> tuple[dict[str, float], dict[str, float], float]:
    """Return latency percentiles [us] with standard errors, and the equivalent number of independent packets."""
    samples = np.concatenate([*batches, np.zeros(0)])
    if samples.size < PERCENTILE_PACKETS:
        return {}, {}, 0.0
    names, batches = ("p50", "p95", "p99"), [batch for batch in batches if batch.size]
    means = np.array([np.add.reduce(batch) / batch.size for batch in batches])
    each = np.array([_percentiles(batch) for batch in batches]) / 1e3
    spread = float(standard_error(means))
    effective = samples.size if spread == 0.0 else min(samples.size, float(samples.var()) / spread**2)
    values = _percentiles(samples) / 1e3
    return (
        dict(zip(names, values.tolist(), strict=True)),
        dict(zip(names, standard_error(each).tolist(), strict=True)),
        float(effective),
    )


def _percentiles(samples: s.Floats) -> s.Floats:
    """Return the 50th, 95th and 99th percentile, interpolated like numpy's default."""
    position = (samples.size - 1) * _PERCENTILES
    below = position.astype(np.int64)
    ordered = np.sort(samples)
    low, high = ordered[below], ordered[np.minimum(below + 1, samples.size - 1)]
    return np.asarray(low + (high - low) * (position - below))
