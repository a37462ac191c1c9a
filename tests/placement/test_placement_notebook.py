"""Notebook 04 runs from top to bottom in an empty directory."""

from pathlib import Path

import pytest

from tests.executed_notebook import executed

NOTEBOOK = Path(__file__).resolve().parents[2] / "notebooks" / "04_place.ipynb"

# Jupyter's own packages warn about each other; that is not for this project to mend.
KINDS = ("DeprecationWarning", "RuntimeWarning", "ResourceWarning")
pytestmark = pytest.mark.filterwarnings(*(f"ignore::{kind}" for kind in KINDS))


@pytest.mark.slow
def test_placement_notebook_runs_and_shows_its_figures(tmp_path: Path) -> None:
    """Every cell runs without error, and two figures are shown: policies, servers over time."""
    notebook = executed(NOTEBOOK, tmp_path, 300)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = [output.get("data", {}).get("text/html", "") for cell in code for output in cell.outputs]

    assert sum("data:image/svg+xml;base64," in text for text in shown) == 2


def test_placement_notebook_is_kept_without_outputs() -> None:
    """What the notebook shows is made when it runs, so it can never be stale."""
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(NOTEBOOK, as_version=4)

    assert not [cell for cell in notebook.cells if cell.get("outputs") or cell.get("execution_count")]
