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


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(REPOSITORY)))
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    """Every relative link in a document names a file that exists."""
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text)
    missing = [target for target in targets if not (document.parent / target).exists()]

    assert not missing


def test_the_page_on_reliability_is_made_of_its_numbers() -> None:
    """What stands there about runs is what the last runs counted; nobody writes figures by hand."""
    written = REPOSITORY / "docs" / "reliability.md"
    sums = json.loads(written.with_suffix(".json").read_text(encoding="utf-8"))
    assert written.read_text(encoding="utf-8") == script("reliability").page(sums)
