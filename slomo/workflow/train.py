"""Train sensitivity models, and open those that were saved.

SLOMO (SIGCOMM'20) section 5.2.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from slomo.fleet.spread import spread
from slomo.training.training import train as train_library
from slomo.vocabulary.numbers import whole_number
from slomo.workflow.names import dataset_of

if TYPE_CHECKING:
    from slomo.models.base import ModelFamily
    from slomo.models.library import ModelLibrary
    from slomo.records.dataset import ProfileDataset


def train(
    dataset: "ProfileDataset | str | Path",
    *,
    models: "Sequence[str | ModelFamily] | None" = None,
    targets: Sequence[str] | str | None = None,
    seed: int = 0,
    jobs: int | None = 1,
    scheduler: str | None = None,
) -> "ModelLibrary":
    """Fit one sensitivity model per network function.

    Parameters
    ----------
    dataset : ProfileDataset or path
        What was measured; a path or the name of a shipped dataset is loaded.
        Rows of plan ``solo``, ``pressure`` and ``imported`` are fitted; rows of ``mix`` set the width of intervals.
    models : sequence of str or ModelFamily, optional
        Names of the registry, or families of one's own; all of the registry by default.
    targets : str or sequence of str, optional
        Workload keys or NF names; all by default.
    seed : int
        Seed of everything random in training.
    jobs : int, optional
        Processes that fit, one network function at a time each; every core where None or 0. The models do not depend
        on it.
    scheduler : str, optional
        Address of a Dask scheduler whose workers fit instead.

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
    measured = dataset_of(dataset)
    whole_number("seed", seed)
    each = partial(spread, jobs=jobs, scheduler=scheduler)
    return train_library(measured, models=models, targets=_target_keys(measured, targets), seed=seed, each=each)


def _target_keys(dataset: "ProfileDataset", targets: Sequence[str] | str | None) -> tuple[str, ...] | None:
    if targets is None:
        return None
    measured = dataset.converged()  # a target whose runs all failed to converge has nothing to train on
    names = [targets] if isinstance(targets, str) else targets
    return tuple(key for name in names for key in measured.select(target=name).profiled_targets)
