"""Every family of the registry keeps the contract that plug-in authors test against."""

from dataclasses import replace

import numpy as np
import pytest

from slomo.models.base import ModelFamily
from slomo.models.library import ModelLibrary
from slomo.models.responses.sensitivity import LinearSensitivity
from slomo.records.dataset import ProfileDataset
from slomo.testing.model_contract import ModelContract
from slomo.training.families.registry import describe, make_family, model_names, table_model_names
from slomo.training.training import train


class TestRegistered(ModelContract):
    @pytest.fixture(
        autouse=True,
        params=[
            "slomo-gbr", "slomo-xgb", "slomo-gp", "dobrescu", "bubbleup", "extra-trees", "boosted-trees", "linear",
            "none",
        ],
    )  # fmt: skip
    def _chosen(self, request: pytest.FixtureRequest) -> None:
        self.name = request.param

    def make_family(self) -> ModelFamily:
        return make_family(self.name)


class BandwidthFamily:
    """A plug-in: a line over memory reads."""

    name = "bandwidth"
    composition = "pressure"

    def select_features(self, available: object) -> tuple[str, ...]:
        return ("READ",)

    def fit(
        self, names: tuple[str, ...], vectors: np.ndarray, mpps: np.ndarray, *, solo_mpps: float, seed: int
    ) -> LinearSensitivity:
        slope, intercept = np.polyfit(vectors[:, 0], mpps, 1)
        return LinearSensitivity(self.name, names, "pressure", float(intercept), float(slope))


class TestPlugIn(ModelContract):
    def make_family(self) -> ModelFamily:
        return BandwidthFamily()


def test_every_name_is_described_and_made() -> None:
    """Each name of the registry has a description and makes a family of that name."""
    assert all(make_family(name).name == name and describe(name) for name in (*model_names(), *table_model_names()))


def test_a_plug_in_is_trained_saved_and_loaded(toy_composed: ProfileDataset, tmp_path: object) -> None:
    """A family of one's own is given as instance, and its models live in libraries like slomo's own."""
    library = train(toy_composed, models=[BandwidthFamily(), replace(make_family("none"), name="nothing")])
    loaded = ModelLibrary.load(library.save(tmp_path)).find("nat")  # type: ignore[arg-type]
    assert tuple(sorted(loaded.sensitivity)) == ("bandwidth", "nothing")
    assert loaded.calibration["bandwidth"].source == "mixes"
    assert loaded.predict_vector("bandwidth", {"READ": 1.0}) == pytest.approx(
        library.find("nat").predict_vector("bandwidth", {"READ": 1.0})
    )
