"""A machine is its content, not its name: whatever another one measured, or is asked about, no door answers."""

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from slomo.errors import ConfigurationError
from slomo.evaluation.rows import predict_rows
from slomo.models.library import ModelLibrary
from slomo.placement.online.placer import Placer
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.decision import Decision
from slomo.placement.problem.enforcement import plan_from_decision
from slomo.placement.problem.request import Request
from slomo.prediction.predictor import Predictor
from slomo.records.dataset import ProfileDataset
from slomo.training.training import train
from slomo.vocabulary.machine import Machine, load_machine
from slomo.workflow.acting.enforce import read_plan
from slomo.workflow.acting.whatif import what_if
from slomo.workflow.drift import check_drift, refit_models
from slomo.workflow.evaluate import evaluate
from slomo.workflow.predict import predict
from tests.conftest import mix_rows_of, profile_rows
from tests.faults.counts import note

MACHINE = load_machine("e5-2620v4")
#: What is said of another machine of the same name; each field alone makes it another one.
EDITS = {
    "sockets": 1, "cores_per_socket": 16, "frequency_ghz": 2.6, "l2_kib": 1024.0, "l2_ways": 16, "l2_hit_ns": 9.0,
    "llc_mib": 2.0, "llc_ways": 11, "llc_policy": "victim", "llc_domains_per_socket": 2, "llc_hit_ns": 30.0,
    "ddio_ways": 4, "memory_peak_gb_s": 20.0, "memory_efficiency": 0.5, "dram_local_ns": 140.0,
    "dram_remote_ns": 300.0, "link_gb_s": 5.0, "nic_gbps": 10.0,
}  # fmt: skip
OTHERS = [dataclasses.replace(MACHINE, **{name: value}) for name, value in EDITS.items()]
#: Other shipped machines under its name.
OTHERS += [dataclasses.replace(load_machine(name), name=MACHINE.name) for name in ("silver-4110", "e5-2695v4")]

#: Rows of a profile and of mixes, made once.
ROWS, MIXES = functools.cache(profile_rows), functools.cache(mix_rows_of)


def _dataset(rows: list[dict[str, object]], machine: Machine) -> ProfileDataset:
    return ProfileDataset(pd.DataFrame(rows), {"testbed": "toy", "machines": {machine.name: machine.to_dict()}})


@pytest.fixture(scope="module")
def library() -> ModelLibrary:
    return train(_dataset(ROWS(), MACHINE), models=["dobrescu"])


def _file(machine: Machine, folder: Path) -> str:
    said = {name: value for name, value in machine.to_dict().items() if name not in ("name", "schema_version")}
    path = folder / f"{machine.name}.yaml"
    path.write_text(json.dumps({name: value for name, value in said.items() if value is not None}))
    return str(path)


def _ask_file(library: ModelLibrary, other: Machine, folder: Path) -> object:
    return predict("lpm", ["nat"], library, machine=load_machine(_file(other, folder)))


DOORS: dict[str, Callable[[ModelLibrary, Machine, Path], object]] = {
    "predict": _ask_file,
    "predict_vector": lambda library, other, _: Predictor(library, other).predict_vector("lpm", {"L2MISS": 50.0}),
    "whatif": lambda library, other, _: what_if(library, ["lpm", "nat"], other),
    "evaluate": lambda library, other, _: evaluate(library, _dataset(MIXES(2, seed=3), other)),
    "evaluate by machine": lambda library, other, _: evaluate(library, machine=other),
    "drift": lambda library, other, _: check_drift(library, _dataset(MIXES(2, seed=3), other), machine=MACHINE),
    "place": lambda library, other, folder: Placer(library, Cluster.uniform(_file(other, folder), 2)),
    "rows": lambda library, other, _: predict_rows(library.find("lpm"), _dataset(ROWS()[:4], other)),
    "drift refit": lambda library, other, _: refit_models(library, _dataset(ROWS(), other)),
    "decision": lambda library, other, _: _enforced(library, other),
    "decision as JSON": lambda library, other, folder: _read_plan(library, other, folder),
    "merge": lambda library, other, _: library.merge(_of(library, other)),
    "save": lambda library, other, folder: (library.save(folder / "kept"), _of(library, other).save(folder / "kept")),
}  # fmt: skip


def _decided(library: ModelLibrary) -> Decision:
    return Placer(library, Cluster.uniform(MACHINE.name, 2), "first-fit").admit(Request("edge", "lpm"))


def _enforced(library: ModelLibrary, other: Machine) -> object:
    made = _decided(library)
    return plan_from_decision(made, made.servers[0], other)


def _read_plan(library: ModelLibrary, other: Machine, folder: Path) -> object:
    made = _decided(library)
    (folder / "decision.json").write_text(json.dumps(made.to_dict()))
    return read_plan(folder / "decision.json", server=made.servers[0], machine=_file(other, folder))


def _of(library: ModelLibrary, other: Machine) -> ModelLibrary:
    manifest = {"machine_fingerprint": other.fingerprint}
    return ModelLibrary([dataclasses.replace(library.find("nat"), manifest=manifest)])


@pytest.mark.parametrize("door", DOORS)
def test_another_machine_of_the_name_gets_no_answer(door: str, library: ModelLibrary, tmp_path: Path) -> None:
    """Twenty machines that only share the name are refused, with both fingerprints and what to do."""
    assert len(OTHERS) == 20
    assert len({other.fingerprint for other in OTHERS} - {MACHINE.fingerprint}) == 20
    for other in OTHERS:
        with pytest.raises(ConfigurationError) as told:
            DOORS[door](library, other, tmp_path)
        assert MACHINE.fingerprint in told.value.message, other
        assert other.fingerprint in told.value.message, other
        assert told.value.hint
    note("other machines", door, len(OTHERS))


def test_the_machine_itself_is_answered(library: ModelLibrary, tmp_path: Path) -> None:
    """The same numbers in a file of the same name are the same machine."""
    assert _ask_file(library, MACHINE, tmp_path) == predict("lpm", ["nat"], library)


def test_a_library_tells_its_machines_without_reading_models(library: ModelLibrary, tmp_path: Path) -> None:
    """The index holds the fingerprint; a model that was put in another's place is refused."""
    loaded = ModelLibrary.load(library.save(tmp_path))
    assert loaded.fingerprint_of(MACHINE.name) == MACHINE.fingerprint
    rows = json.loads((tmp_path / "library.json").read_text())
    for row in rows["models"]:
        row["machine_fingerprint"] = OTHERS[0].fingerprint
        del row["digest"]
    (tmp_path / "library.json").write_text(json.dumps(rows))
    with pytest.raises(ConfigurationError, match=OTHERS[0].fingerprint):
        predict("lpm", ["nat"], tmp_path)


def test_a_changed_entry_of_an_index_is_named_and_the_rest_answers(library: ModelLibrary, tmp_path: Path) -> None:
    """An index entry that is not what was written is left out by name."""
    path = library.save(tmp_path) / "library.json"
    path.write_text(path.read_text().replace('"workload": "nat@64B', '"workload": "nat@65B'))
    with pytest.warns(UserWarning, match="nat@65B"):
        loaded = ModelLibrary.load(tmp_path)
    assert len(loaded) == len(library) - 1
