"""`slomo probes`: run times beside probes are imported once, and pairs predicted from them."""

import json
import math
from pathlib import Path

import pytest

from slomo import load_dataset
from slomo.cli.main import main

MAPPING = """
kind: probes
machine: m
reporter: {file: reporter.csv}
beside: {file: beside.csv}
sensitivity: {file: "{name}.csv"}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write the tables of one application."""
    tables = {
        "reporter.csv": " mean\n0 10\n8 15\n16 20\n",
        "beside.csv": " mean\nlbm 15\n",
        "lbm.csv": "level time\n0 40\n8 60\n16 80\n",
        "map.yaml": MAPPING,
    }
    for name, text in tables.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_imported_probes_answer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A target like the reporter is two thirds as fast beside a competitor the reporter feels so."""
    out = str(folder / "probes.json")
    assert main(["dataset", "import", str(folder), "--mapping", str(folder / "map.yaml"), "--out", out]) == 0
    assert "1 applications on m" in capsys.readouterr().err
    assert main(["probes", out, "--target", "lbm", "--with", "lbm", "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)

    assert answer["performance"] == pytest.approx(2 / 3)
    assert (answer["verdict"], answer["interval"]) == ("unknown", [0.0, 1.0])
    (folder / "pairs.csv").write_text("a,b,share\n" + "lbm,lbm,0.66\nlbm,lbm,0.68\n" + "lbm,x,0.9\n", encoding="utf-8")
    pairs = str(folder / "pairs.parquet")
    assert main(["dataset", "import", str(folder / "pairs.csv"), "--machine", "m", "--out", pairs]) == 0
    assert (
        main(["dataset", "import", str(folder / "pairs.csv"), "--machine", "m", "--probes", out, "--out", pairs]) == 0
    )
    assert load_dataset(pairs).environment["probes"]["m"]["lbm"]["presses"] == pytest.approx(math.log(1.5))
    assert main(["probes", out, "--measured", pairs]) == 0
    assert "1 measured pairs tell its error, needed 9" in capsys.readouterr().out


def test_what_holds_no_probes_is_told_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither another file's content, tables that do not match, nor another suffix passes for probe tables."""
    out = folder / "probes.json"
    assert main(["dataset", "import", str(folder), "--mapping", str(folder / "map.yaml"), "--out", str(out)]) == 0
    probed = json.loads(out.read_text(encoding="utf-8"))
    out.write_text(json.dumps(probed | {"beside": {"other": probed["beside"]["lbm"]}}), encoding="utf-8")
    pairs = ["dataset", "import", str(folder / "lbm.csv"), "--probes", str(out), "--out", str(folder / "p.parquet")]
    capsys.readouterr()
    assert main([*pairs, "--machine", "m"]) == 2
    assert "stands in only one of" in capsys.readouterr().err
    assert main([*pairs, "--mapping", str(folder / "map.yaml")]) == 2
    assert "--probes together with --mapping" in capsys.readouterr().err
    mapped = ["dataset", "import", str(folder), "--mapping", str(folder / "map.yaml"), "--out", str(out)]
    assert main([*mapped, "--unit", "Mpps"]) == 2
    assert "--unit together with --mapping" in capsys.readouterr().err
    assert main(["probes", str(folder / "map.yaml")]) == 2
    told = capsys.readouterr().err
    assert "field 'kind'" in told
    assert "with a mapping of kind probes" in told
    line = ["dataset", "import", str(folder), "--mapping", str(folder / "map.yaml"), "--out", str(folder / "a.parquet")]
    assert main(line) == 2
