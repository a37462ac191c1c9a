"""Requests to pools: RMD's bodies of ``/v1/workloads`` and ``/v1/hospitality``, including the flat bodies of v0.1."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta, Struct, to_builtins

from slomo.control.pools.configuration import PoolConfiguration
from slomo.enforce.plan import MemoryBandwidth
from slomo.errors import InvalidValueError, UnknownNameError
from slomo.files.documents import convert
from slomo.files.ranges import Name, Part, PositiveRate

#: A number written as a text, as in RMD's requests.
Number = Annotated[str, Meta(pattern=r"^[0-9]{1,9}$")]
Limit = Annotated[int, Meta(ge=0, le=64)]


class RmdLimits(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Largest and smallest number of cache ways."""

    max: Limit | None = None
    min: Limit | None = None


class RmdBandwidth(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Memory bandwidth, in the unit that RMD's configured mode uses."""

    percentage: PositiveRate | None = None
    mbps: PositiveRate | None = None


class RmdAllocation(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The `rdt` object of RMD's requests: cache and memory bandwidth."""

    cache: RmdLimits | None = None
    mba: RmdBandwidth | None = None


class RmdWorkload(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """RMD's body of ``POST /v1/workloads``; `max_cache`, `min_cache`: RMD v0.1."""

    core_ids: Annotated[list[Number], Meta(max_length=4096)] | None = None
    task_ids: Annotated[list[Number], Meta(max_length=4096)] | None = None
    policy: Name | None = None
    rdt: RmdAllocation | None = None
    max_cache: Limit | None = None
    min_cache: Limit | None = None
    nf: Name | None = None
    slo_share: Part | None = None


class RmdHospitality(RmdWorkload, forbid_unknown_fields=True, omit_defaults=True):
    """RMD's body of ``POST /v1/hospitality``: a workload, and the one cache to score."""

    cache_id: Number | None = None


@dataclass(frozen=True)
class PoolRequest:
    """A workload's request to a pool: limits of cache ways and memory bandwidth, and its cores or tasks."""

    #: Cores, or tasks; the tasks of a container are its processes.
    core_ids: tuple[int, ...]
    task_ids: tuple[int, ...]
    #: Largest and least number of ways; see `PoolRequest.pool`.
    max_ways: int
    min_ways: int
    #: Policy from which the values were taken.
    policy: str | None = None
    #: Memory bandwidth in `bandwidth_unit`.
    memory_bandwidth: float | None = None
    #: Unit, 'percent' or 'MB/s', as the configuration's `mba_mode` determines.
    bandwidth_unit: str = "percent"
    #: Network function of the workload, for predictions (slomo's addition to RMD).
    nf: str | None = None
    #: Promised share of its solo throughput, 0 to 1 (slomo's addition to RMD).
    slo_share: float | None = None

    @property
    def pool(self) -> str:
        """Name of the pool: guarantee (maximum = minimum > 0), besteffort (maximum > minimum > 0), shared (both 0)."""
        if self.max_ways == self.min_ways:
            return "guarantee" if self.max_ways else "shared"
        return "besteffort"

    def to_dict(self) -> dict[str, Any]:
        """Return the body of RMD's API for this request."""
        cache = {"max": self.max_ways, "min": self.min_ways}
        unit = "mbps" if self.bandwidth_unit == "MB/s" else "percentage"
        mba = {} if self.memory_bandwidth is None else {"mba": {unit: self.memory_bandwidth}}
        optional = {"policy": self.policy, "nf": self.nf, "slo_share": self.slo_share}
        return {
            "core_ids": [str(core) for core in self.core_ids],
            "task_ids": [str(task) for task in self.task_ids],
            "rdt": {"cache": cache, **mba},
            **{name: value for name, value in optional.items() if value is not None},
        }


def parse_request(data: Mapping[str, Any], configuration: PoolConfiguration) -> PoolRequest:
    """Check the body of an RMD request and convert it; UnknownNameError for an unknown policy.

    Raises ConfigurationError for unknown fields and values out of range, InvalidValueError for invalid cores or tasks,
    or numbers of ways that fit no pool.
    """
    body = _body(data)
    cores, tasks = _numbers("core_ids", body.core_ids), _numbers("task_ids", body.task_ids)
    if bool(cores) == bool(tasks):
        raise InvalidValueError(
            "a workload names cores or tasks, exactly one of the two", hint="name core_ids or task_ids"
        )
    rdt = body.rdt or RmdAllocation()
    cache, mba = rdt.cache or RmdLimits(), rdt.mba or RmdBandwidth()
    highest = (body.max_cache or 0) if cache.max is None else cache.max
    lowest = (body.min_cache or 0) if cache.min is None else cache.min
    bandwidth, mode = (mba.mbps, "mbps") if mba.percentage is None else (mba.percentage, "percentage")
    if body.policy is not None:
        if body.policy not in configuration.policies:
            raise UnknownNameError("policy", body.policy, configuration.policies)
        named = configuration.policies[body.policy]
        highest, lowest = named.max_ways, named.min_ways
        if named.memory_bandwidth is not None:
            bandwidth, mode = named.memory_bandwidth, configuration.mba_mode
    if highest < lowest or (lowest == 0 < highest):
        raise InvalidValueError(
            f"cache of at most {highest} and at least {lowest} ways is no pool",
            hint="max = min > 0: guaranteed; max > min > 0: burstable; both 0: shared",
        )
    unit = "MB/s" if bandwidth is not None and mode == "mbps" else "percent"
    if bandwidth is not None and configuration.mba_mode != mode:
        raise InvalidValueError(
            f"memory bandwidth in {unit}, but mbaMode is '{configuration.mba_mode}'", hint="set mbaMode in rmd.toml"
        )
    if bandwidth is not None:
        MemoryBandwidth(bandwidth, unit)  # raises InvalidValueError out of its range
    return PoolRequest(cores, tasks, highest, lowest, body.policy, bandwidth, unit, body.nf, body.slo_share)


def patch_request(old: PoolRequest, data: Mapping[str, Any], configuration: PoolConfiguration) -> PoolRequest:
    """Change single fields of a request; raises the errors of `parse_request`.

    As in RMD (modules/workload/workload.go, `update`), a limit that the patch states ends the old policy, whose other
    limits stay; a policy that it states replaces all limits.

    >>> from slomo.control.pools.configuration import configuration_from
    >>> known = configuration_from({"OSGroup": {"cacheways": 1}, "CachePool": {"besteffort": 7}})
    >>> gold = PoolRequest((4,), (), 2, 2, "gold")
    >>> changed = patch_request(gold, {"rdt": {"cache": {"max": 3}}}, known)
    >>> changed.max_ways, changed.min_ways, changed.policy
    (3, 2, None)
    """
    patch = to_builtins(_body(data))
    limits, rdt = old.to_dict(), patch.pop("rdt", {})
    flat = {name: patch.pop(f"{name}_cache") for name in ("max", "min") if f"{name}_cache" in patch}
    if "policy" in patch:
        limits["rdt"] = {}
    elif rdt or flat:
        limits.pop("policy", None)
    cache = {**limits["rdt"].get("cache", {}), **flat, **rdt.get("cache", {})}
    return parse_request({**limits, **patch, "rdt": {**limits["rdt"], **rdt, "cache": cache}}, configuration)


def _body(data: Mapping[str, Any]) -> RmdWorkload:
    return convert(data, RmdWorkload, "workload", hint='{"core_ids": ["4"], "policy": "gold"}')


def _numbers(name: str, listed: list[str] | None) -> tuple[int, ...]:
    numbers = tuple(map(int, listed or ()))
    if len(set(numbers)) != len(numbers):
        raise InvalidValueError(f"{name} lists a number twice: {list(numbers)}")
    return numbers
