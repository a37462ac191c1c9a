"""Acting on a machine: plans applied, read back, written down, and taken back to the byte in any order."""

from slomo.enforce.executor import apply, diff, show, undo
from slomo.enforce.plan import EnforcementPlan, MemoryBandwidth, TenantSetting, plan_from_decision
from slomo.host.journal import Receipt

__all__ = [
    "EnforcementPlan",
    "MemoryBandwidth",
    "Receipt",
    "TenantSetting",
    "apply",
    "diff",
    "plan_from_decision",
    "show",
    "undo",
]
