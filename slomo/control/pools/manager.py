"""Admit workloads to RMD's cache pools, apply the pools to the machine, and score how well a new workload would fit.

Rules of Intel's Resource Management Daemon: maximum = minimum > 0 gives exclusive guaranteed ways; maximum > minimum >
0 is burstable and may shrink; both 0 shares a pool. A policy's values override explicit ones.
"""

import fnmatch
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from slomo.control.pools.configuration import PoolConfiguration
from slomo.control.pools.foresight import PoolOutlook
from slomo.control.pools.request import PoolRequest, parse_request, patch_request
from slomo.control.pools.workload import (
    PoolLayout,
    PoolWorkload,
    Processes,
    lay_out,
    placed,
    processes_of_this_host,
    rest_mask,
)
from slomo.enforce.change import Backend
from slomo.enforce.executor import apply, diff, undo
from slomo.enforce.plan import EnforcementPlan, TenantSetting
from slomo.errors import ConfigurationError, InvalidValueError, SlomoError, TestbedError, UnknownNameError
from slomo.host.cores import format_cpu_list
from slomo.host.journal import Receipt
from slomo.host.resctrl_facts import rdt_capabilities, read_facts
from slomo.host.resctrl_tree import ResctrlTree

#: Function that predicts the workloads of a plan.
Estimator = Callable[[EnforcementPlan, Mapping[str, PoolRequest]], PoolOutlook]
#: Identifier of the new workload in a hospitality request.
_NEWCOMER = "newcomer"


class PoolManager:
    """Admits workloads to RMD's pools and sets the machine's cache ways accordingly.

    Parameters
    ----------
    configuration : PoolConfiguration
        Pools and policies.
    cache_ways : int
        Ways of the last-level cache.
    caches : tuple of int
        Identifiers of the last-level caches, all divided in the same way; with resctrl, those of the machine.
    backend : Backend, optional
        Backend for the machine's knobs; without it the manager only computes plans. One that cannot divide the cache
        is refused (TestbedError), as is a machine with another number of cache ways (ConfigurationError).
    enforces : bool
        Whether the manager applies its plan; False if a loop does (`slomo.control.pools.controller`).
    receipts : path, optional
        Folder of receipts.
    estimator : callable, optional
        Predicts every workload's throughput under a plan (`slomo.control.pools.foresight.PoolForesight`); then
        `hospitality` is answered from predictions.
    processes : callable, optional
        Names of processes, for the infrastructure's globs and the liveness of workloads.
    cores : sequence of int, optional
        The machine's CPUs; workloads on others are refused. None if they are not known.

    Examples
    --------
    >>> from slomo.control.pools.configuration import configuration_from
    >>> pools = {"guarantee": 10, "besteffort": 7, "shared": 2}
    >>> manager = PoolManager(configuration_from({"OSGroup": {"cacheways": 1}, "CachePool": pools}), 20)
    >>> manager.admit({"core_ids": ["4", "5"], "policy": "gold"}).to_dict()["cos_name"]
    '4_5-guarantee'
    >>> answer = manager.hospitality({"max_cache": 2, "min_cache": 2})
    >>> answer["score"], answer["basis"]
    ({'l3': {'0': 100}}, 'free ways')
    """

    def __init__(
        self,
        configuration: PoolConfiguration,
        cache_ways: int,
        *,
        caches: tuple[int, ...] = (0,),
        backend: Backend | None = None,
        receipts: Path | None = None,
        estimator: Estimator | None = None,
        processes: Processes | None = None,
        cores: Sequence[int] | None = None,
        enforces: bool = True,
    ) -> None:
        if backend is not None:
            caches = _require_divides(backend, cache_ways) or caches
        self.configuration, self.cache_ways, self.caches = configuration, cache_ways, caches
        self.layout: PoolLayout = lay_out(configuration, cache_ways)
        self._backend, self._receipts, self._estimator, self._enforces = backend, receipts, estimator, enforces
        self._processes, self._cores = processes or processes_of_this_host, cores
        self._workloads: dict[str, PoolWorkload] = {}
        self._receipt: Receipt | None = None
        self._count = 0
        self._lock = threading.RLock()

    @property
    def workloads(self) -> tuple[PoolWorkload, ...]:
        """Admitted workloads, in order of arrival."""
        return tuple(self._workloads.values())

    def workload(self, identifier: str) -> PoolWorkload:
        """Return one workload. Raises UnknownNameError for an unknown identifier."""
        if identifier not in self._workloads:
            raise UnknownNameError("workload", identifier, self._workloads)
        return self._workloads[identifier]

    def admit(self, data: Mapping[str, Any]) -> PoolWorkload:
        """Admit a workload and apply its settings to the machine.

        `data`: RMD's body of ``POST /v1/workloads``, or the flat body of v0.1. Raises InvalidValueError for an invalid
        body; TestbedError if no pool has room, or the machine refuses.
        """
        request = parse_request(data, self.configuration)
        with self._lock:
            self.validate()
            self._require_free(request)
            self._count += 1
            newcomer = PoolWorkload(str(self._count), str(uuid.uuid4()), request)
            self._enforce(placed(self.layout, self.configuration, self._workloads, newcomer))
            return self._workloads[str(self._count)]

    def change(self, identifier: str, data: Mapping[str, Any]) -> PoolWorkload:
        """Change a workload by fields, like RMD's ``PATCH``; a refused change has no effect. Raises as `admit`."""
        with self._lock:
            old = self.workload(identifier)
            request = patch_request(old.request, data, self.configuration)
            others = {key: value for key, value in self._workloads.items() if key != identifier}
            self._require_free(request, others)
            workloads = placed(self.layout, self.configuration, others, replace(old, request=request, mask=0))
            self._enforce(dict(sorted(workloads.items(), key=lambda item: int(item[0]))))
            return self._workloads[identifier]

    def remove(self, identifier: str) -> None:
        """Remove a workload and free its ways. Raises UnknownNameError for an unknown identifier."""
        with self._lock:
            self.workload(identifier)
            self._enforce({key: value for key, value in self._workloads.items() if key != identifier})

    def validate(self) -> tuple[PoolWorkload, ...]:
        """Remove and return the workloads whose processes have all ended; RMD checks this every 30 s."""
        alive = set(self._processes())
        with self._lock:
            gone = tuple(w for w in self.workloads if w.request.task_ids and not alive & set(w.request.task_ids))
            if gone:
                remaining = {key: value for key, value in self._workloads.items() if value not in gone}
                self._enforce(remaining)
        return gone

    def close(self) -> None:
        """Restore the machine's settings from before the first admission."""
        with self._lock:
            if self._receipt is not None and self._backend is not None:
                undo(self._receipt, self._backend)
            self._receipt = None
            self._workloads = {}

    def report(self, workload: PoolWorkload) -> dict[str, Any]:
        """Return a workload in RMD's format, with the settings that the machine has now.

        `status` is "None" if nothing is enforced, "Invalid" if the machine no longer has the workload's settings.
        """
        if self._backend is None:
            return {**workload.to_dict(), "status": "None", **self._enforcing()}
        lost = self._lost(workload)
        if lost:
            nothing = dict.fromkeys(("cache", "memory_bandwidth", "others_kept_off"), False)
            return {**workload.to_dict(), "status": "Invalid", "enforced": {**nothing, "why": lost}}
        setting = next(each for each in self.plan().tenants if each.tenant == workload.identifier)
        enforced: dict[str, Any] = {
            "cache": True,
            "memory_bandwidth": self._bandwidth_in_force(workload.request),
            "others_kept_off": self._sets_the_rest and workload.pool == "guarantee",
        }
        if workload.pool == "guarantee" and not enforced["others_kept_off"]:
            enforced["why"] = f"{self._backend.name} does not set the ways of who is in no pool"
        elif workload.pool == "guarantee" and not setting.exclusive:
            enforced |= {"others_kept_off": False, "why": "the infrastructure's ways lie over them"}
        return {**workload.to_dict(), "enforced": enforced}

    def _enforcing(self) -> dict[str, Any]:
        """Return the field `enforced` of answers where nothing is enforced, else no field."""
        why = "nothing is enforced here (slomo serve --enforce BACKEND)"
        return {"enforced": {"cache": False, "why": why}} if self._backend is None else {}

    def _lost(self, workload: PoolWorkload) -> str:
        """Return why the machine no longer has a workload's settings; empty if it has them."""
        assert self._backend is not None
        plan, settings = self.plan(), workload.setting(workload.identifier)
        alike = [
            each
            for each in plan.tenants
            if each.tenant in self._workloads
            and (each.llc_way_mask, each.memory_bandwidth) == (settings.llc_way_mask, settings.memory_bandwidth)
        ]  # one class has them all
        if workload.identifier not in {each.tenant for each in alike}:
            return "all of its tasks have ended"
        rest = plan.rest_way_mask if workload.pool == "guarantee" else None
        try:
            self._require_no_foreign({workload.identifier: workload})
            changed = diff(replace(plan, tenants=tuple(alike), rest_way_mask=rest), self._backend)
        except SlomoError as problem:
            return problem.message
        return "; ".join(f"'{change.knob}' is {change.before}, but {change.after} was set" for change in changed)

    def _bandwidth_in_force(self, request: PoolRequest) -> float | bool:
        """Return the memory bandwidth as the machine rounds it; False without a limit."""
        if request.memory_bandwidth is None:
            return False
        tree = self._backend and self._backend.resctrl_tree
        if not tree:
            return -(-round(request.memory_bandwidth) // 10) * 10.0  # pqos takes tens of percent
        return float(read_facts(tree).bandwidth_value(request.memory_bandwidth, request.bandwidth_unit))

    def capabilities(self) -> dict[str, bool]:
        """Return RMD's answer to ``GET /v1/cache`` about this machine's capabilities, from its resctrl tree."""
        return rdt_capabilities((self._backend and self._backend.resctrl_tree) or ResctrlTree())

    def plan(self) -> EnforcementPlan:
        """Return the plan of settings that the pools need."""
        return self._plan(self._workloads)

    def caches_report(self) -> dict[str, Any]:
        """Return RMD's answer to ``GET /v1/cache/l3``: used and free ways by cache and pool."""
        foreign = reduce(or_, self._foreign().values(), 0)
        used = reduce(or_, (workload.mask for workload in self.workloads), foreign)
        pools = {
            "guarantee": self.layout.guarantee & ~used,
            "besteffort": self.layout.besteffort & ~used,
            "shared": self.layout.shared & ~foreign,
        }
        table = {
            "cache_level": "L3",
            "num_ways": self.cache_ways,
            "available_ways": f"{(pools['guarantee'] | pools['besteffort'] | pools['shared']):x}",
            "available_ways_pool": {name: f"{mask:x}" for name, mask in pools.items()},
            **self._enforcing(),
        }
        return {
            "number": len(self.caches),
            "Caches": {str(cache): {"cache_id": cache, **table} for cache in self.caches},
        }

    def hospitality(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return how well a new workload would run here: a score of 0 to 100 per cache, and its basis.

        If the estimator knows the `nf` of the new workload and of all admitted ones, the score is 100 x predicted over
        solo throughput, or 0 if the promise (`slo_share`) of any of these workloads would break. Otherwise it is RMD's
        score from free ways. It is 0, with the reason, where `admit` would refuse the workload. RMD's clients read
        `score`; `basis` names the method, and `why` or the shares give the reason; `enforced` says so where nothing is
        enforced. Raises InvalidValueError for an invalid body or an unknown cache.
        """
        asked = dict(data)
        caches = [str(cache) for cache in self.caches]
        cache_ids = [asked.pop("cache_id")] if "cache_id" in asked else caches
        if not {*cache_ids} <= {*caches}:
            raise InvalidValueError(f"cache_id is {cache_ids[0]}, the caches are {', '.join(caches)}")
        named = bool(asked.get("core_ids") or asked.get("task_ids"))
        request = parse_request({**asked, **({} if named else {"core_ids": ["0"]})}, self.configuration)
        score, basis = self._score(request, named=named)
        return {"score": {"l3": dict.fromkeys(cache_ids, score)}, **basis, **self._enforcing()}

    def _score(self, request: PoolRequest, *, named: bool) -> tuple[int, dict[str, Any]]:
        try:
            if named:
                self._require_free(request)
            workloads = placed(self.layout, self.configuration, self._workloads, PoolWorkload(_NEWCOMER, "", request))
            self._require_no_foreign(workloads)
            if self._backend is not None:
                self._backend.wishes(self._plan(workloads))
        except SlomoError as error:
            return 0, {"basis": "free ways", "why": error.message}
        outlook = PoolOutlook(why="there are no models")
        if self._estimator is not None:
            outlook = self._estimator(self._plan(workloads), {key: item.request for key, item in workloads.items()})
        if not outlook.why:
            return _predicted_score(outlook, workloads)
        mask = workloads[_NEWCOMER].mask
        ways = round(100 * mask.bit_count() / request.max_ways) if request.pool == "besteffort" else 100
        return ways, {"basis": "free ways", "why": outlook.why}

    def _require_free(self, request: PoolRequest, others: Mapping[str, PoolWorkload] | None = None) -> None:
        for workload in (self._workloads if others is None else others).values():
            own = workload.request
            both = {*request.core_ids} & {*own.core_ids} | {*request.task_ids} & {*own.task_ids}
            if both:
                raise InvalidValueError(
                    f"core or task {min(both)} belongs to workload {workload.identifier} already",
                    hint="change or remove that workload",
                )
        absent = sorted({*request.core_ids} - {*self._cores}) if self._cores is not None else []
        if absent:
            raise InvalidValueError(
                f"core_ids: CPU {absent[0]}, but this machine has CPUs {format_cpu_list(self._cores or ())}",
                hint="name CPUs of that list",
            )
        missing = sorted(set(request.task_ids) - set(self._processes())) if request.task_ids else []
        if missing:
            raise TestbedError(f"task {missing[0]} is not running", hint="name tasks that run")

    def _plan(self, workloads: Mapping[str, PoolWorkload]) -> EnforcementPlan:
        running = self._processes()
        settings = [
            replace(setting, process_ids=tuple(task for task in setting.process_ids if task in running))
            for setting in (workload.setting(key) for key, workload in workloads.items())
        ]
        settings = [setting for setting in settings if setting.cores or setting.process_ids]
        busy = {core for setting in settings for core in setting.cores}
        rest = None
        if self._sets_the_rest:  # the root group is the operating system's group, as in Intel's RMD
            rest = rest_mask(self.layout, [workload.mask for workload in workloads.values()], self.cache_ways)
        reserved = (
            ("system", self.configuration.system if rest is None else None, self.layout.system),
            ("infrastructure", self.configuration.infrastructure, self.layout.infrastructure),
        )
        for name, group, mask in reserved:
            if group is None or not mask:
                continue
            cores = tuple(core for core in group.cores if core not in busy)
            tasks = tuple(
                pid
                for pid, command_line in running.items()
                if any(fnmatch.fnmatch(command_line, g) for g in group.tasks)
            )
            if cores:
                settings.append(TenantSetting(name, cores=cores, llc_way_mask=mask))
            if tasks:
                settings.append(TenantSetting(f"{name}-tasks", process_ids=tasks, llc_way_mask=mask))
        guaranteed = {key: workload.mask for key, workload in workloads.items() if workload.pool == "guarantee"}
        over = {key for key, mask in guaranteed.items() for other in settings
                if other.tenant not in workloads and (other.llc_way_mask or 0) & mask}  # fmt: skip
        alone = guaranteed.keys() - over
        named = (replace(each, exclusive=each.tenant in alone) for each in settings)
        return EnforcementPlan("localhost", tuple(named), rest_way_mask=rest)

    @property
    def _sets_the_rest(self) -> bool:
        return self._backend is not None and self._backend.sets_the_rest

    def _foreign(self) -> Mapping[str, int]:
        return {} if self._backend is None else self._backend.foreign_masks()

    def _require_no_foreign(self, workloads: Mapping[str, PoolWorkload]) -> None:
        foreign = self._foreign()
        for workload in workloads.values():
            for name, mask in foreign.items() if workload.pool == "guarantee" else ():
                if mask & workload.mask:
                    raise TestbedError(
                        f"group '{name}', which slomo did not make, has ways {mask & workload.mask:#x}, to be "
                        f"guaranteed to workload {workload.identifier}",
                        hint="take the group away, or keep its ways out of the guarantee pool",
                    )

    def _enforce(self, workloads: dict[str, PoolWorkload]) -> None:
        if self._backend is not None:
            self._require_no_foreign(workloads)
            if self._enforces:
                plan = self._plan(workloads)
                self._receipt = apply(plan, self._backend, receipts=self._receipts, receipt=self._receipt)
        self._workloads = dict(workloads)


def _require_divides(backend: Backend, cache_ways: int) -> tuple[int, ...]:
    """Raise an error if a backend cannot divide a cache of so many ways; return the machine's caches, if it tells."""
    if not backend.divides_the_cache:
        raise TestbedError(f"backend '{backend.name}' does not divide the cache", hint="resctrl does, pqos by cores")
    if backend.resctrl_tree is None:
        return ()
    facts = read_facts(backend.resctrl_tree)
    if facts.full_mask.bit_count() != cache_ways:
        raise ConfigurationError(
            f"pools of {cache_ways} cache ways, this machine has {facts.full_mask.bit_count()}",
            hint="name the machine that this is",
        )
    return next(domains for name, domains in facts.resources.items() if name.startswith("L3"))


def _predicted_score(outlook: PoolOutlook, placed: Mapping[str, PoolWorkload]) -> tuple[int, dict[str, Any]]:
    """Return a new workload's score [%] (0 if a promise would break), and the predicted shares of solo throughput."""
    promised = {key: item.request.slo_share for key, item in placed.items() if item.request.slo_share is not None}
    breaks = sorted(key for key, share in promised.items() if outlook.least[key] < share)
    own = outlook.expected[_NEWCOMER]
    basis = {
        "basis": "predictions",
        "expected_share": round(own, 4),
        "least_share": round(outlook.least[_NEWCOMER], 4),
        "breaks": breaks,
    }
    return 0 if breaks else max(0, min(100, round(100 * own))), basis
