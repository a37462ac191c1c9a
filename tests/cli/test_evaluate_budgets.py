"""`slomo evaluate --budgets`: the error of every model against the number of runs it was trained on."""

import json
from pathlib import Path

import pytest

from slomo.cli.main import main
from slomo.training.families.registry import model_names
from slomo.workflow.evaluate import PUBLISHED


def test_every_model_is_judged_at_every_budget(bench, capsys, tmp_path: Path) -> None:
    """The JSON has an error per model and budget, SLOMO as published among them; what learns nothing stays the same."""
    page, drawn = tmp_path / "page.html", tmp_path / "curve.png"
    line = f"evaluate --budgets 40,15 --profile {bench.dataset} --dataset {bench.mixes} --json"
    assert main([*line.split(), "--report", str(page), "--figure", str(drawn)]) == 0
    document = json.loads(capsys.readouterr().out)

    assert document["budgets"] == [15, 40]
    curves = document["mean_error_percent"]
    assert set(curves) == {"default", *model_names(), PUBLISHED}
    assert all(set(points) == {"15", "40"} for points in curves.values())
    assert curves["none"]["15"] == curves["none"]["40"] > curves["slomo-xgb"]["40"]
    assert curves["slomo-gbr"]["40"] != curves[PUBLISHED]["40"]
    assert drawn.read_bytes()[1:4] == b"PNG"
    assert "data:image/svg+xml;base64," in page.read_text(encoding="utf-8")


def test_people_get_a_table(bench, capsys) -> None:
    """One row per model asked for and one column per budget; runs and mixes may stand in one dataset."""
    line = f"evaluate --budgets 15,30 --dataset {bench.dataset} --model none --model mean"
    assert main(line.split()) == 0
    head, *rows = capsys.readouterr().out.strip().splitlines()
    assert "15 runs [%]" in head
    assert "30 runs [%]" in head
    assert [row.split()[0] for row in rows] == ["none", "mean"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--budgets 20,x --dataset {dataset}", "budgets are '20,x'"),
        ("--budgets 0 --dataset {dataset}", "budgets are '0'"),
        ("--budgets 9999 --dataset {dataset}", "needed between 12 and the 40"),
        ("--budgets 20", "there are no runs to train on"),
        ("--budgets 20 --dataset {dataset} --figure curve.bmp", "no figure is stored as '.bmp'"),
        ("--budgets 20 --dataset {dataset} --figure /nowhere/curve.png", "there is no folder '/nowhere'"),
        ("--figure curve.png", "--figure was given without --budgets"),
        ("--profile {dataset}", "--profile was given without --budgets"),
    ],
)
def test_what_makes_no_sense_is_refused(bench, capsys, options: str, words: str) -> None:
    """Budgets that are no numbers of runs, or lack runs to train on, end with exit code 2 and say why."""
    assert main(f"evaluate {options.format(dataset=bench.dataset)}".split()) == 2
    assert words in capsys.readouterr().err
