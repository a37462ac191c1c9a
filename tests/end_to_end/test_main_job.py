"""The main job from end to end, and the front door itself."""

import functools
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import slomo
from slomo.cli.main import main
from slomo.cli.verbs import demo
from tests.conftest import few_steps

REPOSITORY = Path(__file__).resolve().parents[2]
MAPPING = REPOSITORY / "datasets" / "mappings" / "yala-flow-monitor.yaml"


def test_front_door_offers_what_it_lists() -> None:
    """Every name of __all__ loads, is documented, and is the one its home defines."""
    for name in slomo.__all__:
        value = getattr(slomo, name)
        assert value.__doc__
        assert value is getattr(importlib.import_module(slomo._HOME[name]), name)
    assert sorted(slomo.__all__) == sorted(slomo._HOME)
    assert set(dir(slomo)) == {*slomo.__all__, "__version__"}


def test_front_door_loads_nothing_until_used() -> None:
    """`import slomo` imports no other package."""
    program = "import sys, slomo; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert not set(done.stdout.split()) & {"numpy", "pandas", "numba", "sklearn", "xgboost", "click", "rich", "yaml"}


def test_unknown_name_says_what_there_is() -> None:
    """A misspelt name of the front door lists the right ones."""
    with pytest.raises(AttributeError, match="profile, train"):
        slomo.profle  # noqa: B018


def test_demonstration_ends_with_a_table_and_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`slomo demo` compares mixes never run with their simulation, and writes a page that needs nothing else."""
    monkeypatch.setattr(demo, "NETWORK_FUNCTIONS", ("lpm", "stats", "snort"))
    for name, size in {"RUNS": 8, "CALIBRATION_MIXES": 8, "TEST_MIXES": 5, "SHOWN_MIXES": 4}.items():
        monkeypatch.setattr(demo, name, size)
    monkeypatch.setattr(demo, "_demonstrate", functools.cache(demo._demonstrate))  # told twice, made once
    with few_steps():
        assert main(["demo", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr()
    page = (tmp_path / "report.html").read_text(encoding="utf-8")

    assert "predicted slowdown [%]" in said.out
    assert "simulated slowdown [%]" in said.out
    assert "slomo-xgb" in said.out
    assert str(tmp_path / "report.html") in said.err
    assert page.count("data:image/svg+xml;base64,") >= 4
    assert main(["demo", "--out", str(tmp_path), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert len(again["mixes"]) == 5
    assert main(["predict", "--target", "lpm", "--with", "stats", "--models", str(tmp_path / "models")]) == 0


@pytest.mark.parametrize("table", ["sample_slomo_train.txt", "sample_yala_mem_train.txt"])
def test_published_table_goes_from_import_to_prediction(
    table: str, outside_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Measurements from outside are imported, trained on, and predicted from a vector of counters."""
    dataset, models = str(tmp_path / "flow-monitor.parquet"), str(tmp_path / "models")
    source = outside_data / "yala-flowmon" / table
    if not source.is_file():
        pytest.skip(f"{source} is not there")
    assert main(["dataset", "import", str(source), "--mapping", str(MAPPING), "--out", dataset]) == 0
    assert main(["train", dataset, "--models", models]) == 0
    counters = {"IPC": 1.2, "INST": 2900.0, "L2MISS": 60.0, "L3OCC": 5000.0}
    pairs = [word for name, value in counters.items() for word in ("--vector", f"{name}={value}")]
    capsys.readouterr()
    assert main(["predict", "--target", "flow-monitor", *pairs, "--models", models, "--json"]) == 0
    prediction = json.loads(capsys.readouterr().out)

    assert prediction["machine"] == "bluefield-2"
    assert 0.3 < prediction["throughput_mpps"] <= prediction["solo_mpps"]


def test_reference_of_the_command_line_covers_every_command() -> None:
    """Each command and each of its options that help shows stands in docs/reference/cli.md."""
    from slomo.cli.main import commands

    page = (REPOSITORY / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    for path, command in commands():
        assert f"## {path}\n" in page
        shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
        assert all(option in page for parameter in shown for option in parameter.opts if option.startswith("--"))
