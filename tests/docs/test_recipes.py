"""What CONTRIBUTING says is enough to add a thing is enough."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from slomo.errors import ConfigurationError
from slomo.models.library import ModelLibrary
from slomo.placement.online.placer import Placer
from slomo.placement.policies import registry
from slomo.placement.policies.base import Policy, SocketChoice
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.request import Request
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


class EmptiestFirst(Policy):
    """A policy that ranks servers itself: the one with the fewest cores in use."""

    name = "emptiest-first"
    ranks = True

    def choose(self, request: Request, choices: Sequence[SocketChoice]) -> SocketChoice | None:
        """Return the socket with the fewest cores in use."""
        del request
        return min(choices, key=lambda each: (each.cores_used, each.server.name))


def test_a_metric_is_one_row(tmp_path: Path) -> None:
    """A row in the table composes, is read from PCM, has its columns in datasets and its resource in explanations."""
    shutil.copytree(REPOSITORY / "slomo", tmp_path / "slomo", ignore=shutil.ignore_patterns("__pycache__"))
    table = tmp_path / "slomo" / "vocabulary" / "metrics.py"
    table.write_text(table.read_text().replace("\n_TABLE = (\n", f"\n_TABLE = (\n{ROW}"))
    recorded = (REPOSITORY / "tests/data/pcm/comma-sparse.csv").read_text()
    (tmp_path / "pcm.csv").write_text(recorded.replace("TEMP", "WALKS"))
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
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


def test_a_policy_is_one_class_and_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class that ranks servers, with a row in the registry, places by its own ranking under its name."""
    module = "slomo.placement.policies.emptiest"
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(EmptiestFirst=EmptiestFirst))  # type: ignore[arg-type]
    monkeypatch.setitem(registry._POLICIES, "emptiest-first", "emptiest:EmptiestFirst")
    placer = Placer(ModelLibrary([]), Cluster.uniform("e5-2620v4", 3), "emptiest-first", fallback="alone")
    decisions = [placer.admit(Request(name, ("lpm",))) for name in "abc"]

    assert len({decision.servers for decision in decisions}) == 3


def test_the_refusal_that_a_page_shows_is_what_is_said(tmp_path, monkeypatch):
    """`regexp:` for `regex:` in the page's own network function is refused with the line, field and hint shown."""
    page = (REPOSITORY / "docs/guides/your-own-nf.md").read_text()
    described, shown = page.split("```yaml\n")[1].split("```")[0], page.split("```text\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    Path("my-nf.yaml").write_text(described.replace("json: {event: ready}", "regexp: ready"))

    with pytest.raises(ConfigurationError) as refused:
        load_network_function("my-nf.yaml")
    assert f"ConfigurationError: {refused.value}\n" == shown
