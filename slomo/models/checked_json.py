"""Read model files, which are not trusted: bounded size, plain names, JSON without NaN.

Model files are exchanged between people and orchestrators. Loading one may fail, but must never run code, exhaust
memory or put an invalid number into a model. `slomo.files.documents.convert` checks the fields.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


def check_version(data: Mapping[str, Any], version: int, label: str) -> None:
    """Refuse a file of another schema version."""
    if data.get("schema_version") != version:
        raise ConfigurationError(
            f"{label} has schema version {data.get('schema_version')!r}, needed {version}",
            hint="train the models again with this version of slomo",
        )
