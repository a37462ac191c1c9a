"""The equilibrium of one server; results equal those of `slomo.equilibrium.server`.

This module is for questions about a single server, most of which need one NF out of five; values per NF are therefore
plain numbers instead of arrays. Once the rounds are compiled, computing throughputs by the models takes as long as all
rounds, so throughputs that the rounds have already computed are reused.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from slomo.equilibrium.judgement import moved_by_each
from slomo.equilibrium.rounds import LEAST_LOAD, TINY, Rest
from slomo.equilibrium.server import FixedPoints, joint_vectors
from slomo.equilibrium.settling import response_table
from slomo.models.base import Floats
from slomo.models.error_shape import NO_ERRORS
from slomo.models.interval_ends import interval_of_one
from slomo.models.intervals import scores_between
from slomo.models.neighbourhood import kinds_in
from slomo.models.nf_model import NFModel
from slomo.models.responses.arrivals import arrival_half_width_mpps


class OneServer:
    """The equilibrium of one server; results are computed only when needed.

    `models`: one per NF, all with a `response`. `offered_mpps`: offered load of each NF [Mpps]; None saturates it.
    Raises MissingMetricError and ConfigurationError as `slomo.equilibrium.server.solve_joint` does.
    """

    def __init__(self, models: Sequence[NFModel], offered_mpps: Sequence[float | None]) -> None:
        keys = [(model.workload.key, load or np.inf) for model, load in zip(models, offered_mpps, strict=True)]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        #: Models and loads in canonical order, and the place in this order of each given NF; methods take the place.
        self.models = [models[i] for i in order]
        self.offered = [offered_mpps[i] for i in order]
        self.place = [order.index(i) for i in range(len(order))]
        distinct = tuple(dict.fromkeys(self.models))
        numbers = [distinct.index(model) for model in self.models]
        #: Kind of each NF's neighbourhood (`slomo.models.neighbourhood`).
        self.kinds = kinds_in(numbers)
        self._nfs = response_table(distinct)
        loads = None
        if self.offered.count(None) < len(order):
            loads = np.array([[np.inf if load is None else load for load in self.offered]])
        self._group = self._nfs.group(np.array([numbers]), loads)
        self.rest: Rest = self._nfs.settle(self._group)
        self.pressure = self.rest.pressure
        #: Whether the rounds converged.
        self.converged = bool(self.rest.status[0, 0] > 0.0)
        self._mpps: list[float] | None = None

    def felt(self, place: int) -> Floats:
        """Return the pressure that the other NFs put on one NF, shape ``(pressures,)``."""
        pressure: Floats = self.pressure[0, place]
        return pressure

    def may_move_more(self, place: int) -> bool:
        """Return whether an NF's neighbours may move more data past the cache than in its profile.

        Only then is :attr:`moved` computed, which takes half as long as the rounds.
        """
        own = self.models[place].response
        others = [model.response for i, model in enumerate(self.models) if i != place]
        assert own is not None
        every = zip(*[other.moves_at_most for other in others if other is not None], strict=True)
        return any(sum(each) > limit for each, limit in zip(every, own.most_moved.limits, strict=True))

    def possible_mpps(self, place: int) -> float:
        """Return the throughput that an NF would reach if it were saturated [Mpps]."""
        if len(self.models) == 1:
            return self.models[0].solo_mpps
        if self._mpps is None:
            if np.isnan(self.rest.mpps[0, 0]):  # the rounds did not compute it
                self._group.read(self._nfs.responses, self.rest)
            self._mpps = self.rest.mpps[0].tolist()
        return self._mpps[place]

    def load_of(self, place: int) -> float:
        """Return an NF's served throughput divided by the throughput that it could reach."""
        offered = self.offered[place]
        return 1.0 if offered is None else min(max(offered / max(self.possible_mpps(place), TINY), LEAST_LOAD), 1.0)

    def throughput_mpps(self, place: int) -> float:
        """Return an NF's served throughput [Mpps]."""
        possible, offered = self.possible_mpps(place), self.offered[place]
        return possible if offered is None else min(possible, offered)

    def interval_mpps(self, place: int, coverage: float, window_s: float | None = None) -> tuple[float, float]:
        """Return the lower and upper bound of the interval of an NF's throughput [Mpps], as in `solve_joint`."""
        model, offered, shape, scores = self.models[place], self.offered[place], NO_ERRORS, (0.0, 0.0)
        response = model.response
        assert response is not None
        if len(self.models) > 1 or model.solo_is_carried:
            (low, high), kind = scores_between(response.calibration, coverage), self.kinds[place]
            shape, scores = response.calibration.shape, (low[kind], high[kind])
        ends = interval_of_one(self.possible_mpps(place), model.solo_mpps, shape, scores)
        if offered is None:
            return ends
        spread = float(arrival_half_width_mpps(np.array([offered]), response.arrivals, coverage, window_s)[0])
        return max(min(ends[0], offered - spread), 0.0), min(ends[1], offered + spread)

    @cached_property
    def fixed_point(self) -> FixedPoints:
        """State of the server after the iteration, in canonical order."""
        load = np.array([[self.load_of(place) for place in range(len(self.models))]])
        return FixedPoints(self.pressure, load, self.rest.waiting)

    @cached_property
    def vectors(self) -> tuple[tuple[str, ...], Floats]:
        """Names of the counters, and the counters of all NFs in the equilibrium, in canonical order."""
        responses = self._nfs.responses
        names = tuple(dict.fromkeys(name for response in responses for name in response.profile.metric_names))
        vectors: Floats = joint_vectors(self._nfs.models, self._group.members, self.fixed_point, names)[0]
        return names, vectors

    @cached_property
    def moved(self) -> Floats:
        """How much data every NF moves past the cache, in canonical order."""
        return moved_by_each(self._nfs.models, self._group.members, self.fixed_point)

    @cached_property
    def channel_load(self) -> float:
        """Share of the memory channel's bandwidth used by all NFs together (`slomo.equilibrium.judgement`)."""
        socket = self._nfs.socket
        if socket.channel is None:
            return 0.0
        most, total = float(socket.caps[socket.channel]), 0.0
        waited = most * (float(self.rest.waiting[0]) - 1.0)
        for beside in sorted((self.pressure[0, :, socket.channel] - waited).tolist()):
            total += beside
        return total / max(len(self.models) - 1, 1) / most
