"""Plug-ins of other packages answer to their names wherever slomo takes one."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

from slomo.cli.main import main
from slomo.errors import ConfigurationError, UnknownNameError
from slomo.models.library import ModelLibrary
from slomo.placement.policies.registry import policy_class
from slomo.plugins import GROUPS, load_plugin, plugins
from slomo.records.dataset import ProfileDataset
from slomo.service.kubernetes.rates import reader as reader_of
from slomo.testbed.host.counters.registry import choose_reader
from slomo.testbed.registry import make_testbed
from slomo.training.families.registry import make_family
from slomo.training.training import train

pytestmark = pytest.mark.usefixtures("halves")


def test_every_kind_is_found_by_name() -> None:
    """A model family, a policy, a counter reader and a testbed of another package are made by their names."""
    assert make_family("half").name == "half"
    assert policy_class("last-fit").name == "last-fit"
    reader = choose_reader("silent")
    assert reader is not None
    assert reader.name == "silent"
    assert make_testbed("toy").name == "toy"
    assert asyncio.run(reader_of("still")("still:", "10.0.0.1")).served == 0.0


def test_a_wrong_name_lists_the_plug_ins_too() -> None:
    """Whoever mistypes a plug-in's name is told the right one."""
    with pytest.raises(UnknownNameError, match="did you mean 'half'"):
        make_family("hlaf")


def test_the_list_says_which_can_be_imported(capsys: pytest.CaptureFixture[str]) -> None:
    """`slomo plugin list` names package, object and state of each, and survives one that is broken."""
    assert main(["plugin", "list", "--json"]) == 0
    rows = {(row["group"], row["name"]): row for row in json.loads(capsys.readouterr().out)}

    assert {group for group, _ in rows} == set(GROUPS)
    assert rows["slomo.models", "half"]["state"] == "ok"
    assert rows["slomo.models", "half"]["package"] == "halves 1.2"
    assert "NoSuchThing" in rows["slomo.models", "broken"]["state"]


def test_a_broken_plug_in_is_named_with_its_package() -> None:
    """A plug-in that cannot be imported is an error that says which package to mend."""
    with pytest.raises(ConfigurationError, match="plug-in 'broken' of halves"):
        load_plugin("slomo.models", "broken")


def test_a_plug_in_takes_no_name_of_slomo() -> None:
    """The built-in model answers to its name, whatever a package calls its own."""
    assert make_family("none").name == "none"
    assert "none" not in plugins("slomo.models")


def test_its_models_are_saved_and_read_back(toy_profile: ProfileDataset, tmp_path: Path) -> None:
    """A model whose kind a plug-in reads survives saving and loading with its numbers."""
    train(toy_profile, models=["none", "half"], targets=["lpm@64B,100000f"]).save(tmp_path / "models")
    again = ModelLibrary.load(tmp_path / "models").find("lpm").model("half")

    assert again.predict_mpps(np.zeros((1, 0))).tolist() == pytest.approx([2.5], rel=0.01)


def test_without_the_plug_in_its_models_are_skipped(
    toy_profile: ProfileDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library with one model nobody here reads still gives all the others, and says what that one needs."""
    train(toy_profile, models=["none", "half"], targets=["lpm@64B,100000f"]).save(tmp_path / "models")
    monkeypatch.setattr("slomo.models.responses.sensitivity.plugins", lambda _: {})
    read = ModelLibrary.load(tmp_path / "models").find("lpm")

    assert tuple(read.sensitivity) == ("none",)
    with pytest.raises(ConfigurationError, match="of kind 'half', which nothing installed here reads"):
        read.model("half")


def test_what_nothing_reads_back_is_refused_at_save(
    toy_profile: ProfileDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model of a kind without a reader is refused before anything is written."""
    library = train(toy_profile, models=["none", "half"], targets=["lpm@64B,100000f"])
    monkeypatch.setattr("slomo.models.responses.sensitivity.plugins", lambda _: {})
    with pytest.raises(ConfigurationError, match=r"model 'half' of 'lpm' .* which nothing reads back"):
        library.save(tmp_path / "models")

    assert not (tmp_path / "models").exists()
