"""Schemas of requests that act on the host: plans, control loops, RMD's workloads."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from slomo.service.door.bodies import Identifier, Name

Number = Annotated[str, Meta(pattern=r"^[0-9]{1,9}$")]
#: A machine is given by its type's name, never by a file.
MachineName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]


class Enforcement(Struct, forbid_unknown_fields=True):
    """A plan for the host, as `slomo enforce` reads it; with `what_if` nothing is changed."""

    plan: dict[str, Any]
    what_if: bool = False


class ControlTenant(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One tenant of a controlled machine, and its promised share of solo throughput."""

    workload: Name
    name: Identifier | None = None
    slo: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None


class ControlBody(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A control loop on a simulated machine, as `slomo control run` reads it."""

    tenants: Annotated[list[ControlTenant], Meta(min_length=1, max_length=64)]
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")] = "service"
    machine: MachineName = "e5-2620v4"
    controller: Literal["guard", "max_min"] = "guard"
    steps: Annotated[int, Meta(ge=1, le=10_000)] = 60
    period_s: Annotated[float, Meta(gt=0.0, le=3600.0)] = 1.0
    dwell_s: Annotated[float, Meta(ge=0.0, le=86400.0)] | None = None
    cool_down_s: Annotated[float, Meta(ge=0.0, le=86400.0)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**31)] = 0


class RmdLimits(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Most and fewest cache ways."""

    max: int | None = None
    min: int | None = None


class RmdBandwidth(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Memory bandwidth, in the unit of the configured mode."""

    percentage: float | None = None
    mbps: float | None = None


class RmdAllocation(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What RMD calls `rdt`."""

    cache: RmdLimits | None = None
    mba: RmdBandwidth | None = None


class RmdWorkload(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """RMD's body of ``POST /v1/workloads`` and ``/v1/hospitality``; `max_cache`, `min_cache`: RMD v0.1."""

    core_ids: Annotated[list[Number], Meta(max_length=4096)] | None = None
    task_ids: Annotated[list[Number], Meta(max_length=4096)] | None = None
    policy: Name | None = None
    rdt: RmdAllocation | None = None
    max_cache: int | None = None
    min_cache: int | None = None
    cache_id: Number | None = None
    nf: Name | None = None
    slo_share: float | None = None
