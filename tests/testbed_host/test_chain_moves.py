"""Stages that move while packets come: nothing is lost, and what cannot move stays."""

import os
import shutil
from pathlib import Path

import pytest

from slomo.errors import InvalidValueError
from slomo.testbed.host.chains.moves import StageMove, pages_by_node, parse_move
from slomo.testbed.host.chains.plan import ChainRunSettings
from slomo.vocabulary.service_chains import parse_chains
from slomo.workflow.chains.on_host import run_chains_on_host

CORE = max(os.sched_getaffinity(0))
SYSTEM = parse_chains(
    f"stages: {{fs: {{nf: flowstats, core: {CORE}}}, fw: {{nf: l2fwd, core: {CORE}}}}}\n"
    "chains: {web: {stages: [fs, fw], mpps: 0.01}}"
)


def settings(*moves: StageMove) -> ChainRunSettings:
    return ChainRunSettings(seconds=0.8, warm_up_ms=100.0, moves=moves)


@pytest.mark.skipif(shutil.which(os.environ.get("CC", "cc")) is None, reason="there is no C compiler")
def test_a_stage_moves_back_and_forth_without_loss_and_one_that_cannot_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each packet of a hundred microseconds waits in a ring of four thousand while hands change."""
    there, back = StageMove("fs", CORE, 0.3), StageMove("fs", CORE, 0.5, node=0)
    nowhere = StageMove("fw", CORE, 0.4, node=900)
    monkeypatch.setattr(
        "slomo.testbed.host.chains.moves.memory_nodes", lambda: ()
    )  # as before the node lost its memory

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
    monkeypatch.setattr("slomo.testbed.host.chains.moves.memory_nodes", lambda: (0, 1))
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
