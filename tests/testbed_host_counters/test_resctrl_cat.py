"""resctrl and pqos: reading leaves no group behind, and partitions are taken back exactly (law 9)."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from slomo.enforce.backends.pqos import PqosBackend
from slomo.enforce.backends.registry import first_that_works
from slomo.enforce.backends.resctrl import ResctrlBackend
from slomo.enforce.executor import apply
from slomo.enforce.plan import EnforcementPlan, TenantSetting
from slomo.errors import TestbedError
from slomo.host.journal import open_receipts
from slomo.host.marker import RunMark
from slomo.host.resctrl_tree import ResctrlTree
from slomo.testbed.host.counters.resctrl import ResctrlReader
from slomo.testbed.host.isolation import BACKENDS, CAMPAIGN, isolated, undo_killed_campaigns
from slomo.vocabulary.colocation import Isolation

Texts = Callable[[Path], dict[str, str]]
Program = Callable[[str, str], Path]
MIB = 2**20


def put(tree: ResctrlTree, group: str, **counters: object) -> None:
    """Set counters of a group."""
    for file, value in counters.items():
        (tree.root / group / "mon_data" / "mon_L3_00" / file).write_text(f"{value}\n", encoding="ascii")


def test_reading_counts_growth_and_leaves_no_group(tree: ResctrlTree, text_of: Texts) -> None:
    """Bandwidth is what grew, occupancy the level, remote is total less local, and all groups are removed."""
    before = text_of(tree.root)
    reader = ResctrlReader(tree, lambda _: 0)

    reader.start([1, 3])
    groups = reader._groups
    put(tree, groups[1], mbm_total_bytes=4_000_000_000 + 30 * MIB, mbm_local_bytes=3_000_000_000 + 20 * MIB)
    sample = reader.stop()

    assert groups[3].startswith("batch/mon_groups/")  # below the group whose masks hold for CPU 3
    assert sample.cores[1]["LMB"] * sample.duration_s == pytest.approx(20.0)
    assert sample.cores[1]["RMB"] * sample.duration_s == pytest.approx(10.0)
    assert sample.cores[1]["L3OCC"] == 1024.0
    assert sample.sockets[0]["L3OCC"] == 2048.0  # root group and `batch`
    assert text_of(tree.root) == before


def test_what_the_kernel_calls_unavailable_is_missing(tree: ResctrlTree) -> None:
    """A counter that reads `Unavailable` is missing, in the core and in its socket."""
    reader = ResctrlReader(tree, lambda _: 0)

    reader.start([0])
    put(tree, reader._groups[0], llc_occupancy="Unavailable", mbm_total_bytes="Error")
    sample = reader.stop()

    assert set(sample.cores[0]) == {"LMB"}


def test_groups_that_vanish_are_told(tree: ResctrlTree) -> None:
    """Somebody else's clean-up in the middle of a run is an error, and what is left is removed."""
    reader = ResctrlReader(tree, lambda _: 0)
    reader.start([0, 1])
    shutil.rmtree(tree.root / reader._groups[0])

    with pytest.raises(TestbedError, match="counters vanished"):
        reader.stop()

    assert not tree.monitoring_groups("")


def test_an_unknown_core_leaves_nothing_behind(tree: ResctrlTree, text_of: Texts) -> None:
    """A start that fails half way removes what it made."""
    before = text_of(tree.root)

    with pytest.raises(TestbedError, match="core 9 is in no group"):
        ResctrlReader(tree).start([0, 9])

    assert text_of(tree.root) == before


def test_groups_of_killed_campaigns_are_removed(tree: ResctrlTree) -> None:
    """Marked groups whose owner is dead go, others stay."""
    dead = "mon_groups/slomo-00000000-1-1-0-0"
    for group in (dead, "mon_groups/theirs"):
        (tree.root / group).mkdir()
        (tree.root / group / "cpus_list").write_text("\n", encoding="ascii")
    reader = ResctrlReader(tree, lambda _: 0)

    reader.start([0])
    reader.stop()

    assert tree.monitoring_groups("") == ("mon_groups/theirs",)


def test_without_resctrl_the_mount_command_is_told(tmp_path: Path) -> None:
    """No tree, no traceback."""
    usable, why = ResctrlReader(ResctrlTree(tmp_path / "none")).available()

    assert not usable
    assert "mount -t resctrl" in why


def test_a_killed_campaign_is_taken_back_by_the_next(
    tree: ResctrlTree, text_of: Texts, monkeypatch: pytest.MonkeyPatch, journals: Path
) -> None:
    """Groups of a dead process go, and the cores they had taken return to the groups they came from."""
    before = text_of(tree.root)
    plan = EnforcementPlan(CAMPAIGN, (TenantSetting("cpu0", cores=(0, 3), llc_way_mask=0x3),))
    apply(plan, ResctrlBackend(tree))  # and never undone
    assert undo_killed_campaigns(tree) == ()  # its process lives

    monkeypatch.setattr(RunMark, "owner_is_alive", lambda _: False)
    removed = undo_killed_campaigns(tree)

    assert len(removed) == 1
    assert text_of(tree.root) == before
    assert open_receipts(journals) == ()


def test_masks_and_cores_arrive(tree: ResctrlTree) -> None:
    """A tenant's group has its mask, its throttle and its cores; others are left alone; all is given back."""
    with isolated(((0, 3), (1,)), (Isolation(0x3, 50), Isolation()), ResctrlBackend(tree)):
        group = next(name for name in tree.control_groups() if name.startswith("slomo-"))
        assert tree.read(f"{group}/schemata").split() == ["MB:0=50", "L3:0=3"]
        assert tree.cpus(group) == (0, 3)
        assert tree.cpus("batch") == ()

    assert tree.cpus("batch") == (3,)


def test_pqos_divides_and_gives_back(program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Free classes are used, and everything is set back."""
    program("pqos", "fake_pqos.py")
    monkeypatch.setenv("FAKE_STATE", str(tmp_path / "state"))
    backend = PqosBackend()
    before = backend.state()

    with isolated(((1,), (0,)), (Isolation(0x3, 50), Isolation(0x7FC)), backend):
        inside = backend.state()

    assert inside.class_of == {0: 2, 1: 1}
    assert inside.classes[1] == {"llc@0": "0x3", "mba@0": "50"}
    assert backend.state() == before


def test_a_host_that_cannot_divide_its_cache_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways are named with their reasons."""
    monkeypatch.setenv("PATH", "/nowhere")
    if ResctrlBackend().available()[0]:
        pytest.skip("this host has resctrl")

    with pytest.raises(TestbedError, match=r"enforced on this host: resctrl: .* pqos: "):
        first_that_works(BACKENDS)
