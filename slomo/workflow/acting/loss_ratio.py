"""Search the highest load at which at most a given share of the packets is lost (the loss ratio).

RFC 2544 section 26.1 searches for the highest load without loss. MLRsearch (RFC 9971) accepts any loss ratio and needs
fewer and shorter trials; the controller of its PyPI package chooses the trials.
"""

import importlib
from collections.abc import Callable
from typing import Any

from slomo.errors import TestbedError

#: Longest search [s].
_LONGEST_S = 3600.0


def search_throughput(
    trial: Callable[[float, float], float],
    loss_ratio: float,
    *,
    least_pps: float,
    most_pps: float,
    trial_s: float = 1.0,
) -> tuple[float, float]:
    """Return the highest load with at most this loss, and the lowest with more [packets/s], 1 % apart.

    `trial` offers a load for a time [s, packets/s], and returns the share of packets that was lost. `loss_ratio`: share
    that may be lost, 0 for RFC 2544's throughput. `trial_s`: length of a trial [s].
    """
    try:
        mlr: Any = importlib.import_module("MLRsearch")
    except ImportError:
        raise TestbedError(
            "throughput at a loss ratio is searched by MLRsearch, which is not installed",
            hint="pip install 'slomo[noise]'",
        ) from None

    class Measurer(mlr.AbstractMeasurer):  # type: ignore[misc]
        def measure(self, intended_duration: float, intended_load: float) -> Any:
            count = max(1, round(intended_duration * intended_load))
            return mlr.MeasurementResult(
                intended_duration=intended_duration,
                intended_load=intended_load,
                offered_count=count,
                loss_count=round(count * trial(intended_duration, intended_load)),
            )

    goal = mlr.SearchGoal(
        loss_ratio=loss_ratio,
        exceed_ratio=0.0,
        relative_width=0.01,
        initial_trial_duration=trial_s,
        final_trial_duration=trial_s,
        duration_sum=trial_s,
    )
    config = mlr.Config()
    config.goals = [goal]
    config.min_load, config.max_load = least_pps, most_pps
    config.warmup_duration, config.search_duration_max = 0.0, _LONGEST_S
    try:
        result = mlr.MultipleLossRatioSearch(config).search(Measurer(), lambda _: None)[goal]
    except RuntimeError:  # it has no lower bound
        raise TestbedError(
            f"more than {100 * loss_ratio:g} % are lost at every load down to {least_pps:g} packets/s",
            hint="give generator and function cores of their own, or allow more loss",
        ) from None
    low, high = result.relevant_lower_bound, result.relevant_upper_bound
    return float(least_pps if low is None else low), float(most_pps if high is None else high)
