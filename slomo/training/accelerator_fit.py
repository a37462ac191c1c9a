"""Learn how an NF uses an accelerator, from runs beside a competitor that keeps the accelerator busy.

As in Yala (ASPLOS'25), accelerators are profiled separately from memory: the competitor puts no pressure on memory, and
its time per request is known. The NF's slowdown gives its requests per packet, its time per request, and whether its
core waits.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from slomo.compose.uncertain import PATTERNS, Pattern
from slomo.models.base import Floats
from slomo.models.nf_model import NFModel
from slomo.models.responses.accelerator import AcceleratorUse, core_ns_of, shared_mpps
from slomo.records.dataset import ProfileDataset
from slomo.records.rows import competitors_from_cell

#: Plan whose rows are runs beside a competitor `synthetic-<accelerator>`.
PLAN, PREFIX = "accelerator", "synthetic-"
#: An NF that loses less than this share of throughput beside the longest requests does not use the accelerator.
LEAST_LOSS = 0.02
#: Time per packet of a competitor that does nothing else [ns]; far below any request.
_COMPETITOR_CORE_NS = 50.0
_DEFAULT_SERVICE_NS = 500.0
#: Mean relative error below which fits count as equally good.
_EQUAL, _SMALL = 1e-4, 1e-3
#: Starting value of requests per packet.
_REQUESTS = (0.5, 1.0, 2.0, 4.0)


def with_uses(dataset: ProfileDataset, models: Sequence[NFModel]) -> list[NFModel]:
    """Return the models, each with its NF's use of an accelerator if that was measured.

    Rows of plan ``accelerator`` and solo throughput are read. Where several accelerators slow an NF down, the one that
    costs most counts.
    """
    frame = dataset.frame
    uses: dict[tuple[str, str], AcceleratorUse | None] = {}
    for (machine, target), rows in frame[frame["plan"] == PLAN].groupby(["machine", "target"], sort=False):
        beside = [competitors_from_cell(text) for text in rows["competitors"]]
        mpps = rows["throughput_mpps"].to_numpy(dtype=float)
        solo = dataset.solo_mpps(str(target), str(machine))
        names = [others[0].nf.removeprefix(PREFIX) for others in beside]
        worst = names[int(np.argmin(mpps))]
        chosen = [i for i, name in enumerate(names) if name == worst]
        services = [
            [float(other.configuration.get("service_ns", _DEFAULT_SERVICE_NS)) for other in beside[i]] for i in chosen
        ]
        uses[str(machine), str(target)] = fit_use(worst, services, mpps[chosen], solo)
    return [replace(model, accelerator=uses.get((model.machine, model.workload.key))) for model in models]


def fit_use(
    accelerator: str, services_ns: Sequence[Sequence[float]], mpps: Floats, solo_mpps: float
) -> AcceleratorUse | None:
    """Fit an NF's use of an accelerator to its throughput beside competitors that keep their request queues full.

    `services_ns` has, per run, the time per request of every competitor [ns]. None if the NF loses no throughput.
    """
    if mpps.min() > (1.0 - LEAST_LOSS) * solo_mpps:
        return None
    line, sum_ = (_fitted(accelerator, pattern, services_ns, mpps, solo_mpps) for pattern in PATTERNS)
    # an NF limited by its accelerator alone looks the same with both patterns; assume then that its core does not wait
    return line[1] if line[0] <= 1.1 * sum_[0] + _EQUAL else sum_[1]


def _fitted(
    accelerator: str, pattern: Pattern, services_ns: Sequence[Sequence[float]], mpps: Floats, solo_mpps: float
) -> tuple[float, AcceleratorUse]:
    def use_of(numbers: NDArray[np.float64]) -> AcceleratorUse:
        requests, share = float(np.exp(numbers[0])), float(numbers[1])
        return AcceleratorUse(accelerator, float(share * 1e3 / solo_mpps / requests), requests, pattern)

    def residuals(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        use = use_of(numbers)
        core = core_ns_of(use, solo_mpps)
        return np.array([_beside(use, core, others) for others in services_ns]) / mpps - 1.0

    def cost(numbers: NDArray[np.float64]) -> float:
        # absolute errors, not squares: a few runs in which NFs synchronise must not decide
        return float((np.sqrt(_SMALL**2 + residuals(numbers) ** 2) - _SMALL).mean())

    # the time of a waiting NF is a step function: start at the best point of a coarse search, then search without
    # gradients
    grid = [np.array([np.log(requests), share]) for requests in _REQUESTS for share in np.linspace(0.05, 0.95, 19)]
    bounds = np.array([(np.log(0.05), np.log(50.0)), (0.01, 1.0)])
    descents = []
    for start in sorted(grid, key=cost)[:2]:
        simplex = np.clip(start + np.array([[0.0, 0.0], [0.1, 0.0], [0.0, 0.04]]), *bounds.T)
        settings = {"initial_simplex": simplex, "maxfev": 120, "xatol": 1e-4, "fatol": 1e-6}
        descents.append(minimize(cost, start, method="Nelder-Mead", bounds=bounds, options=settings).x)
    best = min(descents, key=cost)
    error = float(np.abs(residuals(best)).max())
    return cost(best), replace(use_of(best), error=round(error, 6))


def _beside(use: AcceleratorUse, core_ns: float, services_ns: Sequence[float]) -> float:
    others = [AcceleratorUse(use.accelerator, service) for service in services_ns]
    return float(shared_mpps([use, *others], [core_ns, *[_COMPETITOR_CORE_NS] * len(others)])[0])
