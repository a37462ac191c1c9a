"""Gather the sources of the documentation site in build/site: run by `make docs-site`, before Zensical.

    python docs/make_site.py            # before
    python docs/make_site.py finish     # after: nothing on a page is loaded from elsewhere

The pages of docs/ as they are; the notebooks, run once per content and rendered; and pages of the Python interface that
mkdocstrings makes of docstrings, in place of the plain one that GitHub shows.
"""

import hashlib
import re
import shutil
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbconvert import MarkdownExporter

import slomo

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
SITE, RUN = BUILD / "site", BUILD / "notebooks"
#: page -> title, what it is for, and what it shows: names of `import slomo`, or whole import paths.
PAGES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "python.md": (
        "Python",
        "`import slomo` offers these names; they load when they are used.",
        tuple(sorted(slomo.__all__, key=str.swapcase)),
    ),
    "python-results.md": (
        "Results",
        "What predictions, placements and drift checks return.",
        (
            "slomo.prediction.explanation.Explanation",
            "slomo.prediction.result.PredictionBatch",
            "slomo.prediction.server_result.ServerPrediction",
            "slomo.models.evidence.Evidence",
            "slomo.models.applicability.Verdict",
            "slomo.placement.problem.decision.Decision",
            "slomo.evaluation.evaluate.Errors",
            "slomo.records.measurement.Measurement",
        ),
    ),
    "python-service.md": (
        "Client and batches",
        "Ask a service over HTTP; predict mixes by the million inside another engine.",
        ("slomo.client.Client", "slomo.client.AsyncClient", "slomo.fleet.batches.predict_batches"),
    ),
    "python-plug-ins.md": (
        "Plug-ins and their contracts",
        "What a plug-in must be, and the tests that it passes by subclassing them.",
        (
            "slomo.models.base.ModelFamily",
            "slomo.models.base.SensitivityModel",
            "slomo.placement.policies.base.Policy",
            "slomo.testbed.host.counters.base.CounterReader",
            "slomo.testbed.base.Testbed",
            "slomo.testing.model_contract.ModelContract",
            "slomo.testing.policy_contract.PolicyContract",
            "slomo.testing.reader_contract.CounterReaderContract",
            "slomo.testing.testbed_contract.TestbedContract",
        ),
    ),
}


def page(title: str, lead: str, names: tuple[str, ...]) -> str:
    """Return a page whose sections mkdocstrings fills."""
    parts = [f"# {title}\n\n{lead}\n"]
    for name in names:
        path = name if "." in name else f"{getattr(slomo, name).__module__}.{name}"
        shown = f"slomo.{name}" if "." not in name else name.rpartition(".")[2]
        parts.append(f"\n::: {path}\n    options:\n      heading: {shown}\n      toc_label: {shown}\n")
    return "".join(parts)


def executed(path: Path) -> Path:
    """Run a notebook once per content, in a folder that those before it have filled; return it with its outputs."""
    kept = RUN / f"{path.stem}-{hashlib.sha256(path.read_bytes()).hexdigest()[:12]}.ipynb"
    if not kept.exists():
        notebook = nbformat.read(path, as_version=4)
        (RUN / "work").mkdir(parents=True, exist_ok=True)
        place = {"metadata": {"path": str(RUN / "work")}}
        NotebookClient(notebook, timeout=1800, kernel_name="python3", resources=place).execute()
        nbformat.write(notebook, kept)
    return kept


def rendered(path: Path, folder: Path) -> None:
    """Write a notebook that was run as Markdown, its pictures beside it."""
    text, resources = MarkdownExporter().from_filename(
        str(executed(path)), resources={"output_files_dir": path.stem, "unique_key": path.stem}
    )
    text = text.replace("](../docs/", "](../")
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    (folder / f"{path.stem}.md").write_text(text, encoding="utf-8")
    for name, content in resources["outputs"].items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def main() -> None:
    """Gather."""
    shutil.rmtree(SITE, ignore_errors=True)
    shutil.copytree(ROOT / "docs", SITE, ignore=shutil.ignore_patterns("*.py", "__pycache__", "papers"))
    for name, content in PAGES.items():
        (SITE / "reference" / name).write_text(page(*content), encoding="utf-8")
    notebooks = SITE / "notebooks"
    notebooks.mkdir()
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        rendered(path, notebooks)


def finish(site: Path = ROOT / "site") -> None:
    """Take out a polyfill for old browsers and roles of Sphinx; refuse what else a page loads from elsewhere."""
    elsewhere = set()
    for path in sorted(site.rglob("*.html")):
        text = path.read_text(encoding="utf-8")
        kept = re.sub(r'<script src="https://unpkg\.com/iframe-worker/shim"[^>]*></script>', "", text)
        kept = re.sub(r":(?:attr|class|func|meth):(<code>)~?", r"\1", kept)  # roles of Sphinx in docstrings
        if kept != text:
            path.write_text(kept, encoding="utf-8")
        elsewhere |= set(re.findall(r'<(?:script|img|iframe)[^>]+src="(https?:[^"]+)', kept))
        elsewhere |= set(re.findall(r'<link[^>]+stylesheet[^>]+href="(https?:[^"]+)', kept))
    if elsewhere:
        sys.exit(f"pages load from elsewhere: {sorted(elsewhere)}")


if __name__ == "__main__":
    finish() if sys.argv[1:] == ["finish"] else main()
