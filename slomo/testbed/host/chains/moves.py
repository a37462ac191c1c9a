"""Move stages to another CPU and memory node while their chains run; the new process is ready before the old one ends.

NUMASFP (COMSNETS'22) migrates network functions this way. The new process starts while the old one still runs, builds
its tables on its own memory node, and takes over the rings between two bursts; flow state is lost.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slomo.errors import InvalidValueError
from slomo.host.cores import available_cores, cores_by_node
from slomo.vocabulary.service_chains import ChainStage

_MOVE = re.compile(r"(?P<stage>[^=@]+)=(?P<core>\d{1,4})(:(?P<node>\d{1,4}))?@(?P<at>\d+(\.\d+)?)")
_PAGES = re.compile(r"\bN(\d+)=(\d+)")


@dataclass(frozen=True)
class StageMove:
    """A requested move of one stage to another CPU."""

    #: Name of the stage.
    stage: str
    #: CPU to which the stage moves.
    core: int
    #: Time of the move since the first packet [s].
    at_s: float
    #: Memory node for its allocations; None leaves that to the kernel.
    node: int | None = None
    #: Why the stage moves.
    reason: str = ""

    @property
    def statement(self) -> str:
        """The move as a statement of the native program's plan."""
        return f"move {self.stage} {self.core} {'-' if self.node is None else self.node} {1e3 * self.at_s:g}"


@dataclass(frozen=True)
class MoveOutcome:
    """Times and memory pages of a move that was carried out."""

    #: Name of the stage.
    stage: str
    #: CPU after the move.
    core: int
    #: Time of the request, since the first packet [s].
    at_s: float
    #: Time until the new process was ready, while the old one continued [ms].
    prepared_ms: float
    #: Time for which no process served the stage's rings, so that packets waited in them [us].
    handover_us: float
    #: Memory node -> number of the process's own pages right after the move; empty if the kernel does not report it.
    pages: dict[int, int]
    #: Why the stage moved.
    reason: str = ""

    def __str__(self) -> str:
        """Return the stage, its new place, why it moved and what the move cost, on one line."""
        pages = ", ".join(f"{count} on node {node}" for node, count in sorted(self.pages.items()))
        return (
            f"{self.stage} moved to core {self.core} at {self.at_s:g} s{self.reason and f' ({self.reason})'}: ready "
            f"after {self.prepared_ms:.1f} ms, rings unserved for {self.handover_us:.0f} us; its pages: "
            f"{pages or 'not told'}"
        )


def parse_move(text: str) -> StageMove:
    """Parse a move such as ``nat=2:1@0.5`` (to CPU 2 and node 1 after 0.5 s); InvalidValueError for another text."""
    match = _MOVE.fullmatch(text)
    if match is None:
        raise InvalidValueError(f"'{text[:60]}' is no move of a stage", hint="STAGE=CPU[:NODE]@SECONDS, as nat=2:1@0.5")
    node = match["node"]
    return StageMove(match["stage"], int(match["core"]), float(match["at"]), None if node is None else int(node))


def require_movable(moves: tuple[StageMove, ...], stages: Sequence[ChainStage]) -> None:
    """Raise InvalidValueError for moves of unknown stages, of a stage with `cycles_from`, or to a missing CPU or node.

    A node is missing if it has no memory; where the kernel does not list such nodes, all are accepted.
    """
    cores, nodes, named = available_cores(), cores_by_node(), {stage.name: stage for stage in stages}
    for move in moves:
        fault, hint = "", ""
        if move.stage not in named:
            fault = f": there are {', '.join(named)}"
        elif named[move.stage].cycles_from:
            fault, hint = ": its successor would begin cycles_from anew", "leave out the move, or cycles_from"
        elif move.core not in cores:
            fault = f" to core {move.core}: this process may use {', '.join(map(str, cores))}"
        elif nodes and move.node is not None and move.node not in nodes:
            fault = f" to node {move.node}: nodes with memory are {', '.join(map(str, nodes))}"
        if fault:
            raise InvalidValueError(f"stage '{move.stage}' cannot move{fault}", hint=hint or None)


def pages_by_node(process_id: int, processes: Path = Path("/proc")) -> dict[int, int]:
    """Return the number of a process's own pages by memory node; empty if the kernel does not report it."""
    try:
        text = (processes / str(process_id) / "numa_maps").read_text(encoding="ascii", errors="replace")
    except OSError:
        return {}
    pages: dict[int, int] = {}
    for line in text.splitlines():
        if " anon=" in line and " file=" not in line:
            for node, count in _PAGES.findall(line):
                pages[int(node)] = pages.get(int(node), 0) + int(count)
    return pages


def outcome_of(line: dict[str, Any], reason: str = "") -> MoveOutcome:
    """Return the manager's report of a move, with the present number of the process's pages on each node."""
    return MoveOutcome(
        stage=line["stage"],
        core=line["cpu"],
        at_s=line["at_ms"] / 1e3,
        prepared_ms=line["prepared_ms"],
        handover_us=line["handover_us"],
        pages=pages_by_node(int(line["pid"])),
        reason=reason,
    )
