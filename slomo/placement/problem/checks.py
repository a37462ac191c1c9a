"""Checks that every document of the placement problem shares."""

from collections.abc import Iterable, Mapping
from typing import Any

from slomo.errors import ConfigurationError, InvalidValueError

SCHEMA_VERSION = 1


def check_unique(what: str, names: Iterable[str]) -> None:
    """Refuse names that occur twice.

    Raises
    ------
    InvalidValueError
        With the name.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidValueError(f"two {what}s are called '{name}', needed names that differ")
        seen.add(name)


def check_version(what: str, data: Mapping[str, Any]) -> None:
    """Refuse a document of another schema version.

    Raises
    ------
    ConfigurationError
        Naming both versions.
    """
    if data.get("schema_version", SCHEMA_VERSION) != SCHEMA_VERSION:
        raise ConfigurationError(
            f"{what} of schema version {data['schema_version']}, this slomo reads version {SCHEMA_VERSION}",
            hint="write it again with this version of slomo",
        )
