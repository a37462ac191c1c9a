"""What a host is told of chains, what it refuses, and where control groups are found."""

import errno
import os
from pathlib import Path

import pytest

from slomo.errors import ConfigurationError, InvalidValueError, TestbedError, UnknownNameError
from slomo.host.marker import RunMark, new_mark
from slomo.testbed.host.chains.looks import parse_line, result_of
from slomo.testbed.host.chains.moves import StageMove
from slomo.testbed.host.chains.plan import ChainRunSettings, render_plan, stage_flags
from slomo.testbed.host.chains.processor_groups import (
    GroupWeights,
    ProcessorTree,
    processor_tree,
    remove_orphan_groups,
)
from slomo.testbed.host.chains.run import scheduler_notes
from slomo.vocabulary.service_chains import ChainStage, ServiceChain, parse_chains
from slomo.vocabulary.workload import Workload
from slomo.workflow.chains.on_host import run_chains_on_host

CORE = min(os.sched_getaffinity(0))


def document(stage: str = "{cycles: 270, core: CORE}", chain: str = "{stages: [nat], mpps: 1}") -> str:
    return f"stages: {{nat: {stage}}}\nchains: {{web: {chain}}}".replace("CORE", str(CORE))


def test_a_plan_says_everything() -> None:
    """Rings, marks, stages with their groups and flags, and chains stand in the plan."""
    system = parse_chains(document("{nf: 'stateless-firewall(rules=100)', core: CORE}"))
    settings = ChainRunSettings(scheduler="batch", pressure=True, shared_rings=True, manager_core=CORE)

    lines = render_plan(system, settings, Path("/g"), {"nat": Path("/g/nat")}).splitlines()

    assert "ring 4096" in lines
    assert "pressure 1" in lines
    assert "shared 1" in lines
    assert "local 0" in lines
    assert lines[-4:-2] == ["group /g", "group /g/nat"]
    assert lines[-2] == f"stage nat {CORE} batch /g/nat --nf firewall --rules 100"
    assert lines[-1] == "chain web 1 1024 64 nat"


def test_what_changes_over_time_stands_in_the_plan() -> None:
    """A stage whose cost changes says when and to what, a chain when it sends."""
    system = parse_chains(
        document("{cycles: 550, core: CORE, cycles_from: {30: 550, 15: 1650}}", "{stages: [nat], mpps: 1, to_ms: 5}")
    )

    stage, _, times = render_plan(system, ChainRunSettings(manager_core=CORE)).splitlines()[-3:]

    assert stage == f"stage nat {CORE} normal - --nf compute --cycles 550 --cycles-from 15:1650,30:550"
    assert times == "when web 0 5"
    with pytest.raises(InvalidValueError, match="'nat' cannot move: its successor would begin cycles_from anew"):
        render_plan(system, ChainRunSettings(manager_core=CORE, moves=(StageMove("nat", CORE, 0.1),)))


def test_flags_come_from_the_description() -> None:
    """A shipped function's own settings become flags; what the chain decides is left out."""
    words = stage_flags(ChainStage("c", 0, workload=Workload("synthetic", {"data_size_mib": 8})))

    assert words[words.index("--data-size-mib") + 1] == "8"
    assert "--rate-mpps" not in words
    assert "--packet-size-b" not in words
    assert stage_flags(ChainStage("d", 0, workload=Workload("dpi", {"patterns": 50}))) == (
        "--nf", "dpi", "--patterns", "50",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("stage", "chain", "kind", "message"),
    [
        ("{nf: nothing, core: CORE}", "{stages: [nat], mpps: 1}", UnknownNameError, "of stage 'nat'"),
        ("{cycles: 9, core: 4000}", "{stages: [nat], mpps: 1}", InvalidValueError, "stages.nat.core is 4000"),
        ("{cycles: 9, core: CORE}", "{stages: [nat], kind: tcp, mpps: 1}", InvalidValueError, "needed 590 B"),
        (
            "{nf: nat, core: CORE}",
            "{stages: [nat], kind: tcp, mpps: 1, packet_size_b: 1500}",
            InvalidValueError,
            "stage 'nat' (nat) rewrites addresses",
        ),
        (
            "{cycles: 9, core: CORE}",
            "{stages: [nat], kind: tcp, mpps: 1, packet_size_b: 1500, to_ms: 5}",
            InvalidValueError,
            "tcp and has a start or end time",
        ),
        ("{nf: nat, core: CORE, cycles_from: {1: 5}}", "{stages: [nat], mpps: 1}", ConfigurationError, "to begin with"),
        ("{cycles: 9, core: CORE}", "{stages: [nat, nat], mpps: 1}", ConfigurationError, "comes back to nat"),
        ("{cycles: 9, core: CORE}", "{stages: [net], mpps: 1}", ConfigurationError, "did you mean 'nat'"),
        (
            "{cycles: 9, core: CORE, shares: 300000}",
            "{stages: [nat], mpps: 1}",
            ConfigurationError,
            "chains.yaml: stage 'nat': 300000",
        ),
        (
            "{cycles: 9, core: CORE}",
            "{stages: [nat], mpps: 1, packet_size_b: 4000}",
            ConfigurationError,
            "a buffer holds 2048 B",
        ),
    ],
)
def test_what_no_host_runs_is_refused(stage: str, chain: str, kind: type[Exception], message: str) -> None:
    """Unknown functions and stages, missing cores, TCP, its times, cycles, weights and sizes beyond limits."""
    with pytest.raises(kind) as refused:
        render_plan(parse_chains(document(stage, chain)), ChainRunSettings(manager_core=CORE))
    assert message in str(refused.value)


def test_a_chain_with_more_stages_than_cores_is_told_with_file_and_field(tmp_path: Path) -> None:
    """A stage on a core that this process may not use, in a document."""
    file = tmp_path / "web.yaml"
    file.write_text("stages: {nat: {cycles: 9, core: 4000}}\nchains: {web: {stages: [nat], mpps: 1}}")
    with pytest.raises(ConfigurationError, match=r"web\.yaml: stages\.nat\.core is 4000, this process may use"):
        run_chains_on_host(str(file), "cfs")


def test_a_function_of_another_program_is_refused(tmp_path: Path) -> None:
    """A stage must take its packets from our ring, so a function that another program is cannot be one."""
    file = tmp_path / "other.yaml"
    host = "{command: [other, '{core}'], throughput: {source: json-lines, packets: packets}}"
    file.write_text(f"description: another program\nsimulated: {{compute_cycles: 9, instructions: 9}}\nhost: {host}\n")

    with pytest.raises(ConfigurationError, match="takes no packets from a chain's ring"):
        stage_flags(ChainStage("x", 0, workload=Workload(str(file))))


def test_odd_rings_and_long_names_are_refused() -> None:
    """A ring is a power of two, a name fits the program's tables."""
    with pytest.raises(ConfigurationError, match="a ring of 1000 packets, needed a power of two"):
        parse_chains("queue: {capacity: 1000}\n" + document())
    system = parse_chains(document())
    long = type(system)(system.stages, (ServiceChain("w" * 40, ("nat",), mpps=1.0),))
    with pytest.raises(InvalidValueError, match="longer than 31 letters"):
        render_plan(long, ChainRunSettings(manager_core=CORE))


def fake_tree(folder: Path, version: int) -> tuple[Path, Path]:
    membership = folder / "membership"
    inner = folder / "cpu" / "own" if version == 1 else folder / "own"
    inner.mkdir(parents=True)
    if version == 1:
        (inner / "cpu.shares").write_text("1024\n")
        membership.write_text("3:cpu,cpuacct:/own\n0::/\n")
    else:
        (inner / "cgroup.controllers").write_text("cpuset cpu io\n")
        membership.write_text("0::/own\n")
    return folder, membership


@pytest.mark.parametrize("version", [1, 2])
def test_the_tree_is_found_where_this_process_is(tmp_path: Path, version: int) -> None:
    """Groups are made below our own one, of the version that is mounted, and weights are written as it wants them."""
    tree = processor_tree(*fake_tree(tmp_path, version))
    mark = new_mark()
    parent, groups = tree.paths(mark, ["nat"])

    assert tree.version == version
    assert tree.root.name == "own"
    assert parent.name == mark.text
    groups["nat"].mkdir(parents=True)
    (groups["nat"] / tree.file).write_text("")
    weights = GroupWeights(tree, groups)
    assert weights.write("nat", 512)
    assert not weights.write("nat", 512)
    with pytest.raises(InvalidValueError, match="the kernel takes"):
        weights.write("nat", tree.most + 1)
    weights.close()
    assert (groups["nat"] / tree.file).read_text() == "512"
    assert weights.changes == 1


def test_a_look_read_after_the_end_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight for a group that the watcher has removed is no fault: the run is over."""
    tree = processor_tree(*fake_tree(tmp_path, 1))
    (tmp_path / "nat").mkdir()
    (tmp_path / "nat" / tree.file).write_text("")
    weights = GroupWeights(tree, {"nat": tmp_path / "nat"})

    def gone(*_: object) -> int:
        raise OSError(errno.ENODEV, "No such device")

    monkeypatch.setattr(os, "pwrite", gone)

    assert not weights.write("nat", 512)
    assert weights.changes == 0
    weights.close()


def test_no_tree_says_what_to_grant(tmp_path: Path) -> None:
    """Without a controller, or without the right to write, the error says what to do."""
    with pytest.raises(TestbedError, match="no control group with a processor controller"):
        processor_tree(tmp_path, tmp_path / "nothing")


def test_groups_of_dead_runs_are_removed(tmp_path: Path) -> None:
    """Groups whose maker is gone go; those of living makers, and those of others, stay."""
    dead, alive = RunMark("00000000", 1, 1, 0), new_mark()
    for name in (dead.text, alive.text, "slomo-elsewhere", "system.slice"):
        (tmp_path / name / "nat").mkdir(parents=True)

    removed = remove_orphan_groups(ProcessorTree(tmp_path, 1))

    assert removed == (str(tmp_path / dead.text),)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([alive.text, "slomo-elsewhere", "system.slice"])


def test_a_refused_scheduler_is_said_with_what_to_grant() -> None:
    """The note names stage, scheduler, the kernel's reason and the right that is missing."""
    assert scheduler_notes({"name": "nat", "scheduler_error": 0}, "rr") == ()
    (text,) = scheduler_notes({"name": "nat", "scheduler_error": 1}, "rr")
    assert "CAP_SYS_NICE" in text


def test_an_end_without_time_is_no_result() -> None:
    """A run that was stopped before it measured anything is an error, and other lines are none of ours."""
    assert parse_line("EAL: something") is None
    assert parse_line("[1]") is None
    with pytest.raises(TestbedError, match="before anything was measured"):
        result_of({"seconds": 0.0})
