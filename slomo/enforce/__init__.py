"""Apply plans to a machine: change it, verify and record the changes, and undo them in any order."""

from slomo.enforce.executor import apply, diff, show, undo
from slomo.enforce.plan import EnforcementPlan, MemoryBandwidth, TenantSetting
from slomo.host.journal import Receipt

__all__ = [
    "EnforcementPlan",
    "MemoryBandwidth",
    "Receipt",
    "TenantSetting",
    "apply",
    "diff",
    "show",
    "undo",
]
