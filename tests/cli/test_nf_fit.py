"""`slomo nf fit`: a twin of a function whose truth is known, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from slomo.cli.main import main
from slomo.errors import InvalidValueError, MissingMetricError
from slomo.records.dataset import ProfileDataset
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.network_function import load_network_function
from slomo.vocabulary.workload import Workload
from slomo.workflow.profile import profile
from slomo.workflow.twin import fit_twin

_MACHINE = "e5-2620v4"
_MIXES = (("flowstats",), ("maglev", "maglev"), ("stats", "flowstats"), ("snort", "stats", "flowstats"))


@pytest.fixture(scope="module")
def dozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of a dozen simulated runs of the router beside the synthetic competitor."""
    path = tmp_path_factory.mktemp("twin") / "router.parquet"
    profile("ip-router", machine=_MACHINE, plan="pressure", design="sobol", runs=12, seed=3).to_parquet(path)
    return path


def _kept(testbed: SimulatedTestbed, target: str, mix: tuple[str, ...]) -> float:
    others = tuple(Workload(name) for name in mix)
    solo, beside = (testbed.run(Colocation(_MACHINE, Workload(target), tenants)) for tenants in ((), others))
    return beside.target.throughput_mpps / solo.target.throughput_mpps


def test_a_twin_behaves_like_its_function_in_mixes(
    dozen: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fitted to a dozen runs, the twin keeps in mixes never measured what the function keeps, within 3 points."""
    out = tmp_path / "twin.yaml"
    assert main(["nf", "fit", str(dozen), "--nf", "ip-router", "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    twin = load_network_function(str(out))
    assert told["parameters"].keys() == {"size_mib", "reads", "mlp"}
    for item in told["parameters"].values():
        assert item["low"] <= item["value"] <= item["high"]
    assert told["error_points"] < 3.0
    original, fitted = SimulatedTestbed(_MACHINE), SimulatedTestbed(_MACHINE, [twin])
    errors = [abs(_kept(original, "ip-router", mix) - _kept(fitted, twin.name, mix)) for mix in _MIXES]
    assert float(np.mean(errors)) < 0.03
    lost = [1.0 - _kept(original, "ip-router", mix) for mix in _MIXES]
    assert float(np.mean(lost)) > 0.06, "the mixes are no mixes in which anybody would do well"


def test_too_few_runs_are_refused(dozen: Path) -> None:
    """A twin of fewer than six runs is refused, whether the dataset has no more or no more were asked for."""
    dataset = ProfileDataset.read_parquet(dozen)
    with pytest.raises(InvalidValueError, match="fitted to 3 runs, needed 6"):
        fit_twin(dataset, "ip-router", runs=3)
    with pytest.raises(MissingMetricError, match=r"measured 4 times .* needs 6") as told:
        fit_twin(ProfileDataset(dataset.frame.head(5), dataset.environment), "ip-router")
    assert told.value.exit_code == 4
