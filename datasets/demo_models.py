"""Train the models of `slomo serve --demo` on the shipped datasets, and pack them beside those.

    python datasets/demo_models.py

`make demo-models` runs this, half a minute. The wheel has the archive, so that the demonstration needs no learner.
"""

import lzma
import sys
import tempfile
import zipfile
from pathlib import Path

from slomo.service.demo import ARCHIVE, trained


def pack(folder: Path, archive: Path) -> None:
    """Write a folder's files as an archive: the same bytes for the same files."""
    with lzma.open(archive, "wb", preset=9) as packed, zipfile.ZipFile(packed, "w") as opened:
        for path in sorted(item for item in folder.rglob("*.json") if item.name != "superseded.json"):
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix())
            opened.writestr(entry, path.read_bytes())  # packed together: the files resemble each other


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        trained(lambda text: print(text, file=sys.stderr)).save(made)
        pack(Path(made), ARCHIVE)
    print(ARCHIVE)
