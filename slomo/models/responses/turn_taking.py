"""Simulate the turns of NFs that wait for one accelerator, since they synchronise.

Two NFs that each wait for their packets do not meet at random. After one had to wait it asks right behind the other,
until both have one pace (mode locking of coupled clocks; Yala, ASPLOS'25, treats full queues). The simulation uses mean
times and a few hundred turns, enough to synchronise.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from slomo.models.base import Floats

#: Number of packets that a pipelined NF keeps at an accelerator.
_WINDOW = 16
#: Number of turns per NF before counting starts, and number of turns counted.
_WARM, _COUNTED = 60, 160


@dataclass
class Player:
    """One NF at an accelerator.

    `core_ns`, `service_ns`: mean time of a packet outside the accelerator, and of a request at it. `waits`: whether
    its core waits for the accelerator.
    """

    core_ns: float
    service_ns: float
    requests: float
    waits: bool
    least_ns: float = 0.0
    ready_ns: float = 0.0
    left: int = 0
    credit: float = 0.0
    arrival_ns: float = 0.0
    packets: int = 0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW))

    def begin(self, now: float) -> None:
        """Start the next packet that has at least one request."""
        while True:
            self.arrival_ns += self.least_ns
            earliest = max(now, self.arrival_ns)
            if not self.waits:
                earliest = max(self.ready_ns, self.arrival_ns - self.core_ns)
                if len(self.recent) == _WINDOW:
                    earliest = max(earliest, self.recent[0])
            self.ready_ns = earliest + self.core_ns
            self.credit += self.requests
            self.left = int(self.credit + 1e-9)
            self.credit -= self.left
            if self.left:
                return
            self.packets += 1
            now = self.ready_ns

    def served(self, now: float) -> None:
        """End one request at time `now`."""
        self.left -= 1
        if self.left == 0:
            self.packets += 1
            self.recent.append(now)
            self.begin(now)


def played_mpps(players: Sequence[Player]) -> list[float]:
    """Return every NF's throughput [Mpps] at one accelerator that serves them in turns."""
    for number, player in enumerate(players):
        player.begin(player.core_ns * 0.37 * number)
    free, last = 0.0, -1
    begun, before = 0.0, [0] * len(players)
    for turn in range((_WARM + _COUNTED) * len(players)):
        start = max(free, min(player.ready_ns for player in players))
        for step in range(1, len(players) + 1):
            chosen = (last + step) % len(players)
            if players[chosen].ready_ns <= start:
                break
        last = chosen
        free = start + players[chosen].service_ns
        players[chosen].served(free)
        if turn + 1 == _WARM * len(players):
            begun, before = free, [player.packets for player in players]
    return [1e3 * (player.packets - count) / (free - begun) for player, count in zip(players, before, strict=True)]


def in_step_mpps(core: Floats, service: Floats, requests: Floats, waits: Sequence[bool], least: Floats) -> Floats:
    """Return the throughput of every NF that takes turns [Mpps], independently of the NFs' order.

    Equal NFs get equal throughput, and none gets more than alone.

    `core`, `service`, `requests`, `least`, shape (n,): time outside the accelerator, time per request, requests per
    packet, least time per packet [ns]. `waits`: whether the core waits.
    """
    kinds = [
        (float(core[i]), float(service[i]), float(requests[i]), bool(waits[i]), float(least[i]))
        for i in range(len(core))
    ]
    order = sorted(range(len(kinds)), key=lambda i: kinds[i])
    played = dict(zip(order, played_mpps([Player(*kinds[i]) for i in order]), strict=True))
    answer = core.copy()
    for i, (own_core, own_service, own_requests, waiting, slowest) in enumerate(kinds):
        demand = own_service * own_requests
        alone = own_core + demand if waiting else max(own_core, demand)
        same = [played[j] for j in range(len(kinds)) if kinds[j] == kinds[i]]
        answer[i] = min(sum(same) / len(same), 1e3 / max(alone, slowest))
    used = float((answer * service * requests).sum()) / 1e3
    return answer / max(used, 1.0)
