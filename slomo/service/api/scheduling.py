"""`/scheduler/filter`, `prioritize`, `preempt`, `bind` for kube-scheduler; `/v1/explain/{pod}` for operators.

A pod that cannot be judged at present is deferred: the answer has an `Error`, and the scheduler asks again after its
backoff (1 to 10 s). A pod that can never be judged (unreadable annotations) is refused with the reason.
"""

import time
from typing import Any

from slomo.errors import SlomoError
from slomo.service.application import Service
from slomo.service.door.operation import Answer, Call, Operation
from slomo.service.door.problems import Problem
from slomo.service.kubernetes.service import NotSynced, PlacesHeld
from slomo.service.kubernetes.wire import BindingArgs, ExtenderArgs, PreemptionArgs, candidates, filter_answer


async def filter_nodes(service: Service, call: Call) -> Answer:
    """Return the nodes on which every promise is kept with one more pod; reserve its place before answering."""
    return await _filtered(service, call, binds=False)


async def filter_to_bind(service: Service, call: Call) -> Answer:
    """Return the nodes on which every promise is kept with one more pod; `bind` waits until its place is reserved."""
    return await _filtered(service, call, binds=True)


async def _filtered(service: Service, call: Call, *, binds: bool) -> Answer:
    begun = time.perf_counter()
    pod, names, raw = candidates(call.body)
    try:
        answer = filter_answer(*await service.kubernetes.filter(pod, names, binds=binds), raw)
        code = "200"
    except SlomoError as error:
        answer, code = filter_answer([], {}, {}, raw, f"slomo: {error.message}"), "deferred"
        if not isinstance(error, NotSynced | PlacesHeld):
            service.metrics.unjudged.add(("deferred", "prediction failed"))
    _count(service, "filter", code, begun)
    return Answer(answer)


async def prioritise_nodes(service: Service, call: Call) -> Answer:
    """Return a score from 0 to 10 for every node; all scores are 0 if no node can be judged at present."""
    begun = time.perf_counter()
    pod, names, _ = candidates(call.body)
    scores: list[dict[str, Any]]
    try:
        scores, code = service.kubernetes.prioritise(pod, names), "200"
    except SlomoError:
        scores, code = [{"Host": name, "Score": 0} for name in names], "deferred"
    _count(service, "prioritize", code, begun)
    return Answer(scores)


async def preempt(service: Service, call: Call) -> Answer:
    """Return the pods that the scheduler should evict: the fewest whose eviction keeps every promise."""
    begun, args = time.perf_counter(), call.body
    candidates = args.NodeNameToMetaVictims or args.NodeNameToVictims or {}
    try:
        chosen = service.kubernetes.preempt(args.Pod, {name: victims.uids for name, victims in candidates.items()})
        code = "200"
    except SlomoError:
        chosen, code = {}, "deferred"
    _count(service, "preempt", code, begun)
    victims = {name: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": candidates[name].NumPDBViolations}
            for name, uids in chosen.items()}  # fmt: skip
    return Answer({"NodeNameToMetaVictims": victims})


async def bind(service: Service, call: Call) -> Answer:
    """Bind a pod to the node that the scheduler has chosen."""
    begun = time.perf_counter()
    try:
        await service.kubernetes.bind(call.body)
        fault, code = "", "200"
    except SlomoError as error:
        fault, code = f"slomo: {error.message}", "deferred"
    _count(service, "bind", code, begun)
    return Answer({"Error": fault})


async def explain(service: Service, call: Call) -> Answer:
    """Show the predictions behind the last decision about a pod."""
    judgement = service.kubernetes.explanations.explain(call.path["pod"], service.kubernetes.view)
    if judgement is None:
        raise Problem(404, "no recent decision about this pod is stored", hint="name it as name, namespace/name or uid")
    return Answer(judgement)


def _count(service: Service, verb: str, code: str, begun: float) -> None:
    service.metrics.extender_requests.add((verb, code))
    service.metrics.extender.observe((verb,), time.perf_counter() - begun)


OPERATIONS = (
    Operation("POST", "/scheduler/filter", filter_nodes, body=ExtenderArgs, scope="schedule", tag="kubernetes"),
    Operation("POST", "/scheduler/filter-to-bind", filter_to_bind, body=ExtenderArgs, scope="schedule",
              tag="kubernetes"),
    Operation("POST", "/scheduler/bind", bind, body=BindingArgs, scope="schedule", tag="kubernetes"),
    Operation("POST", "/scheduler/prioritize", prioritise_nodes, body=ExtenderArgs, scope="schedule", tag="kubernetes"),
    Operation("POST", "/scheduler/preempt", preempt, body=PreemptionArgs, scope="schedule", tag="kubernetes"),
    Operation("GET", "/v1/explain/{pod:path}", explain, statuses=(404,), tag="kubernetes"),
)  # fmt: skip
