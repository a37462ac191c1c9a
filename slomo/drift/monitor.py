"""Compare live measurements with the models, raise alarms, and say which NFs to profile again.

SLOMO (SIGCOMM'20) section 4.1 ties a model to an NF's version, configuration, traffic and machine; each may change
unnoticed. The prediction error of a mix seen for the first time is compared with the calibration errors of the
intervals (conformal scores). A mix seen again is compared with its own earlier readings (recursive residuals). Both
give standard normal scores while nothing changes, so the rate of false alarms is known for every NF.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from slomo.drift.change_detection import (
    Cusum,
    RecursiveResiduals,
    alarm_threshold,
    conformal_score,
    normal_score,
)
from slomo.equilibrium.mixes import MixRows, predict_mixes
from slomo.errors import InvalidValueError, UnknownNameError
from slomo.files.stored import Stored
from slomo.models.base import Floats
from slomo.models.intervals import ConformalCalibration
from slomo.models.neighbourhood import beside
from slomo.models.nf_model import NFModel
from slomo.models.sharing import ports_full
from slomo.vocabulary.defaults import DEFAULT_MODEL
from slomo.vocabulary.vector import MetricVector

if TYPE_CHECKING:
    from slomo.records.dataset import ProfileDataset

#: Least numbers of held-out errors of mixes, and of readings of an NF, for saying that a model holds. An alarm needs
#: fewer errors, :data:`FEWEST`, as a large deviation is obvious.
ENOUGH, READINGS, FEWEST = 30, 10, 9
#: Errors of the profile's own runs lack composition's part; readings are therefore scored with a third of their
#: deviation.
OF_PROFILE = 3.0
CHANNELS = ("throughput", "vector")
#: Multiple of solo throughput above which a reading is a wrong unit or a faulty counter: no version is that much
#: faster.
MOST_OF_SOLO = 10.0


@dataclass(frozen=True)
class Alarm:
    """One NF whose measurements deviate from its model."""

    #: Workload key.
    workload: str
    #: What differs from the prediction: its throughput or its pressure; one of "throughput", "vector".
    channel: str
    #: Number of observations of this NF so far, and at the probable time of the change.
    observations: int
    since: int
    #: Mean relative deviation since then; -0.1 is 10 % below the prediction.
    deviation: float
    #: Cumulative sum over the alarm's threshold; above 1.
    evidence: float

    def __str__(self) -> str:
        what = "throughput" if self.channel == "throughput" else "pressure on others"
        return (
            f"{self.workload}: {what} is {self.deviation:+.1%} off its model since observation {self.since + 1} "
            f"of {self.observations}"
        )


@dataclass(frozen=True)
class DriftReport(Stored, derived=("holds",)):
    """What a drift monitor has found: alarms, and NFs to profile again."""

    #: Most evident first.
    alarms: tuple[Alarm, ...]
    #: Workload keys to profile again, most important first.
    again: tuple[str, ...]
    #: Whether most NFs drift at once, so that the machine has probably changed.
    machine_suspected: bool
    #: Observations of one NF and channel between two false alarms, on average.
    false_alarm_every: float
    #: Observed NF without enough evidence -> the missing evidence.
    unjudged: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether there is no alarm, and enough evidence to have raised one."""
        return not self.alarms and not self.unjudged

    def __bool__(self) -> bool:
        return bool(self.alarms)

    def __str__(self) -> str:
        if not self.alarms and self.unjudged:
            return "not enough evidence: " + "; ".join(self.unjudged)
        if not self.alarms:
            return f"the models hold (a false alarm every {self.false_alarm_every:g} observations of an NF)"
        lines = [str(alarm) for alarm in self.alarms]
        if self.machine_suspected:
            lines.append("most network functions drift at once: the machine has probably changed")
        return "\n".join([*lines, f"profile again: {', '.join(self.again)}"])


class DriftMonitor:
    """Watches the NFs of one machine.

    Parameters
    ----------
    models : sequence of NFModel
        The NFs that run there, all trained on one machine.
    model : str
        Family that predicts.
    false_alarm_every : float
        Average number of observations of one NF between false alarms, 5 or more.
    noise : float
        Relative standard deviation of one live reading (of throughput, and of a rate or occupancy), above 0.
    reference : ProfileDataset, optional
        Measurements from which the error of predicted pressure is known; without them a new mix is no evidence about
        pressure, only a change within it is.
    seed : int
        Seed of the tie breaking.

    Raises
    ------
    InvalidValueError
        Without models, with models of several machines, or a number out of range.
    UnknownNameError
        Where an NF has no model of that family.

    Notes
    -----
    The false alarm rate holds for intervals calibrated on 30 mixes or more; with fewer, ranks are moved outwards by
    half their standard deviation. Where they come from cross-validation they leave out composition's share of the
    error: then a new mix counts as off by a third of what it is, and the report never says that the model holds.
    """

    def __init__(
        self,
        models: Sequence[NFModel],
        model: str = DEFAULT_MODEL,
        *,
        false_alarm_every: float = 1000.0,
        noise: float = 0.02,
        reference: "ProfileDataset | None" = None,
        seed: int = 0,
    ) -> None:
        machines = {item.machine for item in models}
        if len(machines) != 1 or not noise > 0.0:
            raise InvalidValueError(
                f"a drift monitor of {len(models)} models on {len(machines)} machines with noise {noise:g}, "
                "needed models of one machine and noise above 0"
            )
        for item in models:
            item.model(model)
        self._models, self._family, self._noise = tuple(models), model, noise
        self._place = {item.workload.key: number for number, item in enumerate(models)}
        self.false_alarm_every = false_alarm_every
        self._watches = {(key, channel): _Watch(false_alarm_every) for key in self._place for channel in CHANNELS}
        self._series: dict[tuple[str, ...], RecursiveResiduals] = {}
        self._ratios: dict[str, list[float]] = {}
        self._vector_errors = {} if reference is None else _vector_errors(self._models, reference)
        self._generator = np.random.default_rng(seed)

    def observe(
        self,
        target: str,
        competitors: Sequence[str],
        throughput_mpps: float,
        *,
        own: MetricVector | None = None,
        beside: MetricVector | None = None,
    ) -> Alarm | None:
        """Add one live reading of a target in its mix; return its alarm if there is one.

        Parameters
        ----------
        target : str
            Workload key.
        competitors : sequence of str
            Workload keys, one per instance.
        throughput_mpps : float
            Measured throughput, 0 or more [Mpps].
        own : MetricVector, optional
            The target's core-level vector.
        beside : MetricVector, optional
            The socket's vector less the target's: the pressure it is under. Both are needed to judge its own pressure.

        Raises
        ------
        UnknownNameError
            For an NF that is not watched.
        InvalidValueError
            For a throughput that cannot be (:func:`check_reading`).
        """
        for key in (target, *competitors):
            if key not in self._place:
                raise UnknownNameError("watched network function", key, self._place)
        check_reading(self._models[self._place[target]], throughput_mpps)
        mix = (target, *sorted(competitors))
        self._judge_throughput(mix, throughput_mpps)
        if own is not None and beside is not None:
            self._judge_vector(mix, own, beside)
        return next((alarm for alarm in self._alarms() if alarm.workload == target), None)

    def report(self) -> DriftReport:
        """Return all alarms, and the NFs to profile again.

        An NF that deviates only beside NFs with changed pressure is explained by them.
        """
        alarms = sorted(self._alarms(), key=lambda alarm: -alarm.evidence)
        pressing = {alarm.workload for alarm in alarms if alarm.channel == "vector"}
        again = [alarm.workload for alarm in alarms if alarm.channel == "vector"]
        again += [
            alarm.workload
            for alarm in alarms
            if not self._watches[alarm.workload, "throughput"].worst.beside_all & pressing
        ]
        watched = sum(self._watches[key, "throughput"].count > 0 for key in self._place)
        drifting = len({alarm.workload for alarm in alarms})
        return DriftReport(
            alarms=tuple(alarms),
            again=tuple(dict.fromkeys(again)),
            machine_suspected=watched >= 3 and drifting > watched / 2,
            false_alarm_every=self.false_alarm_every,
            unjudged=tuple(filter(None, map(self._lacks, self._ratios)))
            or (() if self._ratios else (f"0 of {READINGS} readings",)),
        )

    def _lacks(self, workload: str) -> str | None:
        """Return what is missing to judge an NF's model; None if nothing is."""
        calibration, ratios = self._calibration(workload), self._ratios[workload]
        scores = 0 if calibration is None or calibration.source != "mixes" else calibration.count
        away = f"{float(np.mean(ratios)) - 1.0:+.1%} off its model so far"
        if scores < ENOUGH:
            return f"{workload}: {scores} of {ENOUGH} held-out errors of mixes, {away}"
        return f"{workload}: {len(ratios)} of {READINGS} readings, {away}" if len(ratios) < READINGS else None

    def _calibration(self, workload: str) -> ConformalCalibration | None:
        model = self._models[self._place[workload]]
        return model.calibration.get(model.named(self._family))

    def reset(self, workload: str, model: NFModel) -> None:
        """Restart the monitoring of an NF with a new model; UnknownNameError for an NF that is not watched."""
        if workload not in self._place:
            raise UnknownNameError("watched network function", workload, self._place)
        model.model(self._family)
        models = list(self._models)
        models[self._place[workload]] = model
        self._models = tuple(models)
        self._ratios.pop(workload, None)
        self._series = {mix: series for mix, series in self._series.items() if workload not in mix}
        for key, channel in self._watches:
            if key == workload:
                self._watches[key, channel] = _Watch(self.false_alarm_every)

    def _judge_throughput(self, mix: tuple[str, ...], throughput_mpps: float) -> None:
        model = self._models[self._place[mix[0]]]
        rows = MixRows(
            np.array([self._place[mix[0]]]),
            np.array([[self._place[key] for key in mix[1:]]], dtype=np.int64).reshape(1, -1),
            np.array([throughput_mpps]),
        )
        if ports_full(self._models, np.column_stack([rows.target, rows.members]))[0]:
            return  # what full ports let through says nothing of the model
        predicted = predict_mixes(self._models, rows, self._family)
        calibration, error, usual = self._calibration(mix[0]), 0.0, np.zeros(0)
        if calibration is not None and calibration.count and len(mix) > 1:
            score = calibration.standardised(rows.mpps, predicted, model.solo_mpps, beside(rows.members))
            error, usual = abs(float(score[0])), np.sort(np.abs(calibration.scores))
            error /= 1.0 if calibration.source == "mixes" else OF_PROFILE
        ratio = throughput_mpps / max(float(predicted[0]), 1e-6 * model.solo_mpps)
        self._ratios.setdefault(mix[0], []).append(ratio)
        self._judge("throughput", mix, ratio, error, usual)

    def _judge_vector(self, mix: tuple[str, ...], own: MetricVector, beside: MetricVector) -> None:
        model = self._models[self._place[mix[0]]]
        names = _pressures(model)
        if not names or any(name not in own or name not in beside for name in names):
            return  # a metric that was not measured is no evidence
        pressure = np.array([[beside[name] for name in model.contentiousness.pressure_names]])
        ratio = _ratio(model, names, np.array([[own[name] for name in names]]), pressure)
        errors = self._vector_errors.get(mix[0], np.zeros(0))
        self._judge("vector", mix, float(np.exp(ratio[0])), float(abs(ratio[0])), errors)

    def _judge(self, channel: str, mix: tuple[str, ...], ratio: float, error: float, usual: Floats) -> None:
        """Score a measurement: in a new mix by its error, in a known mix by its change."""
        series = self._series.setdefault((channel, *mix), RecursiveResiduals(self._noise))
        change = series.add(ratio)
        watch = self._watches[mix[0], channel]
        if change is not None:
            two_sided = math.erfc(abs(change) / math.sqrt(2.0))
            watch.change.read(normal_score(two_sided), ratio, mix)
        elif len(usual) >= FEWEST:
            watch.level.read(conformal_score(error, usual, self._generator), ratio, mix)

    def _alarms(self) -> list[Alarm]:
        return [
            Alarm(key, channel, watch.count, sum_.since, sum_.deviation, sum_.evidence)
            for (key, channel), watch in self._watches.items()
            if (sum_ := watch.worst).alarmed
        ]


def check_reading(model: NFModel, throughput_mpps: float) -> None:
    """Raise InvalidValueError for an impossible live reading of a network function's throughput.

    Impossible are negative or non-finite values, and more than :data:`MOST_OF_SOLO` times solo throughput.
    """
    most = MOST_OF_SOLO * model.solo_mpps
    if not 0.0 <= throughput_mpps <= most:
        raise InvalidValueError(
            f"throughput of '{model.workload.key}' is {throughput_mpps:.6g} Mpps, needed 0 to {most:.4g}: "
            f"{MOST_OF_SOLO:g} times what it has alone",
            hint="look at its unit and counter, and observe it again; it was not taken in",
        )


@dataclass
class _Sum(Cusum):
    """A cumulative sum, with its readings since it last left 0."""

    ratios: list[float] = field(default_factory=list)
    beside_all: frozenset[str] = frozenset()

    def read(self, score: float, ratio: float, mix: tuple[str, ...]) -> None:
        if self.sum <= 0.0:
            self.ratios, self.beside_all = [], frozenset(mix[1:])
        self.add(score)
        self.ratios.append(ratio)
        self.beside_all &= frozenset(mix[1:])

    @property
    def deviation(self) -> float:
        return float(np.mean(self.ratios)) - 1.0 if self.ratios else 0.0

    @property
    def evidence(self) -> float:
        return self.peak / self.threshold


class _Watch:
    """The cumulative sums of one NF, apart for new mixes and for known mixes, which are no evidence for new ones."""

    def __init__(self, false_alarm_every: float) -> None:
        threshold = alarm_threshold(2.0 * false_alarm_every)
        self.level, self.change = _Sum(threshold), _Sum(threshold)

    @property
    def count(self) -> int:
        return self.level.count + self.change.count

    @property
    def worst(self) -> _Sum:
        return max(self.level, self.change, key=lambda item: item.evidence)


def _pressures(model: NFModel) -> tuple[str, ...]:
    """Return the pressures that an NF both exerts and responds to."""
    profile = model.contentiousness
    return tuple(name for name in profile.pressure_names if name in profile.metric_names)


def _ratio(model: NFModel, names: tuple[str, ...], own: Floats, pressure: Floats) -> Floats:
    """Return the mean logarithm of measured over predicted pressure, shape ``(n,)``."""
    profile = model.contentiousness
    foretold = profile.under(pressure)[:, [profile.metric_names.index(name) for name in names]]
    least = 1e-3 * np.maximum(np.abs(profile.high[[profile.metric_names.index(name) for name in names]]), 1e-12)
    logs = np.log(np.maximum(own, least) / np.maximum(foretold, least))
    mean: Floats = logs.mean(axis=1)
    return mean


def _vector_errors(models: Sequence[NFModel], reference: "ProfileDataset") -> dict[str, Floats]:
    """Return, per NF, the usual errors of its profile's predicted pressure, in ascending order."""
    frame, errors = reference.frame, {}
    for model in models:
        names, profile = _pressures(model), model.contentiousness
        rows = frame[(frame["target"] == model.workload.key) & (frame["competitor_count"] > 0)]
        for prefix in ("beside", "competition"):
            columns = [f"{prefix}.{name}" for name in profile.pressure_names]
            own = [f"own.{name}" for name in names]
            if not names or not set(columns + own) <= set(frame.columns):
                continue
            whole = rows[rows[columns + own].notna().all(axis=1)]
            if len(whole) >= ENOUGH:
                ratio = _ratio(model, names, whole[own].to_numpy(dtype=float), whole[columns].to_numpy(dtype=float))
                errors[model.workload.key] = np.sort(np.abs(ratio))
                break
    return errors
