"""Give the network functions of a run their cache ways and memory bandwidth, and restore the machine afterwards.

Intel CAT and MBA are used as in ResQ (NSDI'18, section 3). The machine's journal records the changes, so that the next
campaign undoes those that a killed campaign left.
"""

import contextlib
from collections.abc import Iterator, Sequence

from slomo.enforce.change import Backend
from slomo.enforce.executor import apply, undo
from slomo.enforce.plan import EnforcementPlan, MemoryBandwidth, TenantSetting
from slomo.errors import SlomoError
from slomo.host.journal import open_receipts
from slomo.host.knobs import Knobs
from slomo.host.marker import RunMark
from slomo.host.pqos import PqosKnobs
from slomo.host.resctrl_knobs import ResctrlKnobs
from slomo.host.resctrl_tree import ResctrlTree
from slomo.vocabulary.colocation import Isolation

#: Backends that divide a last-level cache, best first.
BACKENDS = ("resctrl", "pqos")
#: Server name in a campaign's enforcement plans, by which their receipts are found.
CAMPAIGN = "slomo's campaign"


@contextlib.contextmanager
def isolated(cores: Sequence[tuple[int, ...]], parts: Sequence[Isolation], backend: Backend) -> Iterator[None]:
    """Give some cores their cache ways and bandwidth while a context lasts.

    `cores`, `parts`: CPUs and limits of each tenant; a part without limits leaves the CPUs as they are.
    """
    tenants = [
        TenantSetting(
            f"cpu{own[0]}",
            cores=own,
            llc_way_mask=part.llc_way_mask,
            memory_bandwidth=None if (most := part.memory_bandwidth_percent) is None else MemoryBandwidth(most),
        )
        for own, part in zip(cores, parts, strict=True)
        if part != Isolation()
    ]
    receipt = apply(EnforcementPlan(CAMPAIGN, tuple(tenants)), backend)
    try:
        yield
    finally:
        undo(receipt, backend)


def undo_killed_campaigns(tree: ResctrlTree | None = None) -> tuple[str, ...]:
    """Undo the changes of killed campaigns, and remove their monitoring groups; return the names of both."""
    resctrl = ResctrlKnobs(tree)
    drivers: dict[str, Knobs] = {"resctrl": resctrl, "pqos": PqosKnobs()}
    undone = []
    for receipt in reversed(open_receipts()):
        with contextlib.suppress(SlomoError):  # `slomo enforce undo --all` names a receipt that cannot be read
            head = receipt.head
            knobs = drivers.get(str(head["backend"]))
            ours = knobs is not None and head["document"].get("server") == CAMPAIGN and head["place"] == knobs.place()
            if ours and knobs is not None and not receipt.owner_is_alive:
                undo(receipt, knobs)
                undone.append(receipt.identifier)
    groups = resctrl.tree.groups() if resctrl.tree.mounted else ()
    marks = {group: RunMark.parse(group.rpartition("/")[2]) for group in groups}
    orphans = [group for group, mark in marks.items() if mark is not None and not mark.owner_is_alive()]
    for group in sorted(orphans, key=len, reverse=True):  # monitoring groups before the groups that contain them
        resctrl.tree.remove_group(group)
    return (*undone, *orphans)
