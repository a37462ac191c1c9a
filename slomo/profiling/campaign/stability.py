"""Repeat until stable: allowed dispersion of replicates, and the limit of repetitions.

A measurement is values, metadata and a verdict (pyperf's discipline); SLOMO (SIGCOMM'20, section 4.1) takes medians.
"""

from collections.abc import Sequence

from slomo.profiling.plans.plan import ExperimentPlan
from slomo.records.measurement import dispersion


def needs_another(throughput_mpps: Sequence[float], plan: ExperimentPlan) -> bool:
    """Return whether a co-location must run once more.

    `throughput_mpps`: throughputs of the replicates so far, in order [Mpps]. `plan`: has the number of replicates,
    their maximum, and the limit.

    Examples
    --------
    >>> from slomo.vocabulary.colocation import Colocation
    >>> from slomo.vocabulary.workload import Workload
    >>> plan = ExperimentPlan("p", (Colocation("m", Workload("lpm")),), replicates=2, maximum_replicates=4)
    >>> needs_another([1.0], plan), needs_another([1.0, 1.01], plan), needs_another([1.0, 2.0], plan)
    (True, False, True)
    """
    count = len(throughput_mpps)
    if count < plan.replicates:
        return True
    return count < plan.most_replicates and dispersion(throughput_mpps) > plan.dispersion_limit
