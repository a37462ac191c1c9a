"""Read RMD's configuration in its own format: ``rmd.toml`` and ``policy.yaml``.

Intel's Resource Management Daemon (github.com/intel/rmd, docs/ConfigurationGuide.md) divides the cache into groups for
the operating system and the infrastructure, and three pools: guarantee, besteffort (burstable) and shared.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slomo.errors import ConfigurationError, InvalidValueError
from slomo.files.documents import parse, parse_toml
from slomo.files.opening import read_text
from slomo.host.cores import parse_cpu_list

MBA_MODES = ("none", "percentage", "mbps")
#: Policies shipped with RMD (etc/rmd/policy.yaml, broadwell): maximum and minimum ways.
SHIPPED_POLICIES = {"gold": (2, 2), "silver": (2, 1), "bronze": (0, 0)}


@dataclass(frozen=True)
class ReservedGroup:
    """Cache ways, CPUs and tasks of the operating system's or the infrastructure's group."""

    #: Cache ways.
    ways: int
    #: CPUs.
    cores: tuple[int, ...] = ()
    #: Patterns (globs) of the names of the group's processes.
    tasks: tuple[str, ...] = ()


@dataclass(frozen=True)
class PoolPolicy:
    """A policy in ``policy.yaml``: a name for an amount of cache."""

    #: Name of the policy, for instance ``"gold"``.
    name: str
    #: Largest and least number of ways. Equal and above 0: guaranteed; largest above least: burstable; both 0: shared.
    max_ways: int
    min_ways: int
    #: Memory bandwidth in the unit of `PoolConfiguration.mba_mode`.
    memory_bandwidth: float | None = None


@dataclass(frozen=True)
class PoolConfiguration:
    """Settings in RMD's ``rmd.toml``."""

    #: Group ``[OSGroup]``.
    system: ReservedGroup
    #: Group ``[InfraGroup]``; its ways overlap the pools, as OVS-DPDK's ways overlap those of its VMs.
    infrastructure: ReservedGroup | None
    #: Number of ways of each pool.
    guarantee: int
    besteffort: int
    shared: int
    #: Largest number of workloads in the shared pool.
    max_allowed_shared: int = 10
    #: Whether burstable workloads shrink to their minimum when others arrive.
    shrink: bool = False
    #: Unit in which memory bandwidth may be requested, if at all; one of 'none', 'percentage', 'mbps'.
    mba_mode: str = "none"
    #: Policies by name.
    policies: Mapping[str, PoolPolicy] = field(default_factory=dict)

    @property
    def ways(self) -> int:
        """Smallest number of ways that the cache must have for these pools."""
        return self.system.ways + self.guarantee + self.besteffort + self.shared


def require_fits(configuration: PoolConfiguration, cache_ways: int) -> None:
    """Raise ConfigurationError if pools overlap because they need more ways than the cache has."""
    if configuration.ways > cache_ways:
        pools = (
            f"guarantee {configuration.guarantee}, besteffort {configuration.besteffort}, shared {configuration.shared}"
        )
        raise ConfigurationError(
            f"[OSGroup] cacheways {configuration.system.ways} and [CachePool] {pools} overlap: together "
            f"{configuration.ways} ways, the cache has {cache_ways}",
            hint="make a pool smaller",
        )
    infrastructure = configuration.infrastructure
    if infrastructure is not None and infrastructure.ways > cache_ways:
        raise ConfigurationError(
            f"[InfraGroup] cacheways {infrastructure.ways}, the cache has {cache_ways}", hint="name fewer ways"
        )


def read_rmd_toml(
    path: str | Path,
    policies: str | Path | None = None,
    *,
    way_mib: float | None = None,
    cache_ways: int | None = None,
) -> PoolConfiguration:
    """Read RMD's configuration file, ``rmd.toml``.

    `policies`: ``policy.yaml``; RMD's shipped gold, silver and bronze if not given. `way_mib`: size of a way [MiB], for
    files that give sizes instead of ways (``guaranteed = 15`` of ``total = 55``, as in the talk). `cache_ways`: number
    of cache ways, into which the pools must fit. Raises ConfigurationError for a file that is no such configuration.
    """
    data = parse_toml(read_text(path), str(path))
    named = _policies(policies) if policies is not None else None
    try:
        configuration = configuration_from(data, named, way_mib=way_mib)
        if cache_ways is not None:
            require_fits(configuration, cache_ways)
    except ConfigurationError as problem:
        raise ConfigurationError(f"{path}: {problem.message}", hint=problem.hint) from None
    for policy in (named or {}).values():
        _require_pool(policy, configuration, f"{policies}: field '{policy.name}.cache'")
    return configuration


def _require_pool(policy: PoolPolicy, configuration: PoolConfiguration, where: str) -> None:
    """Raise ConfigurationError for a policy that belongs to no pool, or needs more ways than its pool has."""
    highest, lowest = policy.max_ways, policy.min_ways
    if not 0 <= lowest <= highest or lowest == 0 < highest:
        raise ConfigurationError(
            f"{where}: max {highest} and min {lowest} are no pool",
            hint="max = min > 0: guaranteed; max > min > 0: burstable; both 0: shared",
        )
    name = "guarantee" if highest == lowest else "besteffort"
    ways = getattr(configuration, name)
    if highest and 0 < ways < highest:
        raise ConfigurationError(
            f"{where}: max {highest}, but [CachePool] {name} has {ways} ways", hint="lower it, or enlarge the pool"
        )


def configuration_from(
    data: Mapping[str, Any], policies: Mapping[str, PoolPolicy] | None = None, *, way_mib: float | None = None
) -> PoolConfiguration:
    """Return the configuration from a mapping that has the structure of ``rmd.toml``."""
    for section in ("OSGroup", "CachePool"):
        if not isinstance(data.get(section), Mapping):
            raise ConfigurationError(f"no section [{section}]", hint="RMD needs [OSGroup] and [CachePool]")
    pool = data["CachePool"]
    in_mib = "total" in pool or "guaranteed" in pool
    if in_mib and way_mib is None:
        raise ConfigurationError("sizes in MiB need the size of a way", hint="name the machine")
    scale = way_mib if in_mib else None
    guarantee = pool.get("guarantee", pool.get("guaranteed", 0))
    burst = pool.get("burstable", pool.get("besteffort", 0))
    shared = pool.get("besteffort", 0) if "burstable" in pool else pool.get("shared", 0)
    mode = str((data.get("rdt") or {}).get("mbaMode", data.get("mbaMode", "none"))).lower()
    if mode not in MBA_MODES:
        raise ConfigurationError(f"mbaMode is '{mode}'", hint=f"one of {', '.join(MBA_MODES)}")
    infrastructure = data.get("InfraGroup")
    return PoolConfiguration(
        _group(data["OSGroup"], scale, "OSGroup"),
        None if infrastructure is None else _group(infrastructure, scale, "InfraGroup"),
        _ways(guarantee, scale, "[CachePool] guarantee"),
        _ways(burst, scale, "[CachePool] besteffort or burstable"),
        _ways(shared, scale, "[CachePool] shared"),
        max_allowed_shared=_ways(pool.get("max_allowed_shared", 10), None, "[CachePool] max_allowed_shared"),
        shrink=bool(pool.get("shrink", False)),
        mba_mode=mode,
        policies=policies or {name: PoolPolicy(name, *pair) for name, pair in SHIPPED_POLICIES.items()},
    )


def _group(section: Mapping[str, Any], scale: float | None, name: str) -> ReservedGroup:
    value = section.get("cacheways", section.get("cache"))
    if value is None:
        raise ConfigurationError(f"[{name}] has no cacheways", hint="say how many ways it gets")
    ways = _ways(value, None if "cacheways" in section else scale, f"[{name}] cacheways")
    tasks = section.get("tasks") or ()
    try:
        cpus = parse_cpu_list(str(section.get("cpuset", "")))
    except InvalidValueError as problem:
        raise ConfigurationError(f"[{name}] cpuset: {problem.message}", hint=problem.hint) from None
    return ReservedGroup(ways, cpus, tuple(str(task) for task in tasks))


def _ways(value: Any, scale: float | None, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 20:
        raise ConfigurationError(f"{where}: {value!r} is no number of ways")
    ways = value if scale is None else round(value / scale)
    if ways != int(ways):
        raise ConfigurationError(f"{where}: {value!r} ways", hint="whole ways; sizes in MiB need total = ...")
    return int(ways)


def _policies(path: str | Path) -> dict[str, PoolPolicy]:
    """Read ``policy.yaml``, with policies at the top level or below an architecture."""
    try:
        data = parse(read_text(path), str(path)).table()
        table = data.get("catpolicy", data)
        first = next(iter(table.values()))
        if not any(key in first for key in ("cache", "MaxCache", "rdt")) and not isinstance(first, list):
            table = first
        return {str(name): _policy(str(name), entry) for name, entry in table.items()}
    except (AttributeError, TypeError, ValueError, KeyError, StopIteration, OverflowError):
        raise ConfigurationError(f"{path}: is no policy file of RMD", hint="gold: {cache: {max: 2, min: 2}}") from None


def _policy(name: str, entry: Any) -> PoolPolicy:
    words: dict[str, Any] = {}
    for part in entry if isinstance(entry, list) else [entry]:
        words |= part
    words |= words.get("rdt", {})
    cache = words.get("cache", words)
    if not {"max", "MaxCache", "min", "MinCache"} & set(cache):
        raise KeyError(name)
    highest = cache.get("max", cache.get("MaxCache", 0))
    lowest = cache.get("min", cache.get("MinCache", 0))
    mba = words.get("mba") or {}
    bandwidth = mba.get("percentage", mba.get("mbps"))
    return PoolPolicy(name, int(highest), int(lowest), None if bandwidth is None else float(bandwidth))
