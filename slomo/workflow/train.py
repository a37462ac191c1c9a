"""Train sensitivity models, and open those that were saved.

SLOMO (SIGCOMM'20) section 5.2.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from slomo.errors import ConfigurationError

if TYPE_CHECKING:
    from slomo.models.base import ModelFamily
    from slomo.models.library import ModelLibrary
    from slomo.records.dataset import ProfileDataset


def train(
    dataset: "ProfileDataset",
    *,
    models: "Sequence[str | ModelFamily] | None" = None,
    targets: Sequence[str] | None = None,
    seed: int = 0,
) -> "ModelLibrary":
    """Fit one sensitivity model per network function.

    Parameters
    ----------
    dataset : ProfileDataset
        Rows of plan ``solo``, ``pressure`` and ``imported`` are fitted; rows of ``mix`` set the width of intervals.
    models : sequence of str or ModelFamily, optional
        Names of the registry, or families of one's own; all of the registry by default.
    targets : sequence of str, optional
        Workload keys or NF names; all by default.
    seed : int
        Seed of everything random in training.

    Returns
    -------
    ModelLibrary
        Save it with its `save` method; saved models are data, never code.

    Raises
    ------
    MissingMetricError
        Where the dataset lacks a metric that a model named in `models` needs.
    UnknownNameError
        For a model or target there is none of.
    """
    from slomo.training.training import train as train_library

    return train_library(dataset, models=models, targets=_target_keys(dataset, targets), seed=seed)


def load_library(directory: str | Path) -> "ModelLibrary":
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
    from slomo.models.library import ModelLibrary

    if not Path(directory).is_dir():
        steps = f"slomo profile NF --out profile.parquet, then slomo train profile.parquet --models {directory}"
        raise ConfigurationError(f"there are no models at '{directory}'", hint=f"train some: {steps}")
    return ModelLibrary.load(directory)


def opened(library: "ModelLibrary | str | Path") -> "ModelLibrary":
    """Return a library: itself, or loaded from its directory."""
    return load_library(library) if isinstance(library, (str, Path)) else library


def _target_keys(dataset: "ProfileDataset", targets: Sequence[str] | None) -> tuple[str, ...] | None:
    if targets is None:
        return None
    return tuple(key for name in targets for key in dataset.select(target=name).profiled_targets)
