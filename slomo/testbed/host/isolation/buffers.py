"""How many packet buffers NFs may have so that devices do not spill them to memory.

ResQ (NSDI'18, section 4, "the leaky DMA problem"): lines that devices write live in the DDIO ways only; buffers of all
NFs of a socket together must fit there, counted at the size of the largest packet.
"""

from slomo.errors import InvalidValueError

_LINE_B = 64


def ddio_buffer_limit(ddio_kib: float, mtu_b: int = 1518) -> int:
    """Return the largest number of packet buffers of a socket that stay in its last-level cache.

    Parameters
    ----------
    ddio_kib : float
        Part of the last-level cache in which devices allocate [KiB], see `Machine.capacities`.
    mtu_b : int
        Largest frame [bytes], 64 to 9216; with its checksum.

    Returns
    -------
    int
        DDIO bytes over the bytes of the cache lines that one frame of `mtu_b` occupies.

    Raises
    ------
    InvalidValueError
        For a frame or a space outside its range.

    References
    ----------
    ResQ (NSDI'18), section 4.1: buffers <= DDIO bytes / MTU-sized buffer.

    Examples
    --------
    ResQ's machine: 10 % of 45 MB, frames of 1518 bytes in 24 lines.

    >>> ddio_buffer_limit(0.1 * 45 * 1024, 1518)
    3072
    """
    if not 64 <= mtu_b <= 9216:
        raise InvalidValueError(f"largest frame is {mtu_b} bytes, needed 64 to 9216 bytes")
    if not 0.0 <= ddio_kib < float("inf"):
        raise InvalidValueError(f"DDIO space is {ddio_kib:g} KiB, needed 0 or more")
    lines = -(-mtu_b // _LINE_B)
    return int(ddio_kib * 1024 // (lines * _LINE_B))


def size_buffers(ddio_kib: float, queues: int, *, mtu_b: int = 1518, wanted: int = 2048, fewest: int = 64) -> int:
    """Return the descriptors each receive queue may have, a power of two as drivers want it.

    Parameters
    ----------
    ddio_kib : float
        DDIO part of the socket's last-level cache [KiB].
    queues : int
        Receive queues of all NFs on this socket, at least 1.
    mtu_b : int
        Largest frame [bytes].
    wanted : int
        Descriptors a queue would get without the limit.
    fewest : int
        Fewer than these lose packets in bursts.

    Raises
    ------
    InvalidValueError
        Where even `fewest` per queue do not fit.

    Examples
    --------
    >>> size_buffers(4608, 12), size_buffers(4608, 12, mtu_b=64)
    (256, 2048)
    """
    if queues < 1 or wanted < fewest or fewest < 1:
        raise InvalidValueError(f"{queues} queues of {fewest} to {wanted} descriptors, needed 1 or more of each")
    share = ddio_buffer_limit(ddio_kib, mtu_b) // queues
    if share < fewest:
        raise InvalidValueError(
            f"{queues} queues would get {share} buffers of {mtu_b} bytes each in {ddio_kib:g} KiB of DDIO space, "
            f"needed {fewest}",
            hint="use fewer queues, a smaller MTU, or more DDIO ways",
        )
    return min(wanted, 1 << (share.bit_length() - 1))
