"""Read and write datasets by path: parquet, CSV, or a directory with measurements, provenance and card.

The directory has the layout of shipped datasets: ``measurements.parquet``, ``provenance.json``, ``CARD.md``.
"""

import difflib
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
    if not place.exists():
        place = shipped_dataset(str(place))
    if place.is_dir():
        place = next((place / name for name in (MEASUREMENTS, "measurements.csv") if (place / name).is_file()), place)
    if place.is_dir():
        raise ConfigurationError(f"{place}: holds no dataset", hint=f"needed: {_SUFFIXES}")
    readers = {".parquet": ProfileDataset.read_parquet, ".csv": ProfileDataset.read_csv}
    if place.suffix not in readers:
        raise ConfigurationError(f"{place}: no dataset is stored as '{place.suffix}'", hint=f"needed: {_SUFFIXES}")
    return readers[place.suffix](place)


def shipped_dataset(name: str, folder: str | Path | None = None) -> Path:
    """Return the directory of a shipped dataset, or of one in another folder."""
    shipped = Path(folder) if folder is not None else shipped_folder()
    names = [item.parent.name for item in sorted(shipped.glob(f"*/{MEASUREMENTS}"))]
    if name in names:
        return shipped / name
    place = Path(name)
    if not (place.suffix or len(place.parts) > 1):
        raise UnknownNameError("dataset", name, names)
    near = difflib.get_close_matches(place.name, sorted(item.name for item in place.parent.glob("*")), n=1)
    hint = f"did you mean '{place.parent / near[0]}'?" if near else "check the path;"
    raise ConfigurationError(f"{name}: file not found", hint=f"{hint} `slomo dataset list` shows those that ship")


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
