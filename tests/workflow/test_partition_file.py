"""A saved profile over partitions: what was written is read, what is none is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slomo.errors import ConfigurationError, InvalidValueError, UnsupportedPredictionError, UsageError
from slomo.models.library import ModelLibrary
from slomo.models.partition_profile import PartitionProfile, library_of, load_profiles, save_profiles
from slomo.models.responses.memory_traffic import MemoryTraffic
from slomo.models.responses.partition import PartitionResponse
from slomo.vocabulary.machine import load_machine

MACHINE = load_machine("e5-2620v4")


@pytest.fixture
def profile() -> PartitionProfile:
    """Return the profile of one workload."""
    response = PartitionResponse("lpm@64B,100000f", 5.0, (1.0, 20.0), (0.2, 0.2), (4.0, 0.0), (256.0, 0.0))
    memory = MemoryTraffic((80.0, 120.0), (0.0, 40.0), away=MemoryTraffic((85.0, 130.0), (0.0, 30.0)))
    return PartitionProfile("e5-2620v4", {response.workload: response}, memory, "", (0.01, -0.02), (0.03,), (0.05,), 9)


def test_what_is_saved_is_read_again(profile: PartitionProfile, tmp_path: Path) -> None:
    (again,) = load_profiles(save_profiles([profile], tmp_path / "p.json"))

    assert again == profile
    model = again.models(MACHINE)["lpm@64B,100000f"]
    assert model.half_width(0.3, 0.5) == 0.02
    assert model.half_width(0.3, 0.5, away=True) == 0.05
    assert model.excess(0.6) == 0.01


def test_intervals_are_wider_the_more_is_lost(profile: PartitionProfile, tmp_path: Path) -> None:
    """Errors are relative to their predicted losses, which a file and a folder of models keep; none is left out."""
    known = replace(profile, losses=(0.05, 0.25, 0.85, 0.35))
    (again,) = load_profiles(save_profiles([known], tmp_path / "p.json"))
    library_of([again], MACHINE).save(tmp_path / "models")
    (model,) = library_of(load_profiles(tmp_path / "models"), MACHINE).values()

    assert model.allocation is not None
    assert model.allocation.half_width(0.05, 0.5) == pytest.approx(0.01)
    assert model.allocation.half_width(0.85, 0.5) == pytest.approx(0.05)
    assert model.allocation.half_width(0.85, 0.5, shares_ways=True) == pytest.approx(0.03)
    assert model.allocation.half_width(0.1, 0.5, away=True) == pytest.approx(0.025)
    assert model.allocation.excess(0.6) == 0.01
    with pytest.raises(ConfigurationError, match="3 losses of 4 errors"):
        replace(known, losses=known.losses[1:]).models(MACHINE)


def test_models_that_learned_partitions_are_profiles_too(profile: PartitionProfile, tmp_path: Path) -> None:
    """A folder of models gives the same responses as the file; models that learned none are refused."""
    library_of([profile], MACHINE).save(tmp_path / "models")
    (known,) = load_profiles(tmp_path / "models")

    assert (known.machine, known.errors, known.fingerprint) == (MACHINE.name, profile.errors, MACHINE.fingerprint)
    assert {**known.responses} == {**profile.responses}
    assert library_of([known], MACHINE).keys() == library_of([profile], MACHINE).keys()
    (model,) = library_of([profile], MACHINE).values()
    ModelLibrary([replace(model, allocation=None)]).save(tmp_path / "none")
    with pytest.raises(ConfigurationError, match="was profiled over partitions"):
        load_profiles(tmp_path / "none")


def test_profiles_over_ways_alone_answer_no_question_about_partitions() -> None:
    """What was measured over ways alone knows no memory traffic; another machine's profile is refused by its name."""
    ways = PartitionProfile("e5-2620v4", {"lpm": PartitionResponse.over_ways("lpm", 5.0, ((1, 3.0), (18, 5.0)))})

    with pytest.raises(UnsupportedPredictionError, match="lpm were profiled over cache ways alone"):
        library_of([ways], MACHINE)
    with pytest.raises(UnsupportedPredictionError, match="partitions of 'e5-2620v4' were profiled"):
        library_of([ways], load_machine("silver-4110"))


@pytest.mark.parametrize("curve", [((2, 3.0), (1, 4.0)), ((1, 0.0), (2, 1.0)), ()])
def test_curves_that_are_none_are_refused(curve: Any) -> None:
    with pytest.raises(InvalidValueError, match="needed ascending ways and rates above 0"):
        PartitionResponse.over_ways("lpm", 5.0, curve)


@pytest.mark.parametrize(
    "change",
    [
        {"errors": [float("nan")]},
        {"errors": ["x"]},
        {"errors": None},
        {"responses": 3},
        {"responses": {}},
        {"memory": {"latency_ns": [80.0], "traffic_gb_s": []}},
    ],
)
def test_what_is_none_is_refused(profile: PartitionProfile, tmp_path: Path, change: dict[str, Any]) -> None:
    path = save_profiles([profile], tmp_path / "p.json")
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"profiles": [document["profiles"][0] | change]}))

    with pytest.raises(UsageError, match=r"p\.json.*") as refused:
        load_profiles(path)
    assert next(iter(change)) in str(refused.value) or "NaN" in str(refused.value)


@pytest.mark.parametrize(
    "old",
    [
        {"schema_version": 1, "profiles": [{"machine": "m", "workload": "lpm", "solo_mpps": 1.0, "ways": [[1, 1.0]]}]},
        {"schema_version": 3, "machine": "m", "runs": 1, "responses": [], "errors": [0.1], "shared_errors": [0.1]},
        {"schema_version": 1, "machine": "m", "rows": []},
    ],
)
def test_older_files_are_refused_with_the_command_that_measures_again(old: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps(old))
    with pytest.raises(ConfigurationError) as refused:
        load_profiles(tmp_path / "p.json")
    assert f"p.json: schema version {old['schema_version']}, needed 5" in str(refused.value)
    assert "slomo profile NF... --plan partitions --out FILE" in str(refused.value)


def test_a_missing_file_is_not_to_be_measured_again(tmp_path: Path) -> None:
    """The hint for a file that is not there is about its path."""
    with pytest.raises(ConfigurationError) as refused:
        load_profiles(tmp_path / "nosuch.json")
    assert "measure again" not in str(refused.value)
