"""Run chains on this machine: start the manager process, pass on its reports, and clean up.

As in OpenNetVM and NFVnice (SIGCOMM'17), the manager is a process of its own, and this process sets the stages'
weights.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from slomo.errors import TestbedError, UsageError
from slomo.host.cores import available_cores
from slomo.host.marker import RunMark, new_mark
from slomo.host.orphans import kill_marked, remove_files_of, remove_orphans
from slomo.host.process import ManagedProcess
from slomo.testbed.host.build import slomo_nf_binary
from slomo.testbed.host.chains.looks import ChainLook, HostChainResult, look_of, parse_line, result_of, understood
from slomo.testbed.host.chains.moves import MoveOutcome, StageMove, outcome_of
from slomo.testbed.host.chains.plan import LOOK_MS, ChainRunSettings, render_plan
from slomo.testbed.host.chains.processor_groups import (
    GroupWeights,
    ProcessorTree,
    processor_tree,
    remove_orphan_groups,
)
from slomo.vocabulary.service_chains import ChainSystem

#: Function called with every report and the writer of weights, which is None without control groups.
Watcher = Callable[[ChainLook, GroupWeights | None], None]
#: Function called with every report while no stage moves; returns stages to move now.
Migration = Callable[[ChainLook], Sequence[StageMove]]
_START_LIMIT_S = 60.0
_END_LIMIT_S = 5.0
_USAGE = 2


def run_on_host(
    system: ChainSystem,
    settings: ChainRunSettings,
    watch: Watcher | None = None,
    migration: Migration | None = None,
    on_move: Callable[[MoveOutcome], None] | None = None,
) -> HostChainResult:
    """Run chains on this machine for the time in `settings` and return the result.

    `watch`, and `migration` while no stage moves, are called every 10 ms; `on_move` when a stage has moved.
    """
    remove_orphans()
    mark = new_mark()
    tree, notes = _tree(settings)
    parent, groups = (None, None) if tree is None else tree.paths(mark, [stage.name for stage in system.stages])
    watch = watch if tree is not None else None  # without groups no weight can be set, so no report is needed
    live = migration is not None
    settings = replace(settings, looks=watch is not None or live, live=live)
    plan = render_plan(system, settings, parent, groups)
    words = [str(slomo_nf_binary(settings.build)), "--die-with-parent", "--chain", plan]
    process = ManagedProcess("chains", words, available_cores(), mark, listens=live)
    run = _Run(system, settings, watch, tree, parent, groups)
    run.migration, run.send, run.told = migration, process.write, on_move
    try:
        process.on_line("stdout", run.take)
        process.listen()
        run.wait(process)
    finally:
        process.stop(limit_s=_END_LIMIT_S)
        run.close()
        _clean(mark, parent)
    if run.last is None:
        raise _failure(process)
    result = run.result()
    return replace(result, notes=(*notes, *run.notes, *result.notes))


def _failure(process: ManagedProcess) -> Exception:
    text = process.last_words().strip()
    if process.exit_code == _USAGE:  # the program lacks a stage's setting, and names it
        return UsageError(f"the chains' program refuses its settings. {text}", hint="correct the stages' settings")
    return TestbedError(f"the chains ended without a result. {text}", hint="see `slomo doctor`")


def _tree(settings: ChainRunSettings) -> tuple[ProcessorTree | None, tuple[str, ...]]:
    """Return the cgroup hierarchy for CPU weights; None under a real-time scheduler, which ignores weights."""
    if settings.scheduler == "rr":
        return None, ()
    try:
        tree = processor_tree()
    except TestbedError as problem:
        return None, (f"running without weights: {problem.message} ({problem.hint})",)
    remove_orphan_groups(tree)
    return tree, ()


def _clean(mark: RunMark, parent: Path | None) -> None:
    """Wait until the watchdog has removed the control groups, then kill and delete all other remains of this run."""
    deadline = time.monotonic() + _END_LIMIT_S
    while parent is not None and parent.exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    kill_marked(mark)
    remove_files_of(mark)


class _Run:
    """State of one run, from the lines received so far."""

    def __init__(
        self,
        system: ChainSystem,
        settings: ChainRunSettings,
        watch: Watcher | None,
        tree: ProcessorTree | None,
        parent: Path | None,
        groups: dict[str, Path] | None,
    ) -> None:
        self._system, self._settings, self._watch = system, settings, watch
        self._tree, self._parent, self._groups = tree, parent, groups
        self._weights: GroupWeights | None = None
        self._begun_s = self._control_s = 0.0
        self._done = threading.Event()
        self._cores = {stage.name: stage.core for stage in system.stages}
        self.notes: list[str] = []
        self.moves: list[MoveOutcome] = []
        self.series: list[ChainLook] = []
        self.migration: Migration | None = None
        self.send: Callable[[str], None] | None = None
        self.told: Callable[[MoveOutcome], None] | None = None
        #: Requested moves that are neither done nor given up, by stage.
        self._moving: dict[str, StageMove] = {}
        #: Stages of the settings' moves that are neither done nor given up.
        self._planned = [move.stage for move in settings.moves]
        self.last: dict[str, Any] | None = None
        self.problem: BaseException | None = None

    def take(self, _: float, text: str) -> None:
        """Process one line of the manager's output; the reading thread keeps errors for the main thread."""
        if not (self._settings.looks or self._settings.series_ms) and '"observe"' in text[:20]:
            return
        line = parse_line(text)
        try:
            if line is not None:
                with understood():
                    self._handle(line)
        except BaseException as problem:
            self.problem = problem
            self._done.set()

    def _handle(self, line: dict[str, Any]) -> None:
        if line["event"] in ("moved", "stayed") and line["stage"] in self._planned:
            self._planned.remove(line["stage"])
        if line["event"] == "observe":
            look = look_of(line, tuple(self._cores.values()))
            if self._watch is not None:
                self._watch(look, self._weights)
            if self._settings.series_ms:
                self._keep(look)
            if self.migration is not None and self.send is not None and not self._moving:
                moves = self.migration(look)
                self._moving = {move.stage: move for move in moves}
                self.send("".join(f"{move.statement}\n" for move in moves))
        elif line["event"] == "moved":
            asked = self._moving.pop(line["stage"], None)
            self.moves.append(outcome_of(line, asked.reason if asked else ""))
            self._cores[line["stage"]] = line["cpu"]
            if self.told is not None:
                self.told(self.moves[-1])
        elif line["event"] == "stayed":
            self._moving.pop(line["stage"], None)
            node = f", node {line['node']}" if line["node"] >= 0 else ""
            where = f"core {line['cpu']}{node}"
            self.notes.append(f"stage '{line['stage']}' stayed where it was: it could not start on {where}")
        elif line["event"] == "ready":
            self._begin(line)
        elif line["event"] == "end":
            self._control_s = time.process_time() - self._begun_s
            left = (*self._moving, *self._planned)
            self.notes += [f"stage '{name}' was still to move when the run ended" for name in left]
            self.last = line
            self._done.set()

    def _keep(self, look: ChainLook) -> None:
        # tolerance of half an interval: the manager's reports are 10 ms of its own clock apart, plus or minus a round
        if not self.series or look.time_s - self.series[-1].time_s > (self._settings.series_ms - LOOK_MS / 2) / 1e3:
            self.series.append(look)

    def _begin(self, line: dict[str, Any]) -> None:
        self.notes += [note for stage in line["stages"] for note in scheduler_notes(stage, self._settings.scheduler)]
        if self._tree is not None and self._parent is not None and self._groups is not None:
            self._weights = GroupWeights(self._tree, {"": self._parent, **self._groups})
            # the chains' group gets the largest weight: their cores are meant for them, other programs get what is left
            self._weights.write("", self._tree.most)
            for stage in self._system.stages:
                self._weights.write(stage.name, self._tree.weight_of(stage.shares))
        self._begun_s = time.process_time()

    def wait(self, process: ManagedProcess) -> None:
        """Wait until the run ends or fails."""
        limit_s = _START_LIMIT_S + self._settings.warm_up_ms / 1e3 + self._settings.seconds
        deadline = time.monotonic() + limit_s
        while not self._done.wait(0.2):
            if not process.alive:
                self._done.wait(0.5)
                break
            if time.monotonic() > deadline:
                raise TestbedError(f"the chains did not end within {limit_s:.0f} s.{process.last_words()}")
        if self.problem is not None:
            raise self.problem

    def result(self) -> HostChainResult:
        """Return the result of the finished run."""
        assert self.last is not None
        chain_result = result_of(self.last)
        whole_s = chain_result.seconds + self._settings.warm_up_ms / 1e3
        changes = 0 if self._weights is None else self._weights.changes
        return replace(
            chain_result,
            notes=ecn_notes(chain_result),
            control_share=self._control_s / whole_s,
            weight_writes=changes,
            moves=tuple(self.moves),
            series=tuple(self.series),
        )

    def close(self) -> None:
        """Close the files of the groups' weights."""
        if self._weights is not None:
            self._weights.close()


def ecn_notes(result: HostChainResult) -> tuple[str, ...]:
    """Return a note for each TCP chain whose ends did not agree on ECN."""
    return tuple(
        f"chains.{chain.name}.kind is tcp, but its ends did not agree on ECN: it hears of losses alone "
        "(nfvnice without `--without ecn` asks for it)"
        for chain in result.chains
        if chain.tcp is not None and not chain.tcp.ecn
    )


def scheduler_notes(stage: dict[str, Any], scheduler: str) -> Sequence[str]:
    """Return a note for a stage to which the kernel refused the scheduler; it names the privilege to grant."""
    number = stage["scheduler_error"]
    if not number:
        return ()
    return (
        f"stage '{stage['name']}' runs under the normal scheduler, not {scheduler}: {os.strerror(number)} "
        "(grant CAP_SYS_NICE, for instance `setcap cap_sys_nice+ep` on slomo-nf, or rtprio 1 in limits.conf)",
    )
