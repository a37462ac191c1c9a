"""Values show themselves shortly as text, and as HTML in which no name becomes markup."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slomo.compose.composition import Composition
from slomo.evaluation.evaluate import Errors, Evaluation
from slomo.models.applicability import Verdict
from slomo.models.library import ModelLibrary
from slomo.placement.online.placer import Placer
from slomo.placement.problem.cluster import Cluster, Server
from slomo.placement.problem.request import Request
from slomo.prediction.explanation import Explanation
from slomo.prediction.result import Prediction, PredictionBatch
from slomo.prediction.server_result import Convergence, ServerPrediction, TenantPrediction
from slomo.records.dataset import ProfileDataset
from slomo.vocabulary.machine import Machine, load_machine
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Workload

PACKAGE = Path(__file__).resolve().parents[2] / "slomo"
SCRIPT = "<script>alert(1)</script>"
HOSTILE = Workload(SCRIPT)
ERRORS = Errors(1000, 5.0, 9.0, 50.0, 90.0, 0.1, 91.0, 20.0)


def evaluation() -> Evaluation:
    """Return an evaluation with thousands of rows."""
    rows = {name: tuple([SCRIPT] * 9000) for name in ("target", "model", "measured_mpps")}
    return Evaluation(SCRIPT, 1000, 0.9, {SCRIPT: ERRORS}, {SCRIPT: {SCRIPT: ERRORS}}, rows)


def machine() -> Machine:
    """Return a machine with a hostile name."""
    return Machine.from_dict({**load_machine("silver-4110").to_dict(), "name": SCRIPT, "source": SCRIPT})


def cluster(tmp_path: Path) -> Cluster:
    """Return many servers with hostile names."""
    return Cluster(tuple(Server(f"{SCRIPT}{number}", "e5-2620v4") for number in range(200)))


def placer(tmp_path: Path) -> Placer:
    """Return a placer with two hostile requests placed."""
    made = Placer(ModelLibrary([]), cluster(tmp_path), "first-fit", fallback="alone")
    made.place_all([Request(f"{SCRIPT}{number}", HOSTILE) for number in range(2)])
    return made


def batch() -> PredictionBatch:
    """Return a thousand predictions."""
    count = 1000
    index, ones = np.zeros(count, dtype=np.int64), np.ones(count)
    judged = (Verdict.EXTRAPOLATED, (SCRIPT,))
    numbers = (ones, ones, ones, ones, lambda: [judged] * count, lambda row: judged)
    return PredictionBatch(SCRIPT, SCRIPT, 0.9, index, index[:, None], (HOSTILE,), ("Mpps",), (None,), *numbers)


def explanation() -> Explanation:
    """Return a loss caused by a hostile competitor."""
    return Explanation(0.5, {"L3OCC": 0.4, f"accelerator {SCRIPT}": 0.1}, 0.0, {SCRIPT: {"L3OCC": 0.4}})


def prediction() -> Prediction:
    """Return a prediction with its explanation."""
    reasons = (SCRIPT,)
    args: tuple[Any, ...] = (5.0, 4.0, (3.8, 4.2), 0.9, Verdict.SUPPORTED, reasons, explanation())
    return Prediction(HOSTILE, (HOSTILE,) * 3, SCRIPT, SCRIPT, *args)


def server() -> ServerPrediction:
    """Return a whole server of hostile network functions."""
    tenant = TenantPrediction(HOSTILE, 0, 5.0, 4.0, (3.8, 4.2), 1.0, None, Verdict.SUPPORTED, (SCRIPT,))
    return ServerPrediction(SCRIPT, SCRIPT, 0.9, (tenant,), {0: Convergence(True, 3, 0.1, 1e-9)})


@pytest.fixture(scope="module")
def hostile_library(toy_library: ModelLibrary) -> ModelLibrary:
    """Return the toy's models under a hostile name."""
    from dataclasses import replace

    return ModelLibrary([replace(toy_library.find("lpm"), workload=HOSTILE, machine=SCRIPT)])


@pytest.fixture(scope="module")
def hostile_dataset(toy_profile: ProfileDataset) -> ProfileDataset:
    """Return the toy's profile on a machine with a hostile name."""
    frame = toy_profile.select(target="lpm").frame.copy()
    frame["machine"] = SCRIPT
    return ProfileDataset(frame, {})


VALUES: dict[str, Callable[[Path], Any]] = {
    "Evaluation": lambda _: evaluation(),
    "Machine": lambda _: machine(),
    "Cluster": cluster,
    "Placer": placer,
    "PredictionBatch": lambda _: batch(),
    "Explanation": lambda _: explanation(),
    "Prediction": lambda _: prediction(),
    "ServerPrediction": lambda _: server(),
    "Decision": lambda path: placer(path).admit(Request(SCRIPT, HOSTILE)),
    "MetricVector": lambda _: MetricVector({"L3OCC": 5.0}, scope="core"),
}


@pytest.mark.parametrize("name", VALUES)
def test_no_name_becomes_markup(name: str, tmp_path: Path) -> None:
    """A name that holds a script is shown, not run."""
    shown = VALUES[name](tmp_path)._repr_html_()

    assert shown.startswith("<table>")
    assert "<script" not in shown
    assert ("&lt;script&gt;" in shown) == (name != "MetricVector")  # a vector names metrics alone


def test_stored_values_escape_their_names(hostile_library: ModelLibrary, hostile_dataset: ProfileDataset) -> None:
    """Libraries, models and datasets read from strangers show their names, too."""
    for value in (hostile_library, next(iter(hostile_library.values())), hostile_dataset):
        shown = value._repr_html_()
        assert "<script" not in shown
        assert "&lt;script&gt;" in shown


@pytest.mark.parametrize("name", sorted(set(VALUES) - {"Decision", "MetricVector"}))
def test_texts_are_short(name: str, tmp_path: Path) -> None:
    """`repr` of what holds thousands of numbers fits into a few lines of a terminal."""
    assert len(repr(VALUES[name](tmp_path))) < 400


def test_libraries_and_models_are_short(hostile_library: ModelLibrary) -> None:
    """A library of models, and one model of it, are named and not printed."""
    assert len(repr(hostile_library)) + len(repr(next(iter(hostile_library.values())))) < 300


def test_long_tables_are_cut(tmp_path: Path) -> None:
    """A table of two hundred servers shows the first ones and counts the rest."""
    assert "and 170 more" in cluster(tmp_path)._repr_html_()


def test_no_class_writes_markup_of_its_own() -> None:
    """Every `_repr_html_` goes through the one table (or a template) that escapes."""
    wrote = []
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "_repr_html_" in text else ():
            if isinstance(node, ast.FunctionDef) and node.name == "_repr_html_":
                texts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
                wrote += [f"{path}: {text}" for text in texts if isinstance(text, str) and "<" in text]
    assert not wrote


def test_compositions_show_their_rules() -> None:
    """A composed vector lists value, unit and rule of each metric."""
    made = Composition(MetricVector({"L3OCC": 5.0}, scope="socket"), {"L3OCC": SCRIPT})
    assert "&lt;script&gt;" in made._repr_html_()
