"""Set cache classes on a Kubernetes node through goresctrl's class files and pod annotations.

containerd and CRI-O own the resctrl tree and remove unknown groups at every start. slomo therefore writes the files
that they and koordlet read. Knobs: ``file:NAME`` below a folder. Formats: goresctrl (cmd/rdt/sample-conf.yaml,
pkg/rdt/kubernetes.go) and Koordinator's NodeSLO (resctrlQOS).
"""

import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import yaml

from slomo.enforce.backends.resctrl import class_name
from slomo.enforce.change import Backend
from slomo.enforce.plan import EnforcementPlan, TenantSetting
from slomo.errors import RefusedSettingError, TestbedError
from slomo.files.durable import write_durably
from slomo.host.knobs import Wish
from slomo.host.locks import MachineLock
from slomo.host.places import cache_directory
from slomo.host.resctrl_facts import read_facts
from slomo.host.resctrl_tree import ResctrlTree
from slomo.vocabulary.way_masks import refusal, way_block

ANNOTATION = "rdt.resources.beta.kubernetes.io/pod"
CLASSES_FILE, PODS_FILE, NODE_FILE = "rdt-classes.yaml", "pod-annotations.json", "koordinator-node-slo.json"
_PARTITION = "slomo"


class RdtClassBackend(Backend):
    """Writes files of cache classes and pod annotations for the container runtime that manages resctrl.

    `folder`: folder of the files; set the container engine's ``rdt_config_file`` to `CLASSES_FILE` in it. `ways`:
    number of LLC ways, for percentages; by default the number in this machine's resctrl. If resctrl is not mounted, it
    is the highest way that the plan names, so that best-effort pods never get a guaranteed way.

    >>> RdtClassBackend(Path("/tmp/rdt"), ways=20).name
    'rdt-class'
    """

    name = "rdt-class"

    def __init__(self, folder: Path | None = None, ways: int | None = None) -> None:
        self.folder, self.ways = Path(folder or cache_directory() / "rdt"), ways

    def available(self) -> tuple[bool, str]:
        """Return whether the folder of the files can be written, and the reason if not."""
        near = self.folder if self.folder.exists() else self.folder.parent
        while not near.exists() and near != near.parent:
            near = near.parent
        able = near.is_dir() and os.access(near, os.W_OK)
        return able, f"files in '{self.folder}'" if able else f"'{self.folder}' cannot be written"

    def place(self) -> str:
        """Return the folder of the files; the boot is not part of it, since files survive a reboot."""
        return str(self.folder)

    def lock(self) -> AbstractContextManager[object]:
        """Hold the folder's lock while a `with` block runs."""
        return MachineLock(f"classes in '{self.folder}'")

    def wishes(self, plan: EnforcementPlan) -> tuple[Wish, ...]:
        """Return the new texts of the files; raise TestbedError for masks that goresctrl cannot express."""
        tenants = [t for t in plan.tenants if t.llc_way_mask is not None or t.memory_bandwidth is not None]
        named = max((tenant.llc_way_mask.bit_length() for tenant in tenants if tenant.llc_way_mask), default=1)
        ways = self.ways or _ways_of_this_machine() or named
        classes = {class_name(tenant): _class(tenant, ways) for tenant in tenants}
        document = {"partitions": {_PARTITION: {"l3Allocation": "100%", "mbAllocation": ["100%"], "classes": classes}}}
        pods = {
            tenant.pod: {"metadata": {"annotations": {ANNOTATION: class_name(tenant)}}}
            for tenant in tenants
            if tenant.pod is not None
        }
        return (
            Wish(f"file:{CLASSES_FILE}", yaml.safe_dump(document, sort_keys=True)),
            Wish(f"file:{PODS_FILE}", json.dumps(pods, indent=2, sort_keys=True) + "\n"),
            Wish(f"file:{NODE_FILE}", json.dumps(_node_slo(tenants, ways), indent=2, sort_keys=True) + "\n"),
        )

    def read(self, knob: str) -> str | None:
        """Return a file's text; None if it does not exist."""
        try:
            return self._path(knob).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise TestbedError(f"'{self.folder}': {problem.strerror}") from None

    def write(self, knob: str, value: str | None) -> None:
        """Replace a file atomically, or remove it; raise TestbedError for a file that is not one of this backend's."""
        path = self._path(knob)
        if value is None:
            path.unlink(missing_ok=True)
        else:
            write_durably(path, value)

    def _path(self, knob: str) -> Path:
        name = knob.partition(":")[2]
        if name not in (CLASSES_FILE, PODS_FILE, NODE_FILE):
            raise TestbedError(f"'{name}' is none of the files of classes", hint=f"{CLASSES_FILE}, {PODS_FILE}")
        path = self.folder / name
        if path.is_symlink():  # replaced by a file, it would not be what it was after an undo
            raise TestbedError(f"'{path}' is a link, and links are not followed", hint="name the folder it leads to")
        return path

    def knobs(self) -> Iterator[str]:
        """Return the names of the files."""
        return iter([f"file:{name}" for name in (CLASSES_FILE, PODS_FILE, NODE_FILE)])


def _ways_of_this_machine() -> int | None:
    """Return the number of ways that resctrl can allocate on this machine; None if it is not mounted."""
    tree = ResctrlTree()
    return read_facts(tree).full_mask.bit_count() if tree.can_allocate else None


def _class(tenant: TenantSetting, ways: int) -> dict[str, Any]:
    written: dict[str, Any] = {}
    if tenant.llc_way_mask is not None:
        if why := refusal(tenant.llc_way_mask, way_block(ways), "goresctrl"):
            raise RefusedSettingError(f"tenant '{tenant.tenant}': {why}", hint="0x3 is ways 0 and 1")
        written["l3Allocation"] = f"{tenant.llc_way_mask:#x}"  # absolute masks keep guaranteed ways apart
    bandwidth = tenant.memory_bandwidth
    if bandwidth is not None:
        if bandwidth.unit == "GB/s":
            raise RefusedSettingError(
                f"tenant '{tenant.tenant}': {bandwidth.text}, but goresctrl takes percent or MBps",
                hint="give it in percent or MB/s",
            )
        unit = "%" if bandwidth.unit == "percent" else "MBps"
        written["mbAllocation"] = [f"{bandwidth.value:.0f}{unit}"]
    return written


def _node_slo(tenants: list[TenantSetting], ways: int) -> dict[str, Any]:
    """Return Koordinator's fields: the ways of best-effort pods, as percentages of all ways."""
    guaranteed = max((t.llc_way_mask.bit_length() for t in tenants if t.exclusive and t.llc_way_mask), default=0)
    shared = [t.memory_bandwidth for t in tenants if not t.exclusive and t.memory_bandwidth is not None]
    percent = min((b.value for b in shared if b.unit == "percent"), default=100.0)
    start = min(95, round(100.0 * guaranteed / ways))
    best_effort = {
        "enable": True,
        "catRangeStartPercent": start,
        "catRangeEndPercent": 100,
        "mbaPercent": round(percent),
    }
    return {"resourceQOSStrategy": {"beClass": {"resctrlQOS": best_effort}}}
