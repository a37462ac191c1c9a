"""A library made by hand whose every prediction can be worked out, and profiles over cache ways to go with it."""

from dataclasses import dataclass

import numpy as np
import pytest

from slomo.models.applicability import applicability
from slomo.models.contentiousness import constant_profile
from slomo.models.intervals import symmetric
from slomo.models.library import ModelLibrary
from slomo.models.nf_model import NFModel
from slomo.models.partition_profile import PartitionProfile
from slomo.models.responses.partition import PartitionResponse
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.request import SLO, Request
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Workload

MACHINE = "e5-2620v4"
#: NF -> solo throughput [Mpps], cache accesses [M/s], share of throughput lost per M/s of the others
FUNCTIONS = {"lpm": (5.0, 20.0, 0.002), "stats": (3.6, 30.0, 0.001), "firewall": (0.4, 1.0, 0.0)}


@dataclass(frozen=True)
class Line:
    """Throughput falls by a share of solo per M/s of the competitors' cache accesses."""

    solo_mpps: float
    slope: float
    name: str
    feature_names: tuple[str, ...] = ("L2MISS",)
    composition: str = "solo"

    def predict_mpps(self, vectors):
        return self.solo_mpps * np.maximum(1.0 - self.slope * vectors[:, 0], 0.0)

    def to_dict(self):
        return {"kind": "line"}


def nf_model(nf, machine=MACHINE, spread=0.0):
    """Return an NF whose intervals are `spread` of solo wide on either side, whatever the confidence."""
    solo, accesses, slope = FUNCTIONS[nf]
    vector = MetricVector({"L2MISS": accesses}, scope=Scope.CORE)
    lines = {"slomo-xgb": Line(solo, slope, "slomo-xgb"), "dobrescu": Line(solo, 2.0 * slope, "dobrescu")}
    # the error scale is at least 2 % of solo and grows with the loss; equal scores make it the only thing that varies
    scores = symmetric(np.full(99, spread / 0.02), "mixes")
    return NFModel(
        workload=Workload(nf),
        machine=machine,
        capacities=load_machine(machine).capacities(),
        solo_mpps=solo,
        solo_vector=vector,
        sensitivity=lines,
        contentiousness=constant_profile(vector),
        calibration=dict.fromkeys(lines, scores),
        applicability=applicability(("L2MISS",), np.linspace(0.0, 300.0, 50)[:, None]),
        manifest={},
    )


@pytest.fixture
def make_library():
    """Return a maker of libraries: three NFs on each machine, with intervals of a width."""

    def make(*machines, spread=0.0):
        return ModelLibrary([nf_model(nf, machine, spread) for nf in FUNCTIONS for machine in machines or (MACHINE,)])

    return make


@pytest.fixture
def library(make_library):
    """Three NFs on one machine, certain of their predictions."""
    return make_library()


def nf_profiles():
    """Return throughput over cache ways and latency over load of the same NFs."""
    latency = ((0.5, 10.0, 20.0), (0.8, 20.0, 40.0), (0.95, 80.0, 200.0))
    curves = {"lpm": (0.5, 0.8, 0.96, 1.0), "stats": (0.6, 0.92, 0.98, 1.0), "firewall": (0.98, 0.99, 1.0, 1.0)}
    responses = [
        PartitionResponse.over_ways(
            Workload(nf).key,
            FUNCTIONS[nf][0],
            tuple((way, share * FUNCTIONS[nf][0]) for way, share in zip((1, 3, 8, 18), shares, strict=True)),
            latency,
        )
        for nf, shares in curves.items()
    ]
    return [PartitionProfile(MACHINE, {each.workload: each}) for each in responses]


@pytest.fixture
def profiles():
    """Throughput over cache ways and latency over load of the same NFs."""
    return nf_profiles()


@pytest.fixture
def cluster():
    """Four servers of eight cores."""
    return Cluster.uniform(MACHINE, 4)


@pytest.fixture
def ask():
    """Return a maker of requests for one NF that promise a share of its solo throughput."""

    def make(name, nf="lpm", share=0.9, **fields):
        return Request(name, (nf,), SLO(min_share=share), **fields)

    return make
