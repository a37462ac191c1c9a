"""Convert a network function's model to a machine on which the function was not profiled.

Time per packet is computing plus waiting: cycles over the clock frequency, plus latencies of the caches and memory that
serve its accesses, divided by the loads in flight (as in interval models of processors: Karkhanis and Smith, ISCA'04).
Cycles and loads in flight are properties of the function, latencies of the machine. A function's misses depend on its
cache occupancy (miss curve: Mattson et al. 1970), which its model on the first machine predicts under every pressure. A
pressure on the new machine is therefore replaced by the pressure on the first machine that leaves the function the same
occupancy and loads the memory channel equally.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from slomo.errors import MissingMetricError
from slomo.models.base import Floats
from slomo.models.contentiousness import pressure_basis
from slomo.models.functions.regression import rising
from slomo.models.nf_model import NFModel
from slomo.models.responses.moved import MostMoved
from slomo.models.responses.server_response import ServerResponse
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.metrics import METRICS

#: Number of sampled pressures at which the first machine's model is read, and of neighbours.
_SAMPLES, _NEIGHBOURS = 512, 3.0
#: Share of L2 hits that would miss in an L2 of half the size: five of eight functions lie between 5 and 15 % on the two
#: shipped machines, and L2 misses that hit the LLC cost little.
_PER_HALVING = 0.1
#: Share of the caches from which a solo function counts as limited by them.
_FILLS = 0.85
#: Least room that neighbours leave in the caches [KiB].
_LEAST_ROOM_KIB = 256.0
#: Share of the channel that the measurements must reach to tell how a load on it slows the function.
_BUSY = 0.5
#: Damped rounds until a function's own traffic and the resulting latency agree.
_ROUNDS = 8
#: The same if only the counters are known, so that the first guess of the time is further off.
_COUNTED_ROUNDS = 25
_TINY = 1e-9
#: Standard deviation of the costs as carried, as a share: how far runs on the new machine may change them.
_COST_DOUBT = 0.5
#: Latency of a just full channel over that of an idle one, if the first machine's was never full: about two on servers
#: of the last ten years (Intel's Memory Latency Checker; ResQ, NSDI'18, Fig. 3).
_FULL_OVER_IDLE = 2.0
_NEEDED = ("L2MISS", "L2HIT", "L3MISS", "L3OCC", "LMB")


@dataclass(frozen=True, eq=False)
class CarriedState:
    """Throughput, time per packet and counters of a function in many situations, as arrays."""

    #: Time of a packet.
    time_ns: Floats
    #: Lines per packet.
    l2_misses: Floats
    l3_misses: Floats
    #: What it holds in its L2 and the LLC.
    held_kib: Floats
    #: Share of the memory channel that is in use, its own traffic included.
    channel: Floats
    #: Its vector; of rates, what a packet moves, shape (n, metrics).
    own: Floats

    @property
    def mpps(self) -> Floats:
        """Throughput in each situation [Mpps]."""
        return 1e3 / self.time_ns


class Carried:
    """One function, converted from the machine of its model to another one.

    `model`: trained on `measured_on`, with a `response`. `corrected`: whether runs on `machine` will correct the
    predictions. The cost of a busy channel is then derived from that of misses if the measurements did not load the
    channel; such predictions are further off, by errors that runs correct more easily.

    Raises MissingMetricError if the model knows no running neighbours, or not how many lines a packet misses.
    """

    def __init__(self, model: NFModel, measured_on: Machine, machine: Machine, *, corrected: bool = False) -> None:
        response = model.response
        lacking = _NEEDED if response is None else tuple(set(_NEEDED) - set(response.profile.metric_names))
        if response is None or lacking or "L3OCC" not in response.pressure_names:
            raise MissingMetricError(
                f"the model of '{model.workload.key}' on {measured_on.name} cannot be carried to {machine.name}: "
                + ("it was not measured beside others" if response is None else f"it lacks {', '.join(lacking)}"),
                hint=f"profile it on {measured_on.name} again, with counters of its own",
            )
        self.response: ServerResponse = response
        self.measured_on, self.machine = measured_on, machine
        limit = response.profile.limit
        inside = np.random.default_rng(0).uniform(0.0, 1.0, (_SAMPLES, len(limit))) ** 2
        self._seen = self._before(np.vstack([np.zeros(len(limit)), inside * limit]), np.full(_SAMPLES + 1, _NEIGHBOURS))
        self.costs = self._fitted_costs(corrected)
        doublings = float(np.log2(machine.l2_kib / measured_on.l2_kib))
        self._l2_misses = _beyond_l2(float(np.median(self._seen.l2_misses)), self._references, doublings)

    @cached_property
    def _references(self) -> float:
        """Number of cache lines per packet that the function requests from the L2."""
        hits = self._column(self._seen.own, "L2HIT")
        return float(np.median(self._seen.l2_misses / np.maximum(1.0 - hits, 1e-6)))

    @cached_property
    def _curve(self) -> tuple[Floats, Floats]:
        """Cache occupancy [KiB], and the misses per packet at it."""
        order = np.argsort(self._seen.held_kib)
        held, missed = self._seen.held_kib[order], self._seen.l3_misses[order]
        parts = np.array_split(np.arange(len(held)), 40)
        at = np.array([held[part].mean() for part in parts])
        falling = -rising([-missed[part].mean() for part in parts])  # pool adjacent violators
        increasing = np.concatenate([[True], np.diff(at) > 1e-6])
        return at[increasing], falling[increasing]

    def state(self, pressure: Floats, neighbours: Floats) -> CarriedState:
        """Return the function's state on the new machine under pressures there."""
        before = self._before(self.pressure_before(pressure), neighbours)
        occupied = self._place("L3OCC")
        room = _caches_kib(self.machine) - pressure[:, occupied]
        room_before = _caches_kib(self.measured_on) - self.pressure_before(pressure)[:, occupied]
        more = room - room_before
        fills = self._seen.held_kib[0] > _FILLS * _caches_kib(self.measured_on)
        held = before.held_kib + np.where(more < 0.0, more, more if fills else 0.0)
        held = np.maximum(held, min(self.machine.l2_kib, float(self._seen.held_kib.min())))
        missed = before.l3_misses + self._missed(held) - self._missed(before.held_kib)
        missed = np.clip(missed, 0.0, self._l2_misses)
        beyond = np.full(len(pressure), self._l2_misses)
        own = self._vector(before, missed, np.minimum(held, room))
        traffic = self._column(own, "LMB")
        known = before.time_ns - self._terms(self.measured_on, before) @ self.costs
        beside = self._channel_beside(pressure)
        after = CarriedState(before.time_ns, beyond, missed, held, before.channel, own)
        for _ in range(_ROUNDS):
            channel = beside + traffic * after.mpps / _channel(self.machine)
            after = CarriedState(after.time_ns, beyond, missed, held, channel, own)
            target_ns = np.maximum(known + self._terms(self.machine, after) @ self.costs, 0.1 * before.time_ns)
            time_ns = np.sqrt(after.time_ns * target_ns)
            after = CarriedState(time_ns, beyond, missed, held, channel, own)
        return self._with_rates(before, after)

    def time_ns(self, pressure: Floats, own: Floats, costs: Floats) -> Floats:
        """Return the time of a packet on the new machine, under pressures there, of a function with these counters."""
        time_ns, traffic = np.full(len(own), float(self._seen.time_ns[0])), self._column(own, "LMB")
        beside = self._channel_beside(pressure)
        for _ in range(_COUNTED_ROUNDS):
            channel = beside + traffic * 1e3 / time_ns / _channel(self.machine)
            time_ns = np.sqrt(time_ns * np.maximum(self._counted(own, channel) @ costs, 1.0))
        return time_ns

    def costs_there(self, pressure: Floats, own: Floats, time_ns: Floats, noise: Floats) -> tuple[Floats, Floats]:
        """Return the function's costs, corrected by runs on the new machine, and how much each run decides its own fit.

        Bayesian linear regression; `noise`: relative standard deviation of each run's time. An error of a run's time,
        divided by one less the second value (its leverage), is that without the run.
        """
        channel = self._channel_beside(pressure) + self._column(own, "LMB") * 1e3 / time_ns / _channel(self.machine)
        terms = self._counted(own, channel) / (noise * time_ns)[:, np.newaxis]
        doubt = _COST_DOUBT * np.array([self.costs[0], self.costs[1:].max(), self.costs[1:].max()]) + _TINY
        rows = np.vstack([terms, np.diag(1.0 / doubt)])
        leverage = np.einsum("ij,ji->i", terms, np.linalg.solve(rows.T @ rows, terms.T))
        return _positive(rows, np.concatenate([1.0 / noise, self.costs / doubt])), leverage

    def _counted(self, own: Floats, channel: Floats) -> Floats:
        """Return the terms of the time per packet on the new machine that follow from counters, shape ``(n, 3)``."""
        beyond = self._column(own, "L2MISS")
        missed, held_kib = np.minimum(self._column(own, "L3MISS"), beyond), self._column(own, "L3OCC")
        return self._terms(self.machine, CarriedState(channel, beyond, missed, held_kib, channel, own))

    def _channel_beside(self, pressure: Floats) -> Floats:
        """Return the share of the new machine's channel that neighbours use."""
        if "LMB" not in self.names:
            return np.zeros(len(pressure))
        return pressure[:, self._place("LMB")] / _channel(self.machine)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the counters of which the pressure consists."""
        return self.response.pressure_names

    def pressure_before(self, pressure: Floats) -> Floats:
        """Return the pressures on the old machine that have the same effect as those on the new one."""
        before = pressure.copy()
        before[:, self._place("L3OCC")] -= _caches_kib(self.machine) - _caches_kib(self.measured_on)
        for name, (ours, theirs) in self._sizes.items():
            if name != "L3OCC" and theirs > 0.0:
                before[:, self._place(name)] *= ours / theirs
        return np.clip(before, 0.0, self.response.profile.limit)

    def read_back(self, pressure: Floats) -> Floats:
        """Return what a card reads back from memory of a packet, on the new machine; empty if not known."""
        known, profile = self.response.read_back, self.response.profile
        if not len(known):
            return known
        basis = pressure_basis(self.pressure_before(pressure), profile.scale, profile.limit)
        return np.maximum(basis @ known, 0.0)

    def full_channel_ns(self, machine: Machine) -> float:
        """Return the memory latency at the least load that fills the channel of `machine`, old or new [ns]."""
        idle = self.measured_on.dram_local_ns
        over_idle = self.response.full_channel_ns / idle if self.response.knows_waiting else _FULL_OVER_IDLE
        return over_idle * machine.dram_local_ns

    @property
    def full_kib(self) -> float:
        """Smallest total occupancy of a full LLC on the new machine [KiB]; 0 if unknown."""
        return self.response.full_kib * self.machine.llc_mib / self.measured_on.llc_mib

    @property
    def most_moved(self) -> MostMoved:
        """Largest memory traffic of neighbours in the model's data, converted to the new machine's memory channel."""
        ratio = _channel(self.machine) / _channel(self.measured_on)
        return MostMoved(tuple(amount * ratio for amount in self.response.most_moved.amounts))

    def limit(self) -> Floats:
        """Return the largest known pressures on the new machine, shape ``(pressures,)``."""
        limit = self.response.profile.limit.copy()
        for name, (ours, theirs) in self._sizes.items():
            limit[self._place(name)] *= theirs / max(ours, 1e-9)
        return np.maximum(limit, 1e-9)

    @cached_property
    def _sizes(self) -> Mapping[str, tuple[float, float]]:
        """Size on the old and on the new machine of what each pressure fills."""
        sizes = {
            "L3OCC": tuple(each.capacities().llc_kib for each in (self.measured_on, self.machine)),
            "LMB": tuple(map(_channel, (self.measured_on, self.machine))),
            "DDIOOCC": tuple(each.capacities().ddio_kib for each in (self.measured_on, self.machine)),
        }
        return {name: (ours, theirs) for name, (ours, theirs) in sizes.items() if name in self.names}

    def room_halvings(self, pressure: Floats) -> Floats:
        """Return how often the new machine's cache would have to be halved to the room that neighbours leave."""
        whole = _caches_kib(self.machine)
        return np.log2(whole / np.maximum(whole - pressure[:, self._place("L3OCC")], _LEAST_ROOM_KIB))

    def _place(self, name: str) -> int:
        return self.names.index(name)

    def _column(self, own: Floats, name: str) -> Floats:
        return own[:, self.response.profile.metric_names.index(name)]

    def _before(self, pressure: Floats, neighbours: Floats) -> CarriedState:
        """Return the function's state on the machine where it was profiled, under the given pressure there."""
        mpps = self.response.rows_mpps(pressure, neighbours)
        own = self.response.profile.under(pressure)
        beyond = self._column(own, "L2MISS")
        channel = self._column(own, "LMB") * mpps
        if "LMB" in self.names:
            channel = channel + pressure[:, self._place("LMB")]
        return CarriedState(
            1e3 / np.maximum(mpps, 1e-6),
            beyond,
            np.minimum(self._column(own, "L3MISS"), beyond),
            self._column(own, "L3OCC") + _own_l2_kib(self.measured_on),
            channel / _channel(self.measured_on),
            own,
        )

    def _terms(self, machine: Machine, state: CarriedState) -> Floats:
        """Return the terms of the time per packet that depend on machine and situation, shape ``(n, 3)``."""
        waiting = np.maximum(state.channel - 1.0, 0.0)
        served = (
            (self._references - state.l2_misses) * machine.l2_hit_ns
            + (state.l2_misses - state.l3_misses) * machine.llc_hit_ns
            + state.l3_misses * (machine.dram_local_ns + self.full_channel_ns(machine) * waiting)
        )
        busy = state.l3_misses * machine.dram_local_ns * np.minimum(state.channel, 1.0) ** 2
        return np.column_stack([np.full(len(busy), 1.0 / machine.frequency_ghz), served, busy])

    def _fitted_costs(self, corrected: bool) -> Floats:
        """Return the function's own parameters: cycles, and loads in flight."""
        known = self._seen.channel < 1.0
        terms = self._terms(self.measured_on, self._seen)[known] / self._seen.time_ns[known, np.newaxis]
        if not corrected or self._seen.channel.max() > _BUSY:
            return _positive(terms, np.ones(int(known.sum())))
        longer = self.full_channel_ns(self.measured_on) / self.measured_on.dram_local_ns - 1.0
        cycles, waits = _positive(terms[:, :2] + terms[:, 2:] * [0.0, longer], np.ones(int(known.sum())))
        return np.array([cycles, waits, longer * waits])

    def _missed(self, held_kib: Floats) -> Floats:
        """Return the misses per packet at a cache occupancy."""
        at, missed = self._curve
        inside: Floats = np.interp(held_kib, at, missed)
        last = at[-1]
        slope = max(float(np.interp(0.7 * last, at, missed)) - float(missed[-1]), 0.0) / (0.3 * last)
        missing: Floats = np.maximum(inside - slope * np.maximum(held_kib - last, 0.0), 0.0)
        return missing

    def _vector(self, before: CarriedState, missed: Floats, held_kib: Floats) -> Floats:
        """Return the function's counters per packet on the new machine."""
        own = before.own.copy()
        for number, name in enumerate(self.response.profile.metric_names):
            if name in self._per_miss:
                own[:, number] = np.maximum(own[:, number] + self._per_miss[name] * (missed - before.l3_misses), 0.0)
        known = {
            "L3MISS": missed,
            "L2MISS": np.full(len(missed), self._l2_misses),
            "L3HIT": 1.0 - missed / max(self._l2_misses, 1e-9),
            "L2HIT": np.full(len(missed), 1.0 - self._l2_misses / max(self._references, 1e-9)),
            "L3OCC": np.maximum(held_kib - _own_l2_kib(self.machine), 0.0),
        }
        for name, values in known.items():
            if name in self.response.profile.metric_names:
                own[:, self.response.profile.metric_names.index(name)] = values
        return own

    @cached_property
    def _per_miss(self) -> Mapping[str, float]:
        """Return the change of traffic per additional miss, by least squares over the measurements."""
        missed = self._seen.l3_misses
        spread = float(missed.var())
        moved = ("LMB", "READ", "WRITE")
        if spread < 1e-9:
            return {}
        return {
            name: float(np.cov(missed, self._column(self._seen.own, name))[0, 1] / spread)
            for name in self.response.profile.metric_names
            if name in moved
        }

    def _with_rates(self, before: CarriedState, after: CarriedState) -> CarriedState:
        """Return the state with instructions-per-cycle metrics converted to the new machine's speed and clock."""
        own = after.own
        slower = after.time_ns * self.machine.frequency_ghz / (before.time_ns * self.measured_on.frequency_ghz)
        for number, name in enumerate(self.response.profile.metric_names):
            if name in ("IPC", "EXEC"):
                own[:, number] = own[:, number] / slower
        return after


def _own_l2_kib(machine: Machine) -> float:
    """Return what a function holds outside the LLC [KiB]."""
    return machine.l2_kib if machine.llc_policy == "victim" else 0.0


def _caches_kib(machine: Machine) -> float:
    """Return the largest occupancy of one function alone."""
    return machine.llc_mib * 1024.0 + _own_l2_kib(machine)


def _channel(machine: Machine) -> float:
    return machine.capacities().limit(METRICS["LMB"])


def _beyond_l2(missed: float, references: float, doublings: float) -> float:
    """Return the misses per packet of an L2 of another size.

    >>> _beyond_l2(4.0, 8.0, -1.0), round(_beyond_l2(4.4, 8.0, 1.0), 6)
    (4.4, 4.0)
    """
    share = min(_PER_HALVING * abs(doublings), 0.9)
    other = missed + share * (references - missed) if doublings <= 0.0 else (missed - share * references) / (1 - share)
    return max(other, min(1.0, missed))


def _positive(terms: Floats, response: Floats) -> Floats:
    """Return least-squares weights, none below 0: the best of all subsets of the few terms.

    >>> _positive(np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([2.0, 1.0])).round(6).tolist()
    [1.5, 0.0]
    """
    count = terms.shape[1]
    best, best_weights = np.inf, np.zeros(count)
    for size in range(1, count + 1):
        for chosen in combinations(range(count), size):
            columns = list(chosen)
            weights = np.linalg.lstsq(terms[:, columns], response, rcond=None)[0]
            error = float(np.square(terms[:, columns] @ weights - response).sum())
            if (weights >= 0.0).all() and error < best * (1.0 - 1e-9):
                best, best_weights = error, np.zeros(count)
                best_weights[columns] = weights
    return best_weights
