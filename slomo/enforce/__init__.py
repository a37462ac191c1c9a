"""Change a machine's settings (cache ways, weights, ...) by a plan; record, check and undo the changes.

In: an `EnforcementPlan` (ways, bandwidth, cores, weights per tenant). Out: a `Receipt`, by which `undo` restores the
machine. Begin with `plan` and `executor`; a backend in `backends/` turns plans into knobs.
"""

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
