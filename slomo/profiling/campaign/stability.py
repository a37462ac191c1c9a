"""Repeat until stable: how far replicates of one co-location may disagree, and when to stop trying.

A measurement is values, metadata and a verdict (pyperf's discipline); SLOMO (SIGCOMM'20, section 4.1) takes medians.
"""

import statistics
from collections.abc import Sequence

from slomo.errors import UnstableMeasurementError
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.records.measurement import Measurement
from slomo.units import format_quantity
from slomo.vocabulary.colocation import Colocation


def dispersion(values: Sequence[float]) -> float:
    """Return standard deviation over mean; 0 for a single value.

    Examples
    --------
    >>> round(dispersion([1.0, 1.0, 1.3]), 3), dispersion([2.0])
    (0.157, 0.0)
    """
    mean = statistics.fmean(values)
    return statistics.stdev(values) / mean if len(values) > 1 and mean > 0.0 else 0.0


def needs_another(throughput_mpps: Sequence[float], plan: ExperimentPlan) -> bool:
    """Return whether a co-location has to run once more.

    Parameters
    ----------
    throughput_mpps : sequence of float
        Throughput of the replicates so far, in order [Mpps].
    plan : ExperimentPlan
        Gives the number of replicates, their maximum, and the limit.

    Examples
    --------
    >>> from slomo.vocabulary.workload import Workload
    >>> plan = ExperimentPlan("p", (Colocation("m", Workload("lpm")),), replicates=2, maximum_replicates=4)
    >>> needs_another([1.0], plan), needs_another([1.0, 1.01], plan), needs_another([1.0, 2.0], plan)
    (True, False, True)
    """
    count = len(throughput_mpps)
    if count < plan.replicates:
        return True
    return count < plan.most_replicates and dispersion(throughput_mpps) > plan.dispersion_limit


def require_stable(measurement: Measurement, limit: float = 0.05) -> Measurement:
    """Return `measurement` if its replicates agree.

    Raises
    ------
    UnstableMeasurementError
        If standard deviation over mean of the replicates exceeds `limit`.
    """
    spread = dispersion(measurement.throughput_mpps)
    if spread <= limit:
        return measurement
    values = ", ".join(f"{value:.2f}" for value in measurement.throughput_mpps)
    raise UnstableMeasurementError(
        f"throughput of {describe(measurement.colocation)} varies by {spread:.0%} over "
        f"{len(measurement.throughput_mpps)} runs (limit {limit:.0%}): {values} Mpps.",
        hint="allow more replicates, or quieten the machine: turbo, other tenants, frequency scaling",
    )


def describe(colocation: Colocation) -> str:
    """Return target and competitors as text with the size that matters most.

    Examples
    --------
    >>> from slomo.vocabulary.workload import Workload
    >>> mem = Workload("synthetic", {"data_size_mib": 15})
    >>> describe(Colocation("m", Workload("lpm"), (mem, mem, mem)))
    "'lpm' beside 3 x 'synthetic' (15 MiB)"
    """
    target = f"'{colocation.target.nf}'" if colocation.target else "nobody"
    counts: dict[str, int] = {}
    for workload in colocation.competitors:
        size = workload.configuration.get("data_size_mib")
        text = f"'{workload.nf}'" + (f" ({format_quantity(float(size), 'MiB')})" if size is not None else "")
        counts[text] = counts.get(text, 0) + 1
    beside = " + ".join(f"{count} x {text}" for text, count in counts.items())
    return f"{target} beside {beside}" if beside else f"{target} alone"
