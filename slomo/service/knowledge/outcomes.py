"""Compare measured throughputs (outcomes) with predictions: errors, correction factors, and drift with alarms.

Drift is monitored by `slomo.drift.monitor`; after a restart, the monitor is filled again from the stored outcomes.
Outcomes that other models predicted are left out, since their errors do not concern the present models.
"""

import math
import threading
from collections.abc import Iterable
from typing import Any

from slomo.drift.correction import OnlineCorrection
from slomo.drift.monitor import DriftMonitor, check_reading
from slomo.errors import SlomoError
from slomo.models.library import ModelLibrary
from slomo.placement.feasibility.identity import joined_fingerprint, model_fingerprint
from slomo.prediction.predictor import Predictor
from slomo.service.door.bodies import Observation
from slomo.vocabulary.defaults import DEFAULT_MODEL
from slomo.vocabulary.identity import require_same
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector

#: Weight of the newest outcome in the running error, whose half-life is about fourteen outcomes.
_WEIGHT = 0.05


class Outcomes:
    """Compares measured throughputs with predictions."""

    def __init__(self, library: ModelLibrary) -> None:
        self._lock = threading.Lock()
        self._library = library
        self._predictors: dict[str, Predictor] = {}
        self._monitors: dict[str, DriftMonitor] = {}
        #: Machine and workload -> running mean of measured over predicted throughput, and number of measurements.
        self._errors: dict[tuple[str, str], tuple[float, int]] = {}
        self._correction = OnlineCorrection()
        self._fingerprints: dict[str, str] = {}

    def judge(self, item: Observation) -> tuple[str, str, float]:
        """Return the machine, the workload and the predicted throughput [Mpps] that belong to a measurement."""
        subject = self._library.find(item.target, item.machine)
        check_reading(subject, item.throughput_mpps)
        _vectors(item)
        measured, stated = self._library.fingerprint_of(subject.machine), item.machine_fingerprint or ""
        require_same(subject.machine, measured, stated, f"the observation of '{item.target}'")
        item.machine_fingerprint = stated or measured or None  # without one it counts as of the models' machine
        with self._lock:
            predictor = self._predictors.setdefault(subject.machine, Predictor(self._library, subject.machine))
            prediction = predictor.predict(item.target, item.competitors, explain=False)
        return subject.machine, subject.workload.key, prediction.throughput_mpps

    def note(self, item: Observation, machine: str, target: str, predicted_mpps: float) -> dict[str, Any]:
        """Record a measured throughput; return its comparison with the prediction."""
        with self._lock:
            key = (machine, target)
            ratio = item.throughput_mpps / predicted_mpps if predicted_mpps > 0.0 else math.nan
            if math.isfinite(ratio):
                before, count = self._errors.get(key, (ratio, 0))
                self._errors[key] = before + _WEIGHT * (ratio - before), count + 1
                self._correction = self._correction.seen(
                    _named(*key), predicted_mpps=predicted_mpps, measured_mpps=item.throughput_mpps
                )
            alarm = self._observed(machine, target, item)
        return {"target": target, "machine": machine, "predicted_mpps": predicted_mpps,
                "throughput_mpps": item.throughput_mpps, "ratio": ratio, "alarm": alarm}  # fmt: skip

    def replay(self, rows: Iterable[dict[str, Any]]) -> None:
        """Record stored measurements whose predictions came from the present models."""
        for row in rows:
            item = Observation(**row["document"])
            if self.is_current(row) and self._can_be(row["machine"], row["target"], item):
                self.note(item, row["machine"], row["target"], row["predicted_mpps"])

    def fingerprint(self, machine: str) -> str:
        """Return a fingerprint of all models of a machine type, since a prediction also uses its neighbours' models."""
        if machine not in self._fingerprints:
            models = [self._library[key] for key in self._library if key[0] == machine]
            parts = [model_fingerprint(model, DEFAULT_MODEL) for model in models]
            self._fingerprints[machine] = joined_fingerprint(parts) if parts else ""
        return self._fingerprints[machine]

    def is_current(self, row: dict[str, Any]) -> bool:
        """Return whether the present models made the prediction of a stored measurement."""
        is_told = row["predicted_mpps"] is not None and row["fingerprint"] != ""
        return is_told and row["fingerprint"] == self.fingerprint(row["machine"])

    def _can_be(self, machine: str, target: str, item: Observation) -> bool:
        """Return whether a stored measurement can still be used with the present models."""
        try:
            check_reading(self._library.find(target, machine), item.throughput_mpps)
            stated = item.machine_fingerprint or ""
            require_same(machine, self._library.fingerprint_of(machine), stated, f"the observation of '{target}'")
        except SlomoError:
            return False
        return True

    def errors(self) -> dict[tuple[str, str], tuple[float, int]]:
        """Return each workload's mean ratio of measured to predicted throughput, and its number of measurements."""
        with self._lock:
            return dict(self._errors)

    def factor(self, machine: str, target: str) -> float:
        """Return the factor that corrects predictions of a workload; 1 if nothing was measured."""
        try:
            return self._correction.factor(_named(machine, self._library.find(target, machine).workload.key))
        except SlomoError:
            return 1.0

    def factors(self) -> dict[str, dict[str, float]]:
        """Return the factors that correct predictions: machine -> workload -> factor."""
        by_machine: dict[str, dict[str, float]] = {}
        for name, factor in self._correction.factors.items():
            machine, target = name.split("\0")
            by_machine.setdefault(machine, {})[target] = factor
        return by_machine

    @property
    def is_neutral(self) -> bool:
        """Whether no throughput has been measured yet, so that predictions are not corrected."""
        return not self._correction.biases

    def report(self) -> dict[str, Any]:
        """Return prediction errors and drift alarms of every machine."""
        rows = [
            {"machine": machine, "target": target, "ratio": ratio, "observations": count}
            for (machine, target), (ratio, count) in sorted(self.errors().items())
        ]
        with self._lock:
            drift = {machine: monitor.report().to_dict() for machine, monitor in sorted(self._monitors.items())}
        refits = [
            dict(zip(("machine", "target"), name.split("\0"), strict=True)) for name in self._correction.refit_asked
        ]
        return {"errors": rows, "drift": drift, "refit_asked": refits}

    def _observed(self, machine: str, target: str, item: Observation) -> str | None:
        try:
            monitor = self._monitors.get(machine)
            if monitor is None:
                models = [self._library[key] for key in self._library if key[0] == machine]
                monitor = self._monitors[machine] = DriftMonitor(models)
            beside = [self._library.find(name, machine).workload.key for name in item.competitors]
            own, socket = _vectors(item)
            alarm = monitor.observe(target, beside, item.throughput_mpps, own=own, beside=socket)
        except SlomoError:
            return None
        return None if alarm is None else str(alarm)


def _vectors(item: Observation) -> tuple[MetricVector | None, MetricVector | None]:
    """Return the counters in a measurement: those of the function, and those of its neighbours."""
    own, beside = item.counters, item.counters_beside
    return (
        None if own is None else MetricVector(own, scope=Scope.CORE),
        None if beside is None else MetricVector(beside, scope=Scope.SOCKET),
    )


def _named(machine: str, target: str) -> str:
    return f"{machine}\0{target}"


def corrected(document: dict[str, Any], factor: float) -> dict[str, Any]:
    """Return a prediction with throughput and interval multiplied by the correction factor."""
    mpps, solo = factor * document["throughput_mpps"], document["solo_mpps"]
    return {
        **document,
        "throughput_mpps": mpps,
        "interval": [factor * end for end in document["interval"]],
        "slowdown": 1.0 - mpps / solo if solo else None,
        "correction": factor,
    }


def corrected_columns(columns: dict[str, Any], factors: list[float]) -> dict[str, Any]:
    """Return columns of predictions with each row's throughputs multiplied by its correction factor."""
    names = ("throughput_mpps", "low_mpps", "high_mpps")
    scaled = {
        name: [None if value is None else value * by for value, by in zip(columns[name], factors, strict=True)]
        for name in names
    }
    return {**columns, **scaled, "correction": factors}
