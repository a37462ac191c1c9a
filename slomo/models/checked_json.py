"""Read untrusted JSON: bounded size, no NaN, every field of its type.

Model files are exchanged between people and orchestrators. Loading one may fail, but must never run code, exhaust
memory or put an invalid number into a model.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slomo.errors import ConfigurationError
from slomo.files import opening
from slomo.files.json_text import parse_json

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,140}")
#: Stored value of an unknown (infinite) width.
_MOST = 1e300
#: Largest size of a model file.
MAX_BYTES = 64 * 2**20
HINT = "the file was damaged or not written by slomo; train the model again"


def read_text(path: Path, sha256: str | None = None, hint: str = HINT) -> str:
    """Return the text of a model file after checking its size and, if given, its fingerprint.

    Raises ConfigurationError if the file is missing, too large, no text, or differs from its manifest; StoreError if
    the disk fails.
    """
    return opening.read_text(path, MAX_BYTES, hint, sha256 or "")


def plain_name(name: str, where: Path) -> str:
    """Return a file's name after checking that it stays inside its own folder.

    Raises ConfigurationError for anything but a plain name.

    Examples
    --------
    >>> plain_name("../key", Path("manifest.json"))
    Traceback (most recent call last):
    slomo.errors.ConfigurationError: manifest.json names the file '../key', needed a plain name inside its own folder
    hint: the file was damaged or not written by slomo; train the model again
    """
    if not _NAME.fullmatch(name) or ".." in name:
        raise ConfigurationError(
            f"{where} names the file '{name[:80]}', needed a plain name inside its own folder", hint=HINT
        )
    return name


def parse_object(content: str, label: str) -> dict[str, Any]:
    """Return the JSON object in `content`; ConfigurationError unless it is one JSON object with finite numbers.

    Examples
    --------
    >>> parse_object('{"a": NaN}', "model.json")
    Traceback (most recent call last):
    slomo.errors.ConfigurationError: model.json:1:7: holds NaN, needed finite numbers
    hint: the file was damaged or not written by slomo; train the model again
    """
    data = parse_json(content, label, HINT, _MOST)
    if not isinstance(data, dict):
        raise ConfigurationError(f"{label} holds a {type(data).__name__}, needed an object", hint=HINT)
    return data


def field(data: Mapping[str, Any], name: str, kind: type | tuple[type, ...]) -> Any:
    """Return ``data[name]`` after checking its type."""
    value = data.get(name)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        expected = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
        raise ConfigurationError(f"field '{name}' is {type(value).__name__}, needed {expected}", hint=HINT)
    return value


def mapping(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a field that is an object."""
    json_object: dict[str, Any] = field(data, name, dict)
    return json_object


def text(data: Mapping[str, Any], name: str) -> str:
    """Return a field that is a text."""
    return str(field(data, name, str))


def texts(data: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return a field that is a list of texts."""
    values = field(data, name, list)
    if not all(isinstance(value, str) for value in values):
        raise ConfigurationError(f"field '{name}' must list texts", hint=HINT)
    return tuple(values)


def finite(data: Mapping[str, Any], name: str) -> float:
    """Return a field that is a finite number.

    Examples
    --------
    >>> finite({"slope": -2}, "slope")
    -2.0
    """
    value = float(field(data, name, (int, float)))
    if not math.isfinite(value):
        raise ConfigurationError(f"field '{name}' is {value}, needed a finite number", hint=HINT)
    return value


def array(data: Mapping[str, Any], name: str, dimensions: int) -> NDArray[np.float64]:
    """Return a field that is a rectangular nested list of finite numbers.

    Examples
    --------
    >>> array({"low": [0.0, 1.0]}, "low", 1).shape
    (2,)
    """
    values = field(data, name, list)
    try:
        result = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ConfigurationError(f"field '{name}' is no rectangle of numbers", hint=HINT) from None
    if result.ndim != dimensions and result.size:
        raise ConfigurationError(f"field '{name}' has {result.ndim} dimensions, needed {dimensions}", hint=HINT)
    if not np.isfinite(result).all():
        raise ConfigurationError(f"field '{name}' holds numbers that are not finite", hint=HINT)
    return result


def check_version(data: Mapping[str, Any], version: int, label: str) -> None:
    """Refuse a file of another schema version."""
    if data.get("schema_version") != version:
        raise ConfigurationError(
            f"{label} has schema version {data.get('schema_version')!r}, needed {version}",
            hint="train the models again with this version of slomo",
        )
