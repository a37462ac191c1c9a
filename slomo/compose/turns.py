"""Simulate how the kernel's scheduler gives a core in turn to NFs, which sleep while their rings are empty.

Shares of a core (`slomo.compose.cores`) describe NFs that always have packets. While one function holds the core,
packets of the others wait in their rings. A function that empties its ring within its turn is limited by the packets
that arrived meanwhile. The scheduler is therefore simulated event by event, about a thousand turns per simulated
second: Linux's since 6.6 (EEVDF, kernel/sched/fair.c; Stoica and Abdel-Wahab 1995). A task that has had at most its
share (vruntime at or before the weighted mean) is eligible; the eligible task with the earliest deadline runs. A turn
ends with its slice, which is checked at the tick or at a wake-up. A sleeper keeps time owed to it but not time it owes,
and preempts a task that has had more than its share.

After a turn of others the cache is cold: packets take longer until it is filled again. The eviction by each function's
turn, and its cost for the next, are measured once (`slomo.workflow.chains.shared_core`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slomo.errors import InvalidValueError

#: Rounding tolerance of virtual times, which are sums of many terms.
_ROUNDING_US = 1e-6
#: Least step of the clock, and the least fraction of a packet that counts.
_STEP_US, _NO_PACKET = 1e-3, 1e-3


@dataclass(frozen=True)
class RingUser:
    """An NF with a ring on a shared core."""

    #: Time per packet with warm caches [ns], above 0.
    time_ns: float
    #: Offered load [Mpps], 0 or more.
    offered_mpps: float
    #: CPU weight among the functions on its core, above 0.
    weight: float = 1.0
    #: Extra time after its caches were evicted, and the CPU time over which it is spent [us].
    refill_us: float = 0.0
    refill_over_us: float = 1.0
    #: CPU time in which it evicts 63 % of the others' cached lines [us], above 0.
    evicts_over_us: float = math.inf

    def __post_init__(self) -> None:
        above = (self.time_ns, self.weight, self.refill_over_us, self.evicts_over_us)
        if not all(value > 0.0 for value in above) or self.offered_mpps < 0.0 or self.refill_us < 0.0:
            raise InvalidValueError(
                f"NF behind a ring: {self.time_ns:g} ns per packet, weight {self.weight:g}, "
                f"{self.offered_mpps:g} Mpps, {self.refill_us:g} us cold, needed above 0, above 0, 0 or more, 0 or more"
            )


@dataclass(frozen=True)
class TurnRules:
    """Timing of the packet source and of the kernel's scheduler."""

    #: Packets that a ring holds.
    ring: int = 2047
    #: Rings are filled every so many microseconds, plus so many per packet moved.
    pause_us: float = 60.0
    per_packet_us: float = 0.06
    #: Time slice after which a turn may end: 0.7 ms x (1 + log2 of the processors), `sysctl_sched_base_slice`.
    slice_us: float = 1400.0
    #: Period of the kernel's timer tick.
    tick_us: float = 4000.0
    #: Time of a context switch itself.
    switch_us: float = 2.0


@dataclass(frozen=True)
class RingOutcome:
    """Result for one NF of a shared core: rate [Mpps], share of the core, turns per second."""

    mpps: float
    share: float
    turns_per_s: float


@dataclass
class _RingServer:
    """State of one NF in the simulation; times in us, queues in packets."""

    user: RingUser
    waiting: float = 0.0
    virtual: float = 0.0
    deadline: float = 0.0
    owed: float = 0.0
    queued: bool = False
    leaving: bool = False
    cold: float = 0.0
    switching: float = 0.0
    served: float = 0.0
    time: float = 0.0
    turns: int = 0

    @property
    def cost(self) -> float:
        return self.user.time_ns / 1e3


class _Core:
    """State of a core: its NFs, and the clock."""

    def __init__(self, users: Sequence[RingUser], rules: TurnRules) -> None:
        self.rules, self.runners = rules, [_RingServer(user) for user in users]
        self.now = 0.0
        self.next_tick, self.next_fill, self.last_fill = rules.tick_us, 0.0, 0.0
        self.current: _RingServer | None = None

    def play(self, duration_us: float) -> None:
        while self.now < duration_us:
            until = min(self.now + max(self._left(), _STEP_US), self.next_tick, self.next_fill)
            self._run(until - self.now)
            self.now = until
            if until == self.next_tick:
                self._tick()
            if until == self.next_fill:
                self._fill()
            if self.current is not None and self.current.waiting <= _NO_PACKET and self.current.switching <= 0.0:
                self._sleep(self.current)

    # time passes -----------------------------------------------------------------------------------------------------

    def _left(self) -> float:
        """Time until the running NF's ring is empty."""
        one = self.current
        if one is None:
            return math.inf
        work = one.waiting * one.cost
        if one.cold <= 0.0:
            return one.switching + work
        return one.switching + work + one.cold * -math.expm1(-(work + one.cold) / one.user.refill_over_us)

    def _run(self, span: float) -> None:
        one = self.current
        if one is None or span <= 0.0:
            return
        one.virtual += span / one.user.weight
        one.time += span
        for other in self.runners:
            if other is not one:
                other.cold += (other.user.refill_us - other.cold) * -math.expm1(-span / one.user.evicts_over_us)
        work = span - min(span, one.switching)
        one.switching -= span - work
        spent = one.cold * -math.expm1(-work / one.user.refill_over_us)
        done = min(one.waiting, max(work - spent, 0.0) / one.cost)
        one.cold -= spent
        one.waiting -= done
        one.served += done

    # the scheduler ---------------------------------------------------------------------------------------------------

    def _mean(self) -> float:
        weight = sum(r.user.weight for r in self.runners if r.queued)
        return sum(r.user.weight * r.virtual for r in self.runners if r.queued) / weight if weight else 0.0

    def _may_run(self, one: _RingServer) -> bool:
        return one.virtual <= self._mean() + _ROUNDING_US

    def _earliest(self) -> _RingServer | None:
        queued = [r for r in self.runners if r.queued]
        mean = self._mean() + _ROUNDING_US
        return min((r for r in queued if r.virtual <= mean), key=lambda r: r.deadline, default=None)

    def _choose(self) -> None:
        """Choose the next task; a sleeper that owes time leaves the queue when its turn comes."""
        while (one := self._earliest()) is not None and one.leaving:
            one.queued = one.leaving = False
            one.owed = 0.0
        if one is not None and one is not self.current:
            one.turns += 1
            one.switching = self.rules.switch_us
        self.current = one

    def _slice_over(self, one: _RingServer) -> bool:
        if one.virtual < one.deadline:
            return False
        one.deadline = one.virtual + self.rules.slice_us / one.user.weight
        return True

    def _tick(self) -> None:
        self.next_tick += self.rules.tick_us
        if self.current is not None and self._slice_over(self.current):
            self._choose()

    def _sleep(self, one: _RingServer) -> None:
        self._slice_over(one)
        if self._may_run(one):
            most = max(2.0 * self.rules.slice_us, self.rules.tick_us)  # entity_lag() in kernel/sched/fair.c
            one.owed = min(self._mean() - one.virtual, most / one.user.weight)
            one.queued = False
        else:
            one.leaving = True
        self.current = None
        self._choose()

    def _wake(self, one: _RingServer) -> None:
        slice_us = self.rules.slice_us / one.user.weight
        if one.leaving:
            one.leaving = False
            if one.virtual < self._mean():  # what it is owed is lost, requeue_delayed_entity() in kernel/sched/fair.c
                one.virtual = self._mean()
                one.deadline = one.virtual + slice_us
        else:
            weight = sum(r.user.weight for r in self.runners if r.queued)
            if weight:
                one.virtual = self._mean() - one.owed * (weight + one.user.weight) / weight
            one.deadline = one.virtual + slice_us
            one.queued = True
        runs = self.current
        if runs is None:
            return
        if self._slice_over(runs) or (not self._may_run(runs) and self._earliest() is one):
            self._choose()

    # the rings -------------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        moved, since = 0.0, self.now - self.last_fill
        for one in self.runners:
            room = self.rules.ring - one.waiting
            put = min(room, one.user.offered_mpps * since)
            one.waiting += put
            moved += put
        self.last_fill, self.next_fill = self.now, self.now + self.rules.pause_us + self.rules.per_packet_us * moved
        for one in self.runners:
            if one.waiting > _NO_PACKET and one is not self.current and (not one.queued or one.leaving):
                self._wake(one)
        if self.current is None:
            self._choose()


def ring_turns(
    users: Sequence[RingUser], rules: TurnRules | None = None, duration_ms: float = 600.0
) -> tuple[RingOutcome, ...]:
    """Return each NF's rate, share and turns on a shared core.

    Raises InvalidValueError for a duration that is not above 0.

    `users`: everybody on the core. `rules`: source and scheduler. `duration_ms`: how long is played [ms], above 0; the
    first sixth is left out.
    """
    if not duration_ms > 0.0:
        raise InvalidValueError(f"a core played for {duration_ms:g} ms, needed above 0")
    core = _Core(users, rules or TurnRules())
    core.play(1e3 * duration_ms / 6.0)
    before = [(r.served, r.time, r.turns) for r in core.runners]
    begun = core.now
    core.play(1e3 * duration_ms)
    span = core.now - begun
    return tuple(
        RingOutcome((r.served - served) / span, (r.time - time) / span, 1e6 * (r.turns - turns) / span)
        for r, (served, time, turns) in zip(core.runners, before, strict=True)
    )
