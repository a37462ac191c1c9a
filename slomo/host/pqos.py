"""Read and write cache classes and their cores by Intel's ``pqos`` command.

Knobs: ``llc@0:1`` and ``mba@0:1`` (socket 0, class 1), ``core:3`` (the core's class).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slomo.errors import TestbedError
from slomo.host.knobs import Knobs
from slomo.host.tool import is_installed, package_hint, run_tool

_LIMIT_S = 15.0


@dataclass(frozen=True)
class PqosState:
    """Cache classes, and the class of each core."""

    #: Class -> resource (``"llc@0"`` or ``"mba@0"`` for socket 0) -> value.
    classes: dict[int, dict[str, str]]
    #: Core -> class.
    class_of: dict[int, int]


def parse_pqos_state(text: str) -> PqosState:
    """Parse the output of ``pqos -s``."""
    classes: dict[int, dict[str, str]] = {}
    socket = 0
    for line in text.splitlines():
        if match := re.search(r"definitions for Socket (\d+)", line):
            socket = int(match[1])
        elif match := re.match(r"\s*(L3CA|MBA) COS(\d+) => (?:MASK (0x[0-9a-f]+)|(\d+)%)", line):
            kind = "llc" if match[1] == "L3CA" else "mba"
            classes.setdefault(int(match[2]), {})[f"{kind}@{socket}"] = match[3] or match[4]
    cores = re.findall(r"^\s*Core (\d+),.*?=> COS(\d+)", text, flags=re.MULTILINE)
    return PqosState(classes, {int(core): int(number) for core, number in cores})


def run_pqos(words: Sequence[str]) -> str:
    """Run pqos and return its output. If pqos fails, raises TestbedError with that output."""
    finished = run_tool(list(words), _LIMIT_S)
    # for an unknown option, pqos prints its usage and exits with 0
    if finished.code != 0 or finished.stdout.lstrip().startswith("Usage"):
        spoken = [line.strip() for line in finished.stdout.splitlines() if "!" in line or "ERROR" in line]
        raise TestbedError(
            f"'{' '.join(finished.words)}' failed (exit code {finished.code}): "
            f"{' | '.join(spoken[:3]) or finished.last_words()}",
            hint="see `slomo doctor` for what this processor can allocate",
        )
    return finished.stdout


class PqosKnobs(Knobs):
    """Reads and writes cache classes and their cores by ``pqos``.

    `command`: program and options, for instance ``("pqos", "-I")``.
    """

    name = "pqos"

    def __init__(self, command: tuple[str, ...] = ("pqos",)) -> None:
        self.command = command

    def available(self) -> tuple[bool, str]:
        """Return whether pqos can report its classes on this host, and the reason if not."""
        if not is_installed(self.command[0]):
            return False, f"'{self.command[0]}' is not installed ({package_hint('pqos')})"
        try:
            state = self.state()
        except TestbedError as problem:
            return False, problem.message
        return True, f"{len(state.classes)} classes"

    def read(self, knob: str) -> str | None:
        """Return the present value of a setting."""
        kind, _, rest = knob.partition(":")
        state = self.state()
        if kind == "core":
            number = state.class_of.get(int(rest))
            return None if number is None else str(number)
        return state.classes.get(int(rest), {}).get(kind)

    def write(self, knob: str, value: str | None) -> None:
        """Give one setting a new value, by running ``pqos``."""
        kind, _, rest = knob.partition(":")
        words = ("-a", f"core:{value}={rest}") if kind == "core" else ("-e", f"{kind}:{rest}={value}")
        run_pqos([*self.command, *words])

    def knobs(self) -> Iterator[str]:
        """Return the names of the settings: those of classes, and the class of each core."""
        state = self.state()
        for number, settings in state.classes.items():
            yield from (f"{kind}:{number}" for kind in settings)
        yield from (f"core:{core}" for core in state.class_of)

    def state(self) -> PqosState:
        """Query pqos for the present classes and cores."""
        return parse_pqos_state(run_pqos([*self.command, "-s"]))
