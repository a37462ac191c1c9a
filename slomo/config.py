"""Settings of the command line and of Python, in order of precedence: option, environment, file, default.

pip and git use the same order. Only the command line and the service read settings; the library takes arguments. One
table holds all settings (as in datasette), so a test can compare the documentation with it.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from slomo.errors import ConfigurationError, InvalidValueError, UnknownNameError
from slomo.vocabulary.defaults import DEFAULT_MODEL

FILE_NAME = "slomo.toml"
PREFIX = "SLOMO_"
_FILE_LIMIT_B = 1 << 20


@dataclass(frozen=True)
class Settings:
    """Defaults of the command line and the service.

    >>> Settings(coverage=0.8).coverage, Settings().model
    (0.8, 'default')
    """

    #: Name of a shipped machine or path of a machine file.
    machine: str = "e5-2620v4"
    #: Alias of the testbed experiments run on.
    testbed: str = "simulated"
    #: Directory of saved models.
    models: str = "slomo-models"
    #: Name of the sensitivity model predictions use.
    model: str = DEFAULT_MODEL
    #: Coverage of prediction intervals, above 0 and below 1.
    coverage: float = 0.9
    #: Seed of everything random, 0 or more.
    seed: int = 0
    #: Runs a campaign may do at a time; 0 takes every core.
    jobs: int = 0
    #: File of who may sign shared models, in OpenSSH's format; where it is set, an index that none of them signed is
    #: refused, whatever reads it.
    allowed_signers: str = ""

    def __post_init__(self) -> None:
        if not 0.0 < self.coverage < 1.0:
            raise InvalidValueError(
                f"coverage is {self.coverage:g}, needed a share above 0 and below 1", hint="90 % is written 0.9"
            )
        for name in ("seed", "jobs"):
            if getattr(self, name) < 0:
                raise InvalidValueError(f"{name} is {getattr(self, name)}, needed 0 or more")


#: setting -> its type, in the order of documentation.
SETTINGS: dict[str, type] = {item.name: type(item.default) for item in fields(Settings)}


def load_settings(
    options: Mapping[str, Any] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    file: str | Path | None = None,
) -> Settings:
    """Return the settings in force: of options, environment, file and defaults, in this order of precedence.

    Raises ConfigurationError for an invalid file or variable; UnknownNameError for an unknown setting.

    `options`: settings from the command line; ``None`` values count as not given. `environment`: environment variables,
    ``SLOMO_MACHINE`` and so on; the process's own by default. `file`: settings file; by default the first of
    ``$SLOMO_CONFIG``, ``./slomo.toml`` and ``$XDG_CONFIG_HOME/slomo/slomo.toml``.

    >>> load_settings({"seed": 7}, environment={"SLOMO_SEED": "3", "SLOMO_MODEL": "dobrescu"}, file=None).model
    'dobrescu'
    """
    environment = os.environ if environment is None else environment
    values = _from_file(_find_file(file, environment))
    for name in SETTINGS:
        variable = PREFIX + name.upper()
        if environment.get(variable):
            values[name] = _converted(name, environment[variable], f"environment variable {variable}")
    for name, value in (options or {}).items():
        if name not in SETTINGS:
            raise UnknownNameError("setting", name, SETTINGS)
        if value is not None:
            values[name] = _converted(name, value, f"--{name.replace('_', '-')}")
    return Settings(**values)


def _find_file(file: str | Path | None, environment: Mapping[str, str]) -> Path | None:
    named = file or environment.get(PREFIX + "CONFIG")
    if named:
        if not Path(named).is_file():
            raise ConfigurationError(
                f"there is no settings file '{named}'", hint=f"create it, or unset {PREFIX}CONFIG and drop --config"
            )
        return Path(named)
    home = Path(environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME", "/")) / ".config")
    return next((path for path in (Path(FILE_NAME), home / "slomo" / FILE_NAME) if path.is_file()), None)


def _from_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    from slomo.files.documents import parse_toml
    from slomo.files.opening import read_text

    hint = 'write for instance: machine = "silver-4110"'
    table = parse_toml(read_text(path, _FILE_LIMIT_B, hint), str(path), hint)
    unknown = [name for name in table if name not in SETTINGS]
    if unknown:
        raise UnknownNameError("setting", unknown[0], SETTINGS, where=f"in '{path}'")
    return {name: _converted(name, value, f"'{name}' in '{path}'") for name, value in table.items()}


def _converted(name: str, value: Any, source: str) -> Any:
    kind = SETTINGS[name]
    usable = isinstance(value, (str, int, float)) and not isinstance(value, bool)
    try:
        if not usable or (kind is int and isinstance(value, float)):
            raise ValueError
        return kind(value)
    except ValueError:
        raise ConfigurationError(f"{source} is {value!r}, needed {_NEEDED[kind]}") from None


_NEEDED: dict[type, str] = {str: "a text", int: "a whole number", float: "a number"}
