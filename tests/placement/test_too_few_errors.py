"""A promise beside others needs enough known prediction errors: with too few, placement promises nothing there."""

import math
from dataclasses import replace

import numpy as np
import pytest

from slomo.models.evidence import CARRIED, DOUBTS
from slomo.models.intervals import symmetric
from slomo.models.library import ModelLibrary
from slomo.placement.feasibility.estimates import ThroughputEstimates
from slomo.placement.online.placer import Placer
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.request import SLO, Request
from slomo.vocabulary.workload import Workload
from tests.allocations import allocation
from tests.placement.conftest import Line

MACHINE = "e5-2620v4"
LPM, STATS = Workload("lpm").key, Workload("stats").key


def knowing(library, count, source="mixes"):
    """Return the library with `count` prediction errors of each function, none above 0.1 % of solo."""
    scores = symmetric(np.full(count // 2, 0.05), source)
    return ModelLibrary(replace(each, calibration=dict.fromkeys(each.calibration, scores)) for each in library.values())


def three(library, confidence=0.95):
    """Return how many servers three modest `lpm` take."""
    placer = Placer(library, Cluster.uniform(MACHINE, 4), "predicted", confidence=confidence)
    assert all(each.accepted for each in placer.place_all([Request(f"r{i}", "lpm", SLO(0.5)) for i in range(3)]))
    return placer.servers_used


@pytest.mark.parametrize(
    ("errors", "confidence", "servers"), [(18, 0.95, 3), (20, 0.95, 1), (20, 0.99, 3), (0, 0.9, 3)]
)
def test_too_few_errors_put_nobody_beside_another(library, errors, confidence, servers) -> None:
    """0.95 needs nineteen errors and 0.99 needs 99; with fewer every promise has a socket for itself."""
    assert three(knowing(library, errors), confidence) == servers


def test_different_neighbours_need_more_errors(library) -> None:
    """Two different promises share the risk: each bound then needs 39 errors."""
    estimates = ThroughputEstimates(knowing(library, 30))
    (alike,), (unlike,) = (
        estimates.rates(MACHINE, [mix], [count]) for mix, count in (((LPM,) * 2, 1), ((LPM, STATS), 2))
    )
    assert alike[LPM][1] > 4.0
    assert unlike[LPM][1] == unlike[STATS][1] == 0.0
    assert estimates.lacking(MACHINE, LPM) is None
    assert estimates.lacking(MACHINE, LPM, 2) == (39, 30)


def test_refusals_name_what_is_missing(library) -> None:
    """Where no socket is free, the refusal names the errors needed, those there, and the command that measures."""
    placer = Placer(knowing(library, 8), Cluster.uniform(MACHINE, 1), "predicted")
    placer.place_all([Request("here", "lpm", SLO(0.5))])
    refusal = placer.admit(Request("more", "lpm", SLO(0.5))).refused
    assert (refusal.what, refusal.needed, refusal.possible) == ("held-out errors", 19, 8)
    assert refusal.text.startswith("held-out errors of 'here' (lpm")
    assert "run slomo profile 'lpm" in refusal.text
    chain = placer.admit(Request("chain", ("lpm", "stats"), SLO(min_mpps=0.1))).refused
    assert (chain.what, chain.needed, chain.possible) == ("held-out errors", 39, 8)


@pytest.mark.parametrize("reason", ["carried", "constant", "contradicted"])
def test_errors_that_tell_nothing_count_as_none(library, reason) -> None:
    """What `slomo predict` calls unknown whatever the number of errors is promised nothing beside others."""
    changed = {
        "carried": knowing(library, 100, CARRIED),
        "constant": ModelLibrary(
            replace(each, sensitivity=dict.fromkeys(each.sensitivity, Line(5.0, 0.0, "mean", composition="none")))
            for each in library.values()
        ),
        "contradicted": ModelLibrary(
            replace(each, manifest={DOUBTS: {"slomo-xgb": "held 2 of 9"}}) for each in library.values()
        ),
    }
    assert three(library) == 1
    assert three(changed[reason]) == 3
    assert three(changed[reason], confidence=0.5) == 1


def test_a_profile_too_thin_for_a_verdict_promises_nothing(library) -> None:
    """Where `slomo predict` is `unknown` for want of 50 errors of the profile, no promise is made beside others."""
    sizes = np.linspace(0.01, 0.05, 50)
    thin, enough = (
        ModelLibrary(
            replace(each, calibration=dict.fromkeys(each.calibration, symmetric(sizes[:count], "cross-validation")))
            for each in library.values()
        )
        for count in (30, 50)
    )
    assert (three(thin), three(thin, confidence=0.5)) == (3, 1)
    assert ThroughputEstimates(thin).lacking(MACHINE, LPM) == (50, 30)
    assert three(enough) == 1


def test_few_partitions_bound_nothing() -> None:
    """Eight held-out partitions tell no 98 % bound, so advice finds nothing safe; an interval is then 0 to double."""
    model = replace(allocation(LPM, MACHINE, 5.0, 0.5, 400.0), errors=(0.01,) * 8)
    assert model.excess(0.98) == math.inf
    assert (model.half_width(0.3, 0.9), model.half_width(0.3, 0.5)) == (1.0, 0.01)
