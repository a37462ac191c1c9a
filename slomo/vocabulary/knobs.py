"""The settings ("knobs") of the synthetic competitor, as ``synthetic_nf/knobs.yaml`` defines them.

SLOMO (SIGCOMM'20) section 4.1 trains on a synthetic NF whose pressure is set by the size of its data, its accesses per
packet and its packet buffers.
"""

import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slomo.errors import ConfigurationError, InvalidValueError, UnknownNameError
from slomo.files.documents import parse
from slomo.vocabulary.workload import Setting


@dataclass(frozen=True)
class Knob:
    """One setting of the synthetic competitor."""

    #: The unit is empty for a choice.
    name: str
    unit: str
    #: ``"real"``, ``"integer"`` or ``"choice"``.
    kind: str
    #: Lowest and highest value, or the choices.
    range: tuple[Setting, ...]
    #: Default value.
    default: Setting
    description: str

    def check(self, value: Setting) -> Setting:
        """Return `value`; InvalidValueError for one of another type or out of range."""
        if self.kind == "choice":
            if value not in self.range:
                raise self._fault(value, "one of " + ", ".join(map(str, self.range)))
            return value
        low, high = float(self.range[0]), float(self.range[1])
        needed = f"{low:g} to {high:g} {self.unit}".rstrip()
        if isinstance(value, bool | str) or not math.isfinite(value) or not low <= value <= high:
            raise self._fault(value, needed)
        if self.kind == "integer" and value != int(value):
            raise self._fault(value, f"a whole number, {needed}")
        return value

    def _fault(self, value: Setting, needed: str) -> InvalidValueError:
        return InvalidValueError(
            f"synthetic competitor: {self.name} is {value!r}, needed {needed}", hint=self.description
        )


def native_sources() -> Path:
    """Return the folder `synthetic_nf`: inside the installed package, or beside it in a checkout."""
    inside = Path(__file__).resolve().parents[1] / "synthetic_nf"
    return inside if inside.is_dir() else inside.parents[1] / "synthetic_nf"


@functools.cache
def knobs() -> dict[str, Knob]:
    """Return all settings of the synthetic competitor by name."""
    text = (native_sources() / "knobs.yaml").read_text(encoding="utf-8")
    data = parse(text, "synthetic_nf/knobs.yaml").table()
    return {str(item["name"]): _knob(item) for item in data["knobs"]}


def _knob(item: dict[str, Any]) -> Knob:
    try:
        return Knob(
            name=str(item["name"]),
            unit=str(item.get("unit") or ""),
            kind=str(item["kind"]),
            range=tuple(item["range"]),
            default=item["default"],
            description=str(item["description"]).strip(),
        )
    except KeyError as problem:
        raise ConfigurationError(f"synthetic_nf/knobs.yaml: knob '{item.get('name')}' lacks {problem}") from None


def knob(name: str) -> Knob:
    """Return the setting of a given name; UnknownNameError with the nearest name."""
    if name not in knobs():
        raise UnknownNameError("knob of the synthetic competitor", name, knobs())
    return knobs()[name]
