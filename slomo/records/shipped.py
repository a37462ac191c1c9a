"""Find the folder of shipped datasets and mappings, in an installed package or in a checkout's `datasets`."""

import os
from pathlib import Path

#: Environment variable that names another folder of datasets.
VARIABLE = "SLOMO_DATASETS"
_PACKAGE = Path(__file__).resolve().parents[1]


def shipped_folder() -> Path:
    """Return the folder that has one directory per dataset.

    Examples
    --------
    >>> (shipped_folder() / "slomo-silver-4110").is_dir()
    True
    """
    named = os.environ.get(VARIABLE)
    return Path(named) if named else own_folder()


def own_folder() -> Path:
    """Return the folder that comes with slomo itself, even if `SLOMO_DATASETS` names another."""
    inside = _PACKAGE / "shipped"
    return inside if inside.is_dir() else _PACKAGE.parent / "datasets"


def mapping_file(name: str | Path) -> Path:
    """Return the path of a mapping's file: `name` itself if it is a path, or else the shipped mapping of that name.

    Examples
    --------
    >>> mapping_file("yala-regex").name, str(mapping_file("mine.yaml"))
    ('yala-regex.yaml', 'mine.yaml')
    """
    place = Path(name)
    shipped = shipped_folder() / "mappings" / f"{place.name}.yaml"
    return shipped if place.name == str(name) and not place.exists() and shipped.is_file() else place
