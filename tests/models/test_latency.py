"""Facts about latency over load and pressure: what is learned, from which rows, and where nothing is said."""

from dataclasses import dataclass

import numpy as np
import pytest

from slomo.errors import ConfigurationError, InvalidValueError
from slomo.models.applicability import Verdict
from slomo.models.library import ModelLibrary
from slomo.models.responses.latency import LatencyModel, busy_share
from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.plans.basic import pressure_plan
from slomo.profiling.plans.latency_plans import latency_plan
from slomo.testbed.simulated import SimulatedTestbed
from slomo.training.latency_fit import LatencyRows, fit_latency
from slomo.training.training import train

LOADS = np.tile([0.2, 0.5, 0.7, 0.8, 0.9], 6)
POSSIBLE = np.repeat([4.0, 3.5, 3.0, 2.5, 2.0, 1.0], 5)
SETTING = np.repeat(np.arange(6), 5)


def queue(load, possible, stretch=0.0):
    """Return a law of latency: a factor of the load times the service time, stretched by the slowdown."""
    base = (1.0 + load / (1.0 - load)) / possible * (4.0 / possible) ** stretch
    return {"p50": base, "p95": 3.0 * base, "p99": 4.5 * base}


def rows(noise=0.0, stretch=0.0):
    times = queue(LOADS, POSSIBLE, stretch)
    jitter = np.exp(np.random.default_rng(0).normal(0.0, noise, len(LOADS)))
    return LatencyRows(LOADS, POSSIBLE, {name: value * jitter for name, value in times.items()}, SETTING)


@pytest.fixture(scope="module")
def model():
    fitted = fit_latency(rows(noise=0.05), 4.0)
    assert fitted is not None
    return fitted


@pytest.mark.parametrize("stretch", [0.0, 0.4])
def test_the_law_is_found_again_between_the_loads_measured(stretch):
    """From noiseless runs, loads and pressures in between are met to a few percent."""
    fitted = fit_latency(rows(stretch=stretch), 4.0)
    load, possible = np.array([0.35, 0.6, 0.85]), np.array([3.2, 2.7, 1.5])
    for name, wanted in queue(load, possible, stretch).items():
        assert fitted.predict_us(load, possible)[name] == pytest.approx(wanted, rel=0.05)


def test_latency_never_falls_with_load_or_slowness(model):
    """More load at the same pressure, or more pressure at the same load, never shortens a stay."""
    load = np.linspace(0.2, 0.9, 50)
    for name in ("p50", "p95", "p99"):
        assert (np.diff(model.predict_us(load, np.full(50, 2.0))[name]) >= 0).all()
        assert (np.diff(model.predict_us(np.full(50, 0.6), np.linspace(4.0, 1.0, 50))[name]) >= -1e-9).all()


def test_percentiles_do_not_cross(model):
    """p50 <= p95 <= p99 everywhere."""
    load = np.linspace(0.2, 0.9, 20)
    times = model.predict_us(load, np.full(20, 2.0))
    assert (times["p50"] <= times["p95"]).all()
    assert (times["p95"] <= times["p99"]).all()


def test_intervals_hold_new_runs(model):
    """90 % intervals hold about 90 % of runs that were not fitted, of the same noise."""
    generator = np.random.default_rng(5)
    load, possible = generator.uniform(0.2, 0.9, 400), generator.uniform(1.0, 4.0, 400)
    measured = queue(load, possible)["p95"] * np.exp(generator.normal(0.0, 0.05, 400))
    width = model.curves["p95"].half_width(load, np.log(4.0 / possible), 0.9)
    inside = np.abs(np.log(measured / model.predict_us(load, possible)["p95"])) <= width
    assert 0.80 <= inside.mean() <= 0.99


@pytest.mark.parametrize(
    ("load", "possible", "verdict", "why"),
    [
        (0.6, 2.0, Verdict.SUPPORTED, None),
        (0.05, 2.0, Verdict.EXTRAPOLATED, "profiled from 20 %"),
        (0.93, 2.0, Verdict.UNSUPPORTED, "from 20 to 90 %"),
        (1.2, 2.0, Verdict.UNSUPPORTED, "packets are lost"),
        (0.6, 0.8, Verdict.EXTRAPOLATED, "400 % longer than alone"),
        (0.6, 0.1, Verdict.UNSUPPORTED, "longer than alone"),
    ],
)
def test_what_was_not_measured_is_said(model, load, possible, verdict, why):
    """Loads and pressures outside the profile are marked, with what was measured; overload has no number."""
    judgement, reasons = model.check(load, possible)
    assert judgement is verdict
    assert (not reasons) if why is None else why in " ".join(reasons)


@pytest.mark.parametrize("keep", [np.arange(30) < 7, np.isclose(LOADS, 0.5) | np.isclose(LOADS, 0.9)])
def test_too_few_runs_or_loads_make_no_model(keep):
    """Seven runs, or two loads, are no curve."""
    few = rows()
    cut = LatencyRows(
        few.busy[keep], few.mpps[keep], {n: v[keep] for n, v in few.latency_us.items()}, few.setting[keep]
    )
    assert fit_latency(cut, 4.0) is None


def test_with_too_few_scores_there_is_no_width(model):
    """30 runs cannot promise 99.9 %: the interval is endless, and 100 % is refused."""
    assert np.isinf(model.curves["p95"].half_width(np.array([0.5]), np.zeros(1), 0.999)).all()
    with pytest.raises(InvalidValueError, match="coverage"):
        model.curves["p95"].half_width(np.array([0.5]), np.zeros(1), 1.0)


def test_saved_and_loaded_it_says_the_same(model):
    """A latency model survives its JSON form to the last bit."""
    again = LatencyModel.from_dict(model.to_dict())
    load, possible = np.array([0.4, 0.88]), np.array([3.0, 1.2])
    for name, value in model.predict_us(load, possible).items():
        assert (again.predict_us(load, possible)[name] == value).all()
    assert again.check(0.6, 2.0) == model.check(0.6, 2.0)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data["curves"]["p95"]["weights"].__setitem__(1, -1.0),
        lambda data: data["curves"]["p95"]["weights"].pop(),
        lambda data: data["curves"]["p50"]["scores"].reverse(),
        lambda data: data["knots"].reverse(),
        lambda data: data.update(loads=[0.2, 1.5]),
        lambda data: data.update(slowest_mpps=0.0),
    ],
)
def test_a_strangers_curve_is_checked(model, damage):
    """A curve that falls, tables that do not fit, or impossible loads are refused."""
    data = model.to_dict()
    damage(data)
    with pytest.raises(ConfigurationError):
        LatencyModel.from_dict(data)


@pytest.fixture(scope="module")
def measured():
    """Profile an NF at full load and at several loads, quickly."""
    testbed = SimulatedTestbed(accesses=60_000, scale=64)
    full = run_campaign(pressure_plan("lpm", "e5-2620v4", "sobol", runs=6, seed=1), testbed)
    loads = latency_plan(full, loads=(0.3, 0.6, 0.8, 0.9), pressures=3, seed=1)
    return full.merge(run_campaign(loads, testbed))


def test_training_picks_the_loads_up(measured, tmp_path):
    """Runs at several loads make a latency model, no models of their own, and are saved with the rest."""
    library = train(measured, models=["none"])
    assert library.workloads("e5-2620v4") == ("lpm@64B,100000f",)
    latency = library.find("lpm").latency
    assert latency is not None
    assert latency.loads[0] == pytest.approx(0.3, abs=0.01)
    library.save(tmp_path / "models")
    again = ModelLibrary.load(tmp_path / "models").find("lpm").latency
    assert again.to_dict() == latency.to_dict()


def test_without_runs_at_several_loads_there_is_no_latency_model(measured):
    """A profile at full load alone leaves latency unknown."""
    frame = measured.frame
    plain = type(measured)(frame[frame["offered_mpps"].isna()], measured.environment)
    assert train(plain, models=["none"]).find("lpm").latency is None


def test_runs_at_reduced_load_alone_stay_a_workload_of_their_own(measured):
    """An NF profiled at one load only keeps its model under that name."""
    frame = measured.frame
    loads = frame[frame["offered_mpps"].notna() & (frame["competitor_count"] == 0)]
    library = train(type(measured)(loads, measured.environment), models=["none"])
    assert all(key.endswith("Mpps") for _, key in library)


@dataclass(frozen=True)
class Slowing:
    """Answers to cache misses beside it: half the speed at 100 M/s, a quarter at 300."""

    pressure_names: tuple[str, ...] = ("L3MISS", "L3OCC")

    def rows_mpps(self, pressure, neighbours):
        return 4.0 / (1.0 + pressure[:, 0] / 100.0)


def test_an_nf_at_reduced_load_is_busier_than_its_load_beside_others():
    """Alone, time busy is the load; beside others rates count as often as it is idle; at full load both agree."""
    load = np.array([0.2, 0.5, 0.8, 0.99])
    assert busy_share(Slowing(), np.zeros((4, 2)), load) == pytest.approx(load)
    beside = busy_share(Slowing(), np.tile([100.0, 5_000.0], (4, 1)), load)
    # busy = load (1 + 1 / busy) / 2, solved by hand
    assert beside == pytest.approx((load + np.sqrt(load**2 + 8.0 * load)) / 4.0, rel=1e-3)
    assert (beside[:3] > load[:3]).all()


def test_unknown_pressure_leaves_the_load():
    """Where what an NF feels is not known, its load is all there is; overload stays overload."""
    assert busy_share(Slowing(), np.full((1, 2), np.nan), np.array([0.5])) == pytest.approx([0.5])
    assert busy_share(None, np.zeros((1, 0)), np.array([0.5])) == pytest.approx([0.5])
    assert busy_share(Slowing(), np.zeros((1, 2)), np.array([1.3])).tolist() == [1.3]
