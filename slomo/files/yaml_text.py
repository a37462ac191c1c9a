"""Parse YAML safely, with a limit on the size of expanded aliases.

A few lines with nested aliases or merges can expand to billions of fields ("billion laughs"), so fields are counted
before any are built. A repeated key and a non-finite number are refused with their position.
"""

import math
from typing import Any

from slomo.errors import ConfigurationError
from slomo.files.json_text import MOST, MOST_DIGITS, Position

#: Largest number of fields of a document, expanded aliases included, and of levels.
MOST_FIELDS = 200_000
MOST_LEVELS = 64
_ALIASES = "write out what its aliases (*name) stand for"
#: YAML's dates are read as texts; its binaries, sets and objects are refused.
_SCALARS = {"str", "int", "float", "bool", "null", "timestamp", "value"}


class YamlText:
    """A YAML text whose size is checked before any object is built."""

    def __init__(self, text: str, name: str, hint: str | None) -> None:
        import yaml  # imported here, since readers of JSON do not need it

        self._yaml, self._text, self._name, self._hint = yaml, text, name, hint
        self._loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        self._scalars = yaml.constructor.SafeConstructor()
        self._lines: dict[Position, int] = {}

    def build(self) -> tuple[Any, dict[Position, int]]:
        """Return the data and the line of every field."""
        try:
            self._weigh()
            node = self._yaml.compose(self._text, Loader=self._loader)
        except (self._yaml.YAMLError, RecursionError, ValueError) as problem:
            mark = getattr(problem, "problem_mark", None)
            where = f"{self._name}:{mark.line + 1}:{mark.column + 1}" if mark else self._name
            reason = getattr(problem, "problem", None) or str(problem).partition("\n")[0]
            raise ConfigurationError(f"{where}: is not YAML: {reason}", hint=self._hint) from None
        return (None if node is None else self._value(node, ())), self._lines

    def _weigh(self) -> None:
        """Count the levels and fields of a YAML text, aliases expanded, before any object is built from it."""
        yaml = self._yaml
        anchors: dict[str, int] = {}
        opened: list[tuple[str | None, int]] = []
        fields = 0
        for event in yaml.parse(self._text, Loader=self._loader):
            if isinstance(event, yaml.AliasEvent):
                if event.anchor not in anchors:
                    raise self._error(event, "nests without end", _ALIASES)
                fields += anchors[event.anchor]
            elif isinstance(event, yaml.ScalarEvent):
                fields += 1
                if event.anchor:
                    anchors[event.anchor] = 1
            elif isinstance(event, yaml.CollectionStartEvent):
                opened.append((event.anchor, fields))
                fields += 1
                anchors.pop(event.anchor, None)
                if len(opened) > MOST_LEVELS:
                    raise self._error(event, f"nests more than {MOST_LEVELS} levels deep", self._hint)
            elif isinstance(event, yaml.CollectionEndEvent):
                anchor, before = opened.pop()
                if anchor:
                    anchors[anchor] = fields - before
            if fields > MOST_FIELDS:
                raise self._error(event, f"more than {MOST_FIELDS} fields", _ALIASES)

    def _value(self, node: Any, position: Position) -> Any:
        self._lines.setdefault(position, node.start_mark.line + 1)
        if isinstance(node, self._yaml.MappingNode):
            return self._mapping(node, position)
        if isinstance(node, self._yaml.SequenceNode):
            return [self._value(item, (*position, number)) for number, item in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: Any, position: Position) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        merged: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, self._yaml.ScalarNode):
                raise self._error(key_node, "a list or mapping as the name of a field", self._hint)
            if key_node.tag == "tag:yaml.org,2002:merge":
                parts = value_node.value if isinstance(value_node, self._yaml.SequenceNode) else [value_node]
                for part in reversed(parts):
                    if not isinstance(part, self._yaml.MappingNode):
                        raise self._error(part, "needed a mapping to merge", self._hint)
                    merged |= self._mapping(part, position)
                continue
            key = self._scalar(key_node)
            if key in made:
                raise self._error(key_node, f"field '{key}' occurs twice", self._hint)
            inside = (*position, str(key))
            self._lines[inside] = key_node.start_mark.line + 1
            made[key] = self._value(value_node, inside)
        return merged | made if merged else made

    def _scalar(self, node: Any) -> Any:
        kind, text = node.tag.rpartition(":")[2], node.value
        if not node.tag.startswith("tag:yaml.org,2002:") or kind not in _SCALARS:
            raise self._error(node, f"a value of kind {node.tag}, needed text or a number", self._hint)
        if kind in ("int", "float"):
            return self._number(node, kind)
        if kind == "null":
            return None
        return bool(self._scalars.bool_values.get(text.lower())) if kind == "bool" else text

    def _number(self, node: Any, kind: str) -> float | int:
        if len(node.value) > 4 * MOST_DIGITS:
            raise self._error(node, f"holds a number of {len(node.value)} digits", self._hint)
        try:
            make = self._scalars.construct_yaml_int if kind == "int" else self._scalars.construct_yaml_float
            value: float | int = make(node)
        except (ValueError, OverflowError, IndexError):
            raise self._error(node, f"'{node.value[:40]}' is no number", self._hint) from None
        if kind == "int" and abs(value) >= 10**MOST_DIGITS:
            raise self._error(node, f"holds a number of more than {MOST_DIGITS} digits", self._hint)
        if not -MOST <= value <= MOST:
            needed = f"at most {MOST:g}" if math.isfinite(value) else "finite numbers"
            raise self._error(node, f"holds {node.value[:40]}, needed {needed}", self._hint)
        return value

    def _error(self, place: Any, message: str, hint: str | None) -> ConfigurationError:
        mark = place.start_mark
        return ConfigurationError(f"{self._name}:{mark.line + 1}:{mark.column + 1}: {message}", hint=hint)
