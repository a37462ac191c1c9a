"""Runs a notebook in a kernel on Unix sockets: of two kernels that start at once, none finds its port taken."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest


def executed(path: Path, place: Path, limit_s: int) -> Any:
    """Return the notebook with the outputs of its cells, run in the folder `place`."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook, resources = nbformat.read(path, as_version=4), {"metadata": {"path": str(place)}}
    with TemporaryDirectory() as sockets:  # paths of sockets must be short, and the same in both processes
        kernel = {"transport": "ipc", "ip": f"{sockets}/kernel"}
        config = pytest.importorskip("traitlets.config").Config({"KernelManager": kernel})
        return nbclient.NotebookClient(
            notebook, timeout=limit_s, kernel_name="python3", resources=resources, config=config
        ).execute()
