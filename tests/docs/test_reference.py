"""The documentation says what the code does."""

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])


def generated_pages() -> dict[str, Callable[[], str]]:
    """Load docs/generate.py, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("generate", REPOSITORY / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    pages: dict[str, Callable[[], str]] = module.PAGES
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
