"""A typed program that uses slomo type-checks strictly, as its documentation is written."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

CLIENT = """
from collections.abc import Sequence

import numpy as np

import slomo
from slomo.client import Client
from slomo.models.base import CompositionKind, Floats, SensitivityModel


class MyModel:
    name: str = "mine"
    feature_names: tuple[str, ...] = ()
    composition: CompositionKind = "none"

    def predict_mpps(self, vectors: Floats) -> Floats:
        return np.ones(len(vectors))

    def to_dict(self) -> dict[str, object]:
        return {"kind": "mine"}


class MyFamily:
    name: str = "mine"
    composition: CompositionKind = "none"

    def select_features(self, available: Sequence[str]) -> tuple[str, ...]:
        return ()

    def fit(
        self, names: tuple[str, ...], vectors: Floats, mpps: Floats, *, solo_mpps: float, seed: int
    ) -> SensitivityModel:
        return MyModel()


dataset: slomo.ProfileDataset = slomo.profile(["lpm", "stats:2"], machine="e5-2620v4", runs=60, seed=1)
library: slomo.ModelLibrary = slomo.train(dataset, models=[MyFamily(), "slomo-xgb"])
slowdown: float = slomo.predict("lpm", ["stats:2", slomo.Workload("snort")], library).slowdown
asked: list[slomo.Request] = [
    slomo.Request("a", ("lpm", "stats")),
    slomo.Request("b", "lpm", slomo.SLO(min_share=0.9), affinity="a"),
    slomo.Request("c", [slomo.Workload("lpm"), "stats@1500B,1000f"], replicas=2),
]
chain: tuple[slomo.Workload, ...] = asked[0].chain
placer = slomo.Placer(library, slomo.Cluster.uniform("e5-2620v4", 2), "predicted")
servers: tuple[str, ...] = placer.admit(asked[0]).servers
machine: slomo.Machine = slomo.load_machine("silver-4110")
nf: slomo.NetworkFunction = slomo.load_network_function("lpm")
again: slomo.ModelLibrary = slomo.load_library("models")
answers: dict[str, list[object]] = Client("").predict_batch(["lpm"], [["stats:2"]], machine="e5-2620v4")
result: slomo.Evaluation = slomo.evaluate(library, slomo.import_table("table.csv", "yala-regex"), machine=machine)
"""

WRONG = "import slomo\nslomo.Request(7, ['lpm'])\nslomo.train(slomo.load_dataset('a'), models=[3])\n"
WRONG += "slomo.predict('lpm', [], 'models', method='equlibrium')\n"
WRONG += "from slomo.client import Client\nClient('').predict('lpm', coverge=0.9)\n"


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return what `mypy --strict` prints about both programs; most of its time goes into loading slomo."""
    folder = tmp_path_factory.mktemp("programs")
    for name, program in (("client.py", CLIENT), ("wrong.py", WRONG)):
        (folder / name).write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", str(REPOSITORY / "pyproject.toml"), "--strict"]
    files = [str(folder / name) for name in ("client.py", "wrong.py")]
    run = subprocess.run([*command, *files], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert "(checked 2 source files)" in run.stdout, run.stdout + run.stderr
    return run.stdout


@pytest.mark.slow
def test_the_documented_calls_type_check(printed: str) -> None:
    """Texts for workloads, families of one's own, and every name of the front door satisfy `mypy --strict`."""
    assert "client.py:" not in printed, printed


@pytest.mark.slow
def test_wrong_calls_do_not_type_check(printed: str) -> None:
    """A number for an id or a model, a misspelt method or option of the client: the types are no `Any`."""
    assert len(re.findall(r"wrong\.py:\d+: error:", printed)) == 4, printed
