"""Planted traps: what must not be called supported, and be off by more than twice the stated half width.

`benchmarks/traps.py` plants a thousand in the simulator; these are a few of each kind in the toy's world.
"""

import warnings
from collections.abc import Iterator

import numpy as np
import pytest

from slomo.errors import SlomoError
from slomo.models.applicability import Verdict
from slomo.models.library import ModelLibrary
from slomo.prediction.predictor import Predictor
from slomo.records.dataset import ProfileDataset
from slomo.training.training import train
from slomo.vocabulary.defaults import DEFAULT_MODEL
from slomo.vocabulary.server_setting import ServerSetting
from slomo.vocabulary.workload import Traffic, Workload
from slomo.workflow.predict import predict

MACHINE = "e5-2620v4"
FAMILIES = ["slomo-xgb", "mean", "none"]


def caught(library: ModelLibrary, mixes: ProfileDataset, target: str, model: str = DEFAULT_MODEL) -> Iterator[bool]:
    """Yield, of every supported answer about a measured mix of a function, whether it is off by twice its width."""
    predictor = Predictor(library, MACHINE, model)
    for row in np.flatnonzero((mixes.frame["nf"] == target).to_numpy())[:25].tolist():
        others = [each.key for each in mixes.competitors(row)]
        prediction = predictor.predict(target, others, explain=False)
        (low, high), mpps, truth = prediction.interval, prediction.throughput_mpps, float(mixes.throughput[row])
        if prediction.verdict is Verdict.SUPPORTED:
            yield abs(truth - mpps) > high - low  # twice half the width


@pytest.mark.parametrize("family", ["mean", "none"])
def test_a_constant_in_place_of_a_model_catches_nobody(toy_library, toy_mixes, family):
    """It answers beside others, and is never supported there."""
    beside = toy_mixes.rows((toy_mixes.frame["competitor_count"] > 0).to_numpy())
    assert not list(caught(toy_library, beside, "nat", family))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_thin_design_catches_nobody(toy_library, toy_profile, toy_mixes, seed):
    """Twelve of the gentlest runs of a function, no mixes: harder mixes are extrapolated, or the width holds them."""
    frame, draw = toy_profile.frame, np.random.default_rng(seed)
    own = np.flatnonzero((frame["nf"] == "lpm").to_numpy() & (frame["plan"] == "pressure").to_numpy())
    gentle = own[np.argsort(-toy_profile.throughput[own])][:40]
    alone = ((frame["nf"] == "lpm") & (frame["plan"] == "solo")).to_numpy()
    kept = alone | np.isin(np.arange(len(frame)), draw.choice(gentle, 12, replace=False))
    library = toy_library.merge(train(toy_profile.rows(kept), models=FAMILIES))
    assert not any(caught(library, toy_mixes, "lpm"))


def test_absurd_rows_catch_nobody(toy_library, toy_profile, toy_mixes):
    """Ten times the rate, or counters a thousand times too large, in every tenth run of a function's profile."""
    rows = ((toy_profile.frame["nf"] == "ids") & (toy_profile.frame["plan"] != "mix")).to_numpy()
    frame = toy_profile.rows(rows).frame.copy()
    frame.loc[frame.index[5::10], "throughput_mpps"] *= 10.0
    frame.loc[frame.index[9::10], ["competition.L2MISS", "beside.L2MISS"]] *= 1000.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spoilt = train(ProfileDataset(frame, toy_profile.environment), models=FAMILIES)
    assert not any(caught(toy_library.merge(spoilt), toy_mixes, "ids"))


@pytest.mark.parametrize(
    ("mix", "setting"),
    [
        (("lpm", "nat"), ServerSetting(bandwidth_percent=[50.0, 50.0])),
        (("lpm", "nat"), ServerSetting(ways=[0x3, 0xC])),
        (("lpm", "nat"), ServerSetting(nodes=[1, 0])),
        ((Workload("lpm", {}, Traffic(packet_size_b=1500)), "nat"), None),
        ((Workload("lpm", {}, Traffic(flow_count=110_000)), "nat"), None),
        (("lpm2", "nat"), None),
        (("lpm", *["nat"] * 7), ServerSetting(sockets=[1] * 8)),
    ],
)
def test_what_was_never_measured_is_never_supported(toy_library, mix, setting):
    """A throttle, ways, another node or socket, other traffic, a name that nobody profiled: refused, or said so."""
    try:
        verdict = predict(mix[0], mix[1:], toy_library, machine=MACHINE, setting=setting).verdict
    except SlomoError:
        return  # refused
    assert verdict is not Verdict.SUPPORTED
