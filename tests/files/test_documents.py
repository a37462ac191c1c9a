"""Documents become values; what is wrong is told by file, line, field, what was got and what is needed."""

from typing import Annotated, Literal

import pytest
from msgspec import Meta, Struct

from slomo.errors import ConfigurationError
from slomo.files.documents import parse

_Name = Annotated[str, Meta(pattern="^[a-z]+$")]
_Formula = Annotated[str, Meta(pattern=r"^\$[a-z]+$", description="a setting such as $rules")]


class _Core(Struct, forbid_unknown_fields=True):
    number: Annotated[int, Meta(ge=0, description="CPU it runs on")]
    policy: Annotated[Literal["batch", "normal"], Meta(description="of the scheduler")] = "normal"
    cycles: float | list[float] = 0.0
    instructions: Annotated[float | _Formula, Meta(description="per packet")] = 0.0


class _File(Struct, forbid_unknown_fields=True):
    cores: dict[_Name, _Core]
    machine: Annotated[str, Meta(description="a machine's name")]


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("machine: m\ncores:\n a: {number: 0}\n b: {number: 1}\n c: {number: -1}\n d: {number: -2}\n",
         "f.yaml:5: field 'cores.c.number': got -1, needed a whole number >= 0", "CPU it runs on"),
        ("machine: m\ncores:\n a: {number: 0}\n b: {number: 1, policy: rr}\n",
         "f.yaml:4: field 'cores.b.policy': got 'rr', needed one of 'batch', 'normal'", "of the scheduler"),
        ("machine: m\ncores:\n a: {number: 0}\n b: {nummer: 1}\n",
         "f.yaml:4: field 'cores.b.nummer': is not known; fields: number, policy, cycles, instructions", None),
        ("machine: m\ncores:\n a: {number: 0}\n B: {number: 1}\n",
         "f.yaml:4: field 'cores.B': got 'B', needed text matching regex '^[a-z]+$'", None),
        ("machine: m\ncores:\n a: {number: 0, cycles: many}\n",
         "f.yaml:3: field 'cores.a.cycles': got 'many', needed a number or a list", None),
        ("machine: m\ncores:\n a: {number: 0, instructions: many}\n",
         "f.yaml:3: field 'cores.a.instructions': got 'many', needed a setting such as $rules", "per packet"),
        ("machine: m\ncores:\n a: {number: 0, cycles: 1e3}\n",
         "f.yaml:3: field 'cores.a.cycles': got '1e3', needed a number or a list",
         "write numbers without quotes, and in YAML with a point before the exponent: 1.0e-3"),
        ("{}\n", "f.yaml: lacks the required fields 'cores', 'machine'",
         "machine (a machine's name)"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(text: str, says: str, hint: str | None) -> None:
    """An entry of a mapping is named, the values a field may have are, and its description is the hint."""
    with pytest.raises(ConfigurationError) as told:
        parse(text, "f.yaml").to(_File)
    assert (told.value.message, told.value.hint) == (says, hint)


def test_a_hint_of_the_reader_comes_first() -> None:
    """Where the reader says what to do, the field's description does not replace it."""
    with pytest.raises(ConfigurationError) as told:
        parse("machine: 3\ncores: {}\n", "f.yaml").to(_File, hint="make one")
    assert told.value.hint == "make one"
