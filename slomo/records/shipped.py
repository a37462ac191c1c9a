"""Find the folder of shipped datasets and mappings, in an installed package or in a checkout's `datasets`."""

import os
from pathlib import Path

from slomo.errors import UnknownNameError

#: Environment variable that names another folder of datasets.
VARIABLE = "SLOMO_DATASETS"
_PACKAGE = Path(__file__).resolve().parents[1]


def shipped_folder() -> Path:
    """Return the folder that has one directory per dataset.

    >>> (shipped_folder() / "slomo-silver-4110").is_dir()
    True
    """
    named = os.environ.get(VARIABLE)
    return Path(named) if named else own_folder()


def own_folder() -> Path:
    """Return the folder that ships with slomo, even if `SLOMO_DATASETS` names another."""
    inside = _PACKAGE / "shipped"
    return inside if inside.is_dir() else _PACKAGE.parent / "datasets"


def mapping_file(name: str | Path) -> Path:
    """Return the path of a mapping's file: `name` itself if it is a path, or else the shipped mapping of that name.

    Raises UnknownNameError for a bare name that is neither.

    >>> mapping_file("yala-regex").name, str(mapping_file("mine.yaml"))
    ('yala-regex.yaml', 'mine.yaml')
    """
    place, shipped = Path(name), shipped_folder() / "mappings"
    if place.exists() or place.name != str(name) or place.suffix:
        return place
    names = [path.stem for path in shipped.glob("*.yaml")]
    if place.name not in names:
        raise UnknownNameError("mapping", place.name, names, also="One of your own: the path of its YAML file")
    return shipped / f"{place.name}.yaml"
