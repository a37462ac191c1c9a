"""What cannot be judged is unknown: no model, too few errors, an axis never measured, widths that mixes contradict."""

from dataclasses import replace

import numpy as np
import pytest

from slomo.equilibrium.judgement import codes_of_first
from slomo.equilibrium.server import solve_joint
from slomo.errors import UnsupportedPredictionError
from slomo.models.applicability import VERDICTS, Verdict
from slomo.models.evidence import DOUBTS
from slomo.models.intervals import ConformalCalibration
from slomo.models.library import ModelLibrary
from slomo.prediction.predictor import Predictor
from slomo.prediction.result import Prediction
from slomo.training.calibration import mix_rows
from slomo.training.server_response_fit import contradictions
from slomo.training.training import train
from slomo.vocabulary.server_setting import ServerSetting
from slomo.workflow.predict import predict
from tests.allocations import allocation

MACHINE = "e5-2620v4"


def _with_response(library, nf, **changed):
    """The library, one of its functions answering neighbours otherwise."""
    models = [
        replace(model, response=replace(model.response, **changed)) if model.workload.nf == nf else model
        for model in library.values()
    ]
    return ModelLibrary(models)


@pytest.mark.parametrize("family", ["none", "mean"])
def test_a_constant_in_place_of_a_model_is_no_evidence(toy_library, family):
    """A family that reads no pressure answers, and says that it stands in place of a model."""
    prediction = Predictor(toy_library, MACHINE, family).predict("lpm", ["nat"])
    assert prediction.verdict is Verdict.UNKNOWN
    assert prediction.reasons[0].startswith(f"'{family}' stands in place of a model")


def test_too_few_held_out_errors_are_said(toy_library):
    """Eight errors say nothing about nine in ten; a strict question gets an error, alone it is a measurement."""
    few = _with_response(toy_library, "lpm", calibration=ConformalCalibration(np.linspace(-1, 1, 8), "mixes"))
    prediction = predict("lpm", "nat", few, machine=MACHINE)
    assert prediction.verdict is Verdict.UNKNOWN
    assert "8 held-out errors" in prediction.reasons[0]
    assert "needs 9" in prediction.reasons[0]
    with pytest.raises(UnsupportedPredictionError, match="cannot be judged"):
        predict("lpm", "nat", few, machine=MACHINE, strict=True)
    assert predict("lpm", (), few, machine=MACHINE).verdict is Verdict.SUPPORTED


def test_arrays_give_the_same_verdict(toy_library):
    """The service asks arrays: they call unknown what one question calls unknown."""
    few = _with_response(toy_library, "lpm", calibration=ConformalCalibration(np.linspace(-1, 1, 8), "mixes"))
    models = [few.find(nf, MACHINE) for nf in ("lpm", "nat")]
    members = np.array([[0, 1, -1], [1, 0, -1], [0, -1, -1]])
    codes = codes_of_first(models, members, solve_joint(models, members), 0.9)
    asked = [(("lpm", "nat"), 0), (("nat", "lpm"), 1), (("lpm",), 2)]
    one_by_one = [predict(names[0], names[1:], few, machine=MACHINE).verdict for names, _ in asked]
    assert [VERDICTS[codes[row]] for _, row in asked] == one_by_one


def test_measured_mixes_may_contradict_a_width(toy_library):
    """A model whose own few mixes fell outside its intervals is not believed."""
    model = toy_library.find("lpm", MACHINE)
    told = {DOUBTS: {"equilibrium": "intervals of 90 % hold 2 of 9"}}
    others = [other for other in toy_library.values() if other is not model]
    library = ModelLibrary([*others, replace(model, manifest={**model.manifest, **told})])
    prediction = predict("lpm", "nat", library, machine=MACHINE)
    assert prediction.verdict is Verdict.UNKNOWN
    assert "hold 2 of 9" in prediction.reasons[0]


def test_a_part_along_an_axis_never_profiled_is_unknown(toy_library):
    """Who was profiled over ways alone has no known answer to a throttle, or to memory on another node."""
    ways = allocation("lpm@64B,100000f", MACHINE, 5.0, 0.5, 400.0)
    bare = replace(ways, remote_ns=0.0, response=replace(ways.response, throttled_us=(), throttle=((100.0, 0.0),)))
    model = toy_library.find("lpm", MACHINE)
    library = ModelLibrary([replace(model, allocation=bare)])
    verdicts = [
        predict("lpm", (), library, machine=MACHINE, setting=setting).verdict
        for setting in (
            ServerSetting(ways=[0xFF]),
            ServerSetting(bandwidth_percent=[50.0]),
            ServerSetting(nodes=[1]),
        )
    ]
    assert verdicts == [Verdict.SUPPORTED, Verdict.UNKNOWN, Verdict.UNKNOWN]
    few = ModelLibrary([replace(model, allocation=replace(ways, errors=(0.01,), shared_errors=(0.01,)))])
    assert predict("lpm", (), few, machine=MACHINE, setting=ServerSetting(ways=[0xFF])).verdict is Verdict.UNKNOWN


def test_memory_on_another_node_beside_others_needs_runs_of_that(toy_library):
    """Without them such a server is unknown; with them, their errors set the interval; two sockets are extrapolated."""
    ways = allocation("lpm@64B,100000f", MACHINE, 5.0, 0.5, 400.0)
    model = toy_library.find("lpm", MACHINE)
    runs = (
        ModelLibrary([replace(model, allocation=ways)]),
        ModelLibrary([replace(model, allocation=replace(ways, away_errors=(0.2,) * 20))]),
    )
    one, two = ServerSetting(nodes=[1, 0]), ServerSetting(sockets=[0, 1], nodes=[1, 1])
    without, with_runs, both = (
        predict("lpm", "lpm", library, machine=MACHINE, setting=setting)
        for library, setting in ((runs[0], one), (runs[1], one), (runs[1], two))
    )

    assert [each.verdict for each in (without, with_runs, both)] == ["unknown", "supported", "extrapolated"]
    assert "profile its partitions again" in without.reasons[0]
    assert "from several sockets" in both.reasons[0]
    assert with_runs.interval[1] == pytest.approx(1.2 * with_runs.throughput_mpps)


def test_more_tenants_than_ways_in_a_mask_are_extrapolated(toy_library):
    """Such ways are filled by more than the one NF and the streams that profiles have in them."""
    ways = allocation("lpm@64B,100000f", MACHINE, 5.0, 0.5, 400.0)
    library = ModelLibrary([replace(toy_library.find("lpm", MACHINE), allocation=ways)])
    verdicts = [
        predict("lpm", "lpm", library, machine=MACHINE, setting=ServerSetting(ways=masks)).verdict
        for masks in ([0x1, 0x1], [0x3, 0x3], [0x1, 0x2])
    ]
    assert verdicts == [Verdict.EXTRAPOLATED, Verdict.SUPPORTED, Verdict.SUPPORTED]


def test_the_strongest_throttle_beside_others_is_extrapolated(toy_library):
    """A miss costs most under it, and packets wait longest; profiles have it alone, and in few ways beside a stream."""
    ways = allocation("lpm@64B,100000f", MACHINE, 5.0, 0.5, 400.0)
    library = ModelLibrary([replace(toy_library.find("lpm", MACHINE), allocation=ways)])
    settings = [
        ServerSetting(masks, percents) for masks in ([0x3, 0x3], [0x3, 0xC]) for percents in ([10, 100], [50, 10])
    ]
    verdicts = [predict("lpm", "lpm", library, machine=MACHINE, setting=setting).verdict for setting in settings]
    assert verdicts == [Verdict.EXTRAPOLATED, *[Verdict.SUPPORTED] * 3]


def test_nfs_of_several_last_level_caches_share_no_ways(toy_library):
    """A mask names ways of the cache of an NF's core; NFs without a given core have the first free ones."""
    model = toy_library.find("lpm", MACHINE)
    cores = model.capacities.cores
    several = replace(allocation("lpm@64B,100000f", MACHINE, 5.0, 0.5, 400.0), llc_domains=cores // 2)
    library = ModelLibrary([replace(model, allocation=several)])
    (apart, own), (together, first) = (
        [
            predict("lpm", "lpm", library, machine=MACHINE, setting=ServerSetting(ways=masks, cores=seats))
            for masks in ([0x3, 0x3], [0x3, 0xC])
        ]
        for seats in ((0, cores - 1), None)
    )
    assert apart == own == first
    assert together.throughput_mpps < apart.throughput_mpps


def test_packets_of_others_in_own_ways_are_extrapolated(toy_library):
    """A profile has no packets of others in an NF's own ways; cards write them there if it owns their ways."""
    ways = allocation("lpm@64B,100000f", MACHINE, 5.0, 0.5, 400.0)
    written = replace(ways, response=replace(ways.response, buffer_ways=0.1, buffer_bytes=64, buffer_mask=0x4))
    library = ModelLibrary([replace(toy_library.find("lpm", MACHINE), allocation=written)])
    verdicts = [
        predict("lpm", others, library, machine=MACHINE, setting=ServerSetting(ways=masks)).verdict
        for others, masks in (("lpm", [0xC, 0x3]), ("lpm", [0x3, 0xC]), ("lpm", [0xF, 0xF]), ((), [0xC]))
    ]
    assert verdicts == [Verdict.EXTRAPOLATED, Verdict.SUPPORTED, Verdict.SUPPORTED, Verdict.SUPPORTED]


def test_a_solo_run_beyond_the_profile_is_used(toy_library):
    """Where an extrapolated workload was measured alone, its solo throughput is the measured one."""
    model = toy_library.find("lpm", MACHINE)
    far = model.workload.with_traffic(replace(model.workload.traffic, flow_count=110_000))
    alone = replace(model, workload=far, solo_mpps=4.5, response=None, sensitivity={"none": model.sensitivity["none"]})
    library = ModelLibrary([*toy_library.values(), alone])
    assert predict(far, (), library, machine=MACHINE).throughput_mpps == pytest.approx(4.5)
    beside = predict(far, "nat", library, machine=MACHINE)
    assert beside.solo_mpps == pytest.approx(4.5)
    assert "solo throughput as measured" in beside.reasons
    without = predict(far, "nat", toy_library, machine=MACHINE)
    assert without.throughput_mpps - beside.throughput_mpps == pytest.approx(model.solo_mpps - 4.5, abs=0.05)


def test_at_part_load_measurements_stray_as_they_did_where_little_was_lost(toy_library, toy_profile):
    """Without mixes at reduced load the interval of an NF that loses nothing has the noise of the profile (0.5 %)."""
    prediction = predict("lpm", "ids", toy_library, machine=MACHINE, offered_mpps=2.0)
    low, high = prediction.interval
    assert 0.002 < (high - low) / 2.0 / 2.0 < 0.04


def test_few_mixes_contradict_a_profile(toy_profile, toy_mixes):
    """Six mixes are too few to calibrate on, but enough to say that a function runs at two thirds of what was told."""
    pressed = toy_profile.rows((toy_profile.frame["plan"] != "mix").to_numpy())
    models = list(train(pressed, models=["slomo-xgb"]).values())
    rows = mix_rows(toy_mixes, models, MACHINE)
    lpm = next(number for number, model in enumerate(models) if model.workload.nf == "lpm")
    chosen = np.flatnonzero((rows.target == lpm) & (rows.members >= 0).any(axis=1))[:6]
    six = rows.chosen(np.isin(np.arange(len(rows.mpps)), chosen))
    assert contradictions(models, six) == [{}, {}, {}]
    wrong = contradictions(models, replace(six, mpps=0.66 * six.mpps))
    assert set(wrong[lpm]) == {"slomo-xgb", "equilibrium"}
    assert "hold 0 of 6" in wrong[lpm]["equilibrium"]
    assert [names for number, names in enumerate(wrong) if number != lpm] == [{}, {}]


def test_evidence_is_told(toy_library):
    """An explained answer says who answered, by how many errors, how large, and how far the question lies."""
    prediction = predict("lpm", "nat", toy_library, machine=MACHINE)
    evidence = prediction.evidence
    assert evidence is not None
    assert evidence.model == "equilibrium"
    assert evidence.scores >= 9
    assert 0.0 < evidence.error < 0.2
    assert 0.0 < evidence.distance <= 1.5
    assert Prediction.from_dict(prediction.to_dict()) == prediction
    assert predict("lpm", (), toy_library, machine=MACHINE).evidence.source == "measured"
