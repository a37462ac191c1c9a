"""The datasets that ship with slomo: one directory each, with measurements, provenance and a card.

The card follows datasheets for datasets (Gebru et al., CACM 2021): what was measured, how, and for what the data are
unsuitable.
"""

from dataclasses import dataclass
from pathlib import Path

from slomo.records.dataset import ProfileDataset
from slomo.records.shipped import shipped_folder
from slomo.records.storage import CARD, MEASUREMENTS, load_dataset, shipped_dataset


@dataclass(frozen=True)
class CatalogEntry:
    """One dataset that ships with slomo."""

    #: Name of the dataset's directory.
    name: str
    #: Path of the directory.
    path: Path
    #: First sentence of the dataset's card; empty without a card.
    summary: str

    def load(self) -> ProfileDataset:
        """Read the dataset from its files."""
        return load_dataset(self.path)


def catalog(folder: str | Path | None = None) -> tuple[CatalogEntry, ...]:
    """List the datasets in a folder by name.

    Parameters
    ----------
    folder : str or Path, optional
        Folder with one directory per dataset; by default ``$SLOMO_DATASETS``, else those that ship with slomo.

    Examples
    --------
    >>> catalog("/nowhere")
    ()
    """
    place = Path(folder) if folder is not None else shipped_folder()
    if not place.is_dir():
        return ()
    dataset_folders = sorted(item for item in place.iterdir() if (item / MEASUREMENTS).is_file())
    return tuple(CatalogEntry(item.name, item, _summary(item / CARD)) for item in dataset_folders)


def find_dataset(name: str, folder: str | Path | None = None) -> ProfileDataset:
    """Load a shipped dataset by name, or any dataset by path; raises the errors of :func:`shipped_dataset`."""
    return load_dataset(name if Path(name).exists() else shipped_dataset(name, folder))


def _summary(card: Path) -> str:
    try:
        text = card.read_text(encoding="utf-8")[:4000]
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines()]
    return next((line for line in lines if line and not line.startswith(("#", "---", "|"))), "")
