"""What CONTRIBUTING says is enough to add a thing is enough."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from slomo.errors import ConfigurationError
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.network_function import load_network_function
from slomo.vocabulary.workload import Workload

REPOSITORY = Path(__file__).resolve().parents[2]
ROW = """    _metric("WALKS", "M/s", Kind.RATE, "Walks.", Rule.SUM, per_interval=True, pressure=True, resource="DDIO"),
"""
PROGRAM = """
import json
from slomo.compose.composition import compose
from slomo.prediction.explanation import group_of
from slomo.records.pcm.recording import read_pcm
from slomo.records.schema import METRIC_COLUMNS
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector

vectors = [MetricVector({"WALKS": walks}, scope=Scope.CORE) for walks in (1.0, 2.0)]
print(json.dumps({
    "composed": compose(vectors).vector["WALKS"],
    "resource": group_of("WALKS"),
    "column": "competition.WALKS" in METRIC_COLUMNS,
    "recorded": float(read_pcm("pcm.csv").frame("core")["WALKS"].iloc[0]),
}))
"""

POLICY = '''
"""Place each request on the server with the fewest cores in use."""

from slomo.placement.policies.base import Policy


class EmptiestFirst(Policy):
    """A policy that ranks servers itself."""

    name = "emptiest-first"
    ranks = True

    def choose(self, request, choices):
        """Return the socket with the fewest cores in use."""
        return min(choices, key=lambda each: (each.cores_used, each.server.name))
'''
PLACING = """
from slomo import Cluster, ModelLibrary, Placer, Request
from slomo.cli.types import POLICY

placer = Placer(ModelLibrary([]), Cluster.uniform("e5-2620v4", 3), "emptiest-first", fallback="alone")
print(*sorted({placer.admit(Request(name, ("lpm",))).servers[0] for name in "abc"}))
print(*(item.value for item in POLICY.shell_complete(None, None, "emp")))
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a folder with a copy of the package, to which a file or row can be added."""
    shutil.copytree(REPOSITORY / "slomo", tmp_path / "slomo", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def ran(folder: Path, program: str) -> str:
    """Return what a program prints that imports the package of a folder."""
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_metric_is_one_row(copy: Path) -> None:
    """A row in the table composes, is read from PCM, has its columns in datasets and its resource in explanations."""
    table = copy / "slomo" / "vocabulary" / "metrics.py"
    table.write_text(table.read_text().replace("\n_TABLE = (\n", f"\n_TABLE = (\n{ROW}"))
    recorded = (REPOSITORY / "tests/data/pcm/comma-sparse.csv").read_text()
    (copy / "pcm.csv").write_text(recorded.replace("TEMP", "WALKS"))
    told = json.loads(ran(copy, PROGRAM))
    assert told.pop("recorded") > 0.0
    assert told == {"composed": 3.0, "resource": "DDIO", "column": True}


def test_a_machine_is_one_file(tmp_path: Path) -> None:
    """A YAML file with other numbers is another machine, on which functions can be simulated."""
    shipped = (REPOSITORY / "slomo/vocabulary/machines/e5-2620v4.yaml").read_text()
    path = tmp_path / "mine.yaml"
    path.write_text(shipped.replace("cores_per_socket: 8", "cores_per_socket: 6"))
    machine = load_machine(str(path))

    assert (machine.name, machine.cores_per_socket) == ("mine", 6)
    assert machine.fingerprint != load_machine("e5-2620v4").fingerprint
    SimulatedTestbed(machine).check(Colocation("mine", Workload("lpm"), (Workload("stats"),)))


def test_a_network_function_is_one_file(tmp_path: Path) -> None:
    """A YAML file with a `simulated:` section is a function that can be simulated beside shipped ones."""
    path = tmp_path / "mine.yaml"
    path.write_text((REPOSITORY / "slomo/vocabulary/network_functions/l2fwd.yaml").read_text())
    own = load_network_function(str(path))

    assert own.name == "mine"
    SimulatedTestbed(network_functions=[own]).check(Colocation("e5-2620v4", Workload("mine"), (Workload("stats"),)))


def test_a_policy_is_one_file(copy: Path) -> None:
    """A file with a class that ranks servers places by its own ranking under the file's name, which completes."""
    (copy / "slomo/placement/policies/emptiest_first.py").write_text(POLICY)
    assert ran(copy, PLACING).split() == ["e5-2620v4-1", "e5-2620v4-2", "e5-2620v4-3", "emptiest-first"]


def test_the_refusal_that_a_page_shows_is_what_is_said(tmp_path, monkeypatch):
    """`regexp:` for `regex:` in the page's own network function is refused with the line, field and hint shown."""
    page = (REPOSITORY / "docs/guides/your-own-nf.md").read_text()
    described, shown = page.split("```yaml\n")[1].split("```")[0], page.split("```text\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    Path("my-nf.yaml").write_text(described.replace("json: {event: ready}", "regexp: ready"))

    with pytest.raises(ConfigurationError) as refused:
        load_network_function("my-nf.yaml")
    assert f"ConfigurationError: {refused.value}\n" == shown
