"""Add the effect of a shared accelerator to a prediction that considers cache and memory only.

As in Yala (ASPLOS'25), memory and accelerator have separate models, which are composed by execution pattern. The memory
prediction gives the time per packet of every NF that shares the target's accelerator. The shares of the accelerator
follow from these times (`slomo.models.responses.accelerator`). The loss is divided between memory and accelerator by
Shapley values.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from slomo.models.nf_model import NFModel
from slomo.models.responses.accelerator import AcceleratorUse, core_ns_of, shared_mpps
from slomo.prediction.explanation import ACCELERATOR, Explanation
from slomo.prediction.result import Prediction, label

#: Relative error of predicted accelerator shares against simulation, if all users' demands are known exactly.
CLOSED_FORM = 0.03


def shares_accelerator(models: Sequence[NFModel]) -> bool:
    """Return whether the first of these NFs shares its accelerator with another."""
    first = models[0].accelerator
    return first is not None and any(
        other.accelerator is not None and other.accelerator.accelerator == first.accelerator for other in models[1:]
    )


def with_accelerator(
    memory: Prediction,
    models: Sequence[NFModel],
    possible_mpps: Sequence[float],
    offered_mpps: Sequence[float | None],
) -> Prediction:
    """Return the prediction `memory`, changed by the competition for the target's accelerator.

    `memory`: prediction of the target for competition for cache and memory alone. `models`: the target's model, then
    one per competitor; at least one competitor shares its accelerator. `possible_mpps`: throughput that each NF would
    reach if only cache and memory were shared [Mpps]. `offered_mpps`: offered load of each NF; None saturates it.
    """
    name = models[0].accelerator.accelerator  # type: ignore[union-attr]
    users = [
        i for i, each in enumerate(models) if each.accelerator is not None and each.accelerator.accelerator == name
    ]
    # canonical order, so that sums over the users do not depend on the order of names, to the last bit
    users[1:] = sorted(users[1:], key=lambda i: (models[i].workload.key, offered_mpps[i] or np.inf))
    shared = _Shared(
        [models[i].accelerator for i in users],  # type: ignore[misc]
        [possible_mpps[i] for i in users],
        [models[i].solo_mpps for i in users],
        [offered_mpps[i] for i in users],
    )
    mpps = min(shared.target_mpps(possible_mpps[0]), memory.throughput_mpps)
    reason = f"accelerator '{name}' shared with {len(users) - 1} other NFs, composed with memory in time per packet"
    labels = [label(models[i].workload) for i in users[1:]]
    return replace(
        memory,
        throughput_mpps=mpps,
        interval=_interval(memory, shared, possible_mpps[0]),
        reasons=(*memory.reasons, reason),
        explanation=None if memory.explanation is None else _explained(memory, shared, mpps, name, labels),
    )


def _interval(memory: Prediction, shared: "_Shared", possible_mpps: float) -> tuple[float, float]:
    """Return the throughput interval under competition for both memory and accelerator.

    Both errors enter the composition: the lower bound combines the lower bound for memory with an accelerator that is
    slower by its error. An accelerator that is almost the bottleneck thus still widens the interval.
    """
    error = max(CLOSED_FORM, *(use.error for use in shared.uses))
    if memory.throughput_mpps < possible_mpps:  # below its possible throughput, only arrivals vary
        ends, slack = (possible_mpps, possible_mpps), memory.interval
    else:
        ends, slack = memory.interval, memory.interval
    low = min(shared.target_mpps(max(ends[0], 1e-9), 1.0 + error), slack[0])
    high = min(shared.target_mpps(max(ends[1], 1e-9), 1.0 - error), slack[1])
    return low, high


class _Shared:
    """The NFs that use one accelerator, the target first."""

    def __init__(
        self,
        uses: list[AcceleratorUse],
        memory_mpps: list[float],
        solo_mpps: list[float],
        offered_mpps: list[float | None],
    ) -> None:
        self.uses, self.offered_mpps = uses, offered_mpps
        self.pressed = [core_ns_of(use, mpps) for use, mpps in zip(uses, memory_mpps, strict=True)]
        self.unpressed = [core_ns_of(use, mpps) for use, mpps in zip(uses, solo_mpps, strict=True)]

    def target_mpps(self, memory_mpps: float, slower: float = 1.0) -> float:
        """Return the target's throughput if memory allows `memory_mpps` and requests take `slower` times as long."""
        core = [core_ns_of(self.uses[0], memory_mpps), *self.pressed[1:]]
        uses = [replace(use, service_ns=slower * use.service_ns) for use in self.uses] if slower != 1.0 else self.uses
        return float(shared_mpps(uses, core, self.offered_mpps)[0])

    def without_memory_mpps(self) -> float:
        """Return the target's throughput if NFs competed for the accelerator alone."""
        return float(shared_mpps(self.uses, self.unpressed, self.offered_mpps)[0])

    def parts(self) -> list[float]:
        """Return each competitor's share of the accelerator time that the target's competitors use."""
        rates = shared_mpps(self.uses, self.pressed, self.offered_mpps)
        taken = np.array([rate * use.demand_ns for rate, use in zip(rates[1:], self.uses[1:], strict=True)])
        return [float(part) for part in taken / taken.sum()]


def _explained(memory: Prediction, shared: _Shared, mpps: float, name: str, labels: list[str]) -> Explanation:
    """Divide the target's loss between memory, divided further as before, and accelerator."""
    why = memory.explanation
    assert why is not None
    whole = memory.solo_mpps - mpps
    alone = max(memory.solo_mpps - shared.without_memory_mpps(), 0.0)
    lost = 0.5 * (why.loss_mpps + whole - alone)
    factor = lost / why.loss_mpps if why.loss_mpps > 0.0 else 0.0
    metric = f"{ACCELERATOR} {name}"
    part = whole - factor * why.loss_mpps
    competitors = {who: {key: factor * value for key, value in each.items()} for who, each in why.competitors.items()}
    for who, share in zip(labels, shared.parts(), strict=True):
        mine = competitors.setdefault(who, {})
        mine[metric] = mine.get(metric, 0.0) + part * share
    metrics = {key: factor * value for key, value in why.metrics.items()}
    return Explanation(whole, {**metrics, metric: part}, factor * why.unattributed_mpps, competitors)
