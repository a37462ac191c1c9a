"""resctrl and pqos: reading leaves no group behind, and partitions are taken back exactly (law 9)."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slomo.errors import SlomoError, TestbedError
from slomo.host.journal import open_receipts
from slomo.host.marker import RunMark
from slomo.host.resctrl_tree import ResctrlTree
from slomo.testbed.host.counters.resctrl import ResctrlReader
from slomo.testbed.host.partitions import (
    Partition,
    PqosAllocator,
    ResctrlAllocator,
    choose_allocator,
    remove_orphaned_groups,
)
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


def masks() -> st.SearchStrategy[int | None]:
    """Return contiguous masks of 11 ways, or none."""
    blocks = st.tuples(st.integers(1, 11), st.integers(0, 10)).filter(lambda b: sum(b) <= 11)
    return st.none() | blocks.map(lambda b: ((1 << b[0]) - 1) << b[1])


@settings(max_examples=25)
@given(
    wanted=st.lists(st.tuples(masks(), st.none() | st.integers(1, 10).map(lambda n: 10 * n)), min_size=1, max_size=4),
    cores=st.permutations([0, 1, 2, 3]),
)
def test_undo_restores_the_tree_exactly(
    new_tree: Callable[[Path], ResctrlTree],
    text_of: Texts,
    wanted: list[tuple[int | None, int | None]],
    cores: list[int],
) -> None:
    """Law 9: after undo, CPUs, masks and groups are as before, whatever was applied to whomever."""
    with tempfile.TemporaryDirectory() as folder:
        tree = new_tree(Path(folder))
        before = text_of(tree.root)
        partitions = [Partition((core,), Isolation(*setting)) for core, setting in zip(cores, wanted, strict=False)]

        applied = ResctrlAllocator(tree).apply(partitions)
        changed = text_of(tree.root)
        applied.undo()
        applied.undo()

        assert changed != before
        assert text_of(tree.root) == before


def test_a_killed_campaign_is_taken_back_by_the_next(
    tree: ResctrlTree, text_of: Texts, monkeypatch: pytest.MonkeyPatch, journals: Path
) -> None:
    """Groups of a dead process go, and the cores they had taken return to the groups they came from."""
    before = text_of(tree.root)
    ResctrlAllocator(tree).apply([Partition((0, 3), Isolation(0x3))])  # and never undone
    assert remove_orphaned_groups(tree) == ()  # its process lives

    monkeypatch.setattr(RunMark, "owner_is_alive", lambda _: False)
    removed = remove_orphaned_groups(tree)

    assert len(removed) == 1
    assert text_of(tree.root) == before
    assert open_receipts(journals) == ()


def test_masks_and_cores_arrive(tree: ResctrlTree) -> None:
    """A partition's group has its mask, its throttle and its cores; the CPU comes from the group it was in."""
    allocator = ResctrlAllocator(tree)

    with allocator.apply([Partition((0, 3), Isolation(0x3, 50))]):
        group = next(name for name in tree.control_groups() if name.startswith("slomo-"))
        assert tree.read(f"{group}/schemata").split() == ["MB:0=50", "L3:0=3"]
        assert tree.cpus(group) == (0, 3)
        assert tree.cpus("batch") == ()

    assert tree.cpus("batch") == (3,)


@pytest.mark.parametrize(
    ("partitions", "match"),
    [
        ([Partition((0,), Isolation(0x1800))], "does not fit this cache"),
        ([Partition((0,), Isolation(0x3)), Partition((0,), Isolation(0xC))], "core 0 is in two partitions"),
    ],
)
def test_impossible_partitions_change_nothing(
    tree: ResctrlTree, text_of: Texts, partitions: list[Partition], match: str
) -> None:
    """What cannot be is refused before anything is written."""
    before = text_of(tree.root)

    with pytest.raises(SlomoError, match=match):
        ResctrlAllocator(tree).apply(partitions)

    assert text_of(tree.root) == before


def test_a_refused_partition_takes_the_others_back(tree: ResctrlTree, text_of: Texts) -> None:
    """When the kernel refuses one, its reason is told and the ones before are undone."""
    before = text_of(tree.root)

    with pytest.raises(TestbedError, match="core 77 is in no group"):
        ResctrlAllocator(tree).apply([Partition((0,), Isolation(0x3)), Partition((77,), Isolation(0xC))])

    assert text_of(tree.root) == before


def test_what_somebody_else_set_meanwhile_is_left(tree: ResctrlTree) -> None:
    """A core that an administrator moved stays where it was put, and undo says so."""
    applied = ResctrlAllocator(tree).apply([Partition((0,), Isolation(0x3))])
    tree.make_group("theirs")
    tree.write("theirs/cpus_list", "0")

    assert applied.undo().foreign == ("core:0",)
    assert tree.cpus("theirs") == (0,)
    assert tree.control_groups() == ("", "batch", "theirs")


def test_pqos_partitions_and_takes_back(program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Free classes are used, and everything is set back."""
    program("pqos", "fake_pqos.py")
    monkeypatch.setenv("FAKE_STATE", str(tmp_path / "state"))
    allocator = PqosAllocator()
    before = allocator._knobs.state()

    with allocator.apply([Partition((1,), Isolation(0x3, 50)), Partition((0,), Isolation(0x7FC))]):
        inside = allocator._knobs.state()

    assert inside.class_of == {0: 2, 1: 1}
    assert inside.classes[1] == {"llc@0": "0x3", "mba@0": "50"}
    assert allocator._knobs.state() == before


def test_pqos_refusing_a_core_takes_everything_back(
    program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Half an allocation does not stay."""
    program("pqos", "fake_pqos.py")
    monkeypatch.setenv("FAKE_STATE", str(tmp_path / "state"))
    allocator = PqosAllocator()
    before = allocator._knobs.state()
    monkeypatch.setenv("FAKE_REFUSES", "2")

    with pytest.raises(TestbedError, match="association error"):
        allocator.apply([Partition((1,), Isolation(0x3)), Partition((0,), Isolation(0x7FC))])

    assert allocator._knobs.state() == before


def test_a_host_that_cannot_partition_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways are named with their reasons."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("slomo.host.resctrl_tree.ROOT", Path("/no/such/tree"))
    if ResctrlAllocator().available()[0]:
        pytest.skip("this host has resctrl")

    with pytest.raises(TestbedError, match=r"cannot partition .* resctrl: .* pqos: "):
        choose_allocator()
