"""How NFs share an accelerator that serves their queues in turns.

Yala (ASPLOS'25): an accelerator serves its users round-robin. An NF with a request always waiting completes 1 / (own
time + sum of the others' times) requests per second, and the time of a request is linear in the match density. Users
that do not fill their queue get what they ask for, and the rest is divided in rounds (max-min fairness over requests).
An NF that waits for each packet has no queue, and loses its waiting time instead.

Two NFs that each wait for their packets do not meet at random. After one had to wait it asks right behind the other,
until both have one pace (mode locking of coupled clocks; Yala, ASPLOS'25, treats full queues). The simulation uses mean
times and a few hundred turns, enough to synchronise.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slomo.compose.uncertain import Pattern, checked_pattern
from slomo.errors import InvalidValueError
from slomo.files.stored import Stored
from slomo.models.base import Floats

#: Rounds of the fixed point between waiting and speed; each halves the remaining distance.
_ROUNDS = 60
#: Convergence criterion: change of waiting time, as a share of a packet's time.
_STEADY = 1e-5
_TINY = 1e-12
#: Standard deviation of the time between two requests of an NF, as a share of that time.
_SPREAD = np.linspace(0.95, 1.05, 21)


@dataclass(frozen=True)
class AcceleratorUse(Stored):
    """How an NF uses an accelerator: time per request, requests per packet, whether its core waits.

    Raises InvalidValueError for a time or number not above 0.
    """

    #: Name of the accelerator; NFs with the same name share it.
    accelerator: str
    #: Time of one request at the accelerator [ns], above 0.
    service_ns: float
    #: Requests per packet, above 0; 0.5 is one for every other packet.
    requests: float = 1.0
    #: Whether the core continues with the next packet, or waits; one of "pipeline", "run-to-completion".
    pattern: Pattern = "pipeline"
    #: Largest relative error of computed shares over the training runs, 0 or more; 0 if exact by definition.
    error: float = 0.0

    def __post_init__(self) -> None:
        checked_pattern(self.pattern)
        if not (0.0 < self.service_ns < np.inf and 0.0 < self.requests < np.inf):
            raise InvalidValueError(
                f"accelerator '{self.accelerator}': {self.requests:g} requests of {self.service_ns:g} ns per packet, "
                "needed more than 0",
                hint="an NF that does not use it needs no entry",
            )

    @property
    def demand_ns(self) -> float:
        """Mean time that one packet's requests need at the accelerator [ns]."""
        return self.service_ns * self.requests


def shared_mpps(
    uses: Sequence[AcceleratorUse], core_ns: ArrayLike, offered_mpps: Sequence[float | None] | None = None
) -> Floats:
    """Return every NF's throughput if all share one accelerator [Mpps], shape (n,).

    `core_ns`, shape (n,): time per packet of each NF outside the accelerator [ns], under whatever pressure there is;
    above 0. `offered_mpps`: offered loads; None saturates. Raises InvalidValueError for NFs of several accelerators, or
    a time that is not above 0. Yala (ASPLOS'25), contention at accelerators with round-robin queues.

    Examples
    --------
    Two pipelined NFs that keep the accelerator busy take turns, 1 / (own + other) each:

    >>> regex = AcceleratorUse("regex", service_ns=600.0)
    >>> other = AcceleratorUse("regex", service_ns=400.0)
    >>> shared_mpps([regex, other], [100.0, 100.0]).round(6).tolist()
    [1.0, 1.0]

    One that offers little takes what it needs; an NF that waits for each packet adds the time:

    >>> shared_mpps([regex, other], [100.0, 100.0], [None, 0.1]).round(3).tolist()
    [1.6, 0.1]
    >>> alone = AcceleratorUse("regex", service_ns=600.0, pattern="run-to-completion")
    >>> shared_mpps([alone], [400.0]).tolist()
    [1.0]
    """
    core = np.asarray(core_ns, dtype=np.float64)
    if len({use.accelerator for use in uses}) > 1 or core.shape != (len(uses),) or not (core > 0.0).all():
        raise InvalidValueError(
            f"{len(uses)} NFs at {', '.join(sorted({use.accelerator for use in uses})) or 'no accelerator'} "
            f"with times {core.tolist()} ns, needed one accelerator and one time above 0 for each",
            hint="call once per accelerator",
        )
    service = np.array([use.service_ns for use in uses])
    requests = np.array([use.requests for use in uses])
    waits = np.array([use.pattern == "run-to-completion" for use in uses])
    loads = [np.inf if load is None else load for load in offered_mpps or [None] * len(uses)]
    if waits.sum() > 1:  # NFs that wait synchronise
        return in_step_mpps(core, service, requests, waits.tolist(), 1e3 / np.array(loads, dtype=np.float64))
    most = np.array(loads, dtype=np.float64) * 1e-3 * requests
    waiting = np.zeros(len(uses))
    rate = np.zeros(len(uses))
    for _ in range(_ROUNDS):
        cycle = np.where(waits, core + requests * service + waiting, core)
        rates = np.minimum(requests / cycle, most)
        rate = turns(rates, service)
        if not waits.any():
            break
        before = waiting
        waiting = 0.5 * (waiting + _waiting(rate, rates, waiting, service, waits, core, requests))
        if (np.abs(waiting - before) <= _STEADY * cycle).all():
            break
    return np.asarray(rate / requests * 1e3)


def turns(rates: Floats, service_ns: Floats) -> Floats:
    """Divide one server among users in rounds; a user that needs less than one turn per round gets what it needs.

    `rates`: requests asked for [1/ns]. `service_ns`: time per request [ns]. Returned are requests served [1/ns]; the
    server is never more than fully used.
    """
    load = rates * service_ns
    if load.sum() <= 1.0:
        return rates
    order = np.argsort(rates)
    served = rates.copy()
    left = 1.0
    for place, index in enumerate(order):
        busy = order[place:]
        level = left / service_ns[busy].sum()
        if rates[index] >= level:
            served[busy] = level
            break
        left -= load[index]
    return served


def _waiting(
    rate: Floats,
    rates: Floats,
    waiting: Floats,
    service: Floats,
    waits: NDArray[np.bool_],
    core: Floats,
    requests: Floats,
) -> Floats:
    """Return how long a packet of each NF waits for the accelerator [ns]."""
    own = rate * service
    full = ~waits & (rates > rate)
    wait_ns = np.zeros(len(rate))
    for i in np.flatnonzero(waits):
        others = np.arange(len(rate)) != i
        # an arriving request does not see its own NF in service
        busy = np.minimum(own / max(1.0 - own[i], _TINY), 1.0)
        by_chance = others & ~full
        # residual of the present service; of the waiting requests, half are served before this NF's
        queued = np.where(waits, np.minimum(rate / requests * waiting, 1.0), 0.0)
        passing = busy * service / 2 + (1.0 - busy) * queued * service / 2
        if (others & full).any():
            # the first request arrives at a random point of the round, later ones of the packet wait a whole round
            idle = max(1.0 - float(own[by_chance].sum()), 0.1)
            length = float(service[others & full].sum()) / idle
            first = min(requests[i], 1.0) * _next_turn(float(core[i] / min(requests[i], 1.0)), length)
            wait_ns[i] = first + max(requests[i] - 1.0, 0.0) * length
        else:
            wait_ns[i] = requests[i] * passing[by_chance].sum()
    return wait_ns


def _next_turn(gap_ns: float, round_ns: float) -> float:
    """Return how long a request waits for its turn if it comes `gap_ns` after the last turn.

    An NF that returns before the round ends gets every turn; a later one every second or third. Real gaps vary, so the
    result is a mean over a spread of gaps.

    >>> _next_turn(100.0, 400.0), round(_next_turn(4200.0, 400.0))
    (300.0, 200)
    """
    gaps = gap_ns * _SPREAD
    return float(np.mean(np.ceil(gaps / round_ns) * round_ns - gaps))


def core_ns_of(use: AcceleratorUse, mpps: float) -> float:
    """Return the time per packet outside the accelerator if no other NF uses it [ns].

    For a pipelined NF limited by its accelerator the core may be faster than measurements show.

    >>> core_ns_of(AcceleratorUse("regex", 400.0, pattern="run-to-completion"), 1.0)
    600.0
    """
    whole = 1e3 / mpps
    return whole if use.pattern == "pipeline" else max(whole - use.demand_ns, 0.01 * whole)


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
