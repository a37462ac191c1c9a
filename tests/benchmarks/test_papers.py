"""The page of the five papers: generated from what is kept, and able to say that a figure is off."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import papers  # noqa: E402
import papers_figures  # noqa: E402
from phenomena_runs import Line  # noqa: E402

KEPT = papers.read_kept()


def test_the_page_says_what_is_kept() -> None:
    """docs/papers.md is what benchmarks/papers.py --page writes."""
    assert papers.PAGE.read_text(encoding="utf-8") == papers.page(KEPT, papers_figures.FIGURES)


def test_every_figure_is_measured_or_says_why_not() -> None:
    """A figure has lines or a reason, and what is kept belongs to one."""
    names = {figure.name for figure in papers_figures.FIGURES}

    assert len(names) == len(papers_figures.FIGURES)
    assert set(KEPT) <= names
    for figure in papers_figures.FIGURES:
        assert (figure.lines is None) == (figure.impossible is not None), figure.name


@pytest.mark.parametrize(
    ("ours", "fitted", "verdict"),
    [((4.0, 6.0), False, "in"), ((4.0, 6.0), True, "fitted"), ((9.0, 9.2), True, "**off**")],
)
def test_a_row_can_be_off(ours: tuple[float, ...], fitted: bool, verdict: str) -> None:
    """The mean over seeds decides; a fitted figure is no evidence, and off where it is off."""
    row = papers.row_of([Line("f", "share", "5", value, 4.5, 5.5, fitted) for value in ours], {})

    assert row is not None
    assert row.verdict == verdict
    assert row.seeds == 2
    assert row.cause == ("not tested" if verdict == "**off**" else "")


def test_what_was_measured_is_kept_whole_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A figure measured under two seeds has a file of its own, and reads as it was written."""
    monkeypatch.setattr(papers, "KEPT", tmp_path)
    figure = SimpleNamespace(
        name="made-up",
        most_seeds=2,
        here=True,
        lines=lambda seed: iter([Line("f", "share", "5", 5.0 + seed, 4.5, 7.5)]),
    )
    monkeypatch.setattr(papers_figures, "FIGURES", (figure,))
    kept = papers.measure(figure, 5, {})
    papers.keep(kept)

    assert kept.rows[0].values == (6.0, 7.0)
    assert papers.read_kept(tmp_path) == {"made-up": kept}
    assert [path.name for path in tmp_path.iterdir()] == ["made-up.json"]
    assert json.loads((tmp_path / "made-up.json").read_text(encoding="utf-8"))["seeds"] == 2


def test_processes_measure_what_one_does() -> None:
    """A figure's seeds in two processes have the rows of one process, bit by bit."""
    (figure,) = (each for each in papers_figures.FIGURES if each.name == "numasfp-firewall")
    one, two = (papers.measure(figure, 2, {}, jobs=jobs).rows for jobs in (1, 2))
    assert one == two


def test_a_figure_that_cannot_be_measured_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown name, and one that is not possible here, end with 2 and the names there are."""
    for name in ("resq-fig99", "rmd-vsperf"):
        monkeypatch.setattr(sys, "argv", ["papers.py", "--figure", name])
        assert papers.main() == 2
        assert f"no figure {name} can be measured" in capsys.readouterr().err
