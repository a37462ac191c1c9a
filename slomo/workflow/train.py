"""Train models from a dataset, and open stored ones.

SLOMO (SIGCOMM'20) section 5.2.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from slomo.errors import InvalidValueError
from slomo.fleet.spread import spread
from slomo.models.base import ModelFamily
from slomo.models.library import ModelLibrary, opened
from slomo.models.nf_model import NFModel
from slomo.profiling.campaign.progress import Progress, Silent
from slomo.records.dataset import ProfileDataset
from slomo.training.features import Subject
from slomo.training.training import train as train_library
from slomo.training.transfer import transfer
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.numbers import MOST_SEED, whole_number
from slomo.workflow.names import dataset_of, machine_named, machine_of_dataset
from slomo.workflow.progress import listening


def train(
    dataset: ProfileDataset | str | Path | Sequence[ProfileDataset | str | Path] | None = None,
    *,
    start: ModelLibrary | str | Path | None = None,
    machine: str | Machine | None = None,
    models: Sequence[str | ModelFamily] | None = None,
    targets: Sequence[str] | str | None = None,
    seed: int = 0,
    jobs: int | None = 1,
    scheduler: str | None = None,
    progress: Progress | bool | None = None,
) -> ModelLibrary:
    """Train one model per network function from a dataset.

    Parameters
    ----------
    dataset : ProfileDataset or path, or a list of them
        What was measured; a path or the name of a shipped dataset is loaded, several datasets are merged.
        Rows of plan ``solo``, ``pressure`` and ``imported`` are fitted; rows of ``mix`` set the width of intervals.
        With `start` it may have a handful of runs, or be left out.
    start : ModelLibrary or path, optional
        Models of another machine: those of the new one are carried over from them and corrected by the runs there are.
    machine : str or Machine, optional
        The new machine; by default the dataset's. With `start` alone.
    models : sequence of str or ModelFamily, optional
        Names of the registry, or your own families; all of the registry by default.
    targets : str or sequence of str, optional
        Workload keys or NF names; all by default.
    seed : int
        Seed of everything random in training.
    jobs : int, optional
        Processes that fit, one network function at a time each; every core where None or 0. The models do not depend
        on it.
    scheduler : str, optional
        Address of a Dask scheduler whose workers fit instead.
    progress : bool or Progress, optional
        As in `slomo.profile`. Steps are the network functions, and a last one in which all of them learn together; your
        own listener receives each model, then the library.

    Returns
    -------
    ModelLibrary
        Save it with its `save` method; saved models are data, never code.

    Raises
    ------
    MissingMetricError
        Where the dataset lacks a metric that a model named in `models` needs, or a model in `start` one to be carried.
    ConfigurationError
        For models in `start` of several machines, or of this one.
    InvalidValueError
        Without dataset and `start`, or for an option that `start` excludes.
    UnknownNameError
        For a model or target there is none of.
    IncompatibleMeasurementsError
        For several datasets that must not be merged.
    """
    targets = (targets,) if isinstance(targets, str) else targets
    whole_number("seed", seed, 0, MOST_SEED)
    if start is not None:
        if models is not None or scheduler is not None:
            raise InvalidValueError("models or a scheduler named beside models to start from: these are carried whole")
        return _carried(opened(start), dataset, machine, targets, seed)
    if dataset is None or machine is not None:
        wrong = "no dataset" if dataset is None else "a machine named beside a dataset"
        raise InvalidValueError(
            f"{wrong}, and no models of another machine to start from",
            hint="name a dataset: slomo train profile.parquet, or one that ships: slomo train slomo-e5-2620v4",
        )
    measured = dataset_of(dataset)
    listener = listening(progress, "training", unit="step") or Silent()

    def each(fit: Callable[[Subject], NFModel], functions: Iterable[Subject]) -> Iterator[NFModel]:
        listed = list(functions)
        listener.start(len(listed) + 1)
        for model in spread(fit, listed, jobs=jobs, scheduler=scheduler):
            listener.advance(model)
            yield model

    try:
        library = train_library(measured, models=models, targets=targets, seed=seed, each=each)
        listener.advance(library)
    finally:
        listener.finish()
    return library


def _carried(
    library: ModelLibrary,
    dataset: ProfileDataset | str | Path | Sequence[ProfileDataset | str | Path] | None,
    machine: str | Machine | None,
    targets: Sequence[str] | None,
    seed: int,
) -> ModelLibrary:
    measured = None if dataset is None else dataset_of(dataset)
    if machine is None:
        names = () if measured is None else measured.machines
        if measured is None or len(names) != 1:
            raise InvalidValueError(
                f"models carried over, but to which machine? {'no dataset' if not names else ', '.join(names)}",
                hint="name it: machine=... or --machine",
            )
        there = machine_of_dataset(measured, names[0])
    else:
        there = machine_named(machine)
    return transfer(library, there, measured, targets=targets, seed=seed)
