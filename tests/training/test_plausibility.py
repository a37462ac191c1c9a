"""Rows that cannot have been measured are named, and train nothing."""

import warnings

import numpy as np
import pandas as pd
import pytest

from slomo.records.dataset import ProfileDataset
from slomo.training import plausibility
from slomo.training.plausibility import plausible_rows
from slomo.training.training import train
from slomo.vocabulary.machine import load_machine
from slomo.workflow.predict import predict
from tests.conftest import mix_rows_of, profile_rows
from tests.faults.counts import note


def test_sound_rows_are_all_kept() -> None:
    """Nothing of a sound dataset is implausible."""
    dataset = ProfileDataset(pd.DataFrame([*profile_rows(), *mix_rows_of(20, seed=2)]), {"testbed": "toy"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plausible_rows(dataset) is dataset


def _of(rows: list[dict[str, object]], row: int, prefix: str) -> list[str]:
    return [name for name in rows[row] if name.startswith(f"{prefix}.")]


def _set(rows: list[dict[str, object]], row: int, prefix: str, value: float) -> None:
    rows[row].update(dict.fromkeys(_of(rows, row, prefix), value))


#: What is planted -> how, and the reason named.
PLANTED = {
    "pps for Mpps": (lambda rows, row: rows[row].update(throughput_mpps=1e6), "any port"),
    "above line rate": (lambda rows, row: rows[row].update(throughput_mpps=70.0), "line rate"),
    "above solo": (lambda rows, row: rows[row].update(throughput_mpps=9.0), "solo"),
    "short code": (lambda rows, row: rows[row].update({"own.INST": 100.0}), "instructions that a packet takes"),
    "competition of zeros": (lambda rows, row: _set(rows, row, "competition", 0.0), "every counter of the competition"),
    "target of zeros": (lambda rows, row: _set(rows, row, "own", 0.0), "every counter of the target"),
    "no instructions": (lambda rows, row: rows[row].update({"own.INST": 0.0}), "ran without instructions"),
    "frozen competition": (
        lambda rows, row: rows[row].update({name: rows[1][name] for name in _of(rows, row, "competition")}),
        "the competition stood still",
    ),
    "frozen target": (
        lambda rows, row: rows[row].update({name: rows[1][name] for name in _of(rows, row, "own")}),
        "the target stood still",
    ),
    "contradiction": (
        lambda rows, row: rows[row].update({"competition.L3MPI": 1.0, "competition.L3MISS": 0.1}),
        "contradict each other",
    ),
}


@pytest.mark.parametrize("what", PLANTED)
def test_planted_rows_are_named_and_left_out(what: str) -> None:
    """Each of ten rows that no machine can have measured is named with its reason, and no other row is left out."""
    rows = profile_rows()
    plant, reason = PLANTED[what]
    planted = np.random.default_rng(1).choice(np.arange(49, 97), 10, replace=False)
    for row in planted:
        plant(rows, int(row))
    machine = load_machine("e5-2620v4")
    dataset = ProfileDataset(
        pd.DataFrame(rows), {"testbed": "simulated", "machines": {machine.name: machine.to_dict()}}
    )
    with pytest.warns(UserWarning, match=reason) as told:
        left = plausible_rows(dataset)
    message = str(told[0].message)
    assert all(f"{row} (lpm@" in message for row in planted)
    gone = set(dataset.frame["run_key"]) - set(left.frame["run_key"])
    assert gone == {str(rows[row]["run_key"]) for row in planted}


def test_waiting_for_a_shared_port_does_not_make_the_others_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that fills its port alone and polls three times as much beside others keeps its profile."""
    machine = load_machine("e5-2620v4")
    frame = pd.DataFrame([*profile_rows(), *mix_rows_of(200, seed=2)])
    frame = frame[frame["target"].str.startswith("lpm@")].reset_index(drop=True)
    in_mixes = (frame["plan"] == "mix").to_numpy()
    assert in_mixes.sum() > (~in_mixes).sum()
    frame["throughput_mpps"] = np.where(in_mixes, 0.3, 0.9999) * machine.line_rate_mpps(64)
    frame["own.INST"] = np.where(in_mixes, 300.0, 100.0) * frame["throughput_mpps"]
    monkeypatch.setattr(plausibility, "limited_in_mixes", lambda *_: in_mixes)
    dataset = ProfileDataset(frame, {"testbed": "simulated", "machines": {machine.name: machine.to_dict()}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plausible_rows(dataset) is dataset


def test_models_are_those_of_the_sound_rows() -> None:
    """What 100 planted rows teach is nothing: answers are those of a dataset that never had them, to the last bit."""
    sound = [{name: value for name, value in row.items() if "beside." not in name} for row in profile_rows()]
    rows = [dict(row) for row in sound]
    for number, (plant, _) in enumerate([*PLANTED.values()] * 10):  # each beside the sound row that it was made of
        rows.append({**sound[49 + number % 48], "run_key": f"planted-{number}"})
        plant(rows, len(rows) - 1)
    machine = load_machine("e5-2620v4")
    environment = {"testbed": "simulated", "machines": {machine.name: machine.to_dict()}}
    with pytest.warns(UserWarning, match="100 of 391 rows are implausible"):
        taught = train(ProfileDataset(pd.DataFrame(rows), environment), models=["dobrescu"], targets=["lpm", "nat"])
    clean = train(ProfileDataset(pd.DataFrame(sound), environment), models=["dobrescu"], targets=["lpm", "nat"])
    asked = [predict("lpm", ["nat"], library, model="dobrescu") for library in (taught, clean)]
    assert asked[0].throughput_mpps == asked[1].throughput_mpps
    assert asked[0].interval == asked[1].interval
    note("rows that cannot be", "train", 100)
