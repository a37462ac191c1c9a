"""Predict every tenant's throughput under a pool's plan (`slomo.prediction.question`), or state why that is impossible.

The cache of a host with pools is divided, so models must include profiles over cache ways. If a workload is unknown,
the result holds the reason, and the score follows from the number of free ways instead.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from slomo.control.pools.request import PoolRequest
from slomo.enforce.plan import EnforcementPlan, TenantSetting
from slomo.errors import SlomoError, UnsupportedPredictionError
from slomo.models.library import ModelLibrary
from slomo.prediction.question import solve_server
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.server_setting import ServerSetting


@dataclass(frozen=True)
class PoolOutlook:
    """Predictions for the workloads in pools."""

    #: Workload -> predicted throughput on its slowest core, as a share of solo throughput; empty without predictions.
    expected: Mapping[str, float] = field(default_factory=dict)
    #: Workload -> the lower bound of that prediction's 90 % interval, which promises are compared with.
    least: Mapping[str, float] = field(default_factory=dict)
    #: Reason why there are no predictions; empty if there are.
    why: str = ""


class PoolForesight:
    """Predicts the throughput of tenants in pools by a library of models.

    `library` returns the models in force. All workloads are assumed to share one socket of the machine.

    >>> from slomo.vocabulary.machine import load_machine
    >>> foresight = PoolForesight(lambda: ModelLibrary([]), load_machine("e5-2620v4"))
    >>> foresight(EnforcementPlan("here", (TenantSetting("1", cores=(4,)),)), {"1": PoolRequest((4,), (), 2, 2)}).why
    "workload '1' does not say its network function (nf)"
    """

    def __init__(self, library: Callable[[], ModelLibrary], machine: Machine) -> None:
        self._library, self._machine = library, machine

    def __call__(self, plan: EnforcementPlan, requests: Mapping[str, PoolRequest]) -> PoolOutlook:
        """Predict every requested workload's throughput under the pools' plan of ways."""
        settings = {setting.tenant: setting for setting in plan.tenants}
        try:
            return self._predicted({name: (request, settings[name]) for name, request in requests.items()})
        except SlomoError as error:
            return PoolOutlook(why=error.message)

    def _predicted(self, workloads: Mapping[str, tuple[PoolRequest, TenantSetting]]) -> PoolOutlook:
        names = [name for name, (request, _) in workloads.items() for _ in request.core_ids or request.task_ids]
        setting = ServerSetting(
            ways=[workloads[name][1].llc_way_mask or self._machine.full_way_mask for name in names],
            bandwidth_percent=[_percent(name, workloads[name][1]) for name in names],
        )
        functions = {name: request.nf or "" for name, (request, _) in workloads.items()}
        if unknown := [name for name in names if not functions[name]]:
            raise UnsupportedPredictionError(f"workload '{unknown[0]}' does not say its network function (nf)")
        mix = [functions[name] for name in names]
        server = solve_server(self._library(), mix, self._machine.name, setting=setting)
        if server.verdict.is_refused:
            reasons = dict.fromkeys(reason for tenant in server.tenants for reason in tenant.reasons)
            raise UnsupportedPredictionError("; ".join(reasons) or "nothing like it was profiled")
        expected: dict[str, float] = {}
        least: dict[str, float] = {}
        for name, tenant in zip(names, server.tenants, strict=True):
            expected[name] = min(expected.get(name, 1.0), tenant.throughput_mpps / tenant.solo_mpps)
            least[name] = min(least.get(name, 1.0), max(tenant.interval[0] / tenant.solo_mpps, 0.0))
        return PoolOutlook(expected, least)


def _percent(name: str, setting: TenantSetting) -> float:
    """Return the memory throttle of a workload [%]."""
    bandwidth = setting.memory_bandwidth
    if bandwidth is None:
        return 100.0
    if bandwidth.unit != "percent":
        raise UnsupportedPredictionError(f"models know throttles in percent, '{name}' is throttled to {bandwidth.text}")
    return bandwidth.value
