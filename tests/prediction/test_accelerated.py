"""Mixes that share memory and an accelerator are predicted from profiles of each resource apart."""

from dataclasses import replace

import numpy as np
import pytest

from slomo.models.library import ModelLibrary
from slomo.prediction.predictor import Predictor
from slomo.testbed.simulated import SimulatedTestbed
from slomo.training.training import train
from slomo.workflow.predict import predict
from slomo.workflow.profile import profile

NFS = ["flow-monitor-regex", "ids-regex", "flowstats"]
MIXES = (
    ("ids-regex", "flow-monitor-regex", "flowstats"),
    ("flow-monitor-regex", "ids-regex", "flowstats", "flowstats"),
    ("ids-regex", "ids-regex", "flowstats", "flowstats", "flowstats"),
    ("flow-monitor-regex", "flow-monitor-regex", "flow-monitor-regex"),
)


@pytest.fixture(scope="module")
def testbed() -> SimulatedTestbed:
    """Return a small simulated machine."""
    return SimulatedTestbed(accesses=60_000, scale=64)


@pytest.fixture(scope="module")
def library(testbed: SimulatedTestbed) -> ModelLibrary:
    """Return models trained on runs in which one resource at a time is competed for."""
    running = {"testbed": testbed, "seed": 1, "jobs": 1}
    pressure = profile(NFS, plan="pressure", runs=14, **running)
    return train(pressure.merge(profile(NFS, plan="accelerator", **running)), models=["slomo-gp"])


def without_accelerators(library: ModelLibrary) -> ModelLibrary:
    """Return the models as far as memory is concerned."""
    return ModelLibrary([replace(model, accelerator=None) for model in library.values()])


def measured(testbed: SimulatedTestbed, *mix: str) -> float:
    """Return the throughput of the first NF beside the others."""
    from slomo.vocabulary.colocation import Colocation
    from slomo.vocabulary.workload import Workload

    target, *others = (Workload(name) for name in mix)
    record = testbed.run(Colocation("e5-2620v4", target, tuple(others)), seed=7)
    assert record.beside is not None
    return record.beside.tenants[0].throughput_mpps


def test_uses_are_learned_and_survive_saving(library, tmp_path):
    """Time per request is found within 10 %, NFs without an accelerator have none, and files keep it."""
    uses = {model.workload.nf: model.accelerator for model in library.values()}
    assert uses["flowstats"] is None
    assert uses["flow-monitor-regex"].service_ns == pytest.approx(850.0, rel=0.1)
    assert uses["ids-regex"].service_ns == pytest.approx(400.0, rel=0.1)
    assert uses["ids-regex"].pattern == "run-to-completion"
    loaded = ModelLibrary.load(library.save(tmp_path))
    assert {model.workload.nf: model.accelerator for model in loaded.values()} == uses


def test_mixes_of_both_resources_are_predicted(library, testbed):
    """Memory and accelerator composed are within 5 % on average, where memory alone is off by half and more."""
    errors, memory = [], []
    blind = without_accelerators(library)
    for target, *others in MIXES:
        truth = measured(testbed, target, *others)
        errors.append(predict(target, others, library, model="slomo-gp").throughput_mpps / truth - 1.0)
        memory.append(Predictor(blind, "e5-2620v4", "slomo-gp").predict(target, others).throughput_mpps / truth - 1.0)
    assert np.abs(errors).mean() < 0.05
    assert np.abs(memory).mean() > 0.5


def test_the_explanation_names_the_accelerator(library):
    """The accelerator is a resource of its own; its part and memory's add up to the loss, over competitors too."""
    prediction = predict("ids-regex", ["flow-monitor-regex", "flowstats"], library, model="slomo-gp")
    why = prediction.explanation
    assert why.loss_mpps == pytest.approx(prediction.solo_mpps - prediction.throughput_mpps)
    assert sum(why.metrics.values()) + why.unattributed_mpps == pytest.approx(why.loss_mpps)
    parts = sum(part for groups in why.by_competitor.values() for part in groups.values())
    assert parts + why.unattributed_mpps == pytest.approx(why.loss_mpps)
    assert why.by_competitor["flow-monitor-regex"]["accelerator"] == pytest.approx(why.groups["accelerator"])
    assert "accelerator" not in why.by_competitor["flowstats"]
    assert prediction.interval[0] < prediction.throughput_mpps < prediction.interval[1]


def test_nfs_that_share_no_accelerator_are_untouched(library):
    """Beside NFs without an accelerator, the answer is memory's, to the bit."""
    both = predict("ids-regex", ["flowstats"], library, model="slomo-gp")
    memory = Predictor(without_accelerators(library), "e5-2620v4", "slomo-gp").predict("ids-regex", ["flowstats"])
    assert both.throughput_mpps == memory.throughput_mpps
