"""The notebooks run from top to bottom, in order, in an empty directory; campaigns in them are made smaller."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import slomo

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))
#: The simulator is compiled in one cell, where no test has done so before.
_LIMIT_S = 600
#: What is made smaller, as in tests/docs/test_blocks.py.
SMALLER = (
    (r"runs=24, mixes=24", "runs=8, mixes=8"),
    (r"mixes=16", "mixes=6"),
    (r"names \* 4", "names * 2"),
    (r"range\((?:12|40)\)", "range(6)"),
    (r"slomo\.train\(dataset, seed=0\)", 'slomo.train(dataset, models=["slomo-xgb", "dobrescu"], seed=0)'),
    (r'("columns": columns\})\)\)', r'\1), models=["slomo-xgb"])'),
)

# Jupyter's own packages warn about each other; that is not for this project to mend.
KINDS = ("DeprecationWarning", "RuntimeWarning", "ResourceWarning")
pytestmark = pytest.mark.filterwarnings(*(f"ignore::{kind}" for kind in KINDS))


def executed(path: Path, place: Path) -> Any:
    """Return the notebook with the outputs of its cells, run in the folder `place`.

    The kernel is on Unix sockets: of two kernels that start at once, none finds its port taken.
    """
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook, resources = nbformat.read(path, as_version=4), {"metadata": {"path": str(place)}}
    for cell in cells(notebook):
        for pattern, smaller in SMALLER:
            cell.source = re.sub(pattern, smaller, cell.source)
    with TemporaryDirectory() as sockets:  # paths of sockets must be short, and the same in both processes
        kernel = {"transport": "ipc", "ip": f"{sockets}/kernel"}
        config = pytest.importorskip("traitlets.config").Config({"KernelManager": kernel})
        return nbclient.NotebookClient(
            notebook, timeout=_LIMIT_S, kernel_name="python3", resources=resources, config=config
        ).execute()


def cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_there_are_six() -> None:
    """Profile, train and check, compose and predict, place; the papers, and acting"""
    learning = ["01_profile", "02_train_and_check", "03_compose_and_predict", "04_place"]
    assert [path.stem for path in NOTEBOOKS] == [*learning, "05_reproduce_the_papers", "06_act"]


@pytest.mark.slow
def test_notebooks_run_in_order_and_show_their_figures(tmp_path: Path) -> None:
    """Every cell runs without error, and every notebook shows a figure; placement two: policies, servers over time."""
    for path in NOTEBOOKS:
        notebook = executed(path, tmp_path)
        shown = [output.get("data", {}).get("text/html", "") for cell in cells(notebook) for output in cell.outputs]
        figures = sum("data:image/svg+xml;base64," in text for text in shown)
        assert figures == 2 if path.stem == "04_place" else figures, path.stem


def test_the_papers_are_read_from_the_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With slomo installed elsewhere the notebook reads docs/papers too; outside of a clone it says what it needs."""
    code = cells(pytest.importorskip("nbformat").read(NOTEBOOKS[4], as_version=4))[0].source
    monkeypatch.setattr(slomo, "__file__", str(tmp_path / "slomo" / "__init__.py"))
    monkeypatch.chdir(NOTEBOOKS[4].parent)
    made: dict[str, Any] = {}
    exec(code, made)
    assert made["rows"]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="in a clone of slomo"):
        exec(code, {})


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs(path: Path) -> None:
    """What a notebook shows is made when it runs, so it can never be stale."""
    nbformat = pytest.importorskip("nbformat")

    assert not [cell for cell in cells(nbformat.read(path, as_version=4)) if cell.outputs or cell.execution_count]
