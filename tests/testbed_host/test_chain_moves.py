"""Stages that move while packets come: nothing is lost, and what cannot move stays."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slomo.errors import ConfigurationError, InvalidValueError, TestbedError
from slomo.host.cores import cores_by_node
from slomo.host.orphans import marked_processes
from slomo.testbed.host.chains.looks import ChainLook
from slomo.testbed.host.chains.moves import StageMove, pages_by_node, parse_move
from slomo.testbed.host.chains.plan import ChainRunSettings
from slomo.testbed.host.chains.run import _Run, run_on_host
from slomo.vocabulary.service_chains import parse_chains
from slomo.workflow.chains import on_host
from slomo.workflow.chains.on_host import NodeMigration, run_chains_on_host
from tests.testbed_host.test_chain_runs import family_of

CORE = max(os.sched_getaffinity(0))
SYSTEM = parse_chains(
    f"stages: {{fs: {{nf: flowstats, core: {CORE}}}, fw: {{nf: l2fwd, core: {CORE}}}}}\n"
    "chains: {web: {stages: [fs, fw], mpps: 0.01}}"
)


def settings(*moves: StageMove) -> ChainRunSettings:
    return ChainRunSettings(seconds=0.8, warm_up_ms=100.0, moves=moves)


needs_compiler = pytest.mark.skipif(shutil.which(os.environ.get("CC", "cc")) is None, reason="there is no C compiler")


def test_a_move_that_was_still_to_come_at_the_end_is_named() -> None:
    """Of two moves of a stage the first took until the end: that the second was not made is told."""
    run = _Run(SYSTEM, settings(StageMove("fs", CORE, 0.1), StageMove("fs", CORE, 0.4)), None, None, None, None)
    run.take(0.0, '{"event": "stayed", "stage": "fs", "cpu": 0, "node": -1}')
    run.take(0.0, '{"event": "end"}')
    assert run.notes[1:] == ["stage 'fs' was still to move when the run ended"]


@needs_compiler
def test_a_stage_moves_back_and_forth_without_loss_and_one_that_cannot_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each packet of a hundred microseconds waits in a ring of four thousand while hands change."""
    there, back = StageMove("fs", CORE, 0.3), StageMove("fs", CORE, 0.5, node=0)
    nowhere = StageMove("fw", CORE, 0.4, node=900)
    monkeypatch.setattr("slomo.testbed.host.chains.moves.cores_by_node", dict)  # as before the node lost its memory

    result = run_chains_on_host(SYSTEM, "nfvnice", settings=settings(there, back, nowhere))

    chain = result.chains[0]
    assert chain.lost_at_entry == chain.lost_behind == 0
    assert [(move.stage, move.core) for move in result.moves] == [("fs", CORE), ("fs", CORE)]
    assert all(sum(move.pages.values()) > 10 for move in result.moves if move.pages)
    assert all(stage.processor_share > 0.0 for stage in result.stages)
    assert [
        note
        for note in result.notes
        if f"'fw' stayed where it was: it could not start on core {CORE}, node 900" in note
    ]


@pytest.mark.parametrize("text", ["fs", "fs=1", "fs=x@1", "fs=1@-1", "=1@1", "fs=1:2:3@1"])
def test_what_is_no_move_is_refused(text: str) -> None:
    with pytest.raises(InvalidValueError, match="is no move of a stage"):
        parse_move(text)


@pytest.mark.parametrize(
    ("move", "message"),
    [
        (StageMove("nat", CORE, 0.1), "'nat' cannot move: there are fs, fw"),
        (StageMove("fs", 4000, 0.1), "core 4000"),
        (StageMove("fs", CORE, 0.1, node=2), "'fs' cannot move to node 2: nodes with memory are 0, 1"),
    ],
)
def test_moves_of_nobody_or_to_nowhere_are_refused(
    move: StageMove, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slomo.testbed.host.chains.moves.cores_by_node", lambda: {0: (), 1: ()})
    with pytest.raises(InvalidValueError, match=message):
        run_chains_on_host(SYSTEM, "cfs", settings=settings(move))


def test_pages_are_counted_by_node_without_what_is_shared(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "numa_maps").write_text(
        "55e0 default heap anon=12 dirty=12 N0=2 N1=10 kernelpagesize_kB=4\n"
        "7f00 default file=/dev/zero\\040(deleted) anon=3 dirty=900 N0=900\n"
        "7f10 bind:1 anon=5 dirty=5 N1=5 kernelpagesize_kB=4\n"
    )
    assert pages_by_node(7, tmp_path) == {0: 2, 1: 15}
    assert pages_by_node(8, tmp_path) == {}


NODES = {0: (0, 1, 2, 3), 1: (4, 5, 6, 7)}
TWO = parse_chains(
    "stages: {a: {nf: l2fwd, core: 4}, b: {nf: flowstats, core: 1}, c: {nf: l2fwd, core: 2}}\n"
    "chains: {slow: {stages: [b, c], mpps: 1}, fast: {stages: [a], mpps: 2}}"
)


def looks_like(*offered: int, time_s: float, cores: tuple[int, ...]) -> ChainLook:
    return ChainLook(time_s, (), (), cores, offered, offered)


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slomo.testbed.host.chains.moves.available_cores", lambda: tuple(range(8)))
    monkeypatch.setattr("slomo.host.cores.available_cores", lambda: tuple(range(8)))


@pytest.mark.usefixtures("eight_cores")
def test_nodes_are_read_with_the_cores_that_may_be_used(tmp_path: Path) -> None:
    """Of a recorded machine a node without memory is left out, and a core that is not ours."""
    (tmp_path / "has_memory").write_text("0,2\n")
    for node, cores in enumerate(("0-3", "4-5", "6-11")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(f"{cores}\n")

    assert cores_by_node(tmp_path) == {0: (0, 1, 2, 3), 2: (6, 7)}
    assert cores_by_node(tmp_path / "nothing") == {}


@pytest.mark.usefixtures("eight_cores")
def test_numasfp_moves_whole_chains_as_measured_rates_change() -> None:
    """The fastest chain is put on the manager's node, whole; what stays there keeps its core."""
    nodes = {node: cores[:3] for node, cores in NODES.items()}
    migration = NodeMigration(TWO, "numasfp", 1.0, nodes, manager=0)  # two free cores beside the manager
    first = looks_like(400_000, 800_000, time_s=0.5, cores=(4, 1, 2))
    then = looks_like(1_000_000, 2_000_000, time_s=1.0, cores=(4, 1, 2))
    after = looks_like(4_000_000, 3_000_000, time_s=2.0, cores=(1, 4, 5))

    assert migration(first) == []
    moves = migration(then)
    assert [(move.stage, move.core, move.node) for move in moves] == [("c", 5, 1), ("b", 4, 1), ("a", 1, 0)]
    assert moves[-1].reason == "numasfp at fast 2, slow 1 Mpps to node 0"
    assert [(move.stage, move.core, move.node) for move in migration(after)] == [("c", 2, 0), ("b", 1, 0), ("a", 4, 1)]


@pytest.mark.usefixtures("eight_cores")
def test_a_static_policy_decides_once_and_what_stayed_is_asked_again() -> None:
    """Octans keeps its first choice when rates change; a stage that did not get there is moved again."""
    nodes = {node: cores[:3] for node, cores in NODES.items()}
    migration = NodeMigration(TWO, "octans", 1.0, nodes, manager=0)
    moves = migration(looks_like(1, 2, time_s=1.0, cores=(4, 1, 2)))
    stayed = migration(looks_like(9, 3, time_s=2.0, cores=(4, 5, 6)))

    assert [(move.stage, move.node) for move in moves] == [("c", 1), ("b", 1), ("a", 0)]
    assert [(move.stage, move.core, move.node) for move in stayed] == [("a", 1, 0)]


@pytest.mark.parametrize(
    ("text", "nodes", "error", "message"),
    [
        ("a: {stages: [x]}", {0: (0, 1)}, TestbedError, "only 1 of this machine's 1 has CPUs beside the manager's"),
        ("a: {stages: [x]}", {0: (0,), 1: (1, 2)}, TestbedError, "only 1 of this machine's 2 has CPUs beside"),
        ("a: {stages: [x]}", {}, TestbedError, "only 0 of this machine's 0"),
        ("a: {stages: [x, y]}, b: {stages: [y]}", NODES, InvalidValueError, "stage 'y' is in 2 chains"),
        ("a: {stages: [x, y, z]}", {0: (0, 1), 1: (2,)}, InvalidValueError, "3 stages, 'numasfp' has 2 CPUs"),
        ("a: {stages: [w]}", NODES, InvalidValueError, "stage 'w' cannot move: its successor would begin cycles_from"),
    ],
)
@pytest.mark.usefixtures("eight_cores")
def test_chains_that_cannot_be_placed_on_nodes_are_refused(
    text: str, nodes: dict[int, tuple[int, ...]], error: type[Exception], message: str
) -> None:
    """The refusal names what is missing: a second node, a stage per chain, cores."""
    stages = "x: {cycles: 9, core: 1}, y: {cycles: 9, core: 1}, z: {cycles: 9, core: 1}"
    system = parse_chains(f"stages: {{{stages}, w: {{cycles: 9, core: 1, cycles_from: {{1: 8}}}}}}\nchains: {{{text}}}")
    with pytest.raises(error, match=message):
        NodeMigration(system, "numasfp", 1.0, nodes, manager=0)


@pytest.mark.parametrize(
    ("interval_s", "moves", "message"),
    [
        (10.0, (), r"chains.yaml: 'numasfp' decides every 10 s, but the chains run for 0.9 s"),
        (0.5, (StageMove("fs", CORE, 0.1),), r"chains.yaml: 'numasfp' moves stages itself, but 1 moves are given"),
    ],
)
def test_a_run_that_the_policy_cannot_decide_is_refused_with_the_file(
    interval_s: float, moves: tuple[StageMove, ...], message: str, tmp_path: Path
) -> None:
    """No decision within the run, or moves of its own, are errors about the document's run."""
    (tmp_path / "chains.yaml").write_text(
        f"stages: {{fs: {{cycles: 9, core: {CORE}}}}}\nchains: {{web: {{stages: [fs]}}}}"
    )
    with pytest.raises(ConfigurationError, match=message):
        run_chains_on_host(str(tmp_path / "chains.yaml"), "numasfp", settings=settings(*moves), interval_s=interval_s)


@pytest.mark.usefixtures("eight_cores")
def test_numasfp_decides_within_a_run_of_any_length_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every ten seconds as published, in a shorter run at half of it, so that `--policy numasfp` alone runs."""
    monkeypatch.setattr(on_host, "cores_by_node", lambda: NODES)
    for seconds, interval_s in ((ChainRunSettings.seconds, 1.15), (60.0, 10.0)):
        migration = on_host._migration(TWO, "numasfp", None, ChainRunSettings(seconds=seconds, manager_core=0))
        assert migration(looks_like(1, 1, time_s=0.99 * interval_s, cores=(4, 1, 2))) == []
        assert migration(looks_like(1, 2, time_s=interval_s, cores=(4, 1, 2)))


@needs_compiler
def test_stages_move_while_the_chains_run_and_the_caller_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moves that are decided from the chains' state are carried out one after the other, each told with its reason."""
    asked: list[StageMove] = []

    def migration(look: ChainLook) -> list[StageMove]:
        if len(asked) > 2 or look.offered[0] == 0:
            return []
        asked.append(StageMove("fs", CORE, look.time_s, reason=f"move {len(asked)}"))
        return [asked[-1], StageMove("fw", CORE, look.time_s, node=900)]

    told: list[str] = []
    monkeypatch.setattr("slomo.testbed.host.chains.moves.cores_by_node", dict)

    result = run_on_host(SYSTEM, settings(), migration=migration, on_move=lambda moved: told.append(str(moved)))

    chain = result.chains[0]
    assert chain.lost_at_entry == chain.lost_behind == 0
    assert [move.reason for move in result.moves] == ["move 0", "move 1", "move 2"]
    assert len(told) == 3
    assert f"fs moved to core {CORE} at {asked[0].at_s:g} s (move 0): ready after" in told[0]
    assert sum("'fw' stayed where it was" in note for note in result.notes) == 3


MOVING = """
import sys
from slomo.testbed.host.chains.moves import StageMove
from slomo.testbed.host.chains.plan import ChainRunSettings
from slomo.testbed.host.chains.run import run_on_host
from slomo.vocabulary.service_chains import parse_chains
core = int(sys.argv[1])
system = parse_chains(f"stages: {{s: {{nf: flowstats, core: {core}}}}}\\nchains: {{web: {{stages: [s], mpps: 0.01}}}}")
move = lambda look: [StageMove("s", core, look.time_s)]
run_on_host(system, ChainRunSettings(seconds=30), migration=move, on_move=lambda moved: print(moved, flush=True))
"""


@needs_compiler
@pytest.mark.slow
def test_killed_while_stages_move_it_leaves_no_process() -> None:
    """Neither the old process of a stage nor its successor outlives the run, whichever process is killed."""
    draw = random.Random(11)
    for kill in range(4):
        with subprocess.Popen([sys.executable, "-c", MOVING, str(CORE)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()  # moves are under way
            time.sleep(draw.uniform(0.0, 0.1))
            os.kill(draw.choice([process.pid, *family_of(process.pid, 1)]) if kill else process.pid, signal.SIGKILL)
            process.stdout.read()
            process.wait(timeout=30)
        deadline = time.monotonic() + 60.0
        while (left := [pid for pid, mark in marked_processes().items() if mark.pid == process.pid]) and (
            time.monotonic() < deadline
        ):
            time.sleep(0.01)
        assert left == [], f"kill {kill}"
