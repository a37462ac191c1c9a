"""Write values as mappings, field by field, and read them back with checks of types and ranges."""

import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, ClassVar, Self

import msgspec

from slomo.errors import ConfigurationError, InvalidValueError
from slomo.files.documents import check_version, convert

_Reader = Callable[[Any], Any]
_LEAVES = frozenset({float, int, str, bool, type(None)})


class Stored:
    """Base class of values that can be written as mappings and read back.

    A subclass declares what is written in addition to its fields: ``version=`` and ``kind=`` before the fields,
    ``derived=`` properties after them. ``readers=`` construct fields whose type has no reader of its own. Unknown
    fields are ignored when reading.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Knob(Stored, version=1):
    ...     name: str
    ...     ways: tuple[int, ...] = ()
    >>> Knob("llc", (1, 2)).to_dict()
    {'schema_version': 1, 'name': 'llc', 'ways': [1, 2]}
    >>> Knob.from_dict({"schema_version": 1, "name": "llc", "ways": [1, "two"]})
    Traceback (most recent call last):
    slomo.errors.ConfigurationError: Knob: field 'ways.1': got 'two', needed a whole number
    """

    _head: ClassVar[Mapping[str, object]] = {}
    _derived: ClassVar[tuple[str, ...]] = ()
    _readers: ClassVar[Mapping[str, _Reader]] = {}

    def __init_subclass__(
        cls,
        version: int | None = None,
        kind: str | None = None,
        derived: tuple[str, ...] = (),
        readers: Mapping[str, _Reader] | None = None,
    ) -> None:
        head = {"schema_version": version, "kind": kind}
        cls._head = {name: value for name, value in head.items() if value is not None}
        cls._derived, cls._readers = derived, readers or {}

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping that :meth:`from_dict` reads back."""
        kind: Any = type(self)
        data: dict[str, Any] = {**self._head}
        for name in _names(kind):
            value = getattr(self, name)
            data[name] = value if type(value) in _LEAVES else stored(value)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the object that :meth:`to_dict` described."""
        kind: Any = cls
        shape, readers = _shape(kind)
        if not isinstance(data, Mapping):
            raise ConfigurationError(f"{cls.__name__}: got {type(data).__name__}, needed a mapping of fields")
        if "schema_version" in cls._head:
            check_version(cls.__name__, data.get("schema_version"), cls._head["schema_version"])
        read = convert(data, shape, cls.__name__)
        values = {name: getattr(read, name) for name in shape.__struct_fields__}
        return cls(**{n: readers[n](v) if n in readers else v for n, v in values.items() if v is not msgspec.UNSET})

    def check_ranges(self, who: str) -> dict[str, Any]:
        """Return the plain fields converted to their types; InvalidValueError for one outside its annotated range."""
        kind: Any = type(self)
        try:
            read = convert(vars(self), _shape(kind)[0], who)
        except ConfigurationError as problem:
            raise InvalidValueError(problem.message, hint=problem.hint) from None
        return msgspec.structs.asdict(read)


def stored(value: Any) -> Any:
    """Convert a value to mappings, lists, texts and numbers; a part with a form of its own is written in that form."""
    if type(value) in _LEAVES:
        return value
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, tuple | list):
        return [each if type(each) in _LEAVES else stored(each) for each in value]
    if isinstance(value, Enum):
        return value.value
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(name): each if type(each) in _LEAVES else stored(each) for name, each in value.items()}
    if is_dataclass(value):
        return {each.name: stored(getattr(value, each.name)) for each in fields(value)}
    return value


@lru_cache(maxsize=256)
def _names(kind: Any) -> tuple[str, ...]:
    return (*(each.name for each in fields(kind)), *kind._derived)


@lru_cache(maxsize=256)
def _shape(kind: Any) -> tuple[type[msgspec.Struct], dict[str, _Reader]]:
    """Return the fields that a class's mapping must have, and readers of fields with their own stored form."""
    hints: dict[str, Any] = typing.get_type_hints(kind, include_extras=True)
    readers = {name: reader for name, hint in hints.items() if (reader := kind._readers.get(name) or _reader(hint))}
    held: list[Any] = []
    for each in fields(kind):
        type_ = hints[each.name] if each.name not in readers else Any
        usual = each.default is not MISSING or each.default_factory is not MISSING
        held.append((each.name, type_, msgspec.UNSET) if usual else (each.name, type_))
    return msgspec.defstruct(kind.__name__, held, kw_only=True), readers


def _reader(kind: Any) -> _Reader | None:
    """Return the reader of a type with its own stored form, alone or in a tuple or mapping; None for others."""
    if hasattr(kind, "from_dict"):
        own: _Reader = kind.from_dict
        return own
    parts = typing.get_args(kind)
    inner = next((reader for part in parts if (reader := _reader(part)) is not None), None)
    if inner is None:
        return None
    one, origin = inner, typing.get_origin(kind)
    if origin is tuple:
        return lambda values: tuple(one(each) for each in convert(values, list[Any], "list"))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        named = parts[0]  # keys are texts in JSON, whatever their type
        return lambda values: {named(n): one(v) for n, v in convert(values, dict[str, Any], "mapping").items()}
    return lambda value: None if value is None else one(value)
