"""RMD's `/v1/{cache,policy,workloads,hospitality}`, in the formats of Intel's Resource Management Daemon.

RMD's clients work unchanged (github.com/intel/rmd, docs/UserGuide.md). Errors are problem documents; their status is
400 if RMD's would be 400.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from slomo.control.pools.request import RmdHospitality, RmdWorkload
from slomo.errors import ConfigurationError, InvalidValueError, TestbedError, UnknownNameError
from slomo.service.application import Service
from slomo.service.door.operation import Answer, Call, Operation
from slomo.service.door.problems import Problem

#: RMD's names of the last-level cache.
LEVELS = ("l3", "llc")


async def summary(service: Service, call: Call) -> Answer:  # noqa: ARG001 - every handler has both
    """List the host's caches, in RMD's format."""
    caches = [str(cache) for cache in service.host.pools.caches]
    return Answer({**service.host.pools.capabilities(), "caches": {"l3": {"number": len(caches), "cache_ids": caches}}})


async def level(service: Service, call: Call) -> Answer:
    """Show the ways of all caches of one level by pool, in RMD's format."""
    return Answer(_caches(service, call))


async def one_cache(service: Service, call: Call) -> Answer:
    """Show the ways of one cache by pool, in RMD's format."""
    caches = _caches(service, call)["Caches"]
    name = call.path["id"]
    if name not in caches:
        raise Problem(404, "there is no such cache", hint="list /v1/cache/l3")
    return Answer(caches[name])


def _caches(service: Service, call: Call) -> dict[str, Any]:
    pools = service.host.pools
    if call.path["level"] not in LEVELS:
        raise Problem(404, "only the last-level cache is divided", hint="ask for /v1/cache/l3")
    return pools.caches_report()


async def policy(service: Service, call: Call) -> Answer:  # noqa: ARG001
    """Show the configured cache policies, in RMD's format."""
    configuration, rows = service.host.pools.configuration, dict[str, dict[str, dict[str, str]]]()
    for name, known in configuration.policies.items():
        rows[name] = {"cache": {"max": str(known.max_ways), "min": str(known.min_ways)}}
        if known.memory_bandwidth is not None and configuration.mba_mode != "none":
            rows[name]["mba"] = {configuration.mba_mode: f"{known.memory_bandwidth:g}"}
    return Answer(rows)


async def workloads(service: Service, call: Call) -> Answer:  # noqa: ARG001
    """List the workloads in the pools, in RMD's format."""
    return Answer([service.host.pools.report(item) for item in service.host.pools.workloads])


async def workload(service: Service, call: Call) -> Answer:
    """Show one workload in the pools, in RMD's format."""
    pools, name = service.host.pools, call.path["id"]
    return Answer(_asked(lambda: pools.report(pools.workload(name))))


async def admit(service: Service, call: Call) -> Answer:
    """Admit a workload to a pool."""
    pools, data = service.host.pools, msgspec.to_builtins(call.body)
    return await _changed(service, call, "admit", lambda: (pools.report(pools.admit(data)), 201))


async def change(service: Service, call: Call) -> Answer:
    """Change the settings of a workload in the pools."""
    pools, name, data = service.host.pools, call.path["id"], msgspec.to_builtins(call.body)
    return await _changed(service, call, f"change {name}", lambda: (pools.report(pools.change(name, data)), 200))


async def remove(service: Service, call: Call) -> Answer:
    """Remove a workload from its pool."""
    pools, name = service.host.pools, call.path["id"]

    def run() -> tuple[dict[str, Any], int]:
        pools.remove(name)
        return {}, 200

    return await _changed(service, call, f"let go {name}", run)


async def hospitality(service: Service, call: Call) -> Answer:
    """Predict how well a workload would run on this host (RMD's hospitality score)."""
    pools, data = service.host.pools, msgspec.to_builtins(call.body)
    return Answer(await service.aside(lambda: _asked(lambda: pools.hospitality(data))))


async def _changed(service: Service, call: Call, verb: str, run: Callable[[], tuple[Any, int]]) -> Answer:
    return await service.changed(call, lambda _: _asked(run), f"pools {verb}", f"pools-{verb.split()[0]}")


def _asked(run: Callable[[], Any]) -> Any:
    """Call the pools; convert errors to status 400, as in RMD, if a request is invalid or no pool has room."""
    try:
        return run()
    except UnknownNameError as error:
        status = 404 if "workload" in error.message.split("'")[0] else 400
        raise Problem(status, error.message, hint=error.hint) from None
    except (ConfigurationError, InvalidValueError, TestbedError) as error:
        raise Problem(400, error.message, hint=error.hint) from None


_ACTS: dict[str, Any] = {"scope": "admin", "writes": True, "tag": "pools"}
_READS: dict[str, Any] = {"statuses": (404,), "tag": "pools"}
OPERATIONS = (
    Operation("GET", "/v1/cache", summary, **_READS),
    Operation("GET", "/v1/cache/{level}", level, **_READS),
    Operation("GET", "/v1/cache/{level}/{id}", one_cache, **_READS),
    Operation("GET", "/v1/policy", policy, **_READS),
    Operation("GET", "/v1/workloads", workloads, **_READS),
    Operation("POST", "/v1/workloads", admit, body=RmdWorkload, success=201, **_ACTS),
    Operation("GET", "/v1/workloads/{id}", workload, **_READS),
    Operation("PATCH", "/v1/workloads/{id}", change, body=RmdWorkload, statuses=(404,), **_ACTS),
    Operation("DELETE", "/v1/workloads/{id}", remove, statuses=(404,), **_ACTS),
    Operation("POST", "/v1/hospitality", hospitality, body=RmdHospitality, **_READS),
)  # fmt: skip
