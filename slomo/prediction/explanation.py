"""Divide a predicted loss of throughput among competitors and resources.

The loss is divided over groups of metrics, one group per resource, by Shapley values (Shapley, 1953; Lundberg and Lee,
SHAP, NeurIPS'17): the average, over subsets of the other groups, of the throughput lost when the group is added. Groups
left out have the values of a solo run. Within a group, each metric's part is proportional to the throughput regained
without the metric. Within a metric, each competitor's part is proportional to its contribution, since such metrics are
sums over competitors.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from math import factorial
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from slomo.files.stored import Stored
from slomo.models.responses.server_response import NEIGHBOURS
from slomo.units import plural
from slomo.vocabulary.display import html_table
from slomo.vocabulary.metrics import METRICS, Rule
from slomo.vocabulary.vector import Floats

#: Contended resource -> remedy; `slomo whatif` predicts how much a remedy would gain.
LEVERS: Mapping[str, str] = MappingProxyType(
    {
        "cache": "cache ways of its own, away from {who}",
        "DDIO": "fewer packet buffers for {who}, or more ways for devices",
        "memory bandwidth": "throttle the memory bandwidth of {who}, or cache ways that keep it from memory",
        "interconnect": "memory on the node of its core, for it and for {who}",
        "core": "a core of its own, away from {who}",
        "accelerator": "fewer requests of {who} to the accelerator",
    }
)
#: Prefix of resources that have no metric in the vector; "accelerator regex" is listed among the metrics.
ACCELERATOR = "accelerator"


@cache
def group_of(metric: str) -> str:
    """Return the resource (cache, memory, ...) to which a metric or accelerator belongs.

    Examples
    --------
    >>> group_of("L3OCC"), group_of("accelerator regex")
    ('cache', 'accelerator')
    """
    if metric == NEIGHBOURS:
        return "memory bandwidth"  # number of accesses in flight at the same time
    return METRICS[metric].resource if metric in METRICS else metric.split(" ", 1)[0]


@dataclass(frozen=True)
class Explanation(Stored, derived=("groups", "bottleneck", "lever")):
    """A loss of throughput, divided among the metrics and competitors that cause it.

    Examples
    --------
    >>> e = Explanation(0.5, {"L3OCC": 0.4, "READ": 0.1}, 0.0, {"lpm": {"L3OCC": 0.4}, "vpn": {"READ": 0.1}})
    >>> e.carrier, e.groups
    (('L3OCC', 0.8), {'cache': 0.4, 'memory bandwidth': 0.1})
    >>> e.by_competitor
    {'lpm': {'cache': 0.4}, 'vpn': {'memory bandwidth': 0.1}}
    """

    #: Solo throughput minus predicted throughput [Mpps].
    loss_mpps: float
    #: Metric -> its part of the loss [Mpps]; the sum of all parts and `unattributed_mpps` is `loss_mpps`.
    metrics: Mapping[str, float]
    #: The loss that the model predicts even if every metric has its solo value. It contains the model's error at that
    #: point, and the effect of metrics without a solo value (the IPC of no competitors is not 0).
    unattributed_mpps: float
    #: Competitor (all its instances) -> metric -> part of the loss [Mpps]; the sums over all competitors are `metrics`.
    #: Empty if only the joint vector of all competitors is known.
    competitors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", MappingProxyType(dict(self.metrics)))
        frozen = {name: MappingProxyType(dict(parts)) for name, parts in self.competitors.items()}
        object.__setattr__(self, "competitors", MappingProxyType(frozen))

    def __reduce__(self) -> tuple[object, ...]:
        plain = {name: dict(parts) for name, parts in self.competitors.items()}
        return (Explanation, (self.loss_mpps, dict(self.metrics), self.unattributed_mpps, plain))

    @property
    def groups(self) -> dict[str, float]:
        """Each resource's part of the loss [Mpps], for resources that have a metric in the model."""
        return _grouped(self.metrics)

    @property
    def by_competitor(self) -> dict[str, dict[str, float]]:
        """Each competitor's part of the loss at each resource [Mpps]."""
        return {name: _grouped(parts) for name, parts in self.competitors.items()}

    @property
    def carrier(self) -> tuple[str, float] | None:
        """The metric that causes most of the loss, and its share of the loss; None without a loss."""
        if self.loss_mpps <= 0.0 or not self.metrics:
            return None
        name = max(self.metrics, key=lambda metric: self.metrics[metric])
        return (name, self.metrics[name] / self.loss_mpps) if self.metrics[name] > 0.0 else None

    @property
    def bottleneck(self) -> str | None:
        """Resource with the largest part of the loss; None if no resource has a part."""
        groups = {name: part for name, part in self.groups.items() if part > 0.0 and name in LEVERS}
        return max(groups, key=lambda name: groups[name]) if self.loss_mpps > 0.0 and groups else None

    @property
    def lever(self) -> str | None:
        """Remedy for the bottleneck, with the competitor that causes most of it if known.

        Examples
        --------
        >>> Explanation(0.5, {"L3OCC": 0.1, "READ": 0.4}, 0.0, {"lpm": {"L3OCC": 0.1}, "vpn": {"READ": 0.4}}).lever
        'throttle the memory bandwidth of vpn, or cache ways that keep it from memory'
        """
        if self.bottleneck is None:
            return None
        takers = {who: parts.get(self.bottleneck, 0.0) for who, parts in self.by_competitor.items()}
        worst = max(takers, key=lambda who: takers[who], default=None)
        return LEVERS[self.bottleneck].format(who=worst or "its competitors")

    def __repr__(self) -> str:
        carrier = "nothing" if self.carrier is None else self.carrier[0]
        metrics = plural(len(self.metrics), "metric")
        return f"Explanation(loss of {self.loss_mpps:.4g} Mpps over {metrics}, most by {carrier})"

    def _repr_html_(self) -> str:
        head = ("metric", "loss [Mpps]", *self.competitors)
        rows: list[tuple[object, ...]] = [
            (name, f"{part:.3g}", *(f"{parts.get(name, 0.0):.3g}" for parts in self.competitors.values()))
            for name, part in self.metrics.items()
        ]
        unattributed = ("unattributed", f"{self.unattributed_mpps:.3g}")
        return html_table(f"loss of {self.loss_mpps:.3g} Mpps", head, [*rows, unattributed])


def _grouped(parts: Mapping[str, float]) -> dict[str, float]:
    order = [*LEVERS]
    loss_by_group: dict[str, float] = {}
    for name in sorted(parts, key=lambda metric: order.index(group_of(metric))):
        loss_by_group[group_of(name)] = loss_by_group.get(group_of(name), 0.0) + parts[name]
    return loss_by_group


def explain(
    predict_mpps: Callable[[Floats], Floats],
    names: tuple[str, ...],
    vector: Floats,
    solo_mpps: float,
    own_values: Mapping[str, Floats] | None = None,
) -> Explanation:
    """Divide the loss that a model predicts at the counter values `vector` among metrics and competitors.

    `predict_mpps`: function from rows of shape ``(n, len(names))`` to throughput [Mpps]. `names`: metrics, or traffic
    attributes, to which no loss is attributed, in the order of the columns. `own_values`: competitor -> its own values,
    summed over its instances. The sum of all parts is ``solo_mpps - predict_mpps(vector)``.

    Examples
    --------
    >>> linear = lambda rows: 5.0 - rows @ np.array([0.02, 0.1])
    >>> own = {"lpm": np.array([30.0, 2.0]), "vpn": np.array([20.0, 8.0])}
    >>> found = explain(linear, ("L2MISS", "READ"), np.array([50.0, 10.0]), solo_mpps=5.0, own_values=own)
    >>> found.groups
    {'cache': 1.0, 'memory bandwidth': 1.0}
    >>> {name: {group: round(part, 6) for group, part in parts.items()} for name, parts in found.by_competitor.items()}
    {'lpm': {'cache': 0.6, 'memory bandwidth': 0.2}, 'vpn': {'cache': 0.4, 'memory bandwidth': 0.8}}
    """
    nobody = np.array([value if (none := _none(n)) is None else none for n, value in zip(names, vector, strict=True)])
    causes = [i for i, name in enumerate(names) if _none(name) is not None]
    changed = [i for i in causes if vector[i] != nobody[i]]
    groups = [columns for resource in LEVERS if (columns := [i for i in changed if group_of(names[i]) == resource])]
    answers = predict_mpps(np.where(_presses(len(names), tuple(changed), tuple(map(tuple, groups))), vector, nobody))
    coalitions, singles = answers[: 1 << len(groups)], answers[1 << len(groups) :]
    gains = dict(zip(changed, np.maximum(singles - coalitions[-1], 0.0).tolist(), strict=True))
    parts = {names[i]: 0.0 for i in causes}
    for columns, part in zip(groups, (_shapley_weights(len(groups)) @ coalitions).tolist(), strict=True):
        gain = sum(gains[i] for i in columns)
        for i in columns:
            parts[names[i]] = part * (gains[i] / gain if gain > 0.0 else 1.0 / len(columns))
    who = _by_competitor(parts, names, own_values or {})
    return Explanation(float(solo_mpps - coalitions[-1]), parts, float(solo_mpps - coalitions[0]), who)


def _by_competitor(
    parts: Mapping[str, float], names: tuple[str, ...], own_values: Mapping[str, Floats]
) -> dict[str, dict[str, float]]:
    """Divide each metric's part in proportion to the competitors' contributions, or evenly if all of them are 0."""
    parts_by_competitor: dict[str, dict[str, float]] = {name: {} for name in own_values}
    every = [np.maximum(own, 0.0).tolist() for own in own_values.values()]
    for metric, part in parts.items():
        column = names.index(metric)
        values = [own[column] for own in every]
        total = sum(values)
        for name, value in zip(own_values, values, strict=True):
            parts_by_competitor[name][metric] = part * (value / total if total > 0.0 else 1.0 / len(values))
    return parts_by_competitor


@lru_cache(maxsize=1024)
def _presses(count: int, changed: tuple[int, ...], groups: tuple[tuple[int, ...], ...]) -> NDArray[np.bool_]:
    """Return which metrics have their value under competition in each row; the others have their solo value.

    One row per coalition of groups (bit i: group i has its values under competition), then one row for leaving out each
    metric. Metrics that no competitor changes are equal in both cases.
    """
    coalitions = 1 << len(groups)
    presses = np.zeros((coalitions + len(changed), count), dtype=bool)
    for i, columns in enumerate(groups):
        presses[np.ix_(np.flatnonzero(np.arange(coalitions) >> i & 1), np.array(columns))] = True
    presses[coalitions:] = True
    presses[coalitions + np.arange(len(changed)), list(changed)] = False
    return presses


@cache
def _shapley_weights(count: int) -> Floats:
    """Return the matrix, shape (groups, coalitions), that converts coalitions' throughputs to Shapley values.

    A group's value is the drop in throughput when it joins, averaged over all orders of joining.
    """
    weights = np.zeros((count, 1 << count))
    for i in range(count):
        for others in (coalition for coalition in range(1 << count) if not coalition >> i & 1):
            size = others.bit_count()
            weight = factorial(size) * factorial(count - size - 1) / factorial(count)
            weights[i, others] += weight
            weights[i, others | 1 << i] -= weight
    return weights


@cache
def _none(name: str) -> float | None:
    """Return the value of a metric without competition; None if it has none."""
    definition = METRICS.get(name)
    if name == NEIGHBOURS:
        return 0.0
    return 0.0 if definition is not None and definition.rule in (Rule.SUM, Rule.PER_CORE) else None
