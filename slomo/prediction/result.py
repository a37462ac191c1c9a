"""Results of a prediction: throughput, slowdown, interval, verdict, explanation.

SLOMO (SIGCOMM'20) section 4.1: slowdown = 1 - P / P_solo. Interval and verdict are additions of slomo, since an
operator must know how reliable a prediction is before using it for placement.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from slomo.compose.composition import Composition
from slomo.files.stored import Stored
from slomo.models.applicability import Verdict
from slomo.models.evidence import Evidence
from slomo.models.noise import MeasurementNoise
from slomo.prediction.explanation import Explanation
from slomo.prediction.latency_result import LatencyPrediction
from slomo.units import plural
from slomo.vocabulary.defaults import EQUILIBRIUM
from slomo.vocabulary.display import Result, drawn, html_table
from slomo.vocabulary.vector import Floats
from slomo.vocabulary.workload import Workload
from slomo.vocabulary.workload_text import counted

if TYPE_CHECKING:
    from slomo.vocabulary.display import Axes

SCHEMA_VERSION = 1
#: Verdict on a prediction, and reasons against the prediction.
Judgement = tuple[Verdict, tuple[str, ...]]


@dataclass(frozen=True)
class Prediction(Result, Stored, version=SCHEMA_VERSION):
    """Predicted throughput of a target beside competitors.

    Attributes
    ----------
    target : Workload
        The NF whose throughput is predicted.
    competitors : tuple of Workload
        The NFs that run beside it, one entry per instance.
    machine, model : str
        Machine, and sensitivity model.
    solo_mpps, throughput_mpps : float
        Solo throughput, and predicted throughput [Mpps].
    interval : tuple of float
        Interval that contains the next measurement of the throughput, made like those of the profile, with probability
        `coverage` [Mpps]; :attr:`mean_interval` contains the mean of many measurements.
    coverage : float
        Nominal coverage of the interval, 0 to 1.
    verdict : Verdict
        Whether the measurements support the prediction.
    reasons : tuple of str
        Reasons against the prediction.
    explanation : Explanation or None
        The loss divided over metrics; None if not requested.
    composition : Composition or None
        The composed vector that was the model's input; None if the model has no such input.
    latency : LatencyPrediction or None
        Latency of packets at the offered load; None without an offered load.
    noise : MeasurementNoise or None
        Noise of measurements, from replicates of the profile; None without replicates.
    evidence : Evidence or None
        Evidence for the prediction; None if no explanation was requested.
    unit : {"Mpps", "share"}
        Unit of all throughputs; ``"share"`` of solo throughput, 0 to 1, if models were trained only on shares.

    Examples
    --------
    >>> p = Prediction(Workload("lpm"), (), "silver-4110", "slomo-gbr", 5.0, 4.0, (3.8, 4.2), 0.9, Verdict.SUPPORTED)
    >>> round(p.slowdown, 2), p.carrier
    (0.2, None)
    """

    target: Workload
    competitors: tuple[Workload, ...]
    machine: str
    model: str
    solo_mpps: float
    throughput_mpps: float
    interval: tuple[float, float]
    coverage: float
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    explanation: Explanation | None = None
    composition: Composition | None = None
    latency: LatencyPrediction | None = None
    noise: MeasurementNoise | None = None
    evidence: Evidence | None = None
    unit: str = "Mpps"

    @property
    def mean_interval(self) -> tuple[float, float]:
        """Interval that contains the mean of many measurements with probability `coverage` [Mpps].

        It excludes the noise of a single measurement. Without replicates, this noise is unknown, and the result equals
        `interval`.
        """
        return mean_interval(self.noise, self.throughput_mpps, self.solo_mpps, self.interval, self.coverage)

    @property
    def slowdown(self) -> float:
        """Share of solo throughput that is lost, 1 - P / P_solo; NaN if solo throughput is unknown."""
        return 1.0 - self.throughput_mpps / self.solo_mpps if self.solo_mpps > 0.0 else math.nan

    @property
    def carrier(self) -> tuple[str, float] | None:
        """The metric that causes most of the loss, and its share; None without a loss or an explanation."""
        return None if self.explanation is None else self.explanation.carrier

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping that :meth:`from_dict` reads back.

        ``target`` and ``competitors`` are names in the form of the command line; ``workloads`` has all their fields.
        """
        data, carrier = super().to_dict(), self.carrier
        return {
            **data,
            "target": label(self.target),
            "competitors": [label(workload) for workload in self.competitors],
            "solo_mpps": _plain(self.solo_mpps),
            "slowdown": _plain(self.slowdown),
            "mean_interval": list(self.mean_interval),
            "carrier": None if carrier is None else {"metric": carrier[0], "share": carrier[1]},
            "workloads": [data["target"], *data["competitors"]],
        }

    def columns(self) -> dict[str, Sequence[Any]]:
        """Return the prediction as columns of one entry."""
        low, high = self.interval
        return {
            "target": [label(self.target)],
            "competitors": [counted(map(label, self.competitors))],
            "solo_mpps": [self.solo_mpps],
            "throughput_mpps": [self.throughput_mpps],
            "low_mpps": [low],
            "high_mpps": [high],
            "slowdown": [self.slowdown],
            "unit": [self.unit],
            "verdict": [str(self.verdict)],
            "reasons": ["; ".join(self.reasons)],
        }

    def row_labels(self) -> list[str]:
        """Return target and competitors as text."""
        return [_beside(self.target, self.competitors)]

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the parts of the loss if it was explained, else the throughput; parameters as in `Result.plot`."""
        return super().plot(ax) if self.explanation is None else drawn("loss", self, ax)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Prediction":
        """Return the object that :meth:`to_dict` described; raises the errors of `slomo.files.stored.Stored`."""
        target, *competitors = data["workloads"]
        solo = math.nan if data["solo_mpps"] is None else data["solo_mpps"]
        return super().from_dict({**data, "target": target, "competitors": competitors, "solo_mpps": solo})

    def __repr__(self) -> str:
        beside = " + ".join(label(workload) for workload in self.competitors) or "nobody"
        return (
            f"Prediction({label(self.target)} beside {beside} on {self.machine}: {self.throughput_mpps:.4g} of "
            f"{self.solo_mpps:.4g} {self.unit}, {self.interval[0]:.4g} to {self.interval[1]:.4g} at "
            f"{100 * self.coverage:g} %, {self.verdict}, model {self.model})"
        )

    def _repr_html_(self) -> str:
        beside = ", ".join(label(workload) for workload in self.competitors) or "nobody"
        carrier = self.carrier
        rows = {
            "throughput": f"{self.throughput_mpps:.3g} {self.unit} (alone {self.solo_mpps:.3g} {self.unit})",
            "slowdown": f"{100 * self.slowdown:.1f} %",
            f"{100 * self.coverage:g} % interval": f"{self.interval[0]:.3g} to {self.interval[1]:.3g} {self.unit}",
            "verdict": "; ".join([str(self.verdict), *self.reasons]),
            "evidence": "-" if self.evidence is None else self.evidence.text,
            "main cause": "-" if carrier is None else f"{carrier[0]} ({100 * carrier[1]:.0f} % of the loss)",
        }
        if self.noise:
            low, high = self.mean_interval
            rows["interval of the mean"] = f"{low:.3g} to {high:.3g} {self.unit}"
        if self.latency is not None:
            times = ", ".join(f"{name} {value:.3g} us" for name, value in self.latency.percentiles_us.items())
            rows[f"latency at {self.latency.offered_mpps:.3g} Mpps"] = times or "; ".join(self.latency.reasons)
        title = f"{label(self.target)} beside {beside} on {self.machine}, model {self.model}"
        return html_table(title, (), rows.items())


@dataclass(frozen=True, eq=False)
class PredictionBatch(Result):
    """Predictions of many mixes, as arrays; row i belongs to mix i."""

    #: Machine, and sensitivity model.
    machine: str
    model: str
    #: Nominal coverage of the intervals, 0 to 1.
    coverage: float
    #: Index of the target in `workloads`, shape (n,).
    target: NDArray[np.int64]
    #: Indices of the competitors in `workloads`; -1 for an empty place, shape (n, most competitors).
    competitors: NDArray[np.int64]
    #: Workloads to which the indices refer.
    workloads: tuple[Workload, ...]
    #: Unit of each workload's throughput, as in :class:`Prediction`.
    units: tuple[str, ...]
    #: Noise of each workload's measurements, as in :class:`Prediction`.
    noises: tuple[MeasurementNoise | None, ...]
    #: Solo throughput, predicted throughput, lower and upper bound of the interval [Mpps], shape (n,).
    solo_mpps: Floats
    throughput_mpps: Floats
    low_mpps: Floats
    high_mpps: Floats
    #: Function that returns the judgement of every mix that can be judged in arrays, None for others; called on first
    #: use.
    judged: Callable[[], list[Judgement | None]]
    #: Function that returns the judgement of one of the other mixes, by its row.
    judge: Callable[[int], Judgement]

    def __len__(self) -> int:
        return len(self.target)

    @property
    def unit(self) -> NDArray[np.str_]:
        """Unit of each target's throughput: ``"Mpps"`` or ``"share"`` of solo throughput; shape (n,)."""
        return np.array(self.units, dtype=np.str_)[self.target]

    @cached_property
    def verdict(self) -> NDArray[np.str_]:
        """Names of the verdicts, shape (n,): whether the measurements support each prediction."""
        return np.array([str(verdict) for verdict, _ in self._judgements], dtype=np.str_)

    @cached_property
    def reasons(self) -> tuple[tuple[str, ...], ...]:
        """Reasons why measurements do not fully support each prediction; empty if there are none."""
        return tuple(reasons for _, reasons in self._judgements)

    @cached_property
    def _judgements(self) -> Sequence[Judgement]:
        judgements: list[Judgement] = []
        known: dict[tuple[int, ...], Judgement] = {}  # each distinct mix is judged once
        for row, judgement in enumerate(self.judged()):
            if judgement is None:
                mix = (int(self.target[row]), *sorted(self.competitors[row].tolist()))
                judgement = known[mix] = known[mix] if mix in known else self.judge(row)
            judgements.append(judgement)
        return judgements

    def predictions(self) -> list[Prediction | None]:
        """Return each mix's prediction, without explanation; None for a mix that arrays cannot judge."""
        columns = (self.solo_mpps, self.throughput_mpps, self.low_mpps, self.high_mpps)
        rates = zip(*(column.tolist() for column in columns), strict=True)
        rows = zip(self.judged(), self.target.tolist(), self.competitors.tolist(), rates, strict=True)
        return [
            None
            if judgement is None
            else Prediction(
                self.workloads[target],
                tuple([self.workloads[number] for number in others if number >= 0]),
                self.machine,
                EQUILIBRIUM,  # arrays judge no other method's predictions
                solo,
                mpps,
                (low, high),
                self.coverage,
                *judgement,
                noise=self.noises[target],
                unit=self.units[target],
            )
            for judgement, target, others, (solo, mpps, low, high) in rows
        ]

    @property
    def slowdown(self) -> Floats:
        """Share of the solo throughput that is lost, shape (n,)."""
        return 1.0 - self.throughput_mpps / self.solo_mpps

    def columns(self) -> dict[str, Sequence[Any]]:
        """Return the predictions as columns, one entry per mix."""
        beside = [counted(label(self.workloads[i]) for i in row if i >= 0) for row in self.competitors.tolist()]
        return {
            "target": [label(self.workloads[i]) for i in self.target.tolist()],
            "competitors": beside,
            "solo_mpps": self.solo_mpps.tolist(),
            "throughput_mpps": self.throughput_mpps.tolist(),
            "low_mpps": self.low_mpps.tolist(),
            "high_mpps": self.high_mpps.tolist(),
            "slowdown": self.slowdown.tolist(),
            "unit": self.unit.tolist(),
            "verdict": self.verdict.tolist(),
            "reasons": ["; ".join(reasons) for reasons in self.reasons],
        }

    def row_labels(self) -> list[str]:
        """Return target and competitors of each mix."""
        pairs = zip(self.target.tolist(), self.competitors.tolist(), strict=True)
        return [_beside(self.workloads[t], [self.workloads[i] for i in row if i >= 0]) for t, row in pairs]

    def __repr__(self) -> str:
        return f"PredictionBatch({plural(len(self), 'prediction')} on {self.machine}, model {self.model})"


def mean_interval(
    noise: MeasurementNoise | None, mpps: float, solo_mpps: float, interval: tuple[float, float], coverage: float
) -> tuple[float, float]:
    """Return the interval of the mean [Mpps]; `interval` itself if the noise of measurements is unknown."""
    return interval if noise is None else noise.of_mean(mpps, solo_mpps, interval, coverage)


@lru_cache(maxsize=4096)
def label(workload: Workload) -> str:
    """Return the shortest name of a workload: its NF, or its key if it differs from the NF's defaults.

    Examples
    --------
    >>> label(Workload("lpm")), label(Workload("synthetic", {"data_size_mib": 8}))
    ('lpm', 'synthetic(data_size_mib=8)@64B,100000f')
    """
    return workload.nf if workload == Workload(workload.nf) else workload.key


def _beside(target: Workload, competitors: Sequence[Workload]) -> str:
    return f"{label(target)} beside {counted(map(label, competitors)) or 'nobody'}"


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
