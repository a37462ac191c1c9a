"""Add an accelerator to a prediction that knows memory only.

Yala (ASPLOS'25): memory and accelerator are modelled apart and composed by execution pattern. Memory's answer gives the
core's time per packet of every NF that shares the target's accelerator; shares of the accelerator follow from all of
these (`slomo.models.responses.accelerator`), and the loss is divided over both resources by their Shapley value.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from slomo.models.nf_model import NFModel
from slomo.models.responses.accelerator import AcceleratorUse, core_ns_of, shared_mpps
from slomo.prediction.explanation import ACCELERATOR, Explanation
from slomo.prediction.result import Prediction, label

#: Relative error of shares of an accelerator whose users' demands are known exactly, against their simulation.
CLOSED_FORM = 0.03


def shares_accelerator(models: Sequence[NFModel]) -> bool:
    """Return whether the first of these NFs uses an accelerator that another one uses too."""
    first = models[0].accelerator
    return first is not None and any(
        other.accelerator is not None and other.accelerator.accelerator == first.accelerator for other in models[1:]
    )


def with_accelerator(
    found: Prediction,
    models: Sequence[NFModel],
    memory_mpps: Callable[[int], float],
    offered_mpps: Sequence[float | None],
) -> Prediction:
    """Return the prediction with the target's accelerator shared.

    Parameters
    ----------
    found : Prediction
        Of the target, as far as memory is concerned.
    models : sequence of NFModel
        The target's, then one per competitor.
    memory_mpps : callable
        Number of a competitor in `models` -> its throughput beside the others, as far as memory is concerned [Mpps].
    offered_mpps : sequence of float or None
        Offered load of each, None for saturating.

    Returns
    -------
    Prediction
        `found` itself where nobody shares the accelerator.
    """
    if not shares_accelerator(models):
        return found
    name = models[0].accelerator.accelerator  # type: ignore[union-attr]
    users = [
        i for i, each in enumerate(models) if each.accelerator is not None and each.accelerator.accelerator == name
    ]
    shared = _Shared(
        [models[i].accelerator for i in users],  # type: ignore[misc]
        [found.throughput_mpps, *(memory_mpps(i) for i in users[1:])],
        [models[i].solo_mpps for i in users],
        [offered_mpps[i] for i in users],
    )
    mpps = min(shared.target_mpps(found.throughput_mpps), found.throughput_mpps)
    # as far as the accelerator decides, its own error is added to that of memory
    error = max(CLOSED_FORM, *(use.error for use in shared.uses)) if mpps < found.throughput_mpps else 0.0
    low, high = (min(shared.target_mpps(max(end, 1e-9)), end) for end in found.interval)
    reason = f"accelerator '{name}' shared with {len(users) - 1} other NFs, composed with memory in time per packet"
    labels = [label(models[i].workload) for i in users[1:]]
    return replace(
        found,
        throughput_mpps=mpps,
        interval=(low * (1.0 - error), min(high * (1.0 + error), found.interval[1])),
        reasons=(*found.reasons, reason),
        explanation=None if found.explanation is None else _explained(found, shared, mpps, name, labels),
    )


class _Shared:
    """The users of one accelerator, the target first."""

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

    def target_mpps(self, memory_mpps: float) -> float:
        """Return the target's throughput where memory alone would leave it `memory_mpps`."""
        core = [core_ns_of(self.uses[0], memory_mpps), *self.pressed[1:]]
        return float(shared_mpps(self.uses, core, self.offered_mpps)[0])

    def without_memory_mpps(self) -> float:
        """Return the target's throughput where only the accelerator is competed for."""
        return float(shared_mpps(self.uses, self.unpressed, self.offered_mpps)[0])

    def parts(self) -> list[float]:
        """Return the share of each competitor in the accelerator's time that others take."""
        rates = shared_mpps(self.uses, self.pressed, self.offered_mpps)
        taken = np.array([rate * use.demand_ns for rate, use in zip(rates[1:], self.uses[1:], strict=True)])
        return [float(part) for part in taken / taken.sum()]


def _explained(found: Prediction, shared: _Shared, mpps: float, name: str, labels: list[str]) -> Explanation:
    """Divide the whole loss over memory and the accelerator; memory's part keeps its division."""
    why = found.explanation
    assert why is not None
    whole = found.solo_mpps - mpps
    alone = max(found.solo_mpps - shared.without_memory_mpps(), 0.0)
    memory = 0.5 * (why.loss_mpps + whole - alone)
    factor = memory / why.loss_mpps if why.loss_mpps > 0.0 else 0.0
    metric = f"{ACCELERATOR} {name}"
    part = whole - factor * why.loss_mpps
    competitors = {who: {key: factor * value for key, value in each.items()} for who, each in why.competitors.items()}
    for who, share in zip(labels, shared.parts(), strict=True):
        mine = competitors.setdefault(who, {})
        mine[metric] = mine.get(metric, 0.0) + part * share
    metrics = {key: factor * value for key, value in why.metrics.items()}
    return Explanation(whole, {**metrics, metric: part}, factor * why.unattributed_mpps, competitors)
