"""Read documents (YAML, JSON, TOML) as typed values; an error names file, line, field and the allowed values.

JSON is tried before YAML, since its parser is faster. YAML is read by libyaml's safe subset, and the size of aliases is
checked before they are expanded. Depth, digits and number of fields are limited; a repeated key and a non-finite number
are refused with their position. msgspec then makes the value and checks the types and ranges of its class.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from slomo.errors import ConfigurationError, SlomoError
from slomo.files.json_text import NotJsonError, Position, RefusedError, finite_number, json_positions, parse_json
from slomo.files.opening import DOCUMENT_BYTES, read_text
from slomo.files.yaml_text import MOST_LEVELS, YamlText

T = TypeVar("T")
_PLACE = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|(\[\.\.\.\])")
_NUMBER = re.compile(r"'[-+]?[\d.]+([eE][-+]?\d+)?'")
_LEAVES = (msgspec.inspect.FloatType, msgspec.inspect.IntType, msgspec.inspect.StrType, msgspec.inspect.AnyType)
_OBJECTS = (msgspec.inspect.DataclassType, msgspec.inspect.StructType)
_WORDS = {
    "float": "a number",
    "int": "a whole number",
    "str": "text",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "nothing",
}


@dataclass(frozen=True)
class Document:
    r"""The content of a document as mappings, lists, texts and numbers.

    >>> parse("- 4\n- many\n", "cores.yaml").to(list[int])
    Traceback (most recent call last):
    slomo.errors.ConfigurationError: cores.yaml:2: field '1': got 'many', needed a whole number
    """

    #: The content.
    data: Any
    #: Name of the file, for error messages.
    name: str
    find_lines: Callable[[], Mapping[Position, int]]

    @cached_property
    def lines(self) -> Mapping[Position, int]:
        """Line number of each field."""
        return self.find_lines()

    def to(self, kind: type[T], hint: str | None = None) -> T:
        """Return the document as a value of a class."""
        return convert(self.data, kind, self.name, hint, lambda: self.lines)

    def table(self, hint: str | None = None) -> dict[str, Any]:
        """Return the data, which must be a mapping. Raises ConfigurationError for a list, a text or no content."""
        if not isinstance(self.data, dict):
            raise ConfigurationError(f"{self.name}:1: {_whole(self.data)}, needed a mapping of fields", hint=hint)
        return self.data


def read(path: str | Path, kind: type[T], *, hint: str | None = None, limit: int = DOCUMENT_BYTES) -> T:
    """Read a JSON, YAML or TOML file as a value of a dataclass, msgspec structure or plain type, its ranges checked.

    `hint`: advice for the author of the file. ``schema_version`` must be that of the class's module.
    """
    return parse(read_text(path, limit, hint), str(path), hint).to(kind, hint)


def parse(text: str, name: str, hint: str | None = None) -> Document:
    r"""Parse JSON or YAML, or TOML if the file name says so, of bounded size and depth.

    >>> parse("a: 1\nb: {c: 2}\n", "x.yaml").lines["b", "c"]
    2
    >>> parse("a: 1\na: 2\n", "x.yaml")
    Traceback (most recent call last):
    slomo.errors.ConfigurationError: x.yaml:2:1: field 'a' occurs twice
    """
    if name.endswith(".toml"):
        return Document(parse_toml(text, name, hint), name, dict)
    if text.lstrip()[:1] in ("{", "["):
        try:
            return Document(
                _checked_depth(parse_json(text, name, hint), name), name, lambda: dict(json_positions(text))
            )
        except NotJsonError as problem:
            if name.endswith(".json"):
                raise ConfigurationError(problem.message, hint=hint) from None
    data, lines = YamlText(text, name, hint).build()
    return Document(data, name, lambda: lines)


def convert(
    data: Any,
    kind: type[T],
    name: str,
    hint: str | None = None,
    lines: Callable[[], Mapping[Position, int]] = dict,
) -> T:
    """Make a value of a class from plain data; by default the hint of an error is the field's description there."""
    try:
        named: Any = kind
        if _holds_dataclasses(named):
            _refuse_unknown(data, _type_info(named), ())
        value: T = msgspec.convert(data, kind, dec_hook=_array)
    except msgspec.ValidationError as problem:
        message, position, described = _in_words(str(problem), data, kind)
        line = line_of(position, lines())
        raise ConfigurationError(f"{name}{f':{line}' if line else ''}: {message}", hint=hint or described) from None
    except (RecursionError, ArithmeticError, LookupError, AttributeError, UnicodeError) as problem:
        raise ConfigurationError(f"{name}: cannot be read: {problem}", hint=hint) from None
    except SlomoError as problem:
        problem.message, problem.hint = f"{name}: {problem.message}", problem.hint or hint
        raise
    return value


@contextmanager
def in_document(name: str) -> Iterator[None]:
    """Add a document's name to errors about values that fit the form, but not each other."""
    try:
        yield
    except SlomoError as problem:
        problem.message = f"{name}: {problem.message}"
        raise


def _checked_depth(data: Any, name: str) -> Any:
    """Return the data; raise an error if it is nested deeper than the limit."""
    level = [data]
    for _ in range(MOST_LEVELS):
        level = [
            part
            for each in level
            for part in (each.values() if isinstance(each, dict) else each)
            if isinstance(part, (dict, list))  # the faster form, since this visits every field of a document
        ]
        if not level:
            return data
    raise ConfigurationError(f"{name}: nests more than {MOST_LEVELS} levels deep")


def parse_toml(text: str, name: str, hint: str | None = None) -> dict[str, Any]:
    """Parse TOML, whatever the file's name; raises the errors of :func:`parse`."""
    import tomllib  # imported here, since few files are TOML

    try:
        table: dict[str, Any] = _checked_depth(tomllib.loads(text, parse_float=finite_number), name)
        return table
    except RefusedError as problem:
        raise ConfigurationError(f"{name}: {problem}", hint=hint) from None
    except (ValueError, RecursionError) as problem:
        reason = "nests too deep" if isinstance(problem, RecursionError) else problem
        raise ConfigurationError(f"{name}: is not TOML: {reason}", hint=hint) from None


def _array(kind: Any, value: Any) -> Any:
    """Convert types that msgspec lacks: arrays of finite numbers."""
    import numpy as np

    if getattr(kind, "__origin__", kind) is not np.ndarray:
        raise msgspec.ValidationError(f"Expected `{kind}`, got `{type(value).__name__}`")
    try:
        made = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise msgspec.ValidationError("Expected a rectangle of numbers") from None
    if not np.isfinite(made).all():
        raise msgspec.ValidationError("Expected finite numbers")
    return made


@lru_cache(maxsize=256)
def _type_info(kind: Any) -> Any:
    return msgspec.inspect.type_info(kind)


@lru_cache(maxsize=256)
def _holds_dataclasses(kind: Any) -> bool:
    """Return whether a type contains a dataclass."""
    waiting: list[Any] = [_type_info(kind)]
    seen: set[Any] = set()
    while waiting:
        info = waiting.pop()
        if isinstance(info, msgspec.inspect.DataclassType):
            return True
        if info is None or (cls := getattr(info, "cls", None)) in seen:
            continue
        seen |= {cls} - {None}
        waiting += [field.type for field in getattr(info, "fields", ())]
        waiting += [getattr(info, name, None) for name in ("type", "item_type", "value_type")]
        waiting += [*getattr(info, "types", ()), *getattr(info, "item_types", ())]
    return False


def _refuse_unknown(data: Any, info: Any, position: Position) -> None:
    """Raise an error for fields that a dataclass does not have, at any depth."""
    if isinstance(info, msgspec.inspect.Metadata):
        _refuse_unknown(data, info.type, position)
    elif isinstance(info, msgspec.inspect.UnionType):
        for part in info.types:
            _refuse_unknown(data, part, position)
    else:
        for key, value, kind in _parts(data, info, position):
            _refuse_unknown(value, kind, (*position, key))


def _parts(data: Any, info: Any, position: Position) -> Iterable[tuple[str | int, Any, Any]]:
    """Return the parts of a value that may contain dataclasses, each with its type."""
    if isinstance(info, _OBJECTS) and isinstance(data, dict):
        kinds = _field_types(info.cls)
        if isinstance(info, msgspec.inspect.DataclassType):
            for key in data:
                if key == "schema_version" and key not in kinds:
                    module = sys.modules[info.cls.__module__]
                    check_version(info.cls.__name__, data[key], getattr(module, "SCHEMA_VERSION", None))
                elif key not in kinds:
                    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in position)
                    raise msgspec.ValidationError(f"Object contains unknown field `{key}` - at `${place}`")
        return [(key, value, kinds[key]) for key, value in data.items() if key in kinds]
    if isinstance(info, msgspec.inspect.CollectionType) and isinstance(data, list):
        return [] if isinstance(info.item_type, _LEAVES) else [(n, item, info.item_type) for n, item in enumerate(data)]
    if isinstance(info, msgspec.inspect.DictType) and isinstance(data, dict):
        return [] if isinstance(info.value_type, _LEAVES) else [(k, item, info.value_type) for k, item in data.items()]
    return []


def check_version(
    what: object, version: object, readable: object, hint: str = "write it again with this version of slomo"
) -> None:
    """Raise an error for a document of another schema version."""
    if version != readable:
        raise ConfigurationError(f"{what}: schema version {version}, needed {readable}", hint=hint)


@lru_cache(maxsize=256)
def _field_types(kind: type) -> Mapping[str, Any]:
    info: Any = _type_info(kind)
    return {each.encode_name: each.type for each in info.fields}


def _place(problem: str, data: Any, kind: Any) -> Position:
    """Return the position of the field that msgspec refuses; bisect a mapping, whose entry it does not name."""
    place = problem.partition(" - at `")[2].rstrip("`")
    place += "[...]" if place.startswith("key`") else ""
    position: Position = ()
    for part in _PLACE.finditer(place):
        name, number, entry = part.groups()
        if not entry:
            position = (*position, name or int(number))
            continue
        entries = list(_at(data, position))
        while len(entries) > 1:
            half = entries[: len(entries) // 2]
            same = _refusal(_with_entries(data, position, half), kind) == problem
            entries = half if same else entries[len(half) :]
        data = _with_entries(data, position, entries)
        position = (*position, *entries)
    return position


def _at(data: Any, position: Position) -> Any:
    for part in position:
        data = data[part]
    return data


def _with_entries(data: Any, position: Position, entries: Sequence[Any]) -> Any:
    """Return data in which the mapping at a position has only the given entries."""
    if not position:
        return {key: data[key] for key in entries}
    made = data.copy()
    made[position[0]] = _with_entries(data[position[0]], position[1:], entries)
    return made


def _refusal(data: Any, kind: Any) -> str:
    try:
        msgspec.convert(data, kind, dec_hook=_array)
    except msgspec.ValidationError as problem:
        return str(problem)
    return ""


def _types_at(kind: Any, position: Position) -> list[tuple[Any, str | None]]:
    """Return the types that a value at a position may have, with their descriptions."""
    types = _alternatives(_type_info(kind), None)
    for part in position:
        children = (_child(info, part) for info, _ in types)
        types = [each for child in children if child is not None for each in _alternatives(child, None)]
    return types


def _alternatives(info: Any, description: str | None) -> list[tuple[Any, str | None]]:
    if isinstance(info, msgspec.inspect.Metadata):
        return _alternatives(info.type, (info.extra_json_schema or {}).get("description", description))
    if isinstance(info, msgspec.inspect.UnionType):
        return [each for part in info.types for each in _alternatives(part, description)]
    return [(info, description)]


def _child(info: Any, part: str | int) -> Any:
    if isinstance(info, _OBJECTS):
        return _field_types(info.cls).get(str(part))
    return getattr(info, "value_type" if isinstance(info, msgspec.inspect.DictType) else "item_type", None)


def _in_words(problem: str, data: Any, kind: Any) -> tuple[str, Position, str | None]:
    """Return msgspec's error in slomo's wording, with the field's position and description."""
    position = _place(problem, data, kind)
    types = _types_at(kind, position)
    described = next((text for _, text in types if text), None)
    problem, _, place = problem.partition(" - at `")
    problem = re.sub(r"`([a-z |]+)`", _type_in_words, problem, count=1)
    if problem.startswith("Object missing required field"):
        return _missing_fields(data, position, types, described)
    unknown = re.fullmatch(r"Object contains unknown field `(.+)`", problem, re.DOTALL)
    if unknown:
        fields = ", ".join(name for info, _ in types if isinstance(info, _OBJECTS) for name in _field_types(info.cls))
        position = (*position, unknown[1])
        return f"field '{_dotted(position)}': is not known; fields: {fields}", position, described
    needed = problem.removeprefix("Expected ").partition(", got")[0]
    if problem.startswith("Invalid enum value"):
        values = [repr(value) for info, _ in types for value in getattr(info, "values", ())]
        needed = f"one of {', '.join(values)}" if values[1:] else (*values, "one of the values it may have")[0]
    elif needed.startswith("text matching regex"):
        needed = next((text for info, text in types if getattr(info, "pattern", None) and text), needed)
    elif not problem.startswith("Expected"):
        needed = f"something else ({problem})"
    got = repr(position[-1]) if place.startswith("key`") else _shown(data, position)
    what = f"field '{_dotted(position)}': got {got}" if position else _whole(data)
    if re.fullmatch(r"a number <=? 1\.0", needed) and _at(data, position) <= 100:
        described = f"a share, not a percentage: {got} % is written {_at(data, position) / 100:g}"
    if "number" in needed and _NUMBER.fullmatch(got):
        described = "write numbers without quotes, and in YAML with a point before the exponent: 1.0e-3"
    return f"{what}, needed {needed}", position, described


def _type_in_words(match: re.Match[str]) -> str:
    kinds = match[1].split(" | ")
    return " or ".join(_WORDS[each] for each in kinds) if _WORDS.keys() >= set(kinds) else match[0]


def _dotted(position: Position) -> str:
    return ".".join(map(str, position))


def _missing_fields(
    data: Any, position: Position, types: list[tuple[Any, str | None]], described: str | None
) -> tuple[str, Position, str | None]:
    """Return the message about all missing fields of one mapping, with their descriptions."""
    there = _at(data, position)
    missing = [
        (each.encode_name, next((text for _, text in _alternatives(each.type, None) if text), None))
        for info, _ in types
        if isinstance(info, _OBJECTS)
        for each in info.fields
        if each.required and each.encode_name not in there
    ]
    names = ", ".join(repr(name) for name, _ in missing)
    hints = "; ".join(f"{name} ({text})" for name, text in missing if text)
    plural = "s" if len(missing) > 1 else ""
    where = f"field '{_dotted(position)}': " if position else ""
    return f"{where}lacks the required field{plural} {names}", position, hints or described


def _shown(data: Any, position: Position) -> str:
    try:
        data = _at(data, position)
    except (KeyError, IndexError, TypeError):
        return "nothing"
    if isinstance(data, dict | list):
        return f"a {'mapping' if isinstance(data, dict) else 'list'} of {len(data)}"
    if data is None or isinstance(data, bool):
        return "nothing" if data is None else str(data).lower()
    text = repr(data)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _whole(data: Any) -> str:
    return "is empty" if data is None else f"is {_shown(data, ())}"


def line_of(position: Position, lines: Mapping[Position, int]) -> int | None:
    """Return the line of a field, or of the nearest field around it that has one."""
    while position and position not in lines:
        position = position[:-1]
    return lines.get(position, 1 if lines else None)
