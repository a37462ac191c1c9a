"""Say which metric carries a predicted loss.

The loss is divided over groups of metrics by their Shapley value (Shapley, 1953; Lundberg and Lee, SHAP, NeurIPS'17):
the average of what a group costs when it is put on top of every subset of the others, with the values of a lone target
for those left out. Inside a group the loss is divided by what each metric alone would give back.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import factorial
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slomo.vocabulary.metrics import METRICS, Rule

Floats = NDArray[np.float64]

#: What is fought over -> the metrics that show it. Every metric of the vocabulary belongs to one group.
GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "cache": ("L3OCC", "L2MISS", "L3MISS", "L3HIT", "L3MPI", "L2MPI", "L2HIT"),
        "DDIO": ("DDIOOCC", "PCIEHIT", "PCIEMISS"),
        "memory bandwidth": ("READ", "WRITE", "LMB", "LLCMISSLAT"),
        "inter-socket links": ("RMB", "UPI"),
        "core activity": ("INST", "IPC", "EXEC", "FREQ", "AFREQ"),
    }
)


@dataclass(frozen=True)
class Explanation:
    """A loss divided over the metrics that cause it.

    Attributes
    ----------
    loss_mpps : float
        Throughput alone less predicted throughput [Mpps].
    metrics : mapping of str to float
        Metric -> its part of the loss [Mpps]; with `unattributed_mpps` they add up to `loss_mpps`.
    unattributed_mpps : float
        What the model loses even with every metric at its value without competition: its error at that point, and
        metrics that have no such value (nobody's IPC is not 0).

    Examples
    --------
    >>> e = Explanation(0.5, {"L3OCC": 0.4, "READ": 0.1}, 0.0)
    >>> e.carrier, e.groups
    (('L3OCC', 0.8), {'cache': 0.4, 'memory bandwidth': 0.1})
    """

    loss_mpps: float
    metrics: Mapping[str, float]
    unattributed_mpps: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", MappingProxyType(dict(self.metrics)))

    def __reduce__(self) -> tuple[object, ...]:
        return (Explanation, (self.loss_mpps, dict(self.metrics), self.unattributed_mpps))

    @property
    def groups(self) -> dict[str, float]:
        """Group -> its part of the loss [Mpps], for groups with a metric in the model."""
        found = {g: [self.metrics[name] for name in names if name in self.metrics] for g, names in GROUPS.items()}
        return {group: sum(parts) for group, parts in found.items() if parts}

    @property
    def carrier(self) -> tuple[str, float] | None:
        """Metric with the largest part of the loss and its share of the whole; None where nothing is lost."""
        if self.loss_mpps <= 0.0 or not self.metrics:
            return None
        name = max(self.metrics, key=lambda metric: self.metrics[metric])
        return (name, self.metrics[name] / self.loss_mpps) if self.metrics[name] > 0.0 else None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping."""
        return {
            "loss_mpps": self.loss_mpps,
            "metrics": dict(self.metrics),
            "groups": self.groups,
            "unattributed_mpps": self.unattributed_mpps,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Explanation":
        """Rebuild from :meth:`to_dict`'s mapping."""
        return cls(float(data["loss_mpps"]), dict(data["metrics"]), float(data["unattributed_mpps"]))


def explain(
    predict_mpps: Callable[[Floats], Floats], names: tuple[str, ...], vector: Floats, solo_mpps: float
) -> Explanation:
    """Divide the loss a model predicts for `vector` over the metrics it reads.

    Parameters
    ----------
    predict_mpps : callable
        The model: rows of shape ``(n, len(names))`` -> throughput [Mpps], shape ``(n,)``.
    names : tuple of str
        Metrics (or traffic attributes, which cause nothing) in the order of the columns.
    vector : ndarray of shape (len(names),)
        The composed vector.
    solo_mpps : float
        Throughput of the target alone [Mpps].

    Returns
    -------
    Explanation
        Its parts add up to ``solo_mpps - predict_mpps(vector)``.

    Examples
    --------
    >>> linear = lambda rows: 5.0 - rows @ np.array([0.02, 0.1])
    >>> explain(linear, ("L2MISS", "READ"), np.array([50.0, 10.0]), solo_mpps=5.0).groups
    {'cache': 1.0, 'memory bandwidth': 1.0}
    """
    causes = [i for i, name in enumerate(names) if _none(name) is not None]
    members = {g: [i for i in causes if names[i] in found] for g, found in GROUPS.items()}
    groups = [columns for columns in members.values() if columns]
    nobody = np.array([vector[i] if (none := _none(name)) is None else none for i, name in enumerate(names)])
    answers = predict_mpps(_what_if(vector, nobody, groups, causes))
    coalitions, singles = answers[: 1 << len(groups)], answers[1 << len(groups) :]
    gains = dict(zip(causes, np.maximum(singles - coalitions[-1], 0.0), strict=True))
    parts: dict[str, float] = {}
    for columns, part in zip(groups, _shapley(coalitions, len(groups)), strict=True):
        gain = sum(gains[i] for i in columns)
        for i in columns:
            parts[names[i]] = float(part * (gains[i] / gain if gain > 0.0 else 1.0 / len(columns)))
    return Explanation(float(solo_mpps - coalitions[-1]), parts, float(solo_mpps - coalitions[0]))


def _what_if(vector: Floats, nobody: Floats, groups: list[list[int]], causes: list[int]) -> Floats:
    """Return a row for every coalition of groups (bit i: group i presses), then one per metric that gives way alone."""
    rows = np.repeat(nobody[np.newaxis], 1 << len(groups), axis=0)
    for coalition in range(len(rows)):
        for i, columns in enumerate(groups):
            if coalition >> i & 1:
                rows[coalition, columns] = vector[columns]
    singles = np.repeat(vector[np.newaxis], len(causes), axis=0)
    singles[np.arange(len(causes)), causes] = nobody[causes]
    return np.concatenate([rows, singles])


def _shapley(throughput: Floats, count: int) -> list[float]:
    """Return each group's average cost over all orders of arrival, from the throughput of every coalition."""
    values = []
    for i in range(count):
        part = 0.0
        for others in (c for c in range(1 << count) if not c >> i & 1):
            size = others.bit_count()
            weight = factorial(size) * factorial(count - size - 1) / factorial(count)
            part += weight * float(throughput[others] - throughput[others | 1 << i])
        values.append(part)
    return values


def _none(name: str) -> float | None:
    """Return the value of a metric without competition; None where it has none."""
    found = METRICS.get(name)
    return 0.0 if found is not None and found.rule in (Rule.SUM, Rule.PER_CORE) else None
