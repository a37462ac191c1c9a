"""Open saved models; training stays outside, for predicting does without a learner."""

from pathlib import Path

from slomo.errors import ConfigurationError
from slomo.models.library import ModelLibrary


def load_library(directory: str | Path) -> ModelLibrary:
    """Load saved models.

    Raises
    ------
    ConfigurationError
        Where there are none, or a file is damaged.

    Examples
    --------
    >>> load_library("/nowhere/at/all")
    Traceback (most recent call last):
    slomo.errors.ConfigurationError: there are no models at '/nowhere/at/all'
    hint: train some: slomo profile NF --out profile.parquet, then slomo train profile.parquet --models /nowhere/at/all
    """
    if not Path(directory).is_dir():
        steps = f"slomo profile NF --out profile.parquet, then slomo train profile.parquet --models {directory}"
        raise ConfigurationError(f"there are no models at '{directory}'", hint=f"train some: {steps}")
    return ModelLibrary.load(directory)


def opened(library: ModelLibrary | str | Path) -> ModelLibrary:
    """Return a library: itself, or loaded from its directory."""
    return load_library(library) if isinstance(library, (str, Path)) else library
