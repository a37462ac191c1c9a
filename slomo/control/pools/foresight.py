"""What everybody keeps under a pool's plan, predicted by a library of models; or why nothing can be said.

The cache of a host with pools is divided, so that the answer is the equilibrium of a divided cache
(`slomo.equilibrium.divided`). What a library does not know is said, and free ways must serve instead.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from slomo.control.pools.request import PoolRequest
from slomo.enforce.plan import EnforcementPlan
from slomo.equilibrium.divided import solve_divided
from slomo.errors import SlomoError, UnsupportedPredictionError
from slomo.models.library import ModelLibrary
from slomo.models.nf_model import NFModel
from slomo.vocabulary.machine import Machine

#: What is taken off a prediction before a promise counts as kept, as a share of solo throughput: 95 % of predictions in
#: random pools on SLOMO's two machines were no further above what was measured (`benchmarks/hospitality.py`).
MARGIN = 0.045
_UNSUPPORTED = 2


@dataclass(frozen=True)
class PoolOutlook:
    """What is expected of the workloads in pools.

    Attributes
    ----------
    expected : mapping of str to float
        Workload -> predicted share of its solo throughput, its slowest core's; empty where nothing is known.
    least : mapping of str to float
        The same less what predictions may be off: what to count on for a promise.
    why : str
        Why nothing is known; empty where something is.
    """

    expected: Mapping[str, float] = field(default_factory=dict)
    least: Mapping[str, float] = field(default_factory=dict)
    why: str = ""


class PoolForesight:
    """Asks a library about plans of pools.

    Parameters
    ----------
    library : callable
        Returns the models in force.
    machine : Machine
        Whose cache is divided. All workloads are taken to be beside each other, on one of its sockets.

    Examples
    --------
    >>> from slomo.vocabulary.machine import load_machine
    >>> foresight = PoolForesight(lambda: ModelLibrary([]), load_machine("e5-2620v4"))
    >>> foresight(EnforcementPlan("here", ()), {"1": PoolRequest((4,), (), 2, 2)}).why
    "workload '1' does not say its network function (nf)"
    """

    def __init__(self, library: Callable[[], ModelLibrary], machine: Machine) -> None:
        self._library, self._machine = library, machine

    def __call__(self, plan: EnforcementPlan, requests: Mapping[str, PoolRequest]) -> PoolOutlook:
        """Return what a plan gives everybody in it who made a request."""
        masks = {setting.tenant: setting.llc_way_mask for setting in plan.tenants}
        try:
            models = {name: self._model(name, request) for name, request in requests.items()}
            return self._solved(models, [(name, masks[name] or 0) for name in requests for _ in _cores(requests[name])])
        except SlomoError as error:
            return PoolOutlook(why=error.message)

    def _model(self, name: str, request: PoolRequest) -> NFModel:
        if request.nf is None:
            raise UnsupportedPredictionError(f"workload '{name}' does not say its network function (nf)")
        if request.memory_bandwidth is not None:
            raise UnsupportedPredictionError(f"models do not know the throttled memory bandwidth of workload '{name}'")
        model = self._library().find(request.nf, self._machine.name)
        if model.response is None:
            raise UnsupportedPredictionError(f"the model of '{request.nf}' does not answer for whole servers")
        return model

    def _solved(self, models: Mapping[str, NFModel], seats: Sequence[tuple[str, int]]) -> PoolOutlook:
        if len(seats) > self._machine.cores_per_socket:
            cores = self._machine.cores_per_socket
            raise UnsupportedPredictionError(f"{len(seats)} cores are used, a socket has {cores}")
        solved = solve_divided([models[name] for name, _ in seats], [mask for _, mask in seats], self._machine.llc_ways)
        if not solved.converged or (solved.codes == _UNSUPPORTED).any():
            raise UnsupportedPredictionError("no such pressure was ever profiled")
        expected: dict[str, float] = {}
        for (name, _), mpps in zip(seats, solved.throughput_mpps.tolist(), strict=True):
            expected[name] = min(expected.get(name, 1.0), mpps / models[name].solo_mpps)
        return PoolOutlook(expected, {name: max(share - MARGIN, 0.0) for name, share in expected.items()})


def _cores(request: PoolRequest) -> tuple[int, ...]:
    """Return what runs an instance each: the cores of a workload, or its tasks."""
    return request.core_ids or request.task_ids
