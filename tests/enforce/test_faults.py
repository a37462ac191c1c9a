"""What goes wrong while a machine is changed: killed, full, busy, vanished, wiped, owned by another."""

import multiprocessing
import os
import sqlite3
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from slomo.enforce.backends.cgroup import CgroupBackend
from slomo.enforce.backends.resctrl import ResctrlBackend
from slomo.enforce.conflicts import require_unprotected
from slomo.enforce.executor import apply, diff, undo
from slomo.enforce.plan import EnforcementPlan, MemoryBandwidth, TenantSetting
from slomo.errors import InvalidValueError, RefusedSettingError, SlomoError, StoreError, TestbedError
from slomo.host.journal import Journal, open_receipts
from slomo.host.knobs import VanishedError
from slomo.host.resctrl_tree import ResctrlTree
from tests.enforce.apply_and_die import main, plan
from tests.fake_resctrl.files import ModelFiles, everything, fake_tree
from tests.fake_resctrl.model import Flavour

KILLS = 200


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def furnished(folder: Path, flavour: Flavour | None = None) -> ResctrlTree:
    """Return a tree with somebody else's groups in it."""
    tree = fake_tree(folder, flavour)
    tree.make_group("theirs")
    tree.write("theirs/schemata", "L3:0=ff")
    tree.write("theirs/cpus_list", "1-2")
    tree.make_group("theirs/mon_groups/counted")
    tree.write("theirs/mon_groups/counted/cpus_list", "1")
    tree.make_group("mon_groups/pod")
    tree.write("mon_groups/pod/tasks", "103")
    return tree


@pytest.mark.slow
def test_two_hundred_kills_are_undone_to_the_byte(tmp_path: Path) -> None:
    """Killed before any write of an apply, whether of the receipt or of the tree, undo restores every byte."""
    killed = 0
    fork = multiprocessing.get_context("fork")
    for number in range(4 * KILLS):
        folder = tmp_path / str(number)
        folder.mkdir()
        tree = furnished(folder)
        before = everything(tree)
        child = fork.Process(target=main, args=(folder, number % 20, 1 + number // 20))
        child.start()
        child.join()
        killed += child.exitcode == -9
        for receipt in open_receipts(folder / "receipts"):
            undo(receipt, ResctrlBackend(tree, folder / "etc"))
        assert everything(tree) == before, f"seed {number % 20}, killed at {1 + number // 20}"
        if killed == KILLS:
            break

    assert killed == KILLS


def test_a_full_file_system_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a change cannot be written down, it is not made, and those made before are taken back."""
    tree = furnished(tmp_path)
    before, real, written = everything(tree), Journal.transaction, []

    def filling(journal: Journal) -> AbstractContextManager[sqlite3.Connection]:
        written.append(journal)
        if len(written) > 2:  # the receipt and the groups fit, their settings do not
            raise StoreError("database or disk is full")
        return real(journal)

    monkeypatch.setattr(Journal, "transaction", filling)
    with pytest.raises(TestbedError, match=r"disk is full.*taken back"):
        apply(plan(1), ResctrlBackend(tree, tmp_path), receipts=tmp_path / "receipts")

    assert everything(tree) == before


def test_a_full_journal_is_an_error_that_names_it(tmp_path: Path) -> None:
    """SQLite's own refusal reaches the user as a store that cannot be written."""
    journal = Journal(tmp_path)
    journal.begin("a", "b", {})
    journal._open().execute("PRAGMA max_page_count = 1")

    with pytest.raises(StoreError, match="full"):
        journal.begin("a", "b", {"text": "x" * 100_000})


def test_a_receipt_that_cannot_be_begun_changes_nothing(tmp_path: Path) -> None:
    """Without a receipt, no change."""
    tree = furnished(tmp_path)
    before = everything(tree)
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreError, match=r"Not a directory|File exists"):
        apply(plan(1), ResctrlBackend(tree, tmp_path), receipts=tmp_path / "file" / "receipts")
    assert everything(tree) == before


def test_busy_for_a_while_is_waited_for(tmp_path: Path) -> None:
    """A freed RMID that lingers makes the next group wait."""
    tree = furnished(tmp_path)
    _keep_busy(tree, 2)

    receipt = apply(plan(1), ResctrlBackend(tree, tmp_path), receipts=tmp_path / "receipts")

    assert receipt.state == "applied"


def test_busy_for_ever_is_an_error_with_nothing_left(tmp_path: Path) -> None:
    """A tree that stays busy is left as found."""
    tree = furnished(tmp_path)
    before = everything(tree)
    _keep_busy(tree, 10_000)

    with pytest.raises(TestbedError, match=r"EBUSY.*Out of RMIDs"):
        apply(plan(1), ResctrlBackend(tree, tmp_path), receipts=tmp_path / "receipts")
    assert everything(tree) == before


def _keep_busy(tree: ResctrlTree, times: int) -> None:
    assert isinstance(tree.files, ModelFiles)
    model = tree.files.load()
    model.busy_left = times
    tree.files.save(model)


def test_a_vanished_task_is_an_error_with_nothing_left(tmp_path: Path) -> None:
    """A plan for a task that ended changes nothing, and says which task."""
    tree = furnished(tmp_path)
    before = everything(tree)
    gone = EnforcementPlan("s", (TenantSetting("a", process_ids=(104, 999), llc_way_mask=3),))

    with pytest.raises(VanishedError, match="task 999 no longer exists"):
        apply(gone, ResctrlBackend(tree, tmp_path), receipts=tmp_path / "receipts")
    assert everything(tree) == before
    assert open_receipts(tmp_path / "receipts") == ()


def test_a_task_that_ended_meanwhile_is_reported_and_the_rest_undone(tmp_path: Path) -> None:
    """Undo passes over what is there no more."""
    tree = furnished(tmp_path)
    backend = ResctrlBackend(tree, tmp_path)
    receipt = apply(
        EnforcementPlan("s", (TenantSetting("a", process_ids=(101, 104), llc_way_mask=3),)),
        backend,
        receipts=tmp_path / "receipts",
    )
    assert isinstance(tree.files, ModelFiles)
    model = tree.files.load()
    model.dead.append(104)
    model.groups["slomo-a"].tasks.remove(104)
    tree.files.save(model)

    assert undo(receipt, backend).vanished == ("task:104",)
    assert "slomo-a" not in tree.control_groups()


def test_a_wiped_tree_is_undone_as_far_as_there_is_anything(tmp_path: Path) -> None:
    """A container engine's restart removes all groups: undo says what it did not find, and leaves nothing of ours."""
    tree = furnished(tmp_path)
    backend = ResctrlBackend(tree, tmp_path)
    receipt = apply(plan(1), backend, receipts=tmp_path / "receipts")
    assert isinstance(tree.files, ModelFiles)
    model = tree.files.load()
    model.wipe()
    tree.files.save(model)

    done = undo(receipt, backend)

    assert done.vanished
    assert tree.control_groups() == ("",)
    assert receipt.state == "undone"


def test_a_receipt_of_another_boot_is_refused(tmp_path: Path) -> None:
    """What it changed ended with that boot."""
    tree = furnished(tmp_path)
    receipt = apply(plan(1), ResctrlBackend(tree, tmp_path), receipts=tmp_path / "receipts")
    with receipt.journal.transaction() as connection:
        connection.execute("UPDATE receipt SET place = 'elsewhere@host/00000000'")

    with pytest.raises(TestbedError, match="another boot or machine"):
        undo(receipt, ResctrlBackend(tree, tmp_path))


@pytest.mark.parametrize(
    ("flavour", "tenant", "said"),
    [
        (
            Flavour(),
            TenantSetting("a", cores=(0,), llc_way_mask=0b101),
            "0x5 on this machine, needed 1 or more adjacent",
        ),
        (Flavour(), TenantSetting("a", cores=(0,), llc_way_mask=0xFFFF), "needed 1 or more adjacent"),
        (Flavour(min_bits=2), TenantSetting("a", cores=(0,), llc_way_mask=1), "2 or more adjacent"),
        (Flavour(), TenantSetting("a", cores=(0,), code_way_mask=1), "code and data prioritisation"),
        (Flavour(), TenantSetting("a", cores=(0,), memory_bandwidth=MemoryBandwidth(2, "GB/s")), "takes percent"),
        (Flavour(), TenantSetting("a", cores=(0,), memory_bandwidth=MemoryBandwidth(5)), "needed 10 percent"),
        (
            Flavour(bandwidth="amd"),
            TenantSetting("a", cores=(0,), memory_bandwidth=MemoryBandwidth(50)),
            "takes GB/s",
        ),
        (Flavour(classes=2), TenantSetting("a", cores=(0,), llc_way_mask=1), "classes of service"),
        (Flavour(monitors=4), TenantSetting("a", cores=(0,), llc_way_mask=1), "RMIDs"),
        (Flavour(), TenantSetting("a", cores=(0,), slow_memory_bandwidth=MemoryBandwidth(2)), "SMBA"),
        (Flavour(), TenantSetting("a", cores=(9,), llc_way_mask=1), "core 9"),
    ],
)
def test_what_the_machine_does_not_offer_is_refused(
    tmp_path: Path, flavour: Flavour, tenant: TenantSetting, said: str
) -> None:
    """Every such plan names what was wrong and changes nothing."""
    tree = furnished(tmp_path, flavour)
    before = everything(tree)

    with pytest.raises(TestbedError, match=said) as caught:
        apply(EnforcementPlan("s", (tenant,)), ResctrlBackend(tree, tmp_path), receipts=tmp_path / "receipts")

    assert caught.value.exit_code == 3
    assert caught.value.hint
    assert everything(tree) == before
    assert Journal(tmp_path / "receipts").receipts() == ()


def test_overlapping_guaranteed_masks_are_refused() -> None:
    """Ways that were guaranteed to one are nobody else's."""
    with pytest.raises(InvalidValueError, match="ways 0x2 are guaranteed to 'a' and also given to 'b'"):
        EnforcementPlan("s", (TenantSetting("a", llc_way_mask=3, exclusive=True), TenantSetting("b", llc_way_mask=6)))


def test_ways_for_devices_need_io_alloc(tmp_path: Path) -> None:
    """A kernel without it is told apart from one with it."""
    plan_ = EnforcementPlan("s", device_way_mask=0x600)

    with pytest.raises(TestbedError, match="io_alloc"):
        diff(plan_, ResctrlBackend(furnished(tmp_path), tmp_path))
    (tmp_path / "amd").mkdir()
    backend = ResctrlBackend(furnished(tmp_path / "amd", Flavour(io_alloc=True, bandwidth="amd")), tmp_path)
    assert [change.knob for change in diff(plan_, backend)] == ["io_alloc", "io_alloc_cbm:0"]


def test_a_tree_that_a_container_engine_owns_is_refused(tmp_path: Path) -> None:
    """Containerd with rdt_config_file removes groups that it does not know."""
    tree = furnished(tmp_path)
    (tmp_path / "containerd").mkdir()
    (tmp_path / "containerd" / "config.toml").write_text('[plugins]\n  rdt_config_file = "/etc/rdt.yaml"\n')

    with pytest.raises(TestbedError, match=r"rdt_config_file.*rdt-class"):
        apply(plan(1), ResctrlBackend(tree, tmp_path), receipts=tmp_path / "receipts")


def test_no_mount_is_said(tmp_path: Path) -> None:
    """A host without resctrl is told how to mount it."""
    with pytest.raises(TestbedError, match="not mounted"):
        diff(plan(1), ResctrlBackend(ResctrlTree(tmp_path / "nowhere"), tmp_path))


def test_two_enforcers_exclude_each_other(tmp_path: Path) -> None:
    """One at a time per tree, and the message names the other."""
    tree = furnished(tmp_path)
    backend = ResctrlBackend(tree, tmp_path)

    with backend.lock(), pytest.raises(TestbedError, match=f"process {os.getpid()}"):
        apply(plan(1), ResctrlBackend(tree, tmp_path), receipts=tmp_path / "receipts")


def test_equal_settings_share_a_class(tmp_path: Path) -> None:
    """Classes are few: tenants with the same masks and bandwidth are in one."""
    tree = furnished(tmp_path)
    tenants = tuple(TenantSetting(f"t{core}", cores=(core,), llc_way_mask=3) for core in range(4))

    apply(EnforcementPlan("s", tenants), ResctrlBackend(tree, tmp_path), receipts=tmp_path / "receipts")

    assert tree.cpus("slomo-t0") == (0, 1, 2, 3)


def test_a_monitored_task_changes_class_by_renaming_its_group(tmp_path: Path) -> None:
    """Its counters go with it."""
    tree = furnished(tmp_path)
    one = EnforcementPlan("s", (TenantSetting("pod", process_ids=(103,), llc_way_mask=3),))

    receipt = apply(one, ResctrlBackend(tree, tmp_path), receipts=tmp_path / "receipts")

    assert [change.knob for change in receipt.made][-1] == "monitor:pod"
    assert tree.monitoring_groups("slomo-pod") == ("slomo-pod/mon_groups/pod",)


@pytest.mark.parametrize(
    "name", ["a" * 300, "a/" * 3000, "../..", "a/../b", "a\0b"], ids=["long", "deep", "above", "aside", "zero"]
)
def test_names_that_cannot_be_groups_are_refused(name: str, tmp_path: Path) -> None:
    """The kernel's limits are told as invalid values, as ways out of the tree are."""
    (tmp_path / "cpu").mkdir()
    with pytest.raises(InvalidValueError, match="control group"):
        CgroupBackend(tmp_path).path(f"cpu/{name}")


@pytest.mark.parametrize(
    ("field", "text", "told"),
    [("cgroup", "a/" + "ä" * 200, "one name of cgroup has 400 bytes, needed at most 255"),
     ("cgroup", "a/" * 3000, "cgroup has 6000 bytes, needed at most 3000"),
     ("tenant", "a" * 300, "tenant has 300 bytes, needed at most 200"),
     ("pod", "a" * 601, "pod has 601 bytes, needed at most 600"),
     ("control_socket", "a" * 2000, "control_socket has 2000 bytes, needed at most 1000")],
)  # fmt: skip
def test_a_plan_with_too_long_a_name_is_refused_before_any_path_is_made(field: str, text: str, told: str) -> None:
    """The error names the field, its length and the limit."""
    with pytest.raises(SlomoError, match=told):
        EnforcementPlan.from_dict({"tenants": [{"tenant": "t", field: text}]})


def test_resctrl_refuses_a_tenant_without_cores_and_processes(tmp_path: Path) -> None:
    """Its class would hold nothing, so that the plan would change nothing for it."""
    plan = EnforcementPlan("s", (TenantSetting("lost", pod="n/lost", llc_way_mask=3),))
    with pytest.raises(RefusedSettingError, match="'lost' has neither cores nor processes"):
        ResctrlBackend(furnished(tmp_path), tmp_path).wishes(plan)


@pytest.mark.parametrize("name", [".", ".."])
def test_tenants_named_like_folders_have_groups_of_their_own(name: str, tmp_path: Path) -> None:
    """A tenant's name is text, never a path."""
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cgroup.procs").touch()
    tenant = TenantSetting(name, process_ids=(os.getppid(),), cpu_weight=2.0)
    wishes = CgroupBackend(tmp_path).wishes(EnforcementPlan("s", (tenant,)))
    assert wishes[1].knob == "group:cpu/slomo/-"


def test_slomo_never_changes_its_own_settings() -> None:
    """A service that throttles itself could hardly undo anything."""
    with pytest.raises(InvalidValueError, match="is slomo itself"):
        require_unprotected("t", os.getpid())
