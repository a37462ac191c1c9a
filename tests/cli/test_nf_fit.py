"""`slomo nf fit`: a twin of a function whose truth is known, and what is refused."""

import functools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slomo.cli.main import main
from slomo.errors import InvalidValueError, MissingMetricError, UnsupportedPredictionError
from slomo.records.dataset import ProfileDataset
from slomo.records.storage import load_dataset
from slomo.testbed.host.doctor.machine_file import write_machine
from slomo.testbed.simulated import SimulatedTestbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.network_function import NetworkFunction, load_network_function
from slomo.vocabulary.workload import Workload
from slomo.workflow import twin as twin_module
from slomo.workflow.profile import profile
from slomo.workflow.twin import FittedParameter, fit_twin

_MACHINE = "e5-2620v4"
_VICTIMS = ("flowstats", "stats", "snort")
_MIXES = (("flowstats",), ("maglev", "maglev"), ("stats", "flowstats"), ("snort", "stats", "flowstats"))


#: What these tests simulate on, fits included: half the time of the default, whose smaller scale no claim here needs.
_Coarse = functools.partial(SimulatedTestbed, scale=64)


@pytest.fixture(scope="module", autouse=True)
def coarse() -> Iterator[None]:
    """Let fits simulate at a coarse scale."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(twin_module, "SimulatedTestbed", _Coarse)
        yield


@pytest.fixture(scope="module")
def dozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of a dozen simulated runs of the router beside the synthetic competitor."""
    path = tmp_path_factory.mktemp("twin") / "router.parquet"
    wanted = {"machine": _MACHINE, "plan": "pressure", "design": "sobol", "runs": 12, "seed": 3}
    profile("ip-router", testbed=_Coarse(_MACHINE), **wanted).to_parquet(path)
    return path


@functools.cache
def _mpps(testbed: SimulatedTestbed, target: str, mix: tuple[str, ...]) -> float:
    others = tuple(Workload(name) for name in mix)
    return testbed.run(Colocation(_MACHINE, Workload(target), others)).target.throughput_mpps


def _kept(testbed: SimulatedTestbed, target: str, mix: tuple[str, ...]) -> float:
    return _mpps(testbed, target, mix) / _mpps(testbed, target, ())


def test_a_twin_behaves_like_its_function_in_mixes(
    dozen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fitted to eight runs, the twin keeps in mixes never measured what the function keeps, and does what it does."""
    monkeypatch.setattr(twin_module, "_STARTS", ((4.0, 12.0), (2.0,), (1.0,)))  # an eighth of them, fewer steps: time
    monkeypatch.setattr(twin_module, "_EVALUATIONS", 5)
    out = tmp_path / "twin.yaml"
    assert main(["nf", "fit", str(dozen), "--target", "ip-router", "--runs", "8", "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    twin = load_network_function(str(out))
    assert told["tells"]
    assert told["parameters"].keys() == {"size_mib", "reads", "mlp", "near_reads"}
    for item in told["parameters"].values():
        assert item["low"] <= item["value"] <= item["high"]
    assert told["error_points"] < 3.0
    original, fitted = _Coarse(_MACHINE), _Coarse(_MACHINE, [twin])
    errors = [abs(_kept(original, "ip-router", mix) - _kept(fitted, twin.name, mix)) for mix in _MIXES]
    assert float(np.mean(errors)) < 0.03
    lost = [1.0 - _kept(original, "ip-router", mix) for mix in _MIXES]
    assert float(np.mean(lost)) > 0.06, "the mixes are no mixes in which anybody would do well"
    suffered = [_kept(original, nf, ("ip-router",) * 3) for nf in _VICTIMS]
    beside = [_kept(fitted, nf, (twin.name,) * 3) for nf in _VICTIMS]
    assert float(np.abs(np.divide(beside, suffered) - 1.0).mean()) < 0.03
    assert min(suffered) < 0.95, "nobody suffers beside it"


def test_a_machine_is_fitted_near_what_is_stated(
    dozen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its cache, bandwidth and latency are fitted as well and written as a machine; the rest of it stays."""
    _hurry(monkeypatch)
    out, machine = str(tmp_path / "t.yaml"), tmp_path / "m.yaml"
    wrong = tmp_path / "wrong.yaml"
    write_machine(wrong, replace(load_machine(_MACHINE), llc_mib=10.0), {})
    given = ["--machine", str(wrong), "--fit-machine", str(machine), "--runs", "6"]
    assert main(["nf", "fit", str(dozen), "--target", "ip-router", "--out", out, *given, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["parameters"]
    fitted = load_machine(str(machine))
    for name in ("llc_mib", "memory_peak_gb_s", "dram_local_ns"):
        assert told[name]["low"] < getattr(fitted, name) < told[name]["high"]
    assert fitted.llc_mib > 10.0
    assert fitted.llc_ways == load_machine(_MACHINE).llc_ways


def test_runs_without_contention_are_said_to_tell_nothing(
    dozen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where nothing is lost, every function fits; who reads the parameters must know."""
    _hurry(monkeypatch)
    monkeypatch.setattr(twin_module, "_EVALUATIONS", 1)
    dataset = ProfileDataset.read_parquet(dozen)
    frame = dataset.frame.assign(throughput_mpps=dataset.frame["throughput_mpps"].max())
    flat = tmp_path / "flat.parquet"
    ProfileDataset(frame, dataset.environment).to_parquet(flat)
    assert (
        main(["nf", "fit", str(flat), "--target", "ip-router", "--out", str(tmp_path / "t.yaml"), "--runs", "6"]) == 0
    )
    assert "nothing to tell, any function fits such runs" in capsys.readouterr().err


def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a fit take one step from one start."""
    monkeypatch.setattr(twin_module, "_STARTS", ((8.0,), (2.0,), (1.5,)))
    monkeypatch.setattr(twin_module, "_EVALUATIONS", 2)


def test_too_few_runs_are_refused(dozen: Path) -> None:
    """A twin of fewer than six runs is refused, whether the dataset has no more or no more were asked for."""
    dataset = ProfileDataset.read_parquet(dozen)
    with pytest.raises(InvalidValueError, match="fitted to 3 runs, needed 6"):
        fit_twin(dataset, "ip-router", runs=3)
    with pytest.raises(MissingMetricError, match=r"measured 4 times .* needs 6") as told:
        fit_twin(ProfileDataset(dataset.frame.head(5), dataset.environment), "ip-router")
    assert told.value.exit_code == 4


def test_a_twin_that_is_not_as_fast_alone_is_refused(dozen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rate that no function can have here, ten times the router's, has no twin; the error says how far off it is."""
    monkeypatch.setattr(twin_module, "_STARTS", ((4.0,), (2.0,), (1.0,)))
    monkeypatch.setattr(twin_module, "_EVALUATIONS", 1)
    monkeypatch.setattr(twin_module, "_ACCESSES", 40_000)
    fast = load_dataset(dozen)
    frame = fast.frame.copy()
    frame["throughput_mpps"] *= 10.0
    with pytest.raises(UnsupportedPredictionError, match="no twin of 'ip-router': alone it makes"):
        fit_twin(ProfileDataset(frame, fast.environment), "ip-router", runs=6)


def test_a_function_that_mostly_waits_for_memory_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search starts where memory takes most of a packet's time: a function with 120 reads per packet has a twin."""
    monkeypatch.setattr(twin_module, "_STARTS", ((32.0,), (10.0,), (4.0,)))
    monkeypatch.setattr(twin_module, "_EVALUATIONS", 1)
    monkeypatch.setattr(twin_module, "_ACCESSES", 20_000)
    table = {"name": "table", "size_mib": 512, "reads": 120, "mlp": 4}
    simulated = {
        "compute_cycles": 300, "instructions": 600, "packet_buffers": 1024, "structures": [table],
        "packet": {"touch": "header", "written_lines": 1, "mlp": 6},
    }  # fmt: skip
    slow = NetworkFunction(name="slow", description="waits", source="this test", simulated=simulated)
    testbed = _Coarse(_MACHINE, [slow], accesses=20_000)
    runs = profile("slow", machine=_MACHINE, plan="pressure", design="sobol", runs=6, seed=4, testbed=testbed, own=slow)
    twin = fit_twin(runs, "slow", runs=6)
    assert {item.name: item.value for item in twin.parameters}["reads"] > 64.0


def test_a_parameter_is_determined_within_a_factor_of_ten() -> None:
    """A wide interval, or a value at an end of its range, is no determined parameter."""
    assert FittedParameter("reads", 10.0, 5.0, 20.0).determined
    assert not FittedParameter("reads", 10.0, 1.0, 100.0).determined
    assert not FittedParameter("reads", 1024.0, 1000.0, 1050.0, at_end=True).determined
