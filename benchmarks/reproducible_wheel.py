"""Build the wheel twice, in two places, at two times, under two masks, and compare byte by byte."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("slomo", "datasets", "synthetic_nf", "pyproject.toml", "version.py", "README.md", "LICENSE")


def build(place: Path, mask: int, moment: int) -> Path:
    """Return the wheel of a copy of the sources whose files are of a given time and mode."""
    place.mkdir(parents=True)
    for part in PARTS:
        source = ROOT / part
        ignored = shutil.ignore_patterns("__pycache__", "*.pyc", "build")
        _ = shutil.copytree(source, place / part, ignore=ignored) if source.is_dir() else shutil.copy(source, place)
    for path in place.rglob("*"):
        path.chmod(0o777 & ~mask if path.is_dir() or os.access(path, os.X_OK) else 0o666 & ~mask)
        os.utime(path, (moment, moment))
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place / "dist")]
    subprocess.run(command, cwd=place, check=True, capture_output=True)
    (wheel,) = (place / "dist").glob("*.whl")
    return wheel


def main() -> int:
    """Print both digests; return 1 where they differ."""
    with tempfile.TemporaryDirectory() as folder:
        first = build(Path(folder, "one"), 0o022, 1_000_000_000)
        second = build(Path(folder, "another", "place"), 0o077, 1_700_000_000)
        digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (first, second)]
        print(f"{first.name}: {digests[0]}\n{second.name}: {digests[1]}")
        print("the same bytes" if digests[0] == digests[1] else "OFF: they differ")
    return int(digests[0] != digests[1])


if __name__ == "__main__":
    sys.exit(main())
