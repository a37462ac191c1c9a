"""Types of requests that change settings of the service's machine: plans and control loops."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from slomo.service.door.bodies import Identifier, Name

#: Name of a machine type; a file is refused.
MachineName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]


class Enforcement(Struct, forbid_unknown_fields=True):
    """A plan of settings for the service's machine; with `what_if` the answer shows the changes without making them."""

    plan: dict[str, Any]
    what_if: bool = False


class ControlTenant(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One tenant of a controlled machine, and its promised share of solo throughput."""

    workload: Name
    name: Identifier | None = None
    slo: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None


class ControlBody(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A control loop on a simulated machine, in the format of `slomo control run`."""

    tenants: Annotated[list[ControlTenant], Meta(min_length=1, max_length=64)]
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")] = "service"
    machine: MachineName = "e5-2620v4"
    controller: Literal["guard", "max_min"] = "guard"
    steps: Annotated[int, Meta(ge=1, le=10_000)] = 60
    period_s: Annotated[float, Meta(gt=0.0, le=3600.0)] = 1.0
    dwell_s: Annotated[float, Meta(ge=0.0, le=86400.0)] | None = None
    cool_down_s: Annotated[float, Meta(ge=0.0, le=86400.0)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**31)] = 0
