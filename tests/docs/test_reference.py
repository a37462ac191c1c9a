"""The documentation says what the code does."""

import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])


def script(name: str) -> Any:
    """Load a script of docs/, which is no part of the package."""
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def generated_pages() -> dict[str, Callable[[], str]]:
    """Return the pages of docs/generate.py."""
    pages: dict[str, Callable[[], str]] = script("generate").PAGES
    return pages


@pytest.mark.parametrize("name", sorted(generated_pages()))
def test_generated_pages_are_current(name: str) -> None:
    """`make docs` would change nothing."""
    written = (REPOSITORY / "docs" / "reference" / name).read_text(encoding="utf-8")

    assert written == generated_pages()[name]()


def test_readme_and_paper_state_the_errors_of_the_accuracy_page() -> None:
    """One table of errors: README and paper say what is less of the two columns of a machine in docs/accuracy.md."""
    told = {
        name: (REPOSITORY / name).read_text(encoding="utf-8") for name in ("README.md", "paper.md", "docs/accuracy.md")
    }
    rows = {
        "slomo": r"default \(`equilibrium`\)",
        "SLOMO's learner": r"`slomo-gbr` \(SLOMO's learner\)",
        "Dobrescu": "Dobrescu: line",
        "Bubble-Up": "Bubble-Up: line",
        "no interference": "no interference",
    }
    for name, row in rows.items():
        here = re.search(rf"^\| {row} " + 4 * r"\| ([\d.]+); [^|]*", told["docs/accuracy.md"], re.MULTILINE)
        readme = re.search(rf"^\| {name}[^|]*\| ([\d.]+) ", told["README.md"], re.MULTILINE)
        paper = re.search(rf"^\| {name}[^|]*\| ([\d.]+) \| ([\d.]+)", told["paper.md"], re.MULTILINE)
        assert here, name
        assert readme, name
        assert paper, name
        calibrated, learned, *second = map(float, here.groups())
        assert float(readme[1]) == pytest.approx(min(calibrated, learned), abs=0.005), name
        assert [float(n) for n in paper.groups()] == [min(calibrated, learned), min(second)], name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(REPOSITORY)))
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    """Every relative link in a document names a file that exists; no merge left its conflict marks."""
    text = document.read_text(encoding="utf-8")
    assert not re.search(r"^(<{7}|>{7}) ", text, re.MULTILINE)
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text)
    missing = [target for target in targets if not (document.parent / target).exists()]

    assert not missing


def test_the_page_on_reliability_is_made_of_its_numbers() -> None:
    """What stands there about runs is what the last runs counted; nobody writes figures by hand."""
    written = REPOSITORY / "docs" / "reliability.md"
    sums = json.loads(written.with_suffix(".json").read_text(encoding="utf-8"))
    assert written.read_text(encoding="utf-8") == script("reliability").page(sums)
