"""Profile NFs with different numbers of cache ways, memory latencies (under noise) and memory throttles.

The runs are ordinary co-locations with isolation, so any testbed that can partition a server measures them.
"""

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from slomo.equilibrium.partition import Parted, Partitions, solve_partitions
from slomo.errors import InvalidValueError, MissingMetricError
from slomo.models.partition_profile import PartitionProfile
from slomo.models.responses.memory_traffic import fit_memory
from slomo.models.responses.partition import PartitionResponse
from slomo.records.run import RunRecord
from slomo.testbed.base import Testbed
from slomo.training.partition_fit import PartitionRow, fit_response, with_remote
from slomo.vocabulary.colocation import Colocation, Isolation
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.packet_buffers import LINE_B, lines_per_buffer
from slomo.vocabulary.server_setting import llc_numbers
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.way_masks import way_block
from slomo.vocabulary.workload import Workload

#: Measured throttles [%], and the numbers of ways at which they are measured.
THROTTLES = (10, 20, 40, 70)
#: Streams beside the NF, and the numbers of ways at which they run, beside all but one way.
NOISE_LEVELS = (0, 2, 5)
NOISY_WAYS = (1, 3, 6, 12)
#: Runs in which streams fill the workload's ways: share of the ways into which no card writes (at least as many ways),
#: streams, their throttle, the workload's throttle [%]. The workload occupies less of them than of ways of its own.
#: Each run is needed: without one, the mean error of 200 partitions is 0.03 to 0.3 points higher on the E5-2620 v4. Six
#: more, with other streams and throttles, did not lower it.
CROWDS = (
    *((0.5, 1, 1, percent, None) for percent in (10, None)),
    (0.0, 4, 1, 10, None),
    *((0.0, ways, 1, None, None) for ways in (1, 2)),
    *((share, 1, 1, None, 10) for share in (1.0, 0.0)),
)
#: Ways of the workload in runs with its memory and that of the streams on another node; streams: :data:`NOISE_LEVELS`.
AWAY_WAYS = 3
#: Random partitions run to calibrate intervals, with exclusive and with shared ways, and with memory on another node;
#: none is among the profiled ones.
CALIBRATION_RUNS, AWAY_CALIBRATION_RUNS = 24, 10
#: Share of the tenants of the latter runs whose memory is there: only they tell errors, beside tenants that are not.
AWAY_SHARE = 2.0 / 3.0
#: Shares of packets that may displace lines (`PartitionResponse.displaced`). The calibration runs choose one of them.
DISPLACED = tuple(step / 10.0 for step in range(11))
#: Share of way-sharing tenants left unthrottled in calibration runs.
UNTHROTTLED = 0.6
_STREAM = Workload(
    "synthetic", configuration={"data_size_mib": 64.0, "pattern": "sequential", "reads_per_packet": 1000}
)


def profile_partitions(
    testbed: Testbed, machine: Machine, workloads: Iterable[Workload], *, seed: int = 0
) -> PartitionProfile:
    """Measure workloads with different ways and throttles, and fit a model of each one's throughput.

    Each distinct workload is profiled once, on a testbed that can partition.
    """
    latency: list[float] = []
    traffic: list[float] = []
    away: list[tuple[float, float]] = []
    responses: dict[str, PartitionResponse] = {}
    seeds, runs = itertools.count(seed), 0
    for workload in dict.fromkeys(workloads):
        measured = []
        for colocation in partition_runs(machine, workload):
            record = testbed.run(colocation, seed=next(seeds))
            row, moved = _row(record, machine)
            measured.append((row, record))
            if row.bandwidth_percent >= 100.0 and row.latency_ns > 0.0:
                latency.append(row.latency_ns)
                traffic.append(moved)
        response = fit_response(workload.key, _with_latency([row for row, _ in measured]))
        response = _with_places(response, machine, *measured[0])
        far = _away_rows(testbed, machine, workload, next(seeds)) if machine.sockets > 1 else []
        if far:
            longer = machine.dram_remote_ns - machine.dram_local_ns
            rows = [replace(row, latency_ns=row.latency_ns or response.idle_ns + longer) for row, _ in far]
            response = with_remote(response, rows)
            away += [(row.latency_ns - longer, moved) for row, (_, moved) in zip(rows, far, strict=True)]
        runs += len(measured) + len(far)
        responses[workload.key] = response
    memory = replace(
        fit_memory(latency, traffic),
        most_gb_s=machine.capacities().memory_gb_s,
        away=fit_memory(*zip(*away, strict=True)) if away else None,
    )
    return PartitionProfile(machine.name, responses, memory, machine.fingerprint, runs=runs)


def partition_runs(machine: Machine, workload: Workload) -> list[Colocation]:
    """Return the runs that profile one workload: each number of ways, some under noise or throttled, and shared ways.

    In the shared-way runs streams fill the workload's ways, too: they tell how it does with less than one way.
    """
    most = machine.llc_ways
    throttled = sorted({1, min(3, most), *(round(most * share) for share in (0.35, 0.65, 1.0))})
    noisy = {*NOISY_WAYS, most - 1}
    runs = [
        _run(machine, workload, ways, min(noise, machine.cores_per_socket - 1))
        for ways in range(1, most + 1)
        for noise in (NOISE_LEVELS if ways in noisy and ways < most else NOISE_LEVELS[:1])
    ]
    runs += [_run(machine, workload, ways, 0, THROTTLES[0]) for ways in throttled]
    for ways in sorted({throttled[0], throttled[len(throttled) // 2]}):
        runs += [_run(machine, workload, ways, 0, percent) for percent in THROTTLES[1:]]
    for share, fewest, streams, percent, own in CROWDS:
        mask = way_block(min(max(round((most - machine.ddio_ways) * share), fewest), most))
        beside = (_STREAM,) * min(streams, machine.cores_per_socket - 1)
        masks = (Isolation(mask, own), *(Isolation(mask, percent) for _ in beside))
        runs.append(Colocation(machine.name, workload, beside, masks))
    return runs


def _away_rows(testbed: Testbed, machine: Machine, workload: Workload, seed: int) -> list[tuple[PartitionRow, float]]:
    """Run a workload and streams with memory on another node; a testbed that places memory itself returns no rows."""
    ways = max(1, min(AWAY_WAYS, machine.llc_ways - 1))
    levels = [min(noise, machine.cores_per_socket - 1) for noise in NOISE_LEVELS]
    runs = [replace(_run(machine, workload, ways, each), memory_node=_other_node(machine)) for each in levels]
    try:
        return [_row(testbed.run(run, seed=seed), machine) for run in runs]
    except InvalidValueError:
        return []


def _other_node(machine: Machine) -> int:
    return 1 - min(machine.nic_socket, 1)


def _run(machine: Machine, workload: Workload, ways: int, streams: int, percent: int | None = None) -> Colocation:
    """Return a run with memory-streaming competitors on the lowest way, and the workload on the ways above it."""
    first = 0 if ways == machine.llc_ways else 1
    own = Isolation(way_block(ways, first), percent)
    return Colocation(machine.name, workload, (_STREAM,) * streams, (own, *(Isolation(1),) * streams))


def _received_bytes(workload: Workload) -> int:
    return LINE_B * (lines_per_buffer(workload.traffic.packet_size_b) - 1)


def _with_places(
    response: PartitionResponse, machine: Machine, row: PartitionRow, record: RunRecord
) -> PartitionResponse:
    """Return the function with the places of packets, and those that hits leave empty, from its run in one way."""
    beside, kib_per_way = record.beside, machine.llc_mib * 1024.0 / machine.llc_ways
    assert beside is not None
    vector, written = beside.tenants[0].vector, machine.ddio_way_mask | machine.ddio_moved_way_mask
    if buffers := (vector.get("DDIOOCC") or 0.0) / kib_per_way:
        buffers *= written.bit_count() / machine.ddio_ways  # the ways to which lines move hold as many
        received = _received_bytes(record.colocation.tenants[0])
        response = response.with_both(buffer_ways=buffers, buffer_bytes=received, buffer_mask=written)
    requested = LINE_B * (vector.get("L2MISS") or 0.0) / row.throughput_mpps
    if machine.llc_policy == "victim" and requested > 0.0:
        private, mask = machine.l2_kib / kib_per_way, (record.colocation.isolation or (Isolation(1),))[0].llc_way_mask
        missed, empty = (row.fetched_bytes or 0.0) / requested, row.ways - (row.occupied_ways or row.ways)
        if (hit := 1.0 - missed - empty * missed) > 0.0 and not (mask or 1) & written:  # no packets in this way
            private = min(private, max(empty, 0.0) / hit)
        response = response.with_both(private_ways=private, requested_bytes=requested)
    return response


def _row(record: RunRecord, machine: Machine) -> tuple[PartitionRow, float]:
    beside = record.beside
    assert beside is not None
    target, socket = beside.tenants[0], beside.socket
    isolation = (record.colocation.isolation or (Isolation(),))[0]
    read, write, local, remote = (
        _needed(vector, name)
        for vector, name in ((socket, "READ"), (socket, "WRITE"), (target.vector, "LMB"), (target.vector, "RMB"))
    )
    rate = target.throughput_mpps
    own_gb_s = (local + remote) * 2**20 * 1e-9
    lines_kib = max(_needed(target.vector, "L3OCC") - (target.vector.get("DDIOOCC") or 0.0), 0.0)
    misses = target.vector.get("L3MISS")
    # a card that writes to memory takes the packet's lines out of the cache: they return to the places that they left
    returned = 0 if machine.ddio_ways else _received_bytes(record.colocation.tenants[0])
    others = (record.colocation.isolation or ())[1:]
    shares_ways = any(other.llc_way_mask == isolation.llc_way_mask for other in others)
    row = PartitionRow(
        ways=float((isolation.llc_way_mask or 0).bit_count()),
        shares_ways=shares_ways,
        occupied_ways=lines_kib / (machine.llc_mib * 1024.0) * machine.llc_ways,
        bandwidth_percent=float(isolation.memory_bandwidth_percent or 100),
        latency_ns=float(socket.get("LLCMISSLAT") or 0.0),
        throughput_mpps=rate,
        bytes_per_packet=own_gb_s * 1e3 / rate,
        fetched_bytes=None if misses is None else max(LINE_B * misses / rate - returned, 0.0),
    )
    return row, read + write


def _needed(vector: MetricVector, name: str) -> float:
    value = vector.get(name)
    if value is None:
        raise MissingMetricError(f"{name} was not reported", hint="profile on a testbed that counts memory traffic")
    return value


def _with_latency(rows: Sequence[PartitionRow]) -> list[PartitionRow]:
    """Give runs that missed no cache line, and so measured no memory latency, the lowest latency of the other runs."""
    idle = min((row.latency_ns for row in rows if row.latency_ns > 0.0), default=100.0)
    return [row if row.latency_ns > 0.0 else replace(row, latency_ns=idle) for row in rows]


def learn_partitions(
    testbed: Testbed, machine: Machine, workloads: Sequence[Workload], *, seed: int = 0
) -> PartitionProfile:
    """Profile workloads with different ways and throttles; calibrate intervals on random settings of random mixes."""
    profile = profile_partitions(testbed, machine, workloads, seed=seed)
    draw = random.Random(f"calibration {seed}")  # noqa: S311 - no secret
    different = list(dict.fromkeys(workloads))
    apart = [random_partition(machine, different, draw) for _ in range(CALIBRATION_RUNS)]
    crowded = [random_crowd(machine, different, draw) for _ in range(CALIBRATION_RUNS)]
    kinds = (random_partition, random_crowd) * (AWAY_CALIBRATION_RUNS // 2 if profile.memory.away else 0)
    far = [_on_nodes(kind(machine, different, draw), machine, draw) for kind in kinds]
    measured = []
    for number, colocation in enumerate(apart + crowded + far):
        record = testbed.run(colocation, seed=10_000 + seed + number)
        assert record.beside is not None
        measured.append((colocation, tuple(tenant.throughput_mpps for tenant in record.beside.tenants)))
    profile = _with_displaced(profile, machine, measured[: len(apart)])
    known: dict[str, list[tuple[float, float]]] = {"errors": [], "shared_errors": [], "away_errors": []}
    for colocation, rates in measured:
        masks = [isolation.llc_way_mask for isolation in colocation.isolation or ()]
        filled = list(zip(_llcs(colocation, machine), masks, strict=True))
        parted, responses = predict_partition(profile, colocation, machine), profile.responses
        nodes = colocation.memory_nodes
        for i, (guess, mpps) in enumerate(zip(parted.throughput_mpps, rates, strict=True)):
            if nodes is None or nodes[i] != machine.nic_socket:
                kind = "away_errors" if nodes else "shared_errors" if filled.count(filled[i]) > 1 else "errors"
                loss = 1.0 - parted.capacity_mpps[i] / responses[colocation.tenants[i].key].solo_mpps
                known[kind].append((guess / mpps - 1.0, loss))
    fields: dict[str, Any] = {kind: tuple(error for error, _ in pairs) for kind, pairs in known.items()}
    return replace(profile, losses=tuple(loss for pairs in known.values() for _, loss in pairs), **fields)


def _with_displaced(
    profile: PartitionProfile, machine: Machine, runs: Sequence[tuple[Colocation, tuple[float, ...]]]
) -> PartitionProfile:
    """Return the profile with the share of packets that displace lines, by runs of tenants with ways of their own."""

    def error(tried: PartitionProfile) -> float:
        both = [(predict_partition(tried, colocation, machine).throughput_mpps, rates) for colocation, rates in runs]
        return sum(abs(guess / mpps - 1.0) for each in both for guess, mpps in zip(*each, strict=True))

    tried = (
        replace(profile, responses={key: r.with_both(displaced=share) for key, r in profile.responses.items()})
        for share in DISPLACED
    )
    has_packets = any(response.buffer_ways for response in profile.responses.values())
    return min(tried, key=error) if has_packets else profile


def random_partition(machine: Machine, workloads: Sequence[Workload], draw: random.Random) -> Colocation:
    """Return a random mix in which each tenant owns its cache ways and half of them are throttled."""
    count = draw.randint(2, min(6, machine.cores_per_socket))
    mix = [draw.choice(workloads) for _ in range(count)]
    cuts = [0, *sorted(draw.sample(range(1, machine.llc_ways), count - 1)), machine.llc_ways]
    isolation = tuple(
        Isolation(way_block(end - start, start), draw.choice([None, 10 * draw.randint(1, 9)]))
        for start, end in itertools.pairwise(cuts)
    )
    return Colocation(machine.name, mix[0], tuple(mix[1:]), isolation)


def random_crowd(machine: Machine, workloads: Sequence[Workload], draw: random.Random) -> Colocation:
    """Return a random mix with ways as `--advise` assigns them: up to two tenants own ways, the rest share."""
    most = min(7, machine.cores_per_socket)
    count = draw.randint(min(3, most), most)
    mix = [draw.choice(workloads) for _ in range(count)]
    own = min(draw.choice([0, 0, 1, 1, 2]), count - 2)
    cuts = [0, *sorted(draw.sample(range(1, machine.llc_ways), own))]
    masks = [way_block(end - start, start) for start, end in itertools.pairwise(cuts)]
    rest = way_block(machine.llc_ways - cuts[-1], cuts[-1])
    throttles = [None if draw.random() < UNTHROTTLED else 10 * draw.randint(1, 9) for _ in range(count - own)]
    isolation = [Isolation(mask) for mask in masks] + [Isolation(rest, percent) for percent in throttles]
    return Colocation(machine.name, mix[0], tuple(mix[1:]), tuple(isolation))


def _on_nodes(colocation: Colocation, machine: Machine, draw: random.Random) -> Colocation:
    """Return a mix with the memory of at least one tenant on another node, and of the others on random nodes."""
    home, other = machine.nic_socket, _other_node(machine)
    rest = (other if draw.random() < AWAY_SHARE else home for _ in colocation.competitors)
    return replace(colocation, memory_node=(other, *rest))


def _llcs(colocation: Colocation, machine: Machine) -> list[int]:
    """Return the number of each tenant's last-level cache: the simulator gives tenants the first cores in order."""
    return llc_numbers([None] * len(colocation.tenants), machine.cores_per_socket, machine.llc_domains_per_socket)


def predict_partition(profile: PartitionProfile, colocation: Colocation, machine: Machine) -> Parted:
    """Return what is predicted of the tenants of a co-location with divided cache."""
    isolation = colocation.isolation or ()
    full = max((tenant.llc_way_mask or 1 for tenant in isolation), default=1)
    loads = [workload.traffic.offered_mpps for workload in colocation.tenants]
    nodes = colocation.memory_nodes or (machine.nic_socket,) * len(loads)
    distance_ns = machine.dram_remote_ns - machine.dram_local_ns
    settings = Partitions(
        [profile.responses[workload.key] for workload in colocation.tenants],
        np.array([[tenant.llc_way_mask or full for tenant in isolation]]),
        bandwidth_percent=np.array([float(tenant.memory_bandwidth_percent or 100) for tenant in isolation]),
        offered_mpps=np.array([np.inf if load is None else load for load in loads]),
        remote_ns=np.array([distance_ns * (node != machine.nic_socket) for node in nodes]),
        llcs=np.array([_llcs(colocation, machine)]),
    )
    return solve_partitions(settings, profile.memory)[0]
