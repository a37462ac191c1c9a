"""Stages that move to another CPU and memory node while their chains run, make before break.

NUMASFP (COMSNETS'22) migrates network functions so. The successor starts beside the process that runs the stage, builds
its tables on its node, and takes the rings over between two bursts; what flows it had seen stays behind.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slomo.errors import InvalidValueError
from slomo.host.cores import available_cores

_MOVE = re.compile(r"(?P<stage>[^=@]+)=(?P<core>\d{1,4})(:(?P<node>\d{1,4}))?@(?P<at>\d+(\.\d+)?)")
_PAGES = re.compile(r"\bN(\d+)=(\d+)")


@dataclass(frozen=True)
class StageMove:
    """A stage that moves."""

    #: Its name.
    stage: str
    #: CPU that it goes to.
    core: int
    #: When, since the first packet [s].
    at_s: float
    #: Memory node of what it allocates there; None is wherever the kernel puts it.
    node: int | None = None


@dataclass(frozen=True)
class MoveOutcome:
    """A move that was made."""

    #: Which stage.
    stage: str
    #: CPU that it runs on since.
    core: int
    #: When it was asked for, since the first packet [s].
    at_s: float
    #: Time that its successor took to be ready, while the stage went on [ms].
    prepared_ms: float
    #: Time in which nobody served its rings; packets waited in them [us].
    handover_us: float
    #: Memory node -> pages of its own there, right after the move; empty where the kernel does not say.
    pages: dict[int, int]


def parse_move(text: str) -> StageMove:
    """Return a move from its text; InvalidValueError for another text.

    Examples
    --------
    >>> parse_move("nat=2:1@0.5")
    StageMove(stage='nat', core=2, at_s=0.5, node=1)
    """
    match = _MOVE.fullmatch(text)
    if match is None:
        raise InvalidValueError(f"'{text[:60]}' is no move of a stage", hint="STAGE=CPU[:NODE]@SECONDS, as nat=2:1@0.5")
    node = match["node"]
    return StageMove(match["stage"], int(match["core"]), float(match["at"]), None if node is None else int(node))


def require_movable(moves: tuple[StageMove, ...], stages: tuple[str, ...]) -> None:
    """Refuse moves of stages or to CPUs that there are not; InvalidValueError naming the move."""
    cores = available_cores()
    for move in moves:
        if move.stage not in stages:
            raise InvalidValueError(f"stage '{move.stage}' cannot move: there are {', '.join(stages)}")
        if move.core not in cores:
            raise InvalidValueError(
                f"stage '{move.stage}' cannot move to core {move.core}: this process may use "
                f"{', '.join(map(str, cores))}"
            )


def pages_by_node(process_id: int, processes: Path = Path("/proc")) -> dict[int, int]:
    """Return a process' own pages by memory node; empty where the kernel does not say."""
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


def outcome_of(line: dict[str, Any]) -> MoveOutcome:
    """Return what the manager says of a move, and where the pages of the process are now."""
    return MoveOutcome(
        stage=line["stage"],
        core=line["cpu"],
        at_s=line["at_ms"] / 1e3,
        prepared_ms=line["prepared_ms"],
        handover_us=line["handover_us"],
        pages=pages_by_node(int(line["pid"])),
    )
