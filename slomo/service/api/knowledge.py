"""`/v1/models`, `/v1/machines`, `/v1/nfs`: the models, machines and network functions that the service knows."""

from typing import Any

from slomo.errors import UnknownNameError
from slomo.service.application import Service
from slomo.service.door.operation import Answer, Call, Operation
from slomo.service.door.problems import Problem
from slomo.vocabulary.machine import load_machine, machine_names
from slomo.vocabulary.network_function import load_network_function, network_function_names


async def models(service: Service, call: Call) -> Answer:  # noqa: ARG001 - every handler has both
    """List the models that the service uses now."""
    answers = service.model_store.answers
    return Answer(await service.aside(lambda: _models(answers)), headers={"ETag": f'"{answers.fingerprint}"'})


def _models(answers: Any) -> dict[str, Any]:
    rows = []
    for machine, key in answers.library:
        model = answers.library[machine, key]
        rows.append(
            {
                "machine": machine,
                "machine_fingerprint": model.machine_fingerprint,
                "workload": key,
                "nf": model.workload.nf,
                "solo_mpps": model.solo_mpps,
                "families": sorted(model.sensitivity),
                "equilibrium": model.response is not None,
                "latency": model.latency is not None,
            }
        )
    return {"fingerprint": answers.fingerprint, "models": rows}


async def machines(service: Service, call: Call) -> Answer:  # noqa: ARG001
    """List the machine types that the service knows."""
    modelled = set(service.model_store.answers.library.machines)
    rows = [{"name": name, "has_models": name in modelled} for name in sorted({*machine_names(), *modelled})]
    return Answer({"machines": rows})


async def machine(service: Service, call: Call) -> Answer:  # noqa: ARG001
    """Show one machine type."""
    name = call.path["name"]
    if name not in machine_names():
        raise Problem(404, f"unknown machine '{name[:100]}'", hint="list /v1/machines")
    return Answer(load_machine(name).to_dict())


async def network_functions(service: Service, call: Call) -> Answer:  # noqa: ARG001
    """List the network functions that the service knows."""
    modelled = {service.model_store.answers.library[key].workload.nf for key in service.model_store.answers.library}
    names = sorted({*network_function_names(), *modelled})
    return Answer({"nfs": [{"name": name, "has_models": name in modelled} for name in names]})


async def network_function(service: Service, call: Call) -> Answer:
    """Show a network function, and the machines for which there are models of it."""
    name, library = call.path["name"], service.model_store.answers.library
    rows = [{"machine": m, "workload": key} for m, key in library if library[m, key].workload.nf == name]
    if name not in network_function_names():
        if not rows:
            unknown = UnknownNameError("network function", name[:100], network_function_names())
            raise Problem(404, unknown.message, hint=unknown.hint)
        return Answer({"name": name, "models": rows})
    return Answer({**load_network_function(name).to_dict(), "models": rows})


OPERATIONS = (
    Operation("GET", "/v1/models", models, tag="knowledge"),
    Operation("GET", "/v1/machines", machines, tag="knowledge"),
    Operation("GET", "/v1/machines/{name}", machine, statuses=(404,), tag="knowledge"),
    Operation("GET", "/v1/nfs", network_functions, tag="knowledge"),
    Operation("GET", "/v1/nfs/{name}", network_function, statuses=(404,), tag="knowledge"),
)  # fmt: skip
