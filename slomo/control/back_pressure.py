"""NFVnice's back-pressure: which chains are dropped at their entry, which NFs step aside, where packets are marked.

NFVnice (SIGCOMM'17), section 3.3: an NF whose queue is above the high-water mark *and* makes packets wait longer than a
threshold is overloaded until the queue is below the low-water mark. Packets of the chains that pass it are dropped
where they enter, before work is spent on them; chains that do not pass it are not touched. Pure: queues in, marks out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slomo.errors import InvalidValueError


@dataclass(frozen=True)
class PressureSettings:
    """When a queue presses back.

    Attributes
    ----------
    high_water, low_water : float
        Marks as shares of the queue's capacity, 0 to 1, low below high.
    waiting_us : float
        An NF is overloaded only if packets wait longer than this [us].
    mark_between : float
        How far from the low mark to the high one the smoothed queue is when packets of responsive flows are marked
        (ECN), 0 to 1; three quarters in the authors' code (OpenNetVM, branch nfvnice-reinforce).
    smoothing : float
        Weight of the latest length in the smoothed one, above 0, at most 1 (RFC 3168 and RED: a moving average).

    Raises
    ------
    InvalidValueError
        For marks that are not 0 < low < high <= 1.

    Examples
    --------
    >>> PressureSettings(high_water=0.5, low_water=0.6)
    Traceback (most recent call last):
    slomo.errors.InvalidValueError: water marks are 0.6 (low) and 0.5 (high) of a queue, needed 0 < low < high <= 1
    """

    high_water: float = 0.8
    low_water: float = 0.6
    waiting_us: float = 100.0
    mark_between: float = 0.75
    smoothing: float = 0.1

    def __post_init__(self) -> None:
        if not 0.0 < self.low_water < self.high_water <= 1.0:
            raise InvalidValueError(
                f"water marks are {self.low_water:g} (low) and {self.high_water:g} (high) of a queue, "
                f"needed 0 < low < high <= 1"
            )

    @property
    def mark_above(self) -> float:
        """Share of the capacity above which packets are marked."""
        return self.low_water + self.mark_between * (self.high_water - self.low_water)


@dataclass(frozen=True)
class QueueObservation:
    """One NF's receive queue: packets in it, room, and how long its oldest packet has waited [us]."""

    length: int
    capacity: int
    waiting_us: float


@dataclass(frozen=True)
class BackPressure:
    """What the marks of next time depend on: who is overloaded, and every queue's smoothed length."""

    overloaded: frozenset[str] = frozenset()
    smoothed: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Marks:
    """What is to be done.

    Attributes
    ----------
    dropping : frozenset of str
        Chains whose packets are dropped at the chain's entry.
    yielding : frozenset of str
        NFs that step aside at their next batch, for all they do now would wait behind an overloaded NF.
    marking : frozenset of str
        NFs that mark packets of responsive flows (ECN).
    """

    dropping: frozenset[str] = frozenset()
    yielding: frozenset[str] = frozenset()
    marking: frozenset[str] = frozenset()


def press_back(
    chains: Mapping[str, Sequence[str]],
    queues: Mapping[str, QueueObservation],
    before: BackPressure,
    settings: PressureSettings,
) -> tuple[Marks, BackPressure]:
    """Decide from the queues of now and the state before.

    Parameters
    ----------
    chains : mapping of str to sequence of str
        Chain -> its NFs in order; NFs may be shared.
    queues : mapping of str to QueueObservation
        NF -> its queue.
    before : Pressure
        What the last call returned, at first ``Pressure()``.
    settings : PressureSettings
        Marks and thresholds.

    Examples
    --------
    >>> chains = {"cheap": ["nat", "fw"], "costly": ["nat", "ids"]}
    >>> queues = {"nat": QueueObservation(10, 100, 5.0), "fw": QueueObservation(0, 100, 0.0),
    ...           "ids": QueueObservation(90, 100, 500.0)}
    >>> marks, state = press_back(chains, queues, BackPressure(), PressureSettings())
    >>> sorted(marks.dropping), sorted(marks.yielding), sorted(state.overloaded)
    (['costly'], [], ['ids'])
    """
    overloaded = frozenset(name for name, queue in queues.items() if _overloaded(name, queue, before, settings))
    smoothed = {
        name: before.smoothed.get(name, 0.0) * (1.0 - settings.smoothing) + queue.length * settings.smoothing
        for name, queue in queues.items()
    }
    marking = frozenset(
        name for name, length in smoothed.items() if length > settings.mark_above * queues[name].capacity
    )
    # what waits before a chain's first NF has cost nothing yet: its queue drops the same packets by itself
    dropping = frozenset(name for name, stages in chains.items() if overloaded & set(stages[1:]))
    return Marks(dropping, _yielding(chains, overloaded), marking), BackPressure(overloaded, smoothed)


def _overloaded(name: str, queue: QueueObservation, before: BackPressure, settings: PressureSettings) -> bool:
    if name in before.overloaded:
        return queue.length >= settings.low_water * queue.capacity
    return queue.length > settings.high_water * queue.capacity and queue.waiting_us > settings.waiting_us


def _yielding(chains: Mapping[str, Sequence[str]], overloaded: frozenset[str]) -> frozenset[str]:
    """Return the NFs of which every chain that passes them comes to an overloaded NF later on."""
    useful: set[str] = set()
    upstream: set[str] = set()
    for stages in chains.values():
        for place, name in enumerate(stages):
            (upstream if overloaded & set(stages[place + 1 :]) else useful).add(name)
    return frozenset(upstream - useful)
