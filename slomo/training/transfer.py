"""Transfer models to another machine: convert them by a physical model, then correct them by a few runs there.

The prediction of `slomo.adaptation.machines` for the new machine is off by a factor that changes slowly with the
pressure. Its logarithm is learned by Gaussian processes from the runs there (Rasmussen and Williams 2006, section 2.2).
Errors of each held-out run's throughput have a closed form (their equation 5.12) and set the width of intervals. The
function's own vector is learned by such processes from the same runs. Held-out errors of all functions decide how much
of the carried vector's shape is kept, metric by metric.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slomo.adaptation.machines import Carried, CarriedState
from slomo.equilibrium.tables import flows_and_polled
from slomo.errors import ConfigurationError, InvalidValueError, MissingMetricError
from slomo.models.applicability import applicability
from slomo.models.base import Floats
from slomo.models.contentiousness import ContentiousnessProfile, pressure_basis
from slomo.models.error_shape import ErrorShape
from slomo.models.evidence import CARRIED, DOUBTS, FEWEST_OF_TRANSFER, TRANSFER
from slomo.models.functions.regression import ridge
from slomo.models.intervals import ConformalCalibration, symmetric
from slomo.models.library import ModelLibrary
from slomo.models.nf_model import SCHEMA_VERSION, NFModel
from slomo.models.responses.moved import MostMoved, most_moved
from slomo.models.responses.server_response import NEIGHBOURS, ServerResponse
from slomo.records.dataset import ProfileDataset
from slomo.training.calibration import mix_rows, summary
from slomo.training.families.monotone_network import MonotoneFamily
from slomo.training.features import Subject, subjects
from slomo.training.mixes_fit import learned_from_mixes
from slomo.training.response_fit import half_saturation
from slomo.training.server_response_fit import OCCUPANCY_STRENGTH, STRENGTH, full_kib, pressures_of, widened
from slomo.training.training import train
from slomo.vocabulary.identity import stated_fingerprint
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.metrics import METRICS, Scope
from slomo.vocabulary.vector import MetricVector

#: Number of runs beside others from which a function's own runs tell more than a prior.
ENOUGH_RUNS = 40
#: Number of situations on the new machine from which its models are made.
_SAMPLES = 640
#: Standard deviations of the correction's logarithm: constant, linear in each pressure, and local; the range of the
#: local part (in shares of pressures, 0 to 1), and the noise of a run. Chosen on the shipped machines, in both
#: directions.
_EVERYWHERE, _ALONG, _LOCAL, _REACH, _NOISE = 0.2, 0.1, 0.1, 0.5, 0.015
#: Additional noise of a run beside a full memory channel, per channel's traffic that waits, as the prior is weakest
#: there.
_WAITING_NOISE = 0.2
#: Covariance of a metric of the function's own vector: constant, linear and local parts, and the noise of one run.
#: Their ratios matter, not their size.
_OWN, _OWN_NOISE = (1.0, 0.7, 1.0), 0.1
#: Shares of the carried vector's shape that may be kept.
_KEPT = (0.0, 0.25, 0.5, 0.75, 1.0)
#: Where a pressure counts half, as a share of the largest; how much each halving of the room in the caches counts.
_HALF, _PER_HALVING = 0.6, 0.3
#: Weight of the common error size, in a function's own runs.
_SIZE_RUNS = 4.0
#: Number of pressures, from none to the largest, at which the uncertainty is evaluated.
_STEPS = 12
#: A metric is at most this many times the largest value that was measured or carried.
_MOST = 1.5
#: Channels' traffic that may wait.
_MOST_WAITING = 2.0
#: For functions carried without a run: quantiles of the size of errors on mixes (in units of `intervals.calibrate`),
#: from the E5-2620 v4 to the Silver 4110 and back, twelve functions.
_UNSEEN = np.array([
    0.0, 0.002, 0.004, 0.008, 0.012, 0.016, 0.02, 0.024, 0.028, 0.033, 0.037, 0.042, 0.047, 0.051,
    0.055, 0.06, 0.067, 0.073, 0.079, 0.083, 0.089, 0.095, 0.102, 0.11, 0.117, 0.127, 0.138, 0.147,
    0.161, 0.179, 0.194, 0.21, 0.229, 0.263, 0.313, 0.457, 0.732, 0.891, 0.996, 1.275,
])  # fmt: skip


def transfer(
    library: ModelLibrary,
    machine: Machine,
    dataset: ProfileDataset | None = None,
    *,
    targets: Sequence[str] | None = None,
    seed: int = 0,
) -> ModelLibrary:
    """Return models for a machine made from another machine's models.

    Parameters
    ----------
    library : ModelLibrary
        Models of one other machine, with what they were measured on.
    machine : Machine
        The new one.
    dataset : ProfileDataset, optional
        Runs on it, alone and beside the synthetic competitor; a handful per function, or none of some.
    targets : sequence of str, optional
        Workload keys or NF names; all of the library and the dataset by default.
    seed : int
        Seed of everything random.

    Raises
    ------
    ConfigurationError
        For models of several machines, of this one, or of one that they do not describe; runs on another machine.
    MissingMetricError
        Where a model lacks what is needed to carry it.
    """
    before = _measured_on(library, machine)
    runs = _runs_on(dataset, machine)
    environment = _environment(runs, machine)
    seen = {subject.workload.saturated.key: subject for subject in (() if runs is None else subjects(runs))}
    rich = {key for key, subject in seen.items() if int((subject.counts > 0).sum()) >= ENOUGH_RUNS}
    wanted = [
        library[owner, key]
        for owner, key in library
        if key not in rich and (targets is None or key in targets or library[owner, key].workload.nf in targets)
    ]
    carry = partial(_carried, wanted, before, machine, environment, seed)
    keys = {model.workload.key: model.workload.saturated.key for model in wanted}
    known = {key: seen[saturated] for key, saturated in keys.items() if saturated in seen}
    models = list(carry(known).values())
    others = sorted(rich | (seen.keys() - {model.workload.key for model in wanted}))
    others = [key for key in others if targets is None or key in targets or seen[key].workload.nf in targets]
    if runs is not None and others:
        models += list(train(runs, targets=others, seed=seed).values())
    if runs is not None:
        mixes = mix_rows(runs, models, machine.name)
        models, held_out = learned_from_mixes(runs, known, models, mixes, carry, seed)
        models = widened(models, mixes, held_out)
    if not models:
        raise InvalidValueError(f"nothing to carry from {before.name} to {machine.name}: no such network function")
    return ModelLibrary(models)


def _carried(
    models: Sequence[NFModel],
    before: Machine,
    machine: Machine,
    environment: Mapping[str, Any],
    seed: int,
    runs: Mapping[str, Subject],
) -> dict[str, NFModel]:
    """Return the models for the new machine by workload key, each corrected by its runs on that machine, if any."""
    fitted = [_Fitted.of(model, before, machine, runs.get(model.workload.key)) for model in models]
    scores, kept = _of_usual_size(fitted), _kept_shares(fitted)
    return {each.model.workload.key: _model(each, scores, kept, environment, seed) for each in fitted}


def _measured_on(library: ModelLibrary, machine: Machine) -> Machine:
    """Return the machine on which a library was measured, which must be a single one and not the new one."""
    if len(library.machines) != 1:
        told = ", ".join(library.machines) or "none"
        raise ConfigurationError(f"models of one machine can be carried to {machine.name}, got those of: {told}")
    name = library.machines[0]
    model = next(iter(library.values()))
    described = model.manifest.get("environment", {}).get("machines", {}).get(name)
    if not isinstance(described, Mapping):
        raise ConfigurationError(
            f"the models do not say what '{name}' is, on which they were measured",
            hint="profile on a testbed that knows its machine (`slomo doctor --machine`), and train again",
        )
    before = Machine.from_dict(described)
    if before.fingerprint == machine.fingerprint or name == machine.name:
        raise ConfigurationError(
            f"the models are of '{name}' already, nothing to carry over", hint="train without --from, or name another"
        )
    return before


def _runs_on(dataset: ProfileDataset | None, machine: Machine) -> ProfileDataset | None:
    if dataset is None or not len(dataset):
        return None
    if dataset.machines != (machine.name,):
        raise ConfigurationError(
            f"runs on {', '.join(dataset.machines)}, needed: on {machine.name}", hint="one machine at a time"
        )
    return dataset.converged()


def _environment(runs: ProfileDataset | None, machine: Machine) -> Mapping[str, Any]:
    environment = {} if runs is None else dict(runs.environment)
    return {**environment, "machines": {machine.name: machine.to_dict()}}


@dataclass(frozen=True, eq=False)
class _Fitted:
    """One function's model after transfer and correction."""

    model: NFModel
    carried: Carried
    runs: Subject | None
    #: Pressures, numbers of neighbours and throughputs of its runs.
    pressure: Floats
    neighbours: Floats
    mpps_there: Floats
    #: Situations of its runs, their ratio to the carried prediction (logarithms), and their noise.
    places: Floats
    residuals: Floats
    noise: Floats
    #: Error of each held-out run, divided by the correction's standard deviation.
    scores: Floats
    #: Each run's own metrics, measured and carried; of rates, what a packet moves. By metric, shape (2, runs).
    own: Mapping[str, Floats]

    @classmethod
    def of(cls, model: NFModel, before: Machine, machine: Machine, runs: Subject | None) -> "_Fitted":
        """Transfer a model to the new machine, and correct it by runs there if there are any."""
        carried = Carried(model, before, machine, corrected=runs is not None)
        none = np.zeros(0)
        pressure, places = np.zeros((0, len(carried.names))), np.zeros((0, len(carried.names) + 2))
        fitted = cls(model, carried, runs, pressure, none, none, places, none, none, none, {})
        if runs is None:
            return fitted
        if (
            lacking := set(carried.names)
            - set(runs.beside_names)
            - ({*carried.names} if not runs.counts.any() else set())
        ):
            raise MissingMetricError(
                f"runs of '{model.workload.key}' on {machine.name} lack {', '.join(sorted(lacking))} beside it, "
                f"which its model on {before.name} reads",
                hint="measure the same metrics on both machines",
            )
        return fitted._learned(runs)

    def _learned(self, runs: Subject) -> "_Fitted":
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
        told = replace(
            self,
            pressure=pressure,
            neighbours=counts,
            mpps_there=mpps,
            places=places,
            residuals=np.log(mpps / state.mpps),
            noise=noise,
            own=own,
        )
        inverse = np.linalg.inv(told._covariance())
        left_out = inverse @ told.residuals / np.sqrt(np.diag(inverse))
        return replace(told, scores=left_out[~alone & (state.channel < 1.0)])

    def places_of(self, pressure: Floats, state: CarriedState) -> Floats:
        """Return the coordinates of situations: relative pressures, room left in the caches, and transferred loss."""
        half = _HALF * self.carried.limit()
        alone = self.carried.state(np.zeros((1, pressure.shape[1])), np.zeros(1)).time_ns
        room = _PER_HALVING * self.carried.room_halvings(pressure)
        return np.column_stack([pressure / (pressure + half), room, 2.0 * np.log(state.time_ns / alone)])

    def correction(self, places: Floats) -> Floats:
        """Return the logarithm of actual over transferred throughput."""
        if not len(self.residuals):
            return np.zeros(len(places))
        weights = np.linalg.solve(self._covariance(), self.residuals)
        learned: Floats = _likeness(places, self.places) @ weights
        return learned

    def own_vectors(self, places: Floats, carried: Floats, kept: Mapping[str, float]) -> Floats:
        """Return the function's own vectors, shape ``(n, metrics)``: carried ones, corrected by the runs there.

        `kept` gives the share of each carried metric's shape that is kept.
        """
        names = self.carried.response.profile.metric_names
        own = carried.copy()
        near = _own_likeness(places, self.places)
        for name, (measured, before) in self.own.items():
            column = names.index(name)
            shape = kept[name] * (carried[:, column] - before.mean())
            rest = measured - kept[name] * (before - before.mean())
            learned = near @ (self._own_inverse @ (rest - rest.mean()))
            own[:, column] = np.clip(rest.mean() + shape + learned, 0.0, _MOST * max(measured.max(), before.max()))
        return own

    def own_errors(self, name: str) -> Floats:
        """Return the mean error of a metric in held-out runs by kept share, relative to its size, shape (shares,)."""
        measured, before = self.own[name]
        rest = measured - np.multiply.outer(_KEPT, before - before.mean())
        errors = (rest - rest.mean(axis=1, keepdims=True)) @ self._own_inverse / np.diag(self._own_inverse)
        relative: Floats = np.abs(errors).sum(axis=1) / max(measured.mean() + measured.std(), 1e-12)
        return relative

    @cached_property
    def _own_inverse(self) -> Floats:
        likeness = _own_likeness(self.places, self.places) + _OWN_NOISE**2 * np.eye(len(self.places))
        return np.linalg.inv(likeness).astype(float)

    def _covariance(self) -> Floats:
        return _likeness(self.places, self.places) + np.diag(self.noise**2)

    def doubt(self, places: Floats) -> Floats:
        """Return the standard deviation of the correction's logarithm."""
        near = _likeness(places, self.places)
        known = np.einsum("ij,ji->i", near, np.linalg.solve(self._covariance(), near.T))
        own = _EVERYWHERE**2 + _LOCAL**2 + _ALONG**2 * np.square(places[:, 1:]).sum(axis=1)
        answer: Floats = np.sqrt(np.maximum(own - known, 0.0) + _NOISE**2)
        return answer

    @property
    def full_kib(self) -> float:
        """Return the least total occupancy of a full LLC there [KiB]: measured beside others, or else carried."""
        if "L3OCC" not in self.own or not self.neighbours.any():
            return self.carried.full_kib
        return full_kib(self.pressure[:, self.carried.names.index("L3OCC")] + self.own["L3OCC"][0])

    @property
    def most_moved(self) -> MostMoved:
        """Return the largest traffic of neighbours in runs there and, converted, on the first machine."""
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
        """Solo throughput on the new machine: measured, or else transferred and corrected."""
        if self.runs is not None and self.solo_is_measured:
            return self.runs.solo_mpps
        return float(self.mpps(np.zeros((1, len(self.carried.names))), np.zeros(1))[0])

    def mpps(self, pressure: Floats, neighbours: Floats) -> Floats:
        """Return the predicted throughput on the new machine [Mpps]."""
        state = self.carried.state(pressure, neighbours)
        corrected: Floats = state.mpps * np.exp(self.correction(self.places_of(pressure, state)))
        return corrected


def _own_metrics(names: Sequence[str], runs: Subject, rows: NDArray[np.bool_], carried: Floats) -> Mapping[str, Floats]:
    """Return measured and carried values by metric, shape (2, runs)."""
    rates, answer = flows_and_polled(tuple(names))[0], {}
    for number, name in enumerate(names):
        if name in runs.own_names:
            measured = runs.own[rows, runs.own_names.index(name)] / (runs.mpps[rows] if rates[number] else 1.0)
            if np.isfinite(measured).all():
                answer[name] = np.array([measured, carried[:, number]])
    return answer


def _kept_shares(fitted: Sequence[_Fitted]) -> Mapping[str, float]:
    """Return the share of each carried metric's shape with the least error in held-out runs of all functions."""
    names = sorted({name for each in fitted for name in each.own})
    errors = {name: sum(each.own_errors(name) for each in fitted if name in each.own) for name in names}
    return {name: _KEPT[int(np.argmin(errors[name]))] for name in names}


def _usual_size(fitted: _Fitted, everybody: float) -> float:
    """Return the usual size of a function's held-out errors, shrunk towards that of all functions."""
    total = float(np.square(fitted.scores).sum()) + _SIZE_RUNS * everybody**2
    return float(np.sqrt(total / (len(fitted.scores) + _SIZE_RUNS)))


def _of_usual_size(fitted: Sequence[_Fitted]) -> "_Scores":
    """Return the held-out errors of all runs, each divided by its function's usual size."""
    every = np.concatenate([each.scores for each in fitted] or [np.zeros(0)])
    size = max(float(np.sqrt(np.square(every).mean())), 1e-4) if len(every) else 1.0
    parts = [each.scores / _usual_size(each, size) for each in fitted]
    return _Scores(np.sort(np.concatenate(parts or [every])), size)


@dataclass(frozen=True, eq=False)
class _Scores:
    """Held-out errors of all functions, each divided by its function's usual size, and the common size."""

    each: Floats
    size: float


def _likeness(one: Floats, other: Floats) -> Floats:
    """Return the covariance of the throughput's corrections at two points.

    A function that fits loses nothing up to a nearly full cache, so the room left tells more than the occupancy.
    """
    one, other = one[:, 1:], other[:, 1:]
    apart = np.square(one[:, np.newaxis] - other[np.newaxis]).sum(axis=2)
    answer: Floats = _EVERYWHERE**2 + _ALONG**2 * (one @ other.T) + _LOCAL**2 * np.exp(-apart / (2.0 * _REACH**2))
    return answer


def _own_likeness(one: Floats, other: Floats) -> Floats:
    """Return the covariance of a metric at two points; it depends on the pressures alone."""
    one, other = one[:, :-2], other[:, :-2]
    constant, along, local = _OWN
    apart = np.square(one[:, np.newaxis] - other[np.newaxis]).sum(axis=2)
    answer: Floats = constant**2 + along**2 * (one @ other.T) + local**2 * np.exp(-apart / (2.0 * _REACH**2))
    return answer


def _model(
    fitted: _Fitted, scores: _Scores, kept: Mapping[str, float], environment: Mapping[str, Any], seed: int
) -> NFModel:
    """Return the model of one function on the new machine."""
    carried, before = fitted.carried, fitted.model
    names, machine = carried.names, carried.machine
    pressure, neighbours = _situations(carried, seed)
    state = carried.state(pressure, neighbours)
    mpps = np.minimum(fitted.mpps(pressure, neighbours), fitted.solo_mpps)
    mpps[0] = fitted.solo_mpps
    metric_names = carried.response.profile.metric_names
    own = fitted.own_vectors(fitted.places_of(pressure, state), state.own, kept)
    own = _possible(metric_names, own, machine)
    scale, limit = half_saturation(pressure), pressure.max(axis=0)
    near, moved_near = _with_runs(fitted, pressure, np.column_stack([own, mpps]))
    basis = pressure_basis(near, scale, limit)
    weights = ridge(basis, moved_near, STRENGTH)
    held = metric_names.index("L3OCC")
    weights[:, [held]] = ridge(basis, moved_near[:, [held]], OCCUPANCY_STRENGTH)
    speed, rates = weights[:, -1], flows_and_polled(metric_names)[0]
    alone = own[0] * np.where(rates, mpps[0], 1.0)
    solo = MetricVector(dict(zip(metric_names, alone.tolist(), strict=True)), scope=Scope.CORE)
    profile = ContentiousnessProfile(
        metric_names, names, solo, {}, scale, limit, weights[:, :-1], own.min(axis=0), own.max(axis=0)
    )
    moved = own * np.where(rates, mpps[:, np.newaxis], 1.0)
    contentiousness = replace(
        profile,
        weights=ridge(pressure_basis(pressure, scale, limit), moved, STRENGTH),
        low=moved.min(axis=0),
        high=moved.max(axis=0),
    )
    calibration = _calibration(fitted, scores)
    reads, rows = (*names, NEIGHBOURS), np.column_stack([pressure, neighbours])
    response = ServerResponse(
        profile=profile,
        speed=speed,
        slowest_mpps=float(mpps.min()),
        fastest_mpps=float(mpps.max()),
        sensitivity=MonotoneFamily(name="equilibrium").fit(reads, rows, mpps, solo_mpps=fitted.solo_mpps, seed=seed),
        calibration=calibration,
        applicability=applicability(names, np.vstack([pressure[: len(pressure) // 2], fitted.pressure])),
        full_kib=fitted.full_kib,
        most_moved=fitted.most_moved,
        full_channel_ns=carried.full_channel_ns(machine),
    )
    family = "slomo-smooth"
    model = NFModel(
        workload=before.workload,
        machine=machine.name,
        capacities=machine.capacities(),
        solo_mpps=fitted.solo_mpps,
        solo_vector=solo,
        sensitivity={family: MonotoneFamily().fit(names, pressure, mpps, solo_mpps=fitted.solo_mpps, seed=seed)},
        contentiousness=contentiousness,
        calibration={family: calibration},
        applicability=response.applicability,
        manifest={},
        traffic=before.traffic,
        response=response,
        chosen=family,
    )
    return replace(model, manifest=_manifest(fitted, model, environment, seed))


def _with_runs(fitted: _Fitted, pressure: Floats, answers: Floats) -> tuple[Floats, Floats]:
    """Return the situations that resemble measured ones, and the runs there, repeated to half their number.

    Without runs, return all situations.
    """
    if not len(fitted.pressure):
        return pressure, answers
    chosen = np.append(0, np.arange(2, len(pressure), 2))
    pressure, answers = pressure[chosen], answers[chosen]
    names = fitted.carried.response.profile.metric_names
    measured = fitted.carried.state(fitted.pressure, fitted.neighbours).own
    for name, (there, _) in fitted.own.items():
        measured[:, names.index(name)] = there
    times = max(len(pressure) // len(measured) // 2, 1)
    measured = np.column_stack([measured, fitted.mpps_there])
    return (
        np.vstack([pressure, np.repeat(fitted.pressure, times, axis=0)]),
        np.vstack([answers, np.repeat(measured, times, axis=0)]),
    )


def _situations(carried: Carried, seed: int) -> tuple[Floats, Floats]:
    """Return pressures on the new machine with their numbers of neighbours, beginning with none.

    Every other one equals a pressure under which the function was measured; the rest cover the whole range, including a
    full memory channel.
    """
    draw, limit, seen = np.random.default_rng(seed), carried.limit(), carried.response.applicability
    pressure = draw.uniform(0.0, 1.0, (_SAMPLES, len(limit))) ** 2 * limit
    alike = draw.multivariate_normal(seen.centre, np.linalg.inv(seen.precision), _SAMPLES // 2)
    pressure[::2] = np.clip(alike, 0.0, 1.0) * limit
    neighbours = draw.integers(1, 8, _SAMPLES).astype(float)
    pressure[0], neighbours[0] = 0.0, 0.0
    if "LMB" in carried.names:
        traffic = carried.names.index("LMB")
        most = (1.0 + _MOST_WAITING) * carried.machine.capacities().limit(METRICS["LMB"])
        pressure[_SAMPLES // 2 + 1 :: 2, traffic] *= most / limit[traffic]
    return pressure, neighbours


def _possible(names: Sequence[str], own: Floats, machine: Machine) -> Floats:
    """Return vectors limited to values possible on the machine: occupancies up to cache sizes, hit ratios up to 1."""
    capacities, answer = machine.capacities(), own.copy()
    for number, name in enumerate(names):
        most = {"L3OCC": capacities.llc_kib, "DDIOOCC": capacities.ddio_kib, "L2HIT": 1.0, "L3HIT": 1.0}.get(name)
        if most is not None:
            answer[:, number] = np.clip(answer[:, number], 0.0, most)
    return answer


def _calibration(fitted: _Fitted, scores: _Scores) -> ConformalCalibration:
    """Return the calibration of intervals: from all functions' held-out runs or, without runs, from stored quantiles.

    Their width over the loss follows from the correction's uncertainty; the error of composition is taken from the
    first machine.
    """
    if len(scores.each) < FEWEST_OF_TRANSFER or not len(fitted.scores):
        return symmetric(_UNSEEN, CARRIED)
    before, carried = fitted.carried.response.calibration, fitted.carried
    pressure = carried.limit() * np.linspace(0.0, 1.0, _STEPS)[:, np.newaxis] ** 2
    state = carried.state(pressure, np.full(_STEPS, 3.0))
    places = fitted.places_of(pressure, state)
    share = np.minimum(state.mpps * np.exp(fitted.correction(places)) / fitted.solo_mpps, 1.0)
    loss, first = np.unique(np.round(np.maximum.accumulate(1.0 - share), 3), return_index=True)
    size = _usual_size(fitted, scores.size) * (fitted.doubt(places) * share)[first]
    composing = np.array([before.usual_error(at) if before.source == "mixes" else 0.0 for at in loss.tolist()])
    size = np.asarray(np.hypot(size, composing), dtype=float)
    if len(loss) == 1:
        loss, size = np.append(loss, loss + 1.0), np.append(size, size)
    shape = ErrorShape(np.array(loss.tolist()), np.zeros(len(loss)), np.array(size.tolist()))
    return ConformalCalibration(scores.each, TRANSFER, shape)


def _manifest(fitted: _Fitted, model: NFModel, environment: Mapping[str, Any], seed: int) -> dict[str, Any]:
    runs = 0 if fitted.runs is None else int((fitted.runs.counts > 0).sum())
    covered = model.applicability
    return {
        "schema_version": SCHEMA_VERSION,
        "workload": model.workload.key,
        "machine": model.machine,
        "solo_mpps": model.solo_mpps,
        "solo_source": fitted.runs.solo_source if fitted.runs is not None and fitted.solo_is_measured else CARRIED,
        "rows": {"fitted": runs, "solo": int(fitted.solo_is_measured)},
        "features": list(covered.feature_names),
        "units": {name: METRICS[name].unit for name in covered.feature_names},
        "transfer": {
            "from": fitted.carried.measured_on.name,
            "fingerprint": fitted.carried.measured_on.fingerprint,
            "runs": runs,
            "correction_percent": round(100.0 * float(np.expm1(np.abs(fitted.residuals).mean())), 3) if runs else None,
        },
        "intervals": summary(model.calibration),
        DOUBTS: {},
        "versions": fitted.model.manifest.get("versions", {}),
        "seed": seed,
        "machine_fingerprint": stated_fingerprint(environment, model.machine),
        "environment": environment,
    }
