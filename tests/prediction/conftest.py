"""A small library made by hand, so that predictions can be checked without training anything."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from slomo.models.applicability import applicability
from slomo.models.contentiousness import ContentiousnessProfile, basis_size
from slomo.models.intervals import symmetric
from slomo.models.library import ModelLibrary
from slomo.models.nf_model import NFModel
from slomo.models.responses.sensitivity import ConstantSensitivity, LinearSensitivity
from slomo.vocabulary.capacities import Capacities
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Workload

NAMES = ("L2MISS", "L3OCC", "READ")
MACHINE = "silver-4110"


@dataclass(frozen=True)
class Plane:
    """Throughput falls by a share of solo per unit of each metric; a plug-in of one's own."""

    solo_mpps: float
    slopes: tuple[float, ...] = (0.001, 0.00001, 0.01)
    name: str = "slomo-xgb"
    feature_names: tuple[str, ...] = NAMES
    composition: str = "pressure"

    def predict_mpps(self, vectors):
        return self.solo_mpps * np.exp(-(vectors @ np.array(self.slopes)))

    def to_dict(self):
        return {"kind": "plane"}


def nf_model(nf, solo_mpps, car, occupancy, read, machine=MACHINE):
    """Return an NF whose own rates fall under pressure from others."""
    solo = MetricVector({"L2MISS": car, "L3OCC": occupancy, "READ": read}, scope=Scope.CORE)
    values = solo.to_array(NAMES)
    weights = np.zeros((basis_size(3), 3))
    weights[0], weights[1] = values, -0.3 * values
    tables = {"scale": np.array([50.0, 5000.0, 5.0]), "limit": np.array([300.0, 9000.0, 40.0])}
    profile = ContentiousnessProfile(
        NAMES, NAMES, solo, {1: solo, 3: solo}, **tables, weights=weights, low=0.5 * values, high=values
    )
    seen = np.random.default_rng(0).uniform(0.0, 1.0, (50, 3)) * np.array([300.0, 9000.0, 40.0])
    scores = symmetric(np.arange(1, 100) / 500.0, "mixes")
    lines = {
        "dobrescu": LinearSensitivity("dobrescu", ("L2MISS",), "solo", solo_mpps, -0.002 * solo_mpps),
        "none": ConstantSensitivity("none", solo_mpps),
    }
    return NFModel(
        workload=Workload(nf),
        machine=machine,
        capacities=Capacities(8, 11264.0, 2048.0, 115.0, 20.0),
        solo_mpps=solo_mpps,
        solo_vector=solo,
        sensitivity={"slomo-xgb": Plane(solo_mpps), **lines},
        contentiousness=profile,
        calibration=dict.fromkeys(("slomo-xgb", "dobrescu", "none"), scores),
        applicability=applicability(NAMES, seen),
        manifest={},
    )


@pytest.fixture
def library():
    """Four NFs on one machine, one of them also on another."""
    return ModelLibrary(
        [
            nf_model("lpm", 5.0, 20.0, 1500.0, 1.0),
            nf_model("nat", 2.7, 33.0, 2000.0, 2.0),
            nf_model("snort", 0.7, 17.0, 4000.0, 4.0),
            nf_model("stats", 3.7, 38.0, 3000.0, 3.0),
            nf_model("vpn", 0.4, 2.0, 500.0, 0.5, machine="e5-2620v4"),
        ]
    )


@pytest.fixture
def gap_library(library):
    """Make a library in which nobody knows how much 'snort' reads from memory."""
    snort = library.find("snort", MACHINE)
    profile = snort.contentiousness
    blind = replace(
        profile,
        metric_names=NAMES[:2],
        weights=profile.weights[:, :2],
        low=profile.low[:2],
        high=profile.high[:2],
    )
    return library.merge(ModelLibrary([replace(snort, contentiousness=blind)]))
