"""Requests to pools: RMD's bodies of ``/v1/workloads`` and ``/v1/hospitality``, including the flat ones of v0.1."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slomo.control.pools.configuration import PoolConfiguration
from slomo.errors import InvalidValueError, UnknownNameError

_FIELDS = {
    "core_ids",
    "task_ids",
    "container_ids",
    "policy",
    "rdt",
    "plugins",
    "max_cache",
    "min_cache",
    "cache_id",
    "origin",
    "uuid",
    "id",
    "cos_name",
    "status",
    "nf",
    "slo_share",
}


@dataclass(frozen=True)
class PoolRequest:
    """A workload's wish."""

    #: Cores or processes; the processes of a container are its tasks.
    core_ids: tuple[int, ...]
    task_ids: tuple[int, ...]
    #: See `PoolRequest.pool`.
    max_ways: int
    min_ways: int
    #: Whose values these are.
    policy: str | None = None
    #: In `bandwidth_unit`.
    memory_bandwidth: float | None = None
    #: Unit by the configuration's mode; one of 'percent', 'MB/s'.
    bandwidth_unit: str = "percent"
    #: Network function that runs, for predictions (slomo's addition to RMD).
    nf: str | None = None
    #: Promised share of its solo throughput, 0 to 1 (slomo's addition to RMD).
    slo_share: float | None = None

    @property
    def pool(self) -> str:
        """Name of the pool: guarantee (maximum = minimum > 0), besteffort (maximum > minimum > 0), shared (both 0).

        Examples
        --------
        >>> PoolRequest((1,), (), 2, 1).pool
        'besteffort'
        """
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
    """Read a body.

    Raises InvalidValueError for unknown fields, invalid members, or ways that fit no pool; UnknownNameError for an
    unknown policy.

    Examples
    --------
    >>> from slomo.control.pools.configuration import configuration_from
    >>> known = configuration_from({"OSGroup": {"cacheways": 1}, "CachePool": {"guarantee": 2}})
    >>> parse_request({"task_ids": ["7"], "max_cache": 4, "min_cache": 4}, known).pool
    'guarantee'
    """
    if not isinstance(data, Mapping):
        raise InvalidValueError("a workload is a mapping of fields", hint='{"core_ids": ["4"], "policy": "gold"}')
    unknown = sorted(set(data) - _FIELDS)
    if unknown:
        raise InvalidValueError(f"unknown field '{unknown[0]}'", hint=f"fields: {', '.join(sorted(_FIELDS))}")
    cores, tasks = _numbers(data, "core_ids"), _numbers(data, "task_ids")
    if bool(cores) == bool(tasks):
        raise InvalidValueError("a workload is cores or tasks, one of both", hint="name core_ids or task_ids")
    rdt = data.get("rdt") or {}
    cache, mba = rdt.get("cache") or {}, rdt.get("mba") or {}
    highest, lowest = (
        _ways(cache.get("max", data.get("max_cache", 0))),
        _ways(cache.get("min", data.get("min_cache", 0))),
    )
    bandwidth = mba.get("percentage", mba.get("mbps"))
    unit = "MB/s" if "mbps" in mba else "percent"
    policy = data.get("policy")
    if policy is not None:
        if policy not in configuration.policies:
            raise UnknownNameError("policy", str(policy), configuration.policies)
        named = configuration.policies[policy]
        highest, lowest = named.max_ways, named.min_ways
        if named.memory_bandwidth is not None:
            bandwidth, unit = named.memory_bandwidth, "MB/s" if configuration.mba_mode == "mbps" else "percent"
    if highest < lowest or (lowest == 0 < highest):
        raise InvalidValueError(
            f"cache of at most {highest} and at least {lowest} ways is no pool",
            hint="max = min > 0: guaranteed; max > min > 0: burstable; both 0: shared",
        )
    return PoolRequest(
        cores,
        tasks,
        highest,
        lowest,
        policy,
        _bandwidth(bandwidth, unit, configuration),
        unit,
        data.get("nf"),
        _share(data),
    )


def _numbers(data: Mapping[str, Any], name: str) -> tuple[int, ...]:
    listed = data.get(name) or ()
    if isinstance(listed, str) or not all(str(item).isdigit() for item in listed):
        raise InvalidValueError(f"{name} is {listed!r}, needed a list of numbers")
    numbers = tuple(int(item) for item in listed)
    if len(set(numbers)) != len(numbers):
        raise InvalidValueError(f"{name} lists a number twice: {list(numbers)}")
    return numbers


def _ways(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 64:
        raise InvalidValueError(f"{value!r} is no number of ways", hint="0 to the cache's ways")
    return value


def _bandwidth(value: Any, unit: str, configuration: PoolConfiguration) -> float | None:
    if value is None:
        return None
    mode = {"percent": "percentage", "MB/s": "mbps"}[unit]
    if configuration.mba_mode != mode:
        raise InvalidValueError(
            f"memory bandwidth in {unit}, but mbaMode is '{configuration.mba_mode}'", hint="set mbaMode in rmd.toml"
        )
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InvalidValueError(f"memory bandwidth is {value!r}, needed a number above 0")
    return float(value)


def _share(data: Mapping[str, Any]) -> float | None:
    value = data.get("slo_share")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise InvalidValueError(f"slo_share is {value!r}, needed above 0 and at most 1")
    return float(value)
