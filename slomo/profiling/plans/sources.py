"""The design `sources`: a third of the settings each put pressure on cache, I/O and memory.

A grid over the competitor's knobs, thinned to some sixty points, leaves gaps between knob levels: at the mild pressure
of most mixes, and between a memory channel at a fifth of its capacity and a full one. Here a scrambled Sobol sequence
spreads the *pressure* of each source: accesses and sizes for the caches, bytes for the ports, load for the channel.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from slomo.errors import InvalidValueError
from slomo.profiling.plans.designs import (
    MOST_INSTANCES,
    MOST_POINTS,
    Design,
    Pressure,
    competitor,
    require_instances,
    spread,
)
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.wire import WIRE_OVERHEAD_B, mpps_of_gbps
from slomo.vocabulary.workload import Setting

#: Default number of points: SLOMO's published budget.
DEFAULT_POINTS = 588
#: Number of coordinates of a point: at most five knobs, and the number of instances.
_AXES = 6
_LINE_B = 64.0
_KIB_PER_MIB = 1024.0
#: Range of cache accesses [M/s], which includes those of the network functions in ResQ's Table 1.
_ACCESSES_M_S = (0.5, 150.0)
_PACKET_B, _BUFFERS = (64.0, 1500.0), (256.0, 8192.0)
#: Cache accesses of an instance in I/O points [M/s]; limit of reads per packet, SLOMO's least.
_ASIDE_M_S, _MOST_READS = (0.5, 40.0), 1000
#: Ranges of load, all instances together, on the ports and on the memory channel, to which a target adds its own.
_PORT_LOAD, _MEMORY_LOAD = (0.02, 1.0), (0.02, 1.1)
#: Share of memory settings up to the largest of these loads, where the cores could make more.
_NOT_OVERLOADED = 0.75
#: Random memory traffic of one core past the caches [GB/s] (ResQ, section 4.2): more load takes more instances.
_CORE_GB_S = 2.5
#: LLC [MiB] above which data of every second setting are divided among its instances: several network functions leave
#: such a cache partly free or just fill it, while several instances with data of their own mostly overfill it.
_LARGE_LLC_MIB = 40.0
#: Parts of the range of data sizes; every second part has divided data.
_PARTS = 64
#: Default number of points of :func:`farthest`, points among which they are chosen, and how many of them are chosen for
#: their distance. Where a pressure counts half, as a share of what the machine has: without a source, and the points
#: depend on it (ten runs on the E5-2620 v4, two draws: half of it adds 0 and 3.0 points of error, twice 0.1 and -1.6).
FEW_POINTS, _CANDIDATES, _BY_DISTANCE, _HALF = 10, 60, 5, 0.6
#: Lines that a card moves over the memory channel for each line of a packet that leaks: it evicts, the core reads, the
#: card reads.
_LEAKED_MOVES = 3.0
#: Total data of all instances in memory points, in LLC sizes, so that nearly every access misses.
_BEYOND_LLC = (4.0, 16.0)


def sources(machine: Machine, points: int, seed: int = 0, instances: int = MOST_INSTANCES) -> Design:
    """Return settings that put pressure on cache, I/O and memory in turn, each from weak to strong on this machine."""
    if not 1 <= points <= MOST_POINTS:
        raise InvalidValueError(f"design 'sources': runs is {points}, needed 1 to {MOST_POINTS}")
    require_instances(instances)
    each = math.ceil(points / len(SOURCES))
    draw = np.random.default_rng(seed)
    places = [spread(each, _AXES, draw) for _ in SOURCES]
    in_turn = [(make, rows[i]) for i in range(each) for make, rows in zip(SOURCES, places, strict=True)]
    return tuple(make(machine, row, instances) for make, row in in_turn[:points])


def farthest(machine: Machine, points: int, seed: int = 0, instances: int = MOST_INSTANCES) -> Design:
    """Return a few settings of :func:`sources`: five that differ most in pressure, the strongest first, then others.

    Each of the five is the one farthest from all before it and from no pressure (Kennard and Stone, Technometrics
    1969): a few points of the sequence itself may all leave the DDIO ways or the memory channel free. More points are
    taken in the sequence's order: settings at the ends of the range tell little about those between. Fewer points are
    the first of more.
    """
    if not 1 <= points <= _CANDIDATES:
        raise InvalidValueError(f"design 'farthest': runs is {points}, needed 1 to {_CANDIDATES}")
    candidates = sources(machine, _CANDIDATES, seed, instances)
    pressures = np.array([_pressures(machine, each) for each in candidates])
    pressures[:, 1] /= pressures[:, 1].max()
    places = pressures / (pressures + _HALF)
    apart, chosen = np.linalg.norm(places, axis=1), [int(places.sum(axis=1).argmax())]
    while len(chosen) < min(points, _BY_DISTANCE):
        apart = np.minimum(apart, np.linalg.norm(places - places[chosen[-1]], axis=1))
        chosen.append(int(apart.argmax()))
    others = [place for place in range(_CANDIDATES) if place not in chosen]
    return tuple(candidates[place] for place in [*chosen, *others[: points - len(chosen)]])


def _pressures(machine: Machine, point: Pressure) -> tuple[float, float, float, float]:
    """Return the intended pressure of a setting: share of LLC, L2 misses [M/s], shares of memory channel, DDIO ways."""
    knobs = {name: float(value) for name, value in point.workload.configuration.items()}
    data_mib, packets_m_s = point.instances * knobs["data_size_mib"], point.instances * knobs["rate_mpps"]
    lines = math.ceil(point.workload.traffic.packet_size_b / _LINE_B)
    packets_kib = point.instances * knobs.get("packet_buffers", 0.0) * lines * _LINE_B / _KIB_PER_MIB
    ways_kib = machine.capacities().ddio_kib
    reads, writes = knobs["reads_per_packet"], knobs.get("writes_per_packet", 0.0)
    beyond_l2 = max(1.0 - machine.l2_kib / _KIB_PER_MIB / knobs["data_size_mib"], 0.0)
    beyond_llc = max(1.0 - machine.llc_mib / data_mib, 0.0)
    leaked = max(1.0 - ways_kib / max(packets_kib, 1e-9), 0.0)
    moved_gb_s = packets_m_s * ((reads + 2.0 * writes) * beyond_llc + _LEAKED_MOVES * lines * leaked) * _LINE_B / 1e3
    return (
        min(data_mib / machine.llc_mib, 1.0),
        packets_m_s * (reads + writes) * beyond_l2,
        moved_gb_s / (machine.memory_peak_gb_s * machine.memory_efficiency),
        min(packets_kib / max(ways_kib, 1e-9), 1.0),
    )


def memory_pressures(machine: Machine, points: int, seed: int = 0, instances: int = MOST_INSTANCES) -> Design:
    """Return settings that put pressure on memory alone, from weak to more than the channels carry."""
    rows = spread(points, _AXES, np.random.default_rng(seed))
    return tuple(_on_memory(machine, row, instances) for row in rows)


def _on_caches(machine: Machine, place: Sequence[float], most: int) -> Pressure:
    """Return one setting of synthetic competitors that put pressure on the cache, at a place of the design."""
    reads, instances = _between((1.0, 50.0), place[0]), _instances(place[-1], most)
    rate = _between(_ACCESSES_M_S, place[1]) / reads
    settings = {"data_size_mib": _data_mib(machine, place[2], instances), "reads_per_packet": round(reads)}
    return _pressure({**settings, "rate_mpps": rate}, instances)


def _on_ports(machine: Machine, place: Sequence[float], most: int) -> Pressure:
    """Return one setting of synthetic competitors that put pressure on I/O, by packets of any size, up to full ports.

    It also uses the cache, from little to as much as network functions do: packets leak to memory more easily if data
    use the DDIO ways too.
    """
    size_b, load = _between(_PACKET_B, place[0]), _evenly(_PORT_LOAD, place[1])
    instances = _instances(place[-1], most, load * _wire_gbps(machine) / machine.nic_gbps)
    rate = load * mpps_of_gbps(_wire_gbps(machine), size_b) / instances
    settings = {
        "packet_size_b": round(size_b),
        "packet_buffers": round(_between(_BUFFERS, place[2])),
        "data_size_mib": _data_mib(machine, place[3], instances),
        "reads_per_packet": min(max(1, round(_between(_ASIDE_M_S, place[4]) / rate)), _MOST_READS),
    }
    return _pressure({**settings, "rate_mpps": rate}, instances)


def _on_memory(machine: Machine, place: Sequence[float], most: int) -> Pressure:
    """Return one setting of synthetic competitors that put pressure on memory, at a place of the design.

    The load is limited to what all instances can make; a written line moves twice. Packets are of every size, limited
    by the ports' line rate.
    """
    reads, dirty = _between((5.0, 100.0), place[0]), 0.5 * place[2]
    moved_gb_s = _moved_gb_s(machine, place[1], most)
    instances, lines = _instances(place[-1], most, moved_gb_s / _CORE_GB_S), moved_gb_s * 1e3 / _LINE_B
    settings = {
        "data_size_mib": _between(_BEYOND_LLC, place[2]) * machine.llc_mib / instances,
        "reads_per_packet": round(reads),
        "writes_per_packet": round(reads * dirty),
        "packet_buffers": round(_between(_BUFFERS, place[4])),
    }
    moved = settings["reads_per_packet"] + 2 * settings["writes_per_packet"]  # a dirty line is read and written back
    rate = lines / instances / moved
    carried_b = 1e3 * _wire_gbps(machine) / (8.0 * rate * instances) - WIRE_OVERHEAD_B
    size_b = max(min(_between(_PACKET_B, place[3]), carried_b), _PACKET_B[0])
    return _pressure({**settings, "packet_size_b": round(size_b), "rate_mpps": rate}, instances)


def _moved_gb_s(machine: Machine, place: float, most: int) -> float:
    """Return the intended memory traffic of all instances together [GB/s].

    If their cores can make more than the channel carries, a quarter of the settings has up to that much.
    """
    usable_gb_s, cores_gb_s = machine.memory_peak_gb_s * machine.memory_efficiency, most * _CORE_GB_S
    low, high = (share * usable_gb_s for share in _MEMORY_LOAD)
    if cores_gb_s <= high:
        return _evenly((low, min(high, 2.0 * cores_gb_s)), place)
    if place < _NOT_OVERLOADED:
        return _evenly((low, high), place / _NOT_OVERLOADED)
    return _evenly((high, cores_gb_s), (place - _NOT_OVERLOADED) / (1.0 - _NOT_OVERLOADED))


def _wire_gbps(machine: Machine) -> float:
    """Return how much all ports carry together [Gbit/s]."""
    wire = machine.shared_wire_gbps()
    return wire if math.isfinite(wire) else machine.nic_gbps


def _data_mib(machine: Machine, place: float, instances: int) -> float:
    """Return the size of an instance's data, from a private L2's to four LLCs.

    If the LLC is large, this is the size for all instances together in every second setting.
    """
    l2_mib = machine.l2_kib / _KIB_PER_MIB
    data_mib = _between((l2_mib, 4.0 * machine.llc_mib), place)
    if machine.llc_mib <= _LARGE_LLC_MIB or int(place * _PARTS) % 2 == 0:
        return data_mib
    return max(data_mib / instances, l2_mib / 4.0)


#: Sources of contention, in the order of the points.
SOURCES: tuple[Callable[[Machine, Sequence[float], int], Pressure], ...] = (_on_caches, _on_ports, _on_memory)


def _pressure(settings: dict[str, Setting], instances: int) -> Pressure:
    rounded = {name: float(f"{value:.3g}") if isinstance(value, float) else value for name, value in settings.items()}
    return Pressure(competitor(rounded), instances)


def _instances(place: float, most: int, fewest: float = 1.0) -> int:
    """Return a number of competitor instances between `fewest`, which the pressure needs, and `most`.

    It is drawn on a logarithmic scale, since a third of all questions is about one neighbour.
    """
    return min(most, max(int((most + 1) ** float(place)), math.ceil(fewest)))


def _evenly(ends: tuple[float, float], place: float) -> float:
    low, high = ends
    return float(low + (high - low) * place)


def _between(ends: tuple[float, float], place: float) -> float:
    low, high = ends
    return float(low * (high / low) ** float(place))
