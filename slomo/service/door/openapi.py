"""Make the OpenAPI 3.1 document from the operations and from the schemas against which requests are checked.

Properties and parameters are described here. A description's key is the property, or schema and property if a name has
several meanings. Fields with a description in their type (`slomo.placement.problem.entries`) are omitted. A test sends
the examples.
"""

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import msgspec

from slomo.service.door.bodies import ProblemDocument
from slomo.service.door.operation import Operation
from slomo.service.door.problems import MEDIA_TYPE, TITLES

Document = dict[str, Any]
#: Error answers that every operation can give: access denied, foreign host name, invalid query, internal error.
_ALWAYS = (400, 401, 403, 421, 422, 500, 503, 504)
_WITH_BODY = (408, 413, 415)
_WITH_WRITE = (409, 412, 429, 507)


def document(operations: Sequence[Operation]) -> Document:
    """Return the OpenAPI document."""
    types = [item for operation in operations for item in (operation.body, operation.answers) if item is not None]
    _, components = msgspec.json.schema_components(
        [*types, ProblemDocument], ref_template="#/components/schemas/{name}"
    )
    for name, schema in components.items():
        _describe(name, schema.get("properties", {}))
    paths: Document = {}
    for operation in operations:
        paths.setdefault(operation.path.replace(":path}", "}"), {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "slomo",
            "version": version("slomo"),
            "summary": "Predicts what network functions lose when they share a server, and places them.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe(name: str, properties: Document) -> None:
    """Give every property a description: its own or, without one, that of its type or of its name."""
    for key, schema in properties.items():
        texts = [part["description"] for part in (schema, *schema.get("anyOf", ())) if "description" in part]
        texts += [PROPERTIES[known] for known in (f"{name}.{key}", key) if known in PROPERTIES]
        if texts:
            schema["description"] = texts[0][0].upper() + texts[0][1:]


def _operation(item: Operation) -> Document:
    described: Document = {
        "operationId": item.method.lower() + re.sub(r"[^A-Za-z0-9]+", "_", item.path.replace(":path", "")).rstrip("_"),
        "summary": item.summary,
        "tags": [item.tag],
        "parameters": _parameters(item),
        "responses": {str(item.success): _success(item), **_problems(item)},
    }
    if item.scope != "open":
        described["security"] = [{"token": []}, {}]
        described["x-scope"] = item.scope
    if item.body is not None:
        schema = {"$ref": f"#/components/schemas/{item.body.__name__}"}
        described["requestBody"] = _body("application/json", schema, item)
    if item.form:
        fields = {name: {"type": "string", "description": what} for name, what in item.form.items()}
        form = {"type": "object", "properties": fields, "required": list(fields)}
        described["requestBody"] = _body("application/x-www-form-urlencoded", form, item)
    return described


def _body(media_type: str, schema: Document, item: Operation) -> Document:
    content = {"schema": schema, "example": EXAMPLES.get((item.method, item.path), {})}
    return {"required": True, "content": {media_type: content}}


def _parameters(item: Operation) -> list[Document]:
    text = {"type": "string"}
    parameters: list[Document] = [
        {"name": name, "in": "path", "required": True, "description": PARAMETERS.get(name, ""),
         "schema": {**text, "minLength": 1}}
        for name in re.findall(r"{(\w+)(?::path)?}", item.path)
    ]  # fmt: skip
    parameters += [
        {"name": name, "in": "query", "required": False, "description": what, "schema": text}
        for name, what in item.query.items()
    ]
    if item.writes:
        parameters += [
            {"name": "Idempotency-Key", "in": "header", "required": False, "schema": {**text, "maxLength": 200},
             "description": "A write with the same key happens once; the answer is the first one's."},
            {"name": "If-Match", "in": "header", "required": False, "schema": text,
             "description": "Entity tag of the cluster the decision was made on."},
        ]  # fmt: skip
    return parameters


def _success(item: Operation) -> Document:
    schema: Document = {"type": "object"}
    if item.answers is not None:
        schema = {"$ref": f"#/components/schemas/{item.answers.__name__}"}
    elif item.media_type != "application/json":
        schema = {"type": "string"}
    return {"description": item.summary, "content": {item.media_type: {"schema": schema}}}


def _problems(item: Operation) -> Document:
    codes = {*_ALWAYS, *item.statuses}
    codes |= set(_WITH_BODY) if item.body is not None else set()
    codes |= set(_WITH_WRITE) if item.writes else set()
    content: Document = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}
    if item.media_type.startswith("text/html"):  # pages report errors as pages
        content[item.media_type] = {"schema": {"type": "string"}}
    problem = {"content": content}
    plain = {202: "Accepted; see Location", 303: "See Location", 304: "Nothing has changed"}
    return {
        str(code): {"description": plain[code]} if code in plain else {"description": TITLES.get(code, ""), **problem}
        for code in sorted(codes)
    }


PROPERTIES = {
    "action": "What happens.",
    "annotations": "Annotations; slomo reads slomo.io/nf, slomo.io/min-share and slomo.io/min-mpps.",
    "backend": "Who sets the knobs; empty if the plan is not known.",
    "bandwidth_percent": "Memory bandwidth throttle of each (Intel MBA) [%].",
    "cache": "Ways it may have.",
    "cache_id": "Cache it is about; the first if left out.",
    "carrier": "Resource that carries the loss, where it is known.",
    "chain": "Network functions in the order in which packets pass them.",
    "changes": "What is set, beside how it was found.",
    "competitors": "Network functions beside the target, NF:COUNT or 2 x NF + NF, with traffic as NF@1500B,1000f.",
    "conditions": "Conditions of the pod; slomo reads slomo.io/PromiseKept.",
    "controller": "Which controller runs the loop.",
    "cool_down_s": "Pause after a change [s].",
    "core_ids": "Cores of the workload.",
    "cores": "Core of each; null where it has one of its own.",
    "compat": "published: composition by the rule of the published scripts.",
    "composition": "Vector of the competition and the rule for each metric; with explain.",
    "correction": "Factor that outcomes taught, where the service corrects by them.",
    "counters": "Counters of the CPU of the network function, by metric; absent ones are unknown, not 0.",
    "counters_beside": "Counters of the socket less those, by metric.",
    "coverage": "Share of cases that the interval holds, 0.9 for 90 %.",
    "detail": "What is wrong.",
    "dwell_s": "How long a need must last before it is answered [s].",
    "enforcement": "What was set by the node's plan; null if the agent may set nothing.",
    "evidence": "What the verdict rests on.",
    "explain": "Whether the answer says what the prediction rests on.",
    "explanation": "What each metric and competitor contributes; with explain.",
    "fingerprint": "Names the models that answered.",
    "high_mpps": "Upper ends of the intervals [Mpps].",
    "hint": "One action that helps.",
    "id": "Name of the request; may be sent once.",
    "instance": "Names this one request in the log.",
    "interval": "Lower and upper end of the interval [Mpps].",
    "items": "The nodes.",
    "kind": "reserved: the throughput is promised; on-demand: nothing is.",
    "label": "Label of servers.",
    "labels": "Labels.",
    "latency": "Latency at the offered load; with offered_mpps.",
    "llc_ways_usable": "Cache ways that network functions may fill.",
    "low_mpps": "Lower ends of the intervals [Mpps].",
    "machine": "Machine type, a name of /v1/machines; may be left out where the models know one alone.",
    "machine_fingerprint": "Fingerprint of the machine; what was seen on another machine of the name is refused.",
    "max": "Most cache ways.",
    "max_cache": "Most cache ways, as RMD 0.1 has it.",
    "max_moves": "Moves that it may take.",
    "max_skew": "By how many instances values may differ.",
    "mba": "Memory bandwidth it may have.",
    "mbps": "Memory bandwidth [MB/s].",
    "mean_interval": "Interval of the mean over a long time [Mpps].",
    "metadata": "Name, namespace, uid, labels and annotations.",
    "method": "equilibrium: all tenants at once; composed: SLOMO's composition; auto: the best known to the models.",
    "min": "Fewest cache ways.",
    "min_cache": "Fewest cache ways, as RMD 0.1 has it.",
    "mixes": "For each target, the network functions beside it.",
    "model": "Sensitivity model; the best that the library has for each if left out.",
    "name": "Name.",
    "namespace": "Namespace.",
    "nf": "Network function, for instance lpm or lpm@1500B,1000f.",
    "nic_sockets": "Sockets that have a NIC.",
    "nodeName": "Node that the pod is bound to.",
    "nodes": "NUMA node of each one's memory.",
    "observations": "What was seen.",
    "noise": "Noise of measurement that the interval holds.",
    "offered_mpps": "Offered load of the target [Mpps]; all that it can take if left out.",
    "ownerReferences": "Who made the object; a controller makes it anew.",
    "p95_us": "Most latency at the 95th percentile [us].",
    "p99_us": "Most latency at the 99th percentile [us].",
    "percentage": "Memory bandwidth [%].",
    "period_s": "Time of one step [s].",
    "phase": "Pending, Running, Succeeded, Failed or Unknown.",
    "plan": "Plan, as slomo enforce reads it.",
    "policy": "Policy of policy.yaml: gold, silver, bronze.",
    "port_gbps": "Line rate of the one NIC port that all network functions of the server share [Gbit/s].",
    "prefer": "Servers that are taken first.",
    "priority": "Priority of the pod.",
    "rdt": "What the workload may have, in place of a policy.",
    "reason": "Why there are no counters; empty if there are.",
    "reasons": "Why the verdict is what it is.",
    "receipt": "Receipt on the node; empty if nothing is set.",
    "refusals": "What was not carried out, and why.",
    "request": "The request, for update and preempt.",
    "requests": "What is to be placed, in this order.",
    "reserved": "Cores kept for requests of some labels.",
    "resourceVersion": "Version of the object.",
    "podIP": "Address of the pod.",
    "preemptionPolicy": "Never: no pod is evicted for this one.",
    "schema_version": "Version of this document.",
    "seed": "Seed of the simulated machine.",
    "selector": "Labels that a server carries.",
    "server": "Name of the server.",
    "servers": "Servers to add.",
    "setting": "What is set on the server: one value per network function.",
    "shares_core_with": "Network functions on the target's core.",
    "slo": "What is promised.",
    "slo_share": "Share of its throughput alone that it must keep.",
    "slowdown": "Share of the throughput alone that is lost.",
    "sockets": "Socket of each.",
    "solo_mpps": "Throughput alone [Mpps].",
    "source": "Who read the counters.",
    "spec": "Where the pod runs, and who places it.",
    "status": "Status.",
    "steps": "Steps of the loop.",
    "strict": "Whether an unsupported prediction is refused (422).",
    "surge": "Whether the new one is placed before the old one goes.",
    "taints": "Taints that the server gets.",
    "target": "Network function that is asked about.",
    "targets": "Network functions that are asked about.",
    "task_ids": "Process ids of the workload.",
    "tenant": "Pod, as namespace/name.",
    "tenants": "Network functions on the server, NF:COUNT or 2 x NF + NF.",
    "threads_per_core": "Hyper-threads of a core that are places.",
    "throughput_mpps": "Throughput [Mpps].",
    "title": "What kind of problem it is.",
    "type": "Type.",
    "uid": "Unique id.",
    "unit": "Unit of all throughputs: Mpps, or share of solo throughput (0 to 1) if only shares were imported.",
    "value": "Value of the label.",
    "verdict": "supported, extrapolated, unsupported or unknown: how far the models reach.",
    "ways": "Cache ways of each.",
    "weight": "Weight of the preference.",
    "weights": "CPU weight of each on its core.",
    "what_if": "Whether to say only what would happen; nothing is changed.",
    "window_s": "Length of the windows for which the interval holds [s]; the mean over a long time if left out.",
    "workload": "Network function.",
    "workloads": "Workloads as documents, where they are not the names.",
    "AgentReport.tenants": "What was found of each pod.",
    "ControlBody.tenants": "Network functions on the server, with their promises.",
    "ControlTenant.name": "Name of the tenant.",
    "ControlTenant.slo": "Share of its throughput alone that it is promised.",
    "PreemptionArgs.NodeNameToMetaVictims": "Node -> pods that must leave there in any case (nodeCacheCapable: true).",
    "PreemptionArgs.NodeNameToVictims": "The same with whole pods (nodeCacheCapable: false).",
    "PreemptionArgs.Pod": "The pod to make room for.",
    "Victims.NumPDBViolations": "Disruption budgets that their leaving would break.",
    "Victims.Pods": "The pods, by UID or whole.",
    "BindingArgs.Node": "Node that was chosen.",
    "BindingArgs.PodName": "The pod's name.",
    "BindingArgs.PodNamespace": "The pod's namespace.",
    "BindingArgs.PodUID": "The pod's uid; the API server refuses the binding of another.",
    "ExtenderArgs.NodeNames": "Candidates by name (nodeCacheCapable: true).",
    "ExtenderArgs.Nodes": "Candidates as objects (nodeCacheCapable: false); only their names are read.",
    "ExtenderArgs.Pod": "The pod to place.",
    "ExtenderArgs.nodeNames": "NodeNames, in another case.",
    "ExtenderArgs.nodenames": "NodeNames, in another case.",
    "ExtenderArgs.nodes": "Nodes, in another case.",
    "ExtenderArgs.pod": "Pod, in another case.",
    "Condition.status": "True, False or Unknown.",
    "ProblemDocument.status": "HTTP status.",
    "ReservedEntry.cores": "How many cores.",
}

PARAMETERS = {
    "id": "Its id.",
    "level": "Level of the cache: l3 or llc.",
    "name": "Its name.",
    "node": "Name of the node.",
    "number": "Number of the receipt.",
    "pod": "Pod, as name, namespace/name or uid.",
    "receipt": "Id of the receipt.",
}

_LPM = {
    "metadata": {"name": "edge-0", "uid": "u-1", "annotations": {"slomo.io/nf": "lpm", "slomo.io/min-share": "0.9"}}
}
_WORKLOAD = {"core_ids": ["4", "5"], "policy": "gold"}
#: Method and path -> example of the body.
EXAMPLES: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/v1/predict"): {"target": "lpm", "competitors": ["nat:2", "ids"], "machine": "e5-2620v4"},
    ("POST", "/v1/predict/batch"): {"targets": ["lpm", "nat"], "mixes": [["nat", "ids"], []]},
    ("POST", "/v1/whatif"): {"tenants": ["lpm", "nat:2", "ids"], "machine": "e5-2620v4"},
    ("POST", "/v1/place"): {"requests": [{"id": "edge-1", "nf": "lpm", "slo": {"min_share": 0.8}}]},
    ("POST", "/v1/cluster/servers"): {"servers": [{"name": "rack9-s1", "machine": "e5-2620v4"}]},
    ("POST", "/v1/cluster/rebalance"): {"max_moves": 10},
    ("POST", "/v1/cluster/changes"): {"action": "drain", "server": "s1", "what_if": True},
    ("POST", "/v1/observations"): {
        "observations": [{"target": "lpm", "competitors": ["nat"], "throughput_mpps": 4.1, "machine": "e5-2620v4"}]
    },
    ("POST", "/v1/agents/{node}"): {
        "tenants": [
            {"tenant": "default/edge-0", "nf": "lpm", "counters": {"IPC": 1.4, "L3OCC": 2048.0}, "source": "perf"},
            {"tenant": "default/core-0", "nf": "nat", "reason": "it may run on CPUs [0, 1]"},
        ],
        "enforcement": {"backend": "resctrl", "refusals": ["'default/edge-1' runs no network function on this node"]},
    },
    ("PUT", "/v1/agents/{node}/plan"): {
        "plan": {"tenants": [{"tenant": "edge", "pod": "default/edge-0", "llc_way_mask": "0x3", "cpu_weight": 2}]}
    },
    ("POST", "/scheduler/filter"): {"Pod": _LPM, "NodeNames": ["worker-1", "worker-2"]},
    ("POST", "/scheduler/filter-to-bind"): {"Pod": _LPM, "NodeNames": ["worker-1", "worker-2"]},
    ("POST", "/scheduler/bind"): {"PodName": "edge-0", "PodNamespace": "default", "PodUID": "u-1", "Node": "worker-1"},
    ("POST", "/scheduler/prioritize"): {"Pod": _LPM, "NodeNames": ["worker-1"]},
    ("POST", "/scheduler/preempt"): {"Pod": _LPM, "NodeNameToMetaVictims": {"worker-1": {"Pods": [{"UID": "u-2"}]}}},
    ("POST", "/v1/enforce"): {
        "plan": {"server": "localhost", "tenants": [{"tenant": "lpm", "cores": [3], "llc_way_mask": "0x3"}]},
        "what_if": True,
    },
    ("POST", "/login"): {"token": "a-secret-of-the-token-file"},
    ("POST", "/v1/control"): {"tenants": [{"workload": "lpm", "slo": 0.9}, {"workload": "nat"}], "steps": 5},
    ("POST", "/v1/workloads"): _WORKLOAD,
    ("PATCH", "/v1/workloads/{id}"): {"policy": "silver"},
    ("POST", "/v1/hospitality"): _WORKLOAD,
}
