"""Parse JSON strictly: each key once, every number finite; and find the line of every field.

The standard library's `json` reports syntax errors with their line; its hooks check keys and numbers.
"""

import json
import math
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from slomo.errors import ConfigurationError

Position = tuple[str | int, ...]
#: Largest number of digits of a whole number: that of 64-bit integers.
MOST_DIGITS = 19
#: Largest number in a document: results computed from larger ones would overflow.
MOST = 1e60
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]', re.DOTALL)


class NotJsonError(ConfigurationError):
    """Text that is not JSON; it may be YAML."""


class RefusedError(Exception):
    """Valid JSON that slomo does not accept: a repeated key, or an invalid number."""

    def __init__(self, token: str, message: str) -> None:
        super().__init__(message)
        self.token = token


def json_object(line: str) -> dict[str, Any] | None:
    """Return the JSON object in one line of a program's output; None for any other line.

    >>> json_object('{"packets": 5}'), json_object("{5"), json_object("5")
    ({'packets': 5}, None, None)
    """
    try:
        data = json.loads(line) if line.startswith("{") else None
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def parse_json(text: str | bytes, name: str, hint: str | None = None, most: float = MOST) -> Any:
    """Parse JSON with unique keys and finite numbers; raises the errors of :func:`slomo.files.documents.parse`.

    >>> parse_json('{"a": NaN}', "model.json")
    Traceback (most recent call last):
    slomo.errors.ConfigurationError: model.json:1:7: holds NaN, needed finite numbers
    """
    try:
        data = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_float=partial(finite_number, most=most),
            parse_int=_whole,
            parse_constant=_refuse_number,
        )
        if isinstance(text, bytes) or "\\ud" in text.lower():
            json.dumps(data, ensure_ascii=False).encode()  # an unpaired surrogate can be neither shown nor stored
        return data
    except UnicodeError:
        raise NotJsonError(f"{name}: is not JSON: holds an unpaired surrogate", hint=hint) from None
    except RefusedError as problem:
        where, message = _locate(text if isinstance(text, str) else text.decode("utf-8", "replace"), problem)
        raise ConfigurationError(f"{name}:{where}: {message}", hint=hint) from None
    except (ValueError, RecursionError) as problem:
        where, reason = name, "nests too deep"
        if isinstance(problem, json.JSONDecodeError):
            where, reason = f"{name}:{problem.lineno}:{problem.colno}", problem.msg
        raise NotJsonError(f"{where}: is not JSON: {reason}", hint=hint) from None


def repeated_key(text: str) -> str | None:
    """Return where valid JSON has a key for the second time, and which; None if each occurs once.

    >>> repeated_key('{"a": 1, "b": {"a": 2, "a": 3}}')
    "1:24: field 'a' occurs twice"
    """
    try:
        json.loads(text, object_pairs_hook=_unique, parse_int=str)  # of any number of digits
    except RefusedError as problem:
        return ": ".join(_locate(text, problem))
    return None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise RefusedError(twice, f"field '{twice}' occurs twice")
    return made


def finite_number(digits: str, most: float = MOST) -> float:
    """Convert digits to a number; refuse infinity and numbers too large for any unit."""
    value = float(digits)
    if not -most <= value <= most:
        needed = "finite numbers" if not math.isfinite(value) else f"at most {most:g}"
        raise RefusedError(digits, f"holds {digits[:40]}, needed {needed}")
    return value


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise RefusedError(digits, f"holds a number of {len(digits)} digits, needed at most {MOST_DIGITS}")
    return int(digits)


def _refuse_number(token: str) -> Any:
    raise RefusedError(token, f"holds {token}, needed finite numbers")


def _locate(text: str, problem: RefusedError) -> tuple[str, str]:
    """Return line and column of the refused key or number."""
    offset = max(text.find(problem.token), 0)
    if "occurs twice" in str(problem):
        seen: set[Position] = set()
        for position, place in json_offsets(text):
            if position in seen and position[-1] == problem.token:
                offset = place
                break
            seen.add(position)
    line = text.count("\n", 0, offset) + 1
    return f"{line}:{offset - text.rfind(chr(10), 0, offset)}", str(problem)


def json_offsets(text: str) -> Iterator[tuple[Position, int]]:
    """Yield path and offset of every field of a JSON text, in order; a repeated field is yielded each time."""
    path: list[str | int] = []
    in_list: list[bool] = []
    key = False
    for token in _TOKEN.finditer(text):
        mark = token.group()
        if mark in "{[":
            if in_list and in_list[-1]:
                yield tuple(path), token.start()
            in_list.append(mark == "[")
            path.append(0 if mark == "[" else "")
            key = mark == "{"
        elif mark in "}]":
            in_list.pop()
            path.pop()
            key = False
        elif mark == ",":
            key = bool(in_list) and not in_list[-1]
            if in_list and in_list[-1]:
                path[-1] = int(path[-1]) + 1
        elif mark != ":" and key:
            path[-1] = json.loads(mark)
            key = False
            yield tuple(path), token.start()


def json_positions(text: str) -> Iterator[tuple[Position, int]]:
    """Yield path and line of every field."""
    line, last = 1, 0
    for position, offset in json_offsets(text):
        line, last = line + text.count("\n", last, offset), offset
        yield position, line
