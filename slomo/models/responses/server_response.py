"""How an NF responds to running neighbours: its counters and its throughput as functions of their pressure.

SLOMO (SIGCOMM'20) section 4.1 trains on the competition measured before the target starts. On a whole server all NFs
run from the start. These responses are therefore trained on the competition measured beside the target (the socket less
the target's core); `slomo.equilibrium.server` solves them for all NFs of a server.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np

from slomo.files.stored import Stored
from slomo.models.applicability import Applicability
from slomo.models.base import Floats, SensitivityModel, require
from slomo.models.contentiousness import ContentiousnessProfile, pressure_basis
from slomo.models.functions.smooth import SmoothSensitivity
from slomo.models.intervals import ConformalCalibration
from slomo.models.responses.moved import MostMoved, moved_in
from slomo.models.responses.sensitivity import sensitivity_from_dict

#: Feature beside the pressures: one neighbour has fewer accesses in flight than several with the same total pressure.
NEIGHBOURS = "neighbours"


#: Ends of :func:`packets_of_age`, as decimal logarithms.
_FEWEST_PACKETS, _MOST_PACKETS = 1.5, 7.0
#: Weights of a response that was not measured: none.
NOT_LEARNED = np.zeros(0)


@cache
def packets_of_age(terms: int) -> Floats:
    """Return the numbers of packets at which the terms of `ServerResponse.holding` reach one half."""
    return np.logspace(_FEWEST_PACKETS, _MOST_PACKETS, terms - 1)


@dataclass(frozen=True, eq=False)
class ServerResponse(Stored, readers={"sensitivity": sensitivity_from_dict}):
    """One NF's response to the pressure of running neighbours."""

    #: Counters of the NF's core as a smooth function of its neighbours' pressure; rates are divided by the packet rate.
    profile: ContentiousnessProfile
    #: Throughput [Mpps] over the same basis; smooth, for the rounds of the fixed point, shape (terms of the profile's
    #: basis,).
    speed: Floats
    #: Range of measured throughput [Mpps].
    slowest_mpps: float
    fastest_mpps: float
    #: Throughput as a function of the same pressure and, last, of :data:`NEIGHBOURS`; exact, read once the fixed point
    #: is found.
    sensitivity: SensitivityModel
    #: Held-out errors of :attr:`sensitivity`, from which its intervals follow.
    calibration: ConformalCalibration
    #: Range of the neighbours' pressures in the measurements.
    applicability: Applicability
    #: Least cache occupancy of all NFs together when their demand exceeds the cache [KiB]; 0 where not known.
    full_kib: float = 0.0
    #: Scores of served against offered load (`slomo.models.responses.arrivals`); none without mixes at reduced load,
    #: shape (n,).
    arrivals: Floats = field(default_factory=lambda: np.zeros(0))
    #: Largest amounts of data that neighbours moved past the cache; infinite where they were not measured.
    most_moved: MostMoved = field(default_factory=MostMoved)
    #: The same of an NF that has less to do than it could serve, so that its queue is short, as a function of the
    #: pressure whose rates are taken over served / `fastest_mpps`, for packets find the caches as many packets later as
    #: at full speed beside faster neighbours. None where it was not profiled at part load.
    part_load: ContentiousnessProfile | None = None
    #: Latency of the memory where its channel is just full [ns]. A longer one is waiting, part of the pressure: so much
    #: more traffic (`slomo.training.waiting`). 0 where it was not measured, and traffic alone is the pressure.
    full_channel_ns: float = 0.0
    #: Memory traffic of a packet [MiB/s per Mpps], over the inputs of `sensitivity`; exact where the channel is loaded.
    #: None where too few mixes load it.
    traffic: SmoothSensitivity | None = None
    #: What the NF holds in a shared cache that evicts lines unused for n of its packets: ``holding[0] + sum(holding[k]
    #: * n / (n + packets_of_age[k - 1]))`` [KiB], shape (terms of the profile's basis,). Empty where it was not learned
    #: from mixes.
    holding: Floats = field(default_factory=lambda: NOT_LEARNED)
    #: Memory traffic of a packet [MiB/s per Mpps] that its card causes by reading it back from memory to send it, since
    #: it waited in a long queue; shape (terms of the profile's basis,). A full channel holds cards back, which makes
    #: queues short. Empty where lines that cards miss were not measured, or none is read back.
    read_back: Floats = field(default_factory=lambda: NOT_LEARNED)

    @property
    def knows_waiting(self) -> bool:
        """Whether the effect of a full memory channel was learned from the latency of misses."""
        return self.full_channel_ns > 0.0

    @property
    def pressure_names(self) -> tuple[str, ...]:
        """Metrics of the neighbours' pressure, in order."""
        return self.profile.pressure_names

    @cached_property
    def moves_at_most(self) -> tuple[float, ...]:
        """Largest amounts of `slomo.models.responses.moved.MOVED` that the NF itself moves."""
        return tuple((self.fastest_mpps * moved_in(self.profile.metric_names, self.profile.high)).tolist())

    def rows_mpps(self, pressure: Floats, neighbours: Floats) -> Floats:
        """Return throughput [Mpps], shape ``(n,)``; pressures have shape ``(n, pressures)``, neighbours ``(n,)``."""
        return self.sensitivity.predict_mpps(self.inputs(pressure, neighbours))

    def inputs(self, pressure: Floats, neighbours: Floats) -> Floats:
        """Return the input rows of :attr:`sensitivity`: pressures and perhaps the number of neighbours."""
        if self.sensitivity.feature_names[-1:] != (NEIGHBOURS,):
            return pressure
        rows = np.empty((len(pressure), pressure.shape[1] + 1))
        rows[:, :-1], rows[:, -1] = pressure, neighbours
        return rows

    def speed_mpps(self, pressure: Floats) -> Floats:
        """Return the throughput by the smooth approximation that the iteration uses [Mpps], shape ``(n,)``."""
        basis = pressure_basis(pressure, self.profile.scale, self.profile.limit)
        return np.clip(basis @ self.speed, self.slowest_mpps, self.fastest_mpps)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ServerResponse":
        """Return the object that :meth:`to_dict` described; ConfigurationError if tables do not match."""
        made = super().from_dict(data)
        reads = tuple(name for name in made.sensitivity.feature_names if name != NEIGHBOURS)
        fits = reads == made.applicability.feature_names == made.profile.pressure_names
        fits = fits and (made.part_load is None or made.part_load.pressure_names == reads)
        fits = fits and made.speed.shape == (len(made.profile.weights),)
        require(fits, "a server response whose parts read different pressures")
        holds = len(made.holding) in (0, len(made.speed)) and (made.holding >= 0.0).all()
        require(holds, "holdings by age must be as many as terms, 0 or more")
        require(len(made.read_back) in (0, len(made.speed)), "traffic read back must have as many terms as speed")
        arrivals = made.arrivals
        ascend = arrivals.ndim == 1 and (np.diff(arrivals) >= 0).all() and (arrivals >= 0).all()
        require(ascend, "scores of arrivals must be positive and in ascending order")
        return made
