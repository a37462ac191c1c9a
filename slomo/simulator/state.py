"""The simulator's state as plain arrays, and the names of their columns.

Kernels work on numbers only. All state of a tenant, a structure or a memory channel is in one row of an array. A copy
of the arrays is therefore a copy of the simulation, which can be continued.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from slomo.vocabulary.vector import Floats as Floats

Ints = NDArray[np.int64]
Shorts = NDArray[np.int32]
Owners = NDArray[np.int16]
Stamps = NDArray[np.uint16]
Bytes = NDArray[np.uint8]
Bools = NDArray[np.bool_]
Words = NDArray[np.uint64]


class State(NamedTuple):
    """All arrays of one simulation; the columns are the constants below."""

    machine: tuple[int, ...]  # M_COLUMNS numbers; tuples, so that kernels keep what never changes in registers
    timing: tuple[float, ...]  # X_COLUMNS numbers
    llc: Shorts  # (domains * sets << M_LLC_SHIFT,) the line in each way
    llc_stamps: Stamps  # same shape, stamp of each line's last use by its set's clock
    llc_clock: Stamps  # (domains * sets,)
    llc_duel: Ints  # (domains, 2) misses with new lines first minus those with new lines last; insertions by the latter
    llc_owner: Owners  # same shape, 2 * owner of the line + 1 if it differs from memory; -1 without a line
    l2: Shorts  # (cores * sets << M_L2_SHIFT,)
    l2_stamps: Stamps
    l2_clock: Stamps  # (cores * sets,)
    l2_flags: Bytes  # same shape, CHANGED and PREFETCHED
    l2_ready: Floats  # same shape, arrival time of a prefetched line [ns]; (0,) without a prefetcher
    streams: Shorts  # (cores * LANES,) as a cache: the pages that each prefetcher follows; (0,) without one
    stream_stamps: Stamps
    stream_clock: Stamps  # (cores,)
    stream_ends: Ints  # (cores * LANES, P_COLUMNS)
    in_flight: Floats  # (cores, IN_FLIGHT) arrival times of the lines that an L2 has requested [ns]
    tenants: Ints  # (tenants, T_COLUMNS)
    rates: Floats  # (tenants, F_COLUMNS)
    clock: Floats  # (tenants,) [ns]
    random: Words  # (tenants,) one xorshift generator each
    structures: Ints  # (structures, S_COLUMNS)
    demand: Floats  # (structures, D_COLUMNS)
    zipf: Ints  # (tables, ZIPF_PIECES + 1) inverse distribution functions
    arrivals: Floats  # (tenants, queue) arrival times [ns] of queued packets
    latency: Floats  # (tenants, LATENCY_SAMPLES) [ns]
    occupancy: Ints  # (2 * tenants,) LLC lines held: packet buffers, then data
    counters: Ints  # (tenants, C_COLUMNS)
    sums: Floats  # (tenants, A_COLUMNS)
    channels: Floats  # (sockets + 2 + accelerators, H_COLUMNS): memory, link, accelerators, ports
    queued: Floats  # (tenants, ACCELERATOR_SLOTS) when a packet went to the accelerator; later when it is done [ns]
    requests: Ints  # (tenants, ACCELERATOR_SLOTS) its requests not yet served
    line_owner: Owners  # (lines,) the owner, for shared lines; (0,) where every line is its tenant's own
    line_holder: Owners  # (buffer lines,) the L2 that had a line last, -1 for none; (0,) without shared lines


class Batches(NamedTuple):
    """Counts per batch of simulated time, one row each; the last row has the sums."""

    span_ns: Floats  # (rows,)
    accesses: Ints  # (rows,)
    counters: Ints  # (rows, tenants, C_COLUMNS)
    sums: Floats  # (rows, tenants, A_COLUMNS)
    busy_ns: Floats  # (rows, channels)
    packets: Floats  # (rows, tenants) packets processed, with fractions
    own_ns: Floats  # (rows, tenants) span by each core's own clock
    samples: Ints  # (rows, tenants) number of latencies recorded
    held: Floats  # (rows, 2 * tenants) LLC lines: packet buffers, data
    in_ddio: Floats  # (rows, tenants) packet-buffer lines in the DDIO ways
    latency_ns: Floats  # (rows, tenants, LATENCY_SAMPLES) the latest ones

    def part(self, rows: slice) -> "Batches":
        """Return the counters of those simulated batches that `rows` selects."""
        return Batches._make(each[rows] for each in self)


def no_batches(rows: int, tenants: int, channels: int) -> Batches:
    """Return empty arrays for the counts of batches."""
    return Batches(
        np.zeros(rows),
        np.zeros(rows, dtype=np.int64),
        np.zeros((rows, tenants, C_COLUMNS), dtype=np.int64),
        np.zeros((rows, tenants, A_COLUMNS)),
        np.zeros((rows, channels)),
        np.zeros((rows, tenants)),
        np.zeros((rows, tenants)),
        np.zeros((rows, tenants), dtype=np.int64),
        np.zeros((rows, 2 * tenants)),
        np.zeros((rows, tenants)),
        np.empty((rows, tenants, LATENCY_SAMPLES)),
    )


def zero_counters(state: State) -> None:
    """Reset all counts; the state of caches and clocks stays."""
    state.counters[:] = 0
    state.sums[:] = 0.0
    state.channels[:, H_BUSY_TOTAL] = 0.0


# A line is a number; every tenant has its own range of numbers, packet buffers first. Its owner is 2 * tenant for
# packet buffers, 2 * tenant + 1 for data. A slot is a way of a set; the ways of a set are padded to 16 or 32 slots.
NARROW_SHIFT, WIDE_SHIFT, LANES = 4, 5, 32
WAY_BITS, WAY_MASK = 5, 31
NO_LINE = -1
NEVER_OLDEST = 2**16 - 1
#: Flags of a line in an L2: it differs from the LLC or memory; it was prefetched and not used yet.
CHANGED, PREFETCHED = 1, 2

# machine
M_LLC_SETS, M_LLC_WAYS, M_L2_SETS, M_L2_MASK, M_INCLUSIVE, M_DDIO_MASK, M_SOCKETS, M_MOVED_MASK, M_ADAPTIVE, \
    M_PREFETCH, M_LLC_SHIFT, M_L2_SHIFT, M_COLUMNS = range(13)  # fmt: skip
# timing [ns]
(
    X_L2_HIT, X_LLC_HIT, X_DRAM_LOCAL, X_DRAM_REMOTE, X_WINDOW, X_SPEED_AT_KNEE, X_KNEE, X_SPEED_FULL, X_SLACK,
    X_BUFFERED, X_POLL_SLOTS, X_COLUMNS,
) = range(12)  # fmt: skip
# tenants
(
    T_DOMAIN, T_SOCKET, T_MEMORY_SOCKET, T_WAY_MASK, T_OPERATION, T_REMAINING, T_WRITES_LEFT, T_FIRST_STRUCTURE,
    T_LAST_STRUCTURE, T_SLOTS, T_DATA_LINES, T_TOUCHED_LINES, T_WRITTEN_LINES, T_HEAD, T_FILLED, T_SENT, T_BURST,
    T_SATURATED, T_QUEUE_LIMIT, T_ARRIVED, T_NIC_LOCAL, T_ACCELERATOR, T_SAMPLES, T_FIRST_LINE, T_DATA_LINE,
    T_DEPTH, T_SERVED, T_RETIRED, T_L2, T_SIBLING, T_END_LINE, T_PENDING,
    T_DELAY, T_COLUMNS,
) = range(34)  # fmt: skip
# rates
(
    F_GAP, F_PACKET_MLP, F_INTERARRIVAL, F_NEXT_ARRIVAL, F_THROTTLE, F_ACCELERATOR, F_RING_FACTOR, F_REQUESTS,
    F_REQUEST_CREDIT, F_WIRE_BITS, F_WIRE_DUE, F_CARD_FREE, F_CARD_GRANTED, F_RECEIVE_LINES, F_SEND_LINES,
    F_SLOTS, F_SLOTS_USED, F_SLOTS_SINCE, F_SLOTS_SHARE, F_COLUMNS,
) = range(20)  # fmt: skip
# structures
S_BASE, S_LINES, S_PATTERN, S_CURSOR, S_ZIPF, S_COLUMNS = range(6)
RANDOM, SEQUENTIAL, ZIPF = range(3)
# demand
D_ACCESSES, D_WRITES, D_MLP, D_ACCESS_CREDIT, D_WRITE_CREDIT, D_COLUMNS = range(6)
# streams that a prefetcher follows
P_LAST, P_DIRECTION, P_STEPS, P_FURTHEST, P_COLUMNS = range(5)
# counters
(
    C_PACKETS, C_L2_HIT, C_L2_MISS, C_L3_HIT, C_L3_MISS, C_READ_LOCAL, C_READ_REMOTE, C_WRITE_LOCAL, C_WRITE_REMOTE,
    C_RX_HIT, C_RX_MISS, C_TX_HIT, C_TX_MISS, C_LOST, C_ARRIVED, C_COLUMNS,
) = range(16)  # fmt: skip
# sums
A_IDLE, A_DRAM_LATENCY, A_COLUMNS = range(3)
# channels
(
    H_SERVICE, H_WINDOW_START, H_WINDOW_BUSY, H_FACTOR, H_BACKLOG, H_LAST, H_UTILISATION, H_BUSY_TOTAL, H_FREE,
    H_TURN, H_GRANT, H_VIRTUAL, H_COLUMNS,
) = range(13)  # fmt: skip

ZIPF_PIECES = 1024
#: Lines in flight of one L2: the entries of its queue (superqueue).
IN_FLIGHT = 16
LATENCY_SAMPLES = 4096
# Capacity for one tenant's packets at an accelerator: at most half is used, so that no slot is reused too soon.
ACCELERATOR_SLOTS = 64
