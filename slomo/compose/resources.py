"""Compose what several resources cost one network function, in time per packet.

Yala (ASPLOS'25), composition by execution pattern: a pipeline is as fast as its slowest stage, run-to-completion takes
the sum of its stages, and what a packet costs without any competition is counted once. SLOMO (SIGCOMM'20) knows one
resource, the memory subsystem; time per packet is where further ones add up, throughput is not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slomo.errors import InvalidValueError, UnknownNameError

Floats = NDArray[np.float64]
#: How an NF uses its resources: all at once on different packets, or one after the other on the same packet.
Pattern = Literal["pipeline", "run-to-completion"]
PATTERNS: tuple[Pattern, ...] = ("pipeline", "run-to-completion")

_NS_PER_PACKET_AT_1_MPPS = 1e3
#: Preamble, start of frame, check sequence and gap of an Ethernet frame (IEEE 802.3) [B].
_FRAME_EXTRA_B = 24


@dataclass(frozen=True)
class Stage:
    """The part of a packet's time that one resource takes.

    Attributes
    ----------
    resource : str
        For instance ``"memory"``, ``"regex"``, ``"pcie"``.
    own_ns : float
        Time per packet without competition [ns], 0 or more.
    waiting_ns : float
        Time per packet that competitors add [ns], 0 or more.

    Raises
    ------
    InvalidValueError
        For a time below 0 or not finite.

    Examples
    --------
    >>> Stage("regex", own_ns=850.0, waiting_ns=150.0).time_ns
    1000.0
    """

    resource: str
    own_ns: float
    waiting_ns: float = 0.0

    def __post_init__(self) -> None:
        if not (0.0 <= self.own_ns < np.inf and 0.0 <= self.waiting_ns < np.inf):
            raise InvalidValueError(
                f"stage '{self.resource}' takes {self.own_ns:g} ns and waits {self.waiting_ns:g} ns, needed 0 or more",
                hint="a resource that is not used takes 0 ns",
            )

    @property
    def time_ns(self) -> float:
        """Own time and waiting [ns per packet]."""
        return self.own_ns + self.waiting_ns


def stages_mpps(stages: Sequence[Stage], pattern: Pattern = "run-to-completion") -> float:
    """Return the throughput of an NF whose packets pass `stages` [Mpps].

    Parameters
    ----------
    stages : sequence of Stage
        At least one that takes time.
    pattern : {"pipeline", "run-to-completion"}
        The slowest stage decides, or all add up.

    Raises
    ------
    InvalidValueError
        Where no stage takes any time.
    UnknownNameError
        For a pattern there is none of.

    Examples
    --------
    >>> stages = [Stage("memory", 300.0, 100.0), Stage("regex", 500.0, 100.0)]
    >>> stages_mpps(stages), round(stages_mpps(stages, "pipeline"), 3)
    (1.0, 1.667)

    References
    ----------
    Yala (ASPLOS'25), composition by execution pattern.
    """
    times = [stage.time_ns for stage in stages]
    total = sum(times) if checked_pattern(pattern) == "run-to-completion" else max(times, default=0.0)
    if not total > 0.0:
        raise InvalidValueError(
            f"{len(times)} stages take no time at all", hint="give at least the core's time per packet"
        )
    return _NS_PER_PACKET_AT_1_MPPS / total


def compose_resources(
    solo_mpps: ArrayLike, under_mpps: Mapping[str, ArrayLike], pattern: Pattern = "run-to-completion"
) -> Floats:
    """Compose throughputs, each under competition for one resource only, into that under competition for all.

    Run-to-completion: t = t_solo + sum over resources of (t_r - t_solo), where t is time per packet. Every t_r already
    holds the base, so that adding them up plainly would count it once per resource. Pipeline: the smallest of all.

    Parameters
    ----------
    solo_mpps : array of float, shape (n,) or scalar
        Throughput without competition [Mpps], above 0.
    under_mpps : mapping of str to array of float, shape (n,) or scalar
        Resource -> throughput where only this resource is competed for [Mpps], above 0. More than solo counts as solo.
    pattern : {"pipeline", "run-to-completion"}
        How the NF uses its resources.

    Returns
    -------
    ndarray of shape (n,) or ()
        Throughput [Mpps]; without resources, solo. NaN where any is unknown: unknown is not zero.

    Raises
    ------
    InvalidValueError
        For a throughput that is not above 0.
    UnknownNameError
        For a pattern there is none of.

    Examples
    --------
    >>> under = {"memory": 0.8, "regex": 0.5}
    >>> round(float(compose_resources(1.0, under)), 4), float(compose_resources(1.0, under, "pipeline"))
    (0.4444, 0.5)

    References
    ----------
    Yala (ASPLOS'25), composition: 1 / (sum 1/T_r - (n - 1)/T_solo) for n resources, or min T_r.
    """
    solo = _positive("solo", solo_mpps)
    times = {name: 1.0 / np.minimum(_positive(name, value), solo) for name, value in under_mpps.items()}
    base = 1.0 / solo
    if checked_pattern(pattern) == "pipeline":
        slowest = base
        for time in times.values():
            slowest = np.maximum(slowest, time)
        return np.asarray(1.0 / slowest)
    added = base
    for time in times.values():
        added = added + (time - base)
    return np.asarray(1.0 / added)


def core_share_ns(own_ns: float, share: float) -> float:
    """Return the time per packet on a core of which an NF has only a share [ns].

    Parameters
    ----------
    own_ns : float
        Time per packet on a core of its own [ns].
    share : float
        Share of the core's time, above 0, at most 1.

    Raises
    ------
    InvalidValueError
        For a share outside that range.

    Examples
    --------
    >>> core_share_ns(400.0, 0.5)
    800.0

    References
    ----------
    NFVnice (SIGCOMM'17): the share of NF i is its arrival rate x cost over the sum of all on the core.
    """
    if not 0.0 < share <= 1.0:
        raise InvalidValueError(f"share of a core is {share:g}, needed above 0 and at most 1")
    return own_ns / share


def wire_ns(packet_size_b: int, gbit_s: float, sharers: int = 1) -> float:
    """Return the time per packet on an Ethernet port that NFs share in turns [ns].

    Parameters
    ----------
    packet_size_b : int
        Size of a packet [B], without preamble, check sequence and gap, which are added.
    gbit_s : float
        Speed of the port [Gbit/s], above 0.
    sharers : int
        NFs that send all they can, this one included, at least 1; each has every `sharers`-th turn.

    Raises
    ------
    InvalidValueError
        For a speed or a number of sharers out of range.

    Examples
    --------
    >>> round(1e3 / wire_ns(60, 40.0), 2)
    59.52
    """
    return _transfer_ns(8.0 * (packet_size_b + _FRAME_EXTRA_B), gbit_s, sharers)


def pcie_ns(packet_size_b: int, gbit_s: float, sharers: int = 1, descriptor_b: int = 32) -> float:
    """Return the time per packet on the PCIe link to a card, in the busier direction [ns].

    Parameters
    ----------
    packet_size_b : int
        Size of a packet [B].
    gbit_s : float
        What the link carries of payload in one direction [Gbit/s], above 0.
    sharers : int
        NFs that send all they can, this one included, at least 1.
    descriptor_b : int
        Descriptor and completion that cross the link with each packet [B].

    Raises
    ------
    InvalidValueError
        For a speed or a number of sharers out of range.

    Examples
    --------
    >>> pcie_ns(68, 40.0, sharers=2)
    40.0
    """
    return _transfer_ns(8.0 * (packet_size_b + descriptor_b), gbit_s, sharers)


def checked_pattern(pattern: str) -> Pattern:
    """Return `pattern` if it is one.

    Raises
    ------
    UnknownNameError
        With the nearest.

    Examples
    --------
    >>> checked_pattern("pipelin")
    Traceback (most recent call last):
    slomo.errors.UnknownNameError: unknown execution pattern 'pipelin'
    hint: did you mean 'pipeline'? Known: pipeline, run-to-completion
    """
    if pattern not in PATTERNS:
        raise UnknownNameError("execution pattern", str(pattern), PATTERNS)
    return pattern


def _transfer_ns(bits: float, gbit_s: float, sharers: int) -> float:
    if not 0.0 < gbit_s < np.inf or sharers < 1:
        raise InvalidValueError(f"a link of {gbit_s:g} Gbit/s for {sharers} NFs, needed more than 0 and at least 1")
    return bits / gbit_s * sharers


def _positive(name: str, value: ArrayLike) -> Floats:
    mpps = np.asarray(value, dtype=np.float64)
    if (mpps <= 0.0).any():
        raise InvalidValueError(
            f"throughput '{name}' is {float(np.nanmin(mpps)):g} Mpps, needed more than 0",
            hint="an NF that stands still has no time per packet to add to",
        )
    return mpps
