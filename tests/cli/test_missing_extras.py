"""Without its optional packages slomo predicts and places, and names the extra for everything else."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from slomo.extras import EXTRA_OF, EXTRA_OF_VERB

ROOT = Path(__file__).resolve().parents[2]
#: A process in which no optional package can be imported.
BARE = f"""
import sys
sys.modules.update(dict.fromkeys({sorted({*EXTRA_OF, "llvmlite", "rich"} - {"httpx"})}))
from slomo.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def run_bare(folder, *words):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", BARE, *words], capture_output=True, text=True, cwd=folder, check=False
    )


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("profile", "lpm", "--runs", "10", "--out", "p.parquet"), "simulate"),
        (("train", "nosuch.parquet"), "train"),
        (("dataset", "list"), "data"),
        (("evaluate", "--models", "m", "--machine", "e5-2620v4"), "all"),
        (("serve", "--demo"), "service"),
        (("demo", "--out", "d"), "all"),
        (("noisy-neighbour", "x.yaml"), "simulate"),
    ],
)
def test_a_verb_names_the_extra_that_it_needs(tmp_path, words, extra):
    """A verb whose packages are not installed ends with exit code 2 and the command that installs them."""
    ended = run_bare(tmp_path, *words)
    assert ended.returncode == 2, ended.stderr
    assert f"hint: pip install 'slomo[{extra}]'" in ended.stderr
    assert "MissingExtraError" in ended.stderr


@pytest.mark.parametrize("words", [("nf", "list"), ("machine", "show", "e5-2620v4"), ("doctor",), ("plugin", "list")])
def test_what_needs_no_extra_runs_without_any(tmp_path, words):
    """Listing, showing and the doctor run on the core installation."""
    ended = run_bare(tmp_path, *words)
    assert ended.returncode == 0, ended.stderr


def test_a_request_is_placed_without_extras(tmp_path):
    """Placement by the default policy needs no optional package."""
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({sorted(EXTRA_OF)})); import slomo;"
        "p = slomo.Placer(slomo.ModelLibrary([]), slomo.Cluster.uniform('e5-2620v4', 2), fallback='alone');"
        "print(p.admit(slomo.Request('edge', ('lpm',))).servers)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ended.stdout == "('e5-2620v4-1',)\n", ended.stderr


def test_the_json_error_names_the_extra_too(tmp_path):
    """`--json` tells the same error as an object."""
    ended = run_bare(tmp_path, "dataset", "list", "--json")
    assert json.loads(ended.stderr)["error"]["hint"] == "pip install 'slomo[data]'"


def test_every_extra_that_is_named_exists():
    """No hint names an extra that `pyproject.toml` does not have."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {*EXTRA_OF.values(), *EXTRA_OF_VERB.values()} <= set(extras)
