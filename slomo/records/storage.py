"""Read and write datasets by path: parquet, CSV, or a directory with measurements, provenance and card.

The directory has the layout of shipped datasets: ``measurements.parquet``, ``provenance.json``, ``CARD.md``.
"""

import json
from pathlib import Path

from slomo.errors import ConfigurationError, UnknownNameError, UsageError
from slomo.files.durable import write_durably
from slomo.records.dataset import ProfileDataset
from slomo.records.shipped import shipped_folder
from slomo.vocabulary.numbers import path_of

MEASUREMENTS, PROVENANCE, CARD = "measurements.parquet", "provenance.json", "CARD.md"
_SUFFIXES = ".parquet, .csv, or a directory that holds measurements.parquet or measurements.csv"


def load_dataset(path: str | Path) -> ProfileDataset:
    """Read a dataset from a file (its suffix gives the format) or a directory, or a shipped dataset by its name.

    Raises
    ------
    ConfigurationError
        If there is no dataset at `path`.
    UnknownNameError
        For a name that no shipped dataset has.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_dataset(ProfileDataset.from_measurements([], {"testbed": "simulated"}), Path(folder, "a.parquet"))
    ...     load_dataset(Path(folder, "a.parquet")).environment
    {'testbed': 'simulated'}
    """
    place = path_of("dataset", path)
    if not place.exists() and not place.suffix and len(place.parts) == 1:
        place = _shipped(str(place))
    if place.is_dir():
        place = next((place / name for name in (MEASUREMENTS, "measurements.csv") if (place / name).is_file()), place)
    if place.is_dir():
        raise ConfigurationError(f"{place}: holds no dataset", hint=f"needed: {_SUFFIXES}")
    readers = {".parquet": ProfileDataset.read_parquet, ".csv": ProfileDataset.read_csv}
    if place.suffix not in readers:
        raise ConfigurationError(f"{place}: no dataset is stored as '{place.suffix}'", hint=f"needed: {_SUFFIXES}")
    return readers[place.suffix](place)


def _shipped(name: str) -> Path:
    """Return the folder of a shipped dataset. Raises UnknownNameError for an unknown name."""
    folder = shipped_folder()
    names = [item.parent.name for item in sorted(folder.glob(f"*/{MEASUREMENTS}"))]
    if name not in names:
        raise UnknownNameError("dataset", name, names)
    return folder / name


def save_dataset(dataset: ProfileDataset, path: str | Path, card: str | None = None) -> None:
    """Write a dataset: ``.parquet`` or ``.csv`` by suffix, else a dataset directory with provenance (and card).

    Raises StoreError if it cannot be written; UsageError for another suffix.
    """
    place = Path(path)
    if place.suffix == ".parquet":
        dataset.to_parquet(place)
    elif place.suffix == ".csv":
        dataset.to_csv(place)
    elif place.suffix and not place.is_dir():
        raise UsageError(f"{place}: no dataset is stored as '{place.suffix}'", hint=f"needed: {_SUFFIXES}")
    else:
        dataset.to_parquet(place / MEASUREMENTS)
        write_durably(place / PROVENANCE, json.dumps(dataset.environment, sort_keys=True, indent=2) + "\n")
        if card is not None:
            write_durably(place / CARD, card)
