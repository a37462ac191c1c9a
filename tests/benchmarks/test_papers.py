"""The page of the five papers: generated from what is kept, and able to say that a figure is off."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from slomo.errors import TestbedError

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import papers  # noqa: E402
import papers_figures  # noqa: E402
from phenomena_runs import ANY, Line  # noqa: E402

KEPT = papers.read_kept()


def test_the_page_says_what_is_kept() -> None:
    """docs/papers.md is what benchmarks/papers.py --page writes."""
    assert papers.PAGE.read_text(encoding="utf-8") == papers.page(KEPT, papers_figures.FIGURES)


def test_every_row_that_is_off_has_a_cause_and_a_command_that_exists() -> None:
    """A cause is that of a row that is off; its command calls scripts that exist, with options that they have."""
    known = yaml.safe_load((ROOT / "benchmarks" / "papers_causes.yaml").read_text(encoding="utf-8"))
    off = [row.what for kept in KEPT.values() for row in kept.rows if not row.inside]

    assert all(any(what.startswith(start) for start in papers_figures.CAUSES) for what in off)
    for cause in known:
        for start in cause["lines"]:
            rows = [what for what in off if what.startswith(start)]
            assert any(papers.cause_of(what, papers_figures.CAUSES).startswith(cause["cause"]) for what in rows), start
        for command in cause["command"].split("; "):
            words = [word for word in command.split() if "=" not in word]
            script = ROOT / words[1] if words[0] == "python" else ROOT / "slomo" / "cli"
            texts = [script] if script.is_file() else sorted(script.rglob("*.py"))
            assert texts, command
            source = "".join(path.read_text(encoding="utf-8") for path in texts)
            for option in words:
                assert not option.startswith("--") or f'"{option}' in source, f"{command}: no {option}"


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


def test_a_number_that_nothing_could_miss_is_no_evidence() -> None:
    """Without a range a row has a verdict and a count of its own, whatever was measured."""
    row = papers.row_of([Line("f", "share", "-", 5.0, *ANY)], {})

    assert row is not None
    assert (row.range, row.verdict) == ("-", "no range")
    figure = papers_figures.Figure("made-up", "P", "Fig. 1", "t", lambda _: iter(()))
    text = papers.page({"made-up": papers.Kept("made-up", (row,), "today", "abc1234")}, [figure])
    assert "| in its range, nothing fitted to it | 0 |" in text
    assert "| no range that it could miss, no evidence | 1 |" in text


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


def test_a_figure_that_was_stopped_goes_on_with_the_next_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three seeds were played; with the same commit only the third is, with another all are."""
    monkeypatch.setattr(papers, "KEPT", tmp_path)
    monkeypatch.setattr(papers, "commit", lambda: "abc1234")
    asked: list[int] = []

    def lines(seed: int) -> Iterator[Line]:
        asked.append(seed)
        if len(asked) == 3:
            raise KeyboardInterrupt
        yield Line("f", "share", "5", 5.0 + seed, 4.5, 7.5)

    figure = papers_figures.Figure("made-up", "P", "Fig. 1", "t", lines, here=True)
    monkeypatch.setattr(papers_figures, "FIGURES", (figure,))
    with pytest.raises(KeyboardInterrupt):
        papers.measure(figure, 3, {})
    assert papers.measure(figure, 3, {}).rows[0].values == (6.0, 7.0, 8.0)
    assert asked == [1, 2, 3, 3]
    assert not list(tmp_path.iterdir())

    (tmp_path / "made-up.seeds").write_text('{"made_with": "fff0000 None", "seeds": [[]]}')
    assert papers.measure(figure, 1, {}).rows[0].values == (6.0,)


def test_processes_measure_what_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A figure's seeds in two processes have the rows of one process, bit by bit."""
    monkeypatch.setattr(papers, "KEPT", tmp_path)
    (figure,) = (each for each in papers_figures.FIGURES if each.name == "numasfp-firewall")
    one, two = (papers.measure(figure, 2, {}, jobs=jobs).rows for jobs in (1, 2))
    assert one == two


def test_a_figure_that_cannot_be_measured_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown name, and one that is not possible here, end with 2 and the names there are."""
    for name in ("resq-fig99", "numasfp-migration"):
        monkeypatch.setattr(sys, "argv", ["papers.py", "--figure", name])
        assert papers.main() == 2
        assert f"no figure {name} can be measured" in capsys.readouterr().err


def test_a_figure_that_fails_is_told_and_the_next_is_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What a figure needs may be missing here: it ends with 1, and what follows is kept."""

    def broken(seed: int) -> Iterator[Line]:
        raise TestbedError(f"no generator for seed {seed}", hint="build one")

    good = papers_figures.Figure(
        "good", "P", "Fig. 2", "t", lambda seed: iter([Line("f", "a", "5", 5.0, 4.5, 7.5)]), here=True
    )
    bad = papers_figures.Figure("bad", "P", "Fig. 1", "t", broken, here=True)
    monkeypatch.setattr(papers_figures, "FIGURES", (bad, good))
    monkeypatch.setattr(papers, "KEPT", tmp_path)
    monkeypatch.setattr(papers, "PAGE", tmp_path / "papers.md")
    monkeypatch.setattr(papers.read_kept, "__defaults__", (tmp_path,))
    monkeypatch.setattr(sys, "argv", ["papers.py"])

    assert papers.main() == 1
    assert "bad: t\n  not measured: no generator for seed 1\nhint: build one" in capsys.readouterr().err
    assert [path.stem for path in tmp_path.glob("*.json")] == ["good"]
