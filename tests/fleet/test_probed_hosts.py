"""Two hosts that are probed, in one dataset: their calibrations become a factor per host and metric."""

import numpy as np
import pytest

pytest.importorskip("distributed", reason="needs the extra fleet")

import slomo.fleet.measuring as measuring
from slomo.errors import IncompatibleMeasurementsError
from slomo.fleet.campaign import profile_on_hosts
from slomo.fleet.hosts import Fleet, FleetHost
from slomo.prediction.predictor import Predictor
from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.records.dataset import ProfileDataset
from slomo.records.host_effect import by_competition
from slomo.training.training import train
from slomo.vocabulary.metrics import FELT
from tests.felt_machine import MACHINE, TARGETS, FeltMachine, felt_plan

SCALES = {"a": np.ones(4), "b": np.array([1.6, 0.6, 1.3, 0.7]), "c": np.array([0.8, 1.2, 0.7, 1.5])}


def host(name, seed=0, **other):
    """Return one of several hosts of a type: the same hardware, own probes, own noise."""
    made = FeltMachine(seed, scale=SCALES[name], calibration=f"{name}00d", **other)
    made.random = np.random.default_rng([seed, ord(name)])
    return made


def error(dataset, machine):
    """Return the mean error of the share of its solo speed that each target keeps beside each other."""
    library = train(dataset, models=("slomo-additive",))
    asked = Predictor(library, MACHINE, "slomo-additive", method="composed")
    errors = []
    for target in TARGETS:
        for other in TARGETS:
            if other != target:
                answer = asked.predict(target, [other])
                errors.append(abs(answer.throughput_mpps / answer.solo_mpps - machine.share(target, other)))
    return float(np.mean(errors))


def part(every, name, seed):
    """Return what one host measured of a plan that two share: every other pressure of each target."""
    solo = len(TARGETS)  # both hosts measure these
    mine = [
        each for at, each in enumerate(felt_plan().colocations) if at < solo or (at + (at - solo) // 8) % 2 == every
    ]
    return run_campaign(ExperimentPlan("felt", tuple(mine), replicates=2), host(name, seed))


def test_two_hosts_in_one_dataset_predict_as_one_host():
    """Error at most 1.2 times that of one host that makes every run; without the factors it is larger."""
    one, merged, blind = [], [], []
    for seed in range(2):
        machine = host("a", seed)
        one.append(error(run_campaign(felt_plan(), machine), machine))
        first, second = part(0, "a", seed), part(1, "b", seed)
        both = first.merge(second)
        merged.append(error(both, machine))
        found = both.environment["hosts"]["b00d"]["factors"]
        np.testing.assert_allclose([found[name] for name in FELT], 1.0 / SCALES["b"], rtol=0.15)
        frame = both.frame
        rows = ~frame["run_key"].isin(first.frame["run_key"])
        for metric in FELT:
            frame.loc[rows, [f"{kind}.{metric}" for kind in ("competition", "beside", "own")]] /= found[metric]
        blind.append(error(ProfileDataset(frame, both.environment), machine))
    assert np.mean(merged) < 1.2 * np.mean(one)
    assert np.mean(blind) > 1.2 * np.mean(merged)


def test_hosts_that_share_nothing_are_refused():
    """With too few competitions in common, or reporters that follow something else: both are told, exit code 4."""
    first, plan = part(0, "a", 0), felt_plan()
    few = run_campaign(ExperimentPlan("few", plan.colocations[:8]), host("b"))
    with pytest.raises(
        IncompatibleMeasurementsError, match="share 2 competitions to compare them by, needed 4"
    ) as told:
        first.merge(few)
    assert told.value.exit_code == 4
    other = host("b")
    other.pressure = dict(zip(other.pressure, reversed(other.pressure.values()), strict=True))
    with pytest.raises(IncompatibleMeasurementsError, match="follow something else"):
        first.merge(run_campaign(felt_plan(), other))


@pytest.fixture
def probed(monkeypatch, tmp_path):
    """Return a fleet of three probed hosts; a host's file names its probes."""
    hosts = {name: host(name) for name in SCALES}
    for each in hosts.values():
        each.exclusive = False  # they stand for three machines, which this one is not
    monkeypatch.setattr(measuring, "_opened_testbed", lambda _testbed, _machine, file, _own: hosts[file])
    entries = [FleetHost(name, state=str(tmp_path / "state"), host_file=name) for name in hosts]
    return hosts, Fleet(entries, "toy")


def test_a_fleet_compares_its_probes_before_it_measures(probed, fleet_workers, tmp_path):
    """All hosts probe the same eight competitions; the dataset has common units, and says which host felt what."""
    hosts, fleet = probed
    address = fleet_workers(fleet)
    done = profile_on_hosts(felt_plan(), fleet, tmp_path / "runs.sqlite", scheduler=address)
    told = done.dataset.environment["hosts"]
    assert {each["host"] for each in told.values()} == set(hosts)
    middle = np.median(np.stack(list(SCALES.values())), axis=0)
    for name in hosts:
        factors = [told[f"{name}00d"]["factors"][metric] for metric in FELT]
        np.testing.assert_allclose(factors, middle / SCALES[name], rtol=0.15)
    read = by_competition(done.dataset.frame, FELT)
    assert len(read) == 8
    assert error(done.dataset, hosts["a"]) < 0.06
    again = profile_on_hosts(felt_plan(), fleet, tmp_path / "runs.sqlite", scheduler=address)
    assert again.dataset == done.dataset


def test_a_host_whose_reporters_feel_something_else_is_named(probed, fleet_workers, tmp_path):
    """It is left out before it measures."""
    hosts, fleet = probed
    hosts["c"].pressure = dict(zip(hosts["c"].pressure, reversed(hosts["c"].pressure.values()), strict=True))
    done = profile_on_hosts(felt_plan(), fleet, tmp_path / "runs.sqlite", scheduler=fleet_workers(fleet))
    assert "its reporters follow something else" in done.left_out["c"]
    assert {share.name: share.runs for share in done.shares}["c"] == 0
