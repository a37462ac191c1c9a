"""A NIC port that tenants share: one wire, on which their packets take turns.

What waits before the port is sent in turn, by bytes (deficit round robin: Shreedhar and Varghese, SIGCOMM'95), as
network cards and switches serve the queues of virtual functions. What a tenant's queue cannot hold is lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass

#: Preamble, start of frame and gap between frames, in bytes of time on the wire.
_OVERHEAD_B = 20
#: Packets played, and packets that wait for each tenant at most.
_PACKETS, _WAITING = 20_000, 256


@dataclass
class _Queue:
    """One tenant's packets before the port: bytes of time each, what arrives [Mpps] (None: always more)."""

    wire_b: int
    offered_mpps: float | None
    sent: int = 0
    lost: int = 0
    allowance_b: int = 0

    def waiting(self, now_ns: float) -> bool:
        """Say whether a packet waits; lose what the queue cannot hold."""
        if self.offered_mpps is None:
            return True
        held = int(now_ns * 1e-3 * self.offered_mpps) - self.sent - self.lost
        self.lost += max(held - _WAITING, 0)
        return held > 0

    def next_ns(self) -> float:
        """Return when the next packet comes [ns], where none waits."""
        return 1e3 * (self.sent + self.lost + 1) / (self.offered_mpps or float("inf")) + 1e-6


def delivered_mpps(frames_b: Sequence[int], offered_mpps: Sequence[float | None], port_gbps: float) -> list[float]:
    """Play packets over a shared wire; return what reaches each tenant [Mpps].

    Parameters
    ----------
    frames_b : sequence of int
        Frame size of each tenant [B].
    offered_mpps : sequence of float or None
        What is sent to each [Mpps]; None for as much as the wire carries.
    port_gbps : float
        Line rate of the port [Gbit/s].

    Examples
    --------
    >>> [round(mpps, 1) for mpps in delivered_mpps([1230, 1230], [None, 0.25], 10.0)]
    [0.8, 0.2]
    """
    queues = [_Queue(size + _OVERHEAD_B, rate) for size, rate in zip(frames_b, offered_mpps, strict=True)]
    quantum_b = max(queue.wire_b for queue in queues)
    now_ns = 0.0
    while sum(queue.sent for queue in queues) < _PACKETS:
        idle = True
        for queue in queues:
            queue.allowance_b += quantum_b
            while queue.allowance_b >= queue.wire_b and queue.waiting(now_ns):
                queue.allowance_b -= queue.wire_b
                queue.sent += 1
                now_ns += queue.wire_b * 8.0 / port_gbps
                idle = False
            if not queue.waiting(now_ns):
                queue.allowance_b = 0
        if idle:
            now_ns = max(now_ns, min(queue.next_ns() for queue in queues))
    return [queue.sent * 1e3 / now_ns for queue in queues]
