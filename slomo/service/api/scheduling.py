"""`/scheduler/filter`, `/scheduler/prioritize`, `/v1/explain/{pod}`: what kube-scheduler calls, what people ask then.

A judgement never fails a pod by a fault of ours: whatever cannot be judged passes through, and metrics and explanations
say so.
"""

import time
from typing import TYPE_CHECKING, Any

from slomo.errors import SlomoError
from slomo.service.door.operation import Answer, Call, Operation
from slomo.service.door.problems import Problem
from slomo.service.kubernetes.wire import ExtenderArgs, candidates, filter_answer

if TYPE_CHECKING:
    from slomo.service.application import Service


async def filter_nodes(service: "Service", call: Call) -> Answer:
    """Answer which nodes keep every SLO with the pod."""
    begun = time.perf_counter()
    pod, names, raw, nodes = candidates(call.body)
    try:
        passed, failed = service.kubernetes.filter(pod, names, nodes)
        code = "200"
    except SlomoError:
        passed, failed, code = names, {}, "passed"
        service.metrics.degraded.add(("prediction failed",))
    _count(service, "filter", code, begun)
    return Answer(filter_answer(passed, failed, raw))


async def prioritise_nodes(service: "Service", call: Call) -> Answer:
    """Answer scores from 0 to 10."""
    begun = time.perf_counter()
    pod, names, _, nodes = candidates(call.body)
    scores: list[dict[str, Any]]
    try:
        scores = service.kubernetes.prioritise(pod, names, nodes)
        code = "200"
    except SlomoError:
        scores, code = [{"Host": name, "Score": 0} for name in names], "passed"
        service.metrics.degraded.add(("prediction failed",))
    _count(service, "prioritize", code, begun)
    return Answer(scores)


async def explain(service: "Service", call: Call) -> Answer:
    """Show the numbers behind the last judgement of a pod."""
    judgement = service.kubernetes.explain(call.path["pod"])
    if judgement is None:
        raise Problem(404, "nothing was asked about this pod lately", hint="name it as name, namespace/name or uid")
    return Answer(judgement)


def _count(service: "Service", verb: str, code: str, begun: float) -> None:
    service.metrics.extender_requests.add((verb, code))
    service.metrics.extender.observe((verb,), time.perf_counter() - begun)


OPERATIONS = (
    Operation("POST", "/scheduler/filter", filter_nodes, "Say which nodes keep every SLO with a pod.",
              body=ExtenderArgs, tag="kubernetes"),
    Operation("POST", "/scheduler/prioritize", prioritise_nodes, "Score nodes for a pod.", body=ExtenderArgs,
              tag="kubernetes"),
    Operation("GET", "/v1/explain/{pod:path}", explain, "Show the numbers behind the last judgement of a pod.",
              statuses=(404,), tag="kubernetes"),
)  # fmt: skip
