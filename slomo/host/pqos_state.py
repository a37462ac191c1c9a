"""What Intel's ``pqos -s`` says: classes with their settings, and the class of every core."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from slomo.errors import TestbedError
from slomo.host.tool import run_tool

_LIMIT_S = 15.0


@dataclass(frozen=True)
class PqosState:
    """Classes and cores.

    Attributes
    ----------
    classes : dict
        Class -> (``"llc@0"`` or ``"mba@0"`` for socket 0) -> value.
    class_of : dict
        Core -> class.
    """

    classes: dict[int, dict[str, str]]
    class_of: dict[int, int]

    def words(self, number: int) -> tuple[str, ...]:
        """Return the options of ``pqos -e`` that set a class as it is."""
        return tuple(f"{kind}:{number}={value}" for kind, value in self.classes[number].items())


def parse_pqos_state(text: str) -> PqosState:
    r"""Read what ``pqos -s`` prints.

    Examples
    --------
    >>> parse_pqos_state("definitions for Socket 0:\n L3CA COS1 => MASK 0x3\n Core 0, L3ID 0 => COS1").words(1)
    ('llc@0:1=0x3',)
    """
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
    """Run pqos and return what it printed.

    Raises
    ------
    TestbedError
        If it fails, with what it said.
    """
    finished = run_tool(list(words), _LIMIT_S)
    # An unknown option prints the usage and ends with 0.
    if finished.code != 0 or finished.stdout.lstrip().startswith("Usage"):
        spoken = [line.strip() for line in finished.stdout.splitlines() if "!" in line or "ERROR" in line]
        raise TestbedError(
            f"'{' '.join(finished.words)}' failed (exit code {finished.code}): "
            f"{' | '.join(spoken[:3]) or finished.last_words()}",
            hint="see `slomo doctor` for what this processor can allocate",
        )
    return finished.stdout
