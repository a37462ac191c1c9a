"""Numbers of packet buffers of network functions: one calculation for profiles, placement and testbeds.

ResQ (NSDI'18, section 4, "the leaky DMA problem"): devices write only into the DDIO ways, so the buffers of all network
functions of a socket together must fit there. A buffer consists of the frame's cache lines and one line of headroom,
which a driver reserves before the frame: 25 lines for a frame of 1518 B, 2 for a frame of 64 B.
"""

from slomo.errors import InvalidValueError
from slomo.vocabulary.machine import Machine

LINE_B = 64
#: Fewer buffers lose packets in bursts: one burst of 32 is processed while the next arrives.
FEWEST_BUFFERS = 32
#: Default number of buffers, as in DPDK's examples; more have no benefit.
MOST_BUFFERS = 2048


def lines_per_buffer(packet_size_b: int) -> int:
    """Return the cache lines of one packet buffer, headroom included.

    Raises InvalidValueError for a frame outside 64 to 9216 bytes.

    >>> lines_per_buffer(1518), lines_per_buffer(64)
    (25, 2)
    """
    if not 64 <= packet_size_b <= 9216:
        raise InvalidValueError(f"largest frame is {packet_size_b} bytes, needed 64 to 9216 bytes")
    return -(-packet_size_b // LINE_B) + 1


def buffers_per_nf(machine: Machine, cores: int, packet_size_b: int) -> int | None:
    """Return how many packet buffers each network function may have if all cores are in use.

    Each gets an equal share of the socket's DDIO space in its own frame size, independent of its neighbours, and at
    most 2048. None if devices write to memory.

    Raises InvalidValueError if a share holds fewer than 32 buffers. `cores`: those of a socket that network functions
    may use. `packet_size_b`: frame size [bytes].

    >>> from slomo.vocabulary.machine import load_machine
    >>> machine = load_machine("e5-2695v4")
    >>> buffers_per_nf(machine, 9, 1518), buffers_per_nf(machine, 9, 64)
    (327, 2048)
    """
    share = int(machine.capacities().ddio_kib / cores * 1024 // (lines_per_buffer(packet_size_b) * LINE_B))
    if machine.ddio_ways == 0:
        return None
    if share < FEWEST_BUFFERS:
        raise InvalidValueError(
            f"machine '{machine.name}': {cores} network functions would get {share} buffers of {packet_size_b} bytes "
            f"each in its DDIO space, needed {FEWEST_BUFFERS}",
            hint="reserve some cores, or smaller frames",
        )
    return min(share, MOST_BUFFERS)
