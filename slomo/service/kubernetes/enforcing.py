"""Apply a node's plan of settings to its pods: cache ways, memory bandwidth and CPU weights.

The plan names pods; the agent finds their threads and control groups itself and never takes them from the plan. If a
plan is refused, settings stay as they are. All settings are undone when the agent stops or the plan is deleted. After a
kill, the next agent continues with the receipt of the killed one.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from slomo.enforce.backends.registry import load_backend
from slomo.enforce.change import Backend
from slomo.enforce.executor import apply, diff, undo
from slomo.enforce.plan import EnforcementPlan, TenantSetting
from slomo.errors import SlomoError
from slomo.host.journal import Receipt, open_receipts, receipts_directory
from slomo.service.door.bodies import EnforcementReport
from slomo.service.kubernetes.containers import Container

#: Pod (``namespace/name``) -> its containers, or the reason why they are unknown.
Pods = Mapping[str, "tuple[Container, ...] | SlomoError"]
#: Setting of a tenant -> backend that carries it out.
_BACKENDS = {
    "llc_way_mask": "resctrl", "code_way_mask": "resctrl", "memory_bandwidth": "resctrl",
    "slow_memory_bandwidth": "resctrl", "cores": "cgroup", "memory_node": "cgroup", "cpu_weight": "cgroup",
    "cpu_quota": "cgroup", "scheduler": "scheduler",
}  # fmt: skip
#: Largest number of changes and of refusals that a report lists, and their largest length.
_LISTED, LONGEST = 50, 500


class NodeEnforcer:
    """Applies plans of settings on one node; by default, receipts are in the machine's own journal."""

    def __init__(self, node: str, backend: Backend, receipts: Path | None = None) -> None:
        self._node, self._backend, self._folder = node, backend, receipts or receipts_directory()
        self._receipt = self._left_behind()
        self._applied: EnforcementPlan | None = None

    @classmethod
    def of(cls, node: str, backend: str) -> "NodeEnforcer":
        """Return an enforcer that uses the backend of this name."""
        return cls(node, load_backend(backend))

    def follow(self, plan: EnforcementPlan | None, pods: Pods) -> EnforcementReport:
        """Give the node the settings of the plan; without a plan, restore the original settings."""
        target, refusals = resolved(plan, pods, self._backend.name)
        try:
            if not (target.tenants or target.device_way_mask or target.rest_way_mask):
                self.end()
            elif target != self._applied:
                self._receipt = apply(target, self._backend, receipts=self._folder, receipt=self._receipt)
                self._applied = target
            else:  # settings that others have changed since are reported, not overwritten
                refusals += [f"{change.text}: another program sets it" for change in diff(target, self._backend)]
        except SlomoError as problem:
            refusals.append(problem.message)
        receipt = self._receipt
        changes = () if receipt is None else receipt.changes()[:_LISTED]
        name = "" if receipt is None else receipt.identifier
        texts = [change.text[:LONGEST] for change in changes]
        return EnforcementReport(self._backend.name, name, texts, [text[:LONGEST] for text in refusals[:_LISTED]])

    def end(self) -> None:
        """Undo all changes."""
        if self._receipt is not None:
            undo(self._receipt, self._backend)
        self._receipt = self._applied = None

    def _left_behind(self) -> Receipt | None:
        """Return the receipt (record of changes) that a killed agent of this node left behind."""
        for receipt in open_receipts(self._folder):
            head: dict[str, Any] = receipt.head
            is_mine = (head["backend"], head["place"]) == (self._backend.name, self._backend.place())
            document = head["document"] if isinstance(head["document"], dict) else {}
            if is_mine and document.get("server") == _server(self._node) and not receipt.owner_is_alive:
                return receipt
        return None


def _server(node: str) -> str:
    """Return the server name in an agent's receipts, which distinguishes them from those of other programs."""
    return f"agent of {node}"


def resolved(plan: EnforcementPlan | None, pods: Pods, backend: str) -> tuple[EnforcementPlan, list[str]]:
    """Return the plan with the pods' threads and control groups, and the reasons why pods are left out."""
    tenants: list[TenantSetting] = []
    refusals: list[str] = []
    for setting in () if plan is None else plan.tenants:
        pod = setting.pod or setting.tenant
        containers = pods.get(pod)
        if containers is None:
            refusals.append(f"'{pod}' runs no network function on this node")
        elif isinstance(containers, SlomoError):
            refusals.append(f"'{pod}': {containers.message}")
        elif not (threads := sorted({thread for item in containers for thread in item.threads})):
            refusals.append(f"'{pod}' has no threads yet")
        else:
            group = containers[0].group.rpartition("/")[0]
            tenants.append(replace(setting, process_ids=tuple(threads), cgroup=group))
        refusals += [
            f"'{pod}': {name} needs the backend {needed}, the agent has {backend}"
            for name, needed in _BACKENDS.items()
            if getattr(setting, name) not in (None, ()) and needed not in backend.split("+")
        ]
    masks = (None, None) if plan is None else (plan.device_way_mask, plan.rest_way_mask)
    return EnforcementPlan(_server("" if plan is None else plan.server), tuple(tenants), *masks), refusals
