"""The notebooks run from top to bottom, in order, in an empty directory."""

from pathlib import Path
from typing import Any

import pytest

from tests.executed_notebook import executed

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("0[12356]_*.ipynb"))
#: The simulator of shared cores is compiled in one cell, a minute of CPU.
_LIMIT_S = 600

# Jupyter's own packages warn about each other; that is not for this project to mend.
KINDS = ("DeprecationWarning", "RuntimeWarning", "ResourceWarning")
pytestmark = pytest.mark.filterwarnings(*(f"ignore::{kind}" for kind in KINDS))


def cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_there_are_five() -> None:
    """Profile, train and check, compose and predict; the papers, and acting"""
    learning = ["01_profile", "02_train_and_check", "03_compose_and_predict"]
    assert [path.stem for path in NOTEBOOKS] == [*learning, "05_reproduce_the_papers", "06_act"]


@pytest.mark.slow
def test_notebooks_run_in_order_and_show_their_figures(tmp_path: Path) -> None:
    """Every cell runs without error, and every notebook shows at least one figure."""
    for path in NOTEBOOKS:
        notebook = executed(path, tmp_path, _LIMIT_S)
        shown = [output.get("data", {}).get("text/html", "") for cell in cells(notebook) for output in cell.outputs]
        assert any("data:image/svg+xml;base64," in text for text in shown), path.stem


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs(path: Path) -> None:
    """What a notebook shows is made when it runs, so it can never be stale."""
    nbformat = pytest.importorskip("nbformat")

    assert not [cell for cell in cells(nbformat.read(path, as_version=4)) if cell.outputs or cell.execution_count]
