"""Control groups of version 2: their files by the book, and a stock kernel with two memory nodes in a guest."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from slomo.enforce.backends.cgroup import CgroupBackend
from slomo.enforce.plan import EnforcementPlan, TenantSetting
from slomo.errors import RefusedSettingError
from slomo.host.knobs import PRESENT

ROOT = Path(__file__).parents[2]
KERNEL = os.environ.get("SLOMO_GUEST_KERNEL")


def test_controllers_are_enabled_from_the_root_down(tmp_path: Path) -> None:
    """The root has no name in a knob, and a group that is to be made has no files yet."""
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu\n")
    (tmp_path / "cgroup.subtree_control").write_text("cpu\n")
    backend = CgroupBackend(tmp_path)

    assert backend.version == 2
    assert [backend.read(f"enabled:{name}:") for name in ("cpu", "cpuset")] == [PRESENT, None]
    assert backend.read("enabled:cpu:slomo") is None
    backend.write("enabled:cpuset:", PRESENT)
    assert (tmp_path / "cgroup.subtree_control").read_text().startswith("+cpuset")


@pytest.mark.parametrize(("version", "suffix"), [(1, ""), (2, ".effective")])
def test_a_node_without_memory_is_refused(tmp_path: Path, version: int, suffix: str) -> None:
    """Before anything is written, with the tenant, the node and the nodes that have memory."""
    root = tmp_path / "cpuset" if version == 1 else tmp_path
    root.mkdir(exist_ok=True)
    texts = {"cgroup.procs": "", f"cpuset.cpus{suffix}": "0-3", f"cpuset.mems{suffix}": "0,2"}
    for name, text in (texts | ({"cgroup.controllers": "cpuset"} if version == 2 else {})).items():
        (root / name).write_text(text)
    backend = CgroupBackend(tmp_path)
    plans = [
        EnforcementPlan("s", (TenantSetting("nat", process_ids=(os.getppid(),), memory_node=node),)) for node in (2, 1)
    ]
    assert backend.wishes(plans[0])
    with pytest.raises(RefusedSettingError, match="'nat': memory of node 1 is not on this host\nhint: there are 0, 2"):
        backend.wishes(plans[1])


@pytest.mark.skipif(
    KERNEL is None or shutil.which("qemu-system-x86_64") is None or shutil.which("cpio") is None,
    reason="needs SLOMO_GUEST_KERNEL and QEMU: `make numa-guest`",
)
def test_plans_weights_and_moves_in_a_guest_with_two_nodes() -> None:
    """Processes and their pages change nodes, weights divide a core, a chain loses no packet, undo restores all."""
    words = [sys.executable, str(ROOT / "deploy" / "numa-guest" / "boot.py"), str(KERNEL)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
