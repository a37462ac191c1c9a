"""Correct models converted from another machine by runs on the new machine, with Gaussian processes.

The prediction of `slomo.adaptation.machines` for the new machine differs from the truth by a factor that changes slowly
with the pressure. The factor's logarithm is learned by Gaussian processes from the runs on the new machine (Rasmussen
and Williams 2006, section 2.2). The error of each held-out run's throughput has a closed form (their equation 5.12).
The function's own vector is learned by such processes from the same runs. For each metric, held-out errors of all
functions determine how much of the converted vector's shape is kept.

The corrected own vector predicts throughput a second time: cycles and loads in flight, fitted to the counters and times
of the runs, give the time of a packet with these counters. Both predictions are averaged, weighted by their held-out
errors over all functions.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from slomo.adaptation.machines import Carried, CarriedState
from slomo.equilibrium.tables import flows_and_polled
from slomo.errors import MissingMetricError
from slomo.models.base import Floats
from slomo.models.nf_model import NFModel
from slomo.models.responses.moved import MostMoved, most_moved
from slomo.training.features import LINE_B, Subject
from slomo.training.missed_lines import Card, Leak, leak_of
from slomo.training.server_response_fit import full_kib, pressures_of
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.metrics import METRICS

#: Standard deviations of the correction's logarithm: constant, linear in each coordinate but the first pressure (a
#: function that fits into the cache loses no throughput until the cache is nearly full, so free space predicts better
#: than occupancy), and local; the range of the local part (in shares of pressures, 0 to 1), and the noise of a run.
#: Chosen on the shipped machines, in both directions.
_MPPS, _REACH, _NOISE = (0.2, 0.1, 0.1), 0.5, 0.015
#: Additional noise of a run beside a full memory channel, per channel's traffic that waits, as the prior is weakest
#: there.
_WAITING_NOISE = 0.2
#: Covariance of a metric of the function's own vector: constant, linear and local parts, and the noise of one run.
#: Their ratios matter, not their size.
_OWN, _OWN_NOISE = (1.0, 0.7, 1.0), 0.1
#: Candidate factors for the variation of a converted counter with pressure.
_KEPT = (0.0, 0.25, 0.5, 0.75, 1.0)
#: Where a pressure counts half, as a share of the largest; how much each halving of the room in the caches counts.
_HALF, _PER_HALVING = 0.6, 0.3
#: Weight of the common error size, expressed as a number of the function's own runs.
_SIZE_RUNS = 4.0
#: Counters that depend on the room which neighbours leave in the caches, rather than on what they occupy.
_BY_ROOM = ("L3OCC", "L3MISS", "L3MPI", "L3HIT", "L2MISS", "L2MPI", "L2HIT")
#: Counters from which the second prediction follows.
COUNTED = ("L2MISS", "L3MISS", "LMB")
#: Upper limit of a metric, as a multiple of its largest measured or converted value.
_MOST = 1.5


@dataclass(frozen=True, eq=False)
class Corrected:
    """One function's model, converted to the new machine and corrected by runs there."""

    model: NFModel
    carried: Carried
    runs: Subject | None
    #: Pressures, numbers of neighbours and throughputs of the function's runs on the new machine.
    pressure: Floats
    neighbours: Floats
    mpps_there: Floats
    #: Coordinates of these runs, logarithms of their ratio to the converted prediction, and their noise.
    places: Floats
    residuals: Floats
    noise: Floats
    #: Competing workloads of each run; empty in a run alone, and in a mix.
    settings: NDArray[np.str_]
    #: Each run's own metrics, measured and carried; of rates, what a packet moves. By metric, shape (2, runs).
    own: Mapping[str, Floats]
    #: Share of the carried variation that is kept, by metric (:func:`jointly`).
    kept: Mapping[str, float] = field(default_factory=dict)
    #: Second prediction: costs fitted to the runs, leverage of each run in this fit, logarithms of the runs' ratio to
    #: the prediction, and its weight.
    costs: Floats = field(default_factory=lambda: np.zeros(0))
    leverage: Floats = field(default_factory=lambda: np.zeros(0))
    counted: Floats = field(default_factory=lambda: np.zeros(0))
    counted_share: float = 0.0
    #: When cards miss lines; None if not learned.
    leak: Leak | None = None

    @classmethod
    def of(cls, model: NFModel, before: Machine, machine: Machine, runs: Subject | None) -> "Corrected":
        """Convert a model to the new machine; if there are runs on it, correct the model."""
        carried = Carried(model, before, machine, corrected=runs is not None)
        none, count = np.zeros(0), len(carried.names)
        pressure, places = np.zeros((0, count)), np.zeros((0, count + 2))
        fitted = cls(model, carried, runs, pressure, none, none, places, none, none, none.astype(np.str_), {})
        if runs is None:
            return fitted
        lacking = set(carried.names) - set(runs.beside_names) if runs.counts.any() else set()
        if lacking:
            raise MissingMetricError(
                f"runs of '{model.workload.key}' on {machine.name} lack {', '.join(sorted(lacking))} beside it, "
                f"which its model on {before.name} reads",
                hint="measure the same metrics on both machines",
            )
        return fitted._learned(runs)

    def _learned(self, runs: Subject) -> "Corrected":
        carried, alone = self.carried, runs.counts == 0
        most = carried.machine.capacities().limit(METRICS["LMB"])
        pressure = np.zeros((len(runs.mpps), len(carried.names)))
        if not alone.all():
            channel = (carried.full_channel_ns(carried.machine), most)
            pressure = pressures_of(runs, carried.names, runs.beside, 1.0, channel)
        pressure[alone] = 0.0
        whole = np.isfinite(pressure).all(axis=1) & (runs.mpps > 0.0)
        pressure, mpps, alone = pressure[whole], runs.mpps[whole], alone[whole]
        counts = runs.counts[whole].astype(float)
        state = carried.state(pressure, counts)
        places = self.places_of(pressure, state)
        noise = _NOISE + _WAITING_NOISE * np.maximum(state.channel - 1.0, 0.0)
        own = _own_metrics(carried.response.profile.metric_names, runs, whole, state.own)
        mixed = np.zeros(len(whole) - len(runs.settings), dtype=np.str_)
        return replace(
            self,
            pressure=pressure,
            neighbours=counts,
            mpps_there=mpps,
            places=places,
            residuals=np.log(mpps / state.mpps),
            noise=noise,
            settings=np.append(runs.settings, mixed)[whole],
            own=own,
        )

    def chosen(self, rows: NDArray[np.bool_]) -> "Corrected":
        """Return the function with a part of its runs on the new machine, as before :func:`jointly`."""
        own = {name: pair[:, rows] for name, pair in self.own.items()} if rows.any() else {}
        arrays = ("pressure", "neighbours", "mpps_there", "places", "residuals", "noise", "settings")
        return replace(self, own=own, **{name: getattr(self, name)[rows] for name in arrays})

    def places_of(self, pressure: Floats, state: CarriedState) -> Floats:
        """Return the coordinates in which corrections are learned: pressures, room in the caches, loss."""
        half = _HALF * self.carried.limit()
        alone = self.carried.state(np.zeros((1, pressure.shape[1])), np.zeros(1)).time_ns
        room = _PER_HALVING * self.carried.room_halvings(pressure)
        return np.column_stack([pressure / (pressure + half), room, 2.0 * np.log(state.time_ns / alone)])

    @cached_property
    def card(self) -> Card | None:
        """The function's card; None if no counter tells its misses or what neighbours hold in the DDIO ways."""
        names = self.carried.response.profile.metric_names
        if not {"PCIEMISS", "DDIOOCC", "LMB"} <= {*names} & {*self.own} or "DDIOOCC" not in self.carried.names:
            return None
        alone = self.carried.state(np.zeros((1, len(self.carried.names))), np.zeros(1)).own[0]
        held_kib, missed = (
            float(self.own[name][0][self.neighbours == 0].mean() if self.solo_is_measured else alone[names.index(name)])
            for name in ("DDIOOCC", "PCIEMISS")
        )
        lines = float(np.ceil(self.model.workload.traffic.packet_size_b / LINE_B))
        return Card(lines, held_kib / self._ways_kib, missed, self._held_beside(self.pressure), *self.own["PCIEMISS"])

    @property
    def _ways_kib(self) -> float:
        return max(self.carried.machine.capacities().ddio_kib, 1e-9)

    def _held_beside(self, pressure: Floats) -> Floats:
        return pressure[:, self.carried.names.index("DDIOOCC")] / self._ways_kib

    def with_leak(self, pressure: Floats, own: Floats) -> Floats:
        """Return converted counters with the lines that the card misses."""
        if self.leak is None or self.card is None:
            return own
        names, beside = self.carried.response.profile.metric_names, self._held_beside(pressure)
        return self.card.corrected(names, own, beside, self.leak)

    def _smoothed(self, places: Floats, residuals: Floats) -> Floats:
        """Return residuals of the runs as learned at other places (rows of :meth:`places_of`)."""
        if not len(residuals):
            return np.zeros(len(places))
        near = _likeness(places[:, 1:], self.places[:, 1:], _MPPS)
        return near @ np.linalg.solve(self._covariance(), residuals)

    def own_vectors(self, places: Floats, carried: Floats) -> Floats:
        """Return the function's own counters after conversion and correction, shape ``(n, metrics)``."""
        names = self.carried.response.profile.metric_names
        own = carried.copy()
        near = [_likeness(_own_places(places, room), _own_places(self.places, room), _OWN) for room in (False, True)]
        for name, (measured, before) in self.own.items():
            room, column = name in _BY_ROOM, names.index(name)
            shape = self.kept[name] * (carried[:, column] - before.mean())
            rest = measured - self.kept[name] * (before - before.mean())
            learned = near[room] @ (self._own_inverses[room] @ (rest - rest.mean()))
            own[:, column] = np.clip(rest.mean() + shape + learned, 0.0, _MOST * max(measured.max(), before.max()))
        return own

    def own_errors(self, name: str) -> Floats:
        """Return the mean error of a counter in held-out runs, for each factor of `_KEPT`; see :func:`kept_shares`."""
        measured = self.own[name][0]
        errors = np.abs(self.own_left_out(name, _KEPT)).sum(axis=1)
        relative: Floats = errors / max(measured.mean() + measured.std(), 1e-12)
        return relative

    def own_left_out(self, name: str, kept: Sequence[float]) -> Floats:
        """Return the errors of a counter in held-out runs, for each factor in `kept`; see :func:`kept_shares`."""
        measured, before = self.own[name]
        rest = measured - np.multiply.outer(kept, before - before.mean())
        inverse = self._own_inverses[name in _BY_ROOM]
        errors: Floats = (rest - rest.mean(axis=1, keepdims=True)) @ inverse / np.diag(inverse)
        return errors

    @cached_property
    def _own_inverses(self) -> tuple[Floats, Floats]:
        """Return the inverse covariance of the runs for counters that follow pressures, and for those of `_BY_ROOM`."""
        places = [_own_places(self.places, room) for room in (False, True)]
        first, second = (np.linalg.inv(_likeness(at, at, _OWN) + _OWN_NOISE**2 * np.eye(len(at))) for at in places)
        return first.astype(float), second.astype(float)

    def _covariance(self) -> Floats:
        at = self.places[:, 1:]
        return _likeness(at, at, _MPPS) + np.diag(self.noise**2)

    def doubt(self, places: Floats) -> Floats:
        """Return the standard deviation of the correction's logarithm."""
        near = _likeness(places[:, 1:], self.places[:, 1:], _MPPS)
        known = np.einsum("ij,ji->i", near, np.linalg.solve(self._covariance(), near.T))
        everywhere, along, local = _MPPS
        own = everywhere**2 + local**2 + along**2 * np.square(places[:, 1:]).sum(axis=1)
        answer: Floats = np.sqrt(np.maximum(own - known, 0.0) + _NOISE**2)
        return answer

    @property
    def full_kib(self) -> float:
        """Return the smallest total occupancy of a full cache on the new machine [KiB]."""
        if "L3OCC" not in self.own or not self.neighbours.any():
            return self.carried.full_kib
        return full_kib(self.pressure[:, self.carried.names.index("L3OCC")] + self.own["L3OCC"][0])

    @property
    def most_moved(self) -> MostMoved:
        """Return the largest traffic of neighbours in runs on the new machine and, converted, the old one."""
        if self.runs is None or not self.neighbours.any():
            return self.carried.most_moved
        there = most_moved(self.runs.beside_names, self.runs.beside)
        return MostMoved(tuple(map(max, there.amounts, self.carried.most_moved.amounts)))

    @property
    def solo_is_measured(self) -> bool:
        """Whether the function ran alone on the new machine."""
        return self.runs is not None and bool((self.runs.counts == 0).any())

    @property
    def solo_mpps(self) -> float:
        """Solo throughput on the new machine: measured, or else converted and corrected."""
        if self.runs is not None and self.solo_is_measured:
            return self.runs.solo_mpps
        return float(self.mpps(np.zeros((1, len(self.carried.names))), np.zeros(1))[0])

    def mpps(self, pressure: Floats, neighbours: Floats) -> Floats:
        """Return the predicted throughput on the new machine [Mpps]."""
        state = self.carried.state(pressure, neighbours)
        places = self.places_of(pressure, state)
        corrected = np.log(state.mpps) + self._smoothed(places, self.residuals)
        if self.counted_share > 0.0:
            own = self.own_vectors(places, self.with_leak(pressure, state.own))
            time_ns = self.carried.time_ns(pressure, own, self.costs)
            counted = np.log(1e3 / time_ns) + self._smoothed(places, self.counted)
            corrected += self.counted_share * (counted - corrected)
        return np.exp(corrected)

    def leaking(self, leak: Leak | None) -> "Corrected":
        """Return the function with converted counters as in :meth:`with_leak`."""
        if leak is None or self.card is None:
            return self
        fitted, names = replace(self, leak=leak), self.carried.response.profile.metric_names
        own = fitted.with_leak(self.pressure, self.carried.state(self.pressure, self.neighbours).own)
        measured = {name: np.array([pair[0], own[:, names.index(name)]]) for name, pair in self.own.items()}
        return replace(fitted, own=measured)

    def measured_own(self) -> Floats:
        """Return the own vectors of the runs: measured, or converted if a counter was not measured."""
        names = self.carried.response.profile.metric_names
        own = self.carried.state(self.pressure, self.neighbours).own.copy()
        for name, (measured, _) in self.own.items():
            own[:, names.index(name)] = measured
        return own

    def with_counted(self) -> "Corrected":
        """Return the function with the second prediction fitted to its runs, if they have the counters for it."""
        if not set(COUNTED) <= set(self.own):
            return self
        own, carried = self.measured_own(), self.carried
        costs, leverage = carried.costs_there(self.pressure, own, 1e3 / self.mpps_there, self.noise)
        counted = np.log(self.mpps_there * carried.time_ns(self.pressure, own, costs) / 1e3)
        return replace(self, costs=costs, leverage=leverage, counted=counted)

    def left_out(self) -> tuple[Floats, Floats]:
        """Return the errors of both predictions in held-out runs beside others, as logarithms.

        Those of the second prediction include the errors of its counters and costs.
        """
        beside = self.neighbours > 0
        first = self._inverse @ self.residuals / np.diag(self._inverse)
        if not len(self.counted):
            return first[beside], np.full(int(beside.sum()), np.inf)
        own, names = self.measured_own(), self.carried.response.profile.metric_names
        for name in COUNTED:
            column = names.index(name)
            own[:, column] = np.maximum(own[:, column] - self.own_left_out(name, [self.kept[name]])[0], 0.0)
        raw = np.log(self.mpps_there * self.carried.time_ns(self.pressure, own, self.costs) / 1e3)
        second = raw - self.counted + self._inverse @ self.counted / np.diag(self._inverse) / (1.0 - self.leverage)
        return first[beside], second[beside]

    @cached_property
    def _inverse(self) -> Floats:
        return np.linalg.inv(self._covariance()).astype(float)


def _own_metrics(names: Sequence[str], runs: Subject, rows: NDArray[np.bool_], carried: Floats) -> Mapping[str, Floats]:
    """Return measured and converted values of each counter, shape (2, runs)."""
    rates, answer = flows_and_polled(tuple(names))[0], {}
    for number, name in enumerate(names):
        if name in runs.own_names:
            measured = runs.own[rows, runs.own_names.index(name)] / (runs.mpps[rows] if rates[number] else 1.0)
            if np.isfinite(measured).all():
                answer[name] = np.array([measured, carried[:, number]])
    return answer


def jointly(functions: Sequence[Corrected]) -> list[Corrected]:
    """Return the functions with everything that the runs of all of them decide together.

    These are the shares of carried variation that are kept, and the weight of the second prediction: the inverse of its
    mean squared error in held-out runs, over the sum of both predictions' inverses.
    """
    leak = leak_of([function.card for function in functions if function.card is not None and function.neighbours.any()])
    functions = [function.leaking(leak) for function in functions]
    functions = [replace(function, kept=kept) for function, kept in zip(functions, kept_shares(functions), strict=True)]
    functions = [function.with_counted() if len(function.mpps_there) else function for function in functions]
    errors = [function.left_out() for function in functions if len(function.counted)]
    first, second = (np.concatenate([function[side] for function in errors] or [np.zeros(0)]) for side in (0, 1))
    total = float(np.square(first).sum() + np.square(second).sum())
    share = float(np.square(first).sum()) / total if total > 0.0 else 0.0
    return [replace(function, counted_share=share) if len(function.counted) else function for function in functions]


def kept_shares(functions: Sequence[Corrected]) -> list[Mapping[str, float]]:
    """Return one factor per function and counter: how much of the converted counter's variation to keep, 0 to 1.

    With 0 the converted counter is constant; with 1 it varies with pressure as on the other machine. The factor of
    `_KEPT` is taken with which the counter was predicted best in held-out runs; the function's own errors count as much
    as the mean error of all functions in whose runs the counter is not always 0: of 0 there are no relative errors.
    """
    shares: list[dict[str, float]] = [{} for _ in functions]
    for name in sorted({name for function in functions for name in function.own}):
        own = [function.own_errors(name) if name in function.own else np.zeros(len(_KEPT)) for function in functions]
        is_counted = [name in function.own and bool(function.own[name][0].any()) for function in functions]
        everybody = np.mean(own, axis=0, where=np.array(is_counted)[:, np.newaxis]) if any(is_counted) else 0.0
        for shares_of_function, errors in zip(shares, own, strict=True):
            shares_of_function[name] = _KEPT[int(np.argmin(errors + everybody))]
    return list(shares)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Errors of all functions in held-out runs.

    All runs beside one setting of the competitor are held out together: what :func:`jointly` decides rests on them.
    """

    #: By workload key, each run's error in units of the correction's standard deviation, of runs beside a channel that
    #: is not full.
    own: Mapping[str, Floats]
    #: Root mean square errors of the functions' own counters, as shares of these counters.
    off: Mapping[str, float]

    @classmethod
    def of(cls, functions: Sequence[Corrected]) -> "HeldOut":
        """Return the held-out errors of functions that :func:`jointly` has not corrected yet."""
        own: dict[str, list[Floats]] = {each.model.workload.key: [] for each in functions}
        wrong: defaultdict[str, float] = defaultdict(float)
        whole: defaultdict[str, float] = defaultdict(float)
        for setting in sorted({str(setting) for each in functions for setting in each.settings} - {""}):
            for each, rest in zip(
                functions, jointly([each.chosen(each.settings != setting) for each in functions]), strict=True
            ):
                out = each.chosen(each.settings == setting)
                if not len(out.mpps_there):
                    continue
                missed = np.log(out.mpps_there / rest.mpps(out.pressure, out.neighbours)) / rest.doubt(out.places)
                own[each.model.workload.key].append(missed[out.noise <= _NOISE])
                carried = rest.carried.state(out.pressure, out.neighbours).own
                vectors = rest.own_vectors(out.places, rest.with_leak(out.pressure, carried))
                for name, (measured, _) in out.own.items():
                    column = rest.carried.response.profile.metric_names.index(name)
                    rate = out.mpps_there if flows_and_polled((name,))[0][0] else 1.0
                    wrong[name] += float(np.square((vectors[:, column] - measured) * rate).sum())
                    whole[name] += float(np.square(measured * rate).sum())
        off = {name: float(np.sqrt(wrong[name] / total)) if total > 0.0 else 0.0 for name, total in whole.items()}
        return cls({key: np.concatenate([*parts, np.zeros(0)]) for key, parts in own.items()}, off)

    @cached_property
    def each(self) -> Floats:
        """All errors in units of their function's usual one, in ascending order."""
        return np.sort(np.concatenate([np.zeros(0), *(own / self.size_of(key) for key, own in self.own.items())]))

    @cached_property
    def _size(self) -> float:
        every = np.concatenate([np.zeros(0), *self.own.values()])
        return max(float(np.sqrt(np.square(every).mean())), 1e-4) if len(every) else 1.0

    def size_of(self, key: str) -> float:
        """Return the usual size of a function's held-out errors."""
        total = float(np.square(self.own[key]).sum()) + _SIZE_RUNS * self._size**2
        return float(np.sqrt(total / (len(self.own[key]) + _SIZE_RUNS)))


def _likeness(one: Floats, other: Floats, deviations: tuple[float, float, float]) -> Floats:
    """Return the covariance of a correction between points (Gaussian process)."""
    constant, along, local = deviations
    apart = np.square(one[:, np.newaxis] - other[np.newaxis]).sum(axis=2)
    answer: Floats = constant**2 + along**2 * (one @ other.T) + local**2 * np.exp(-apart / (2.0 * _REACH**2))
    return answer


def _own_places(places: Floats, room: bool) -> Floats:
    """Return the coordinates of a counter: the pressures, or with `room`, free space instead of occupied."""
    return places[:, 1:-1] if room else places[:, :-2]
