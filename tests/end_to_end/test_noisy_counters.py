"""A whole run from counters as bad as real ones: rounded, multiplexed, missing, late.

Campaign -> dataset on disk -> train -> library on disk -> predict mixes never trained on, through the readers and what
their tools print (`tests/counter_noise`); beside it the same truth, printed without noise.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import slomo
from slomo.models.library import ModelLibrary
from slomo.profiling.campaign.run import run_campaign
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.records.dataset import ProfileDataset
from slomo.records.run import RunRecord
from slomo.testbed.simulated import SimulatedTestbed
from slomo.training.training import train
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.workload import Workload
from tests.counter_noise.readers import ALIASES, counted_bed

_MACHINE = "e5-2620v4"
_TARGETS = (Workload("flowstats"), Workload("ip-router"))
_SETTINGS = [Workload("synthetic", {"data_size_mib": size}) for size in (1.0, 2.0, 4.0, 8.0, 16.0, 64.0)]
#: What the tools together must have told of every competition.
_TOLD = {
    "pcm": ("INST", "L2MISS", "L3MISS", "L3OCC", "LMB", "RMB"),
    "perf+resctrl": ("INST", "L2MISS", "L3MISS", "L3OCC", "LMB", "RMB"),
    "pqos": ("L3MISS", "L3OCC", "LMB", "RMB"),
}
_MODEL = "slomo-additive"


def _plan() -> ExperimentPlan:
    solo = [Colocation(_MACHINE, target) for target in _TARGETS]
    pressed = [
        Colocation(_MACHINE, target, (setting,) * count)
        for target in _TARGETS
        for setting in _SETTINGS
        for count in (1, 3)
    ]
    mixes = [Colocation(_MACHINE, one, (two,) * n) for one in _TARGETS for two in _TARGETS for n in (1, 2)]
    return ExperimentPlan("noisy", (*solo, *pressed, *mixes))


@pytest.fixture(scope="module")
def simulated() -> tuple[SimulatedTestbed, dict[str, RunRecord]]:
    """Return the truth's testbed, and a memory of its runs that all tests share."""
    return SimulatedTestbed(_MACHINE, accesses=60_000), {}


@pytest.fixture
def patch() -> Iterator[pytest.MonkeyPatch]:
    """Return a patch that ends with the test."""
    with pytest.MonkeyPatch.context() as context:
        yield context


def _shares(folder: Path, mixes: ProfileDataset) -> list[float]:
    """Return the share of solo predicted for every row of mixes, by models read back, through the front door."""
    library = ModelLibrary.load(folder)
    rows = [(mixes.workload(target), mixes.competitors(row)) for row, target in enumerate(mixes.frame["target"])]
    answers = [slomo.predict(*row, library=library, machine=_MACHINE, model=_MODEL) for row in rows]
    return [answer.throughput_mpps / answer.solo_mpps for answer in answers]


@pytest.mark.parametrize("alias", ALIASES)
def test_noise_of_counters_hardly_moves_predictions(
    alias: str, simulated: tuple[SimulatedTestbed, dict[str, RunRecord]], patch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No metric gets lost, all keep their units, and mixes are predicted within two points of those without noise.

    Not less: where cross-validation of so few rows finds two strengths of shrinking equally good, noise chooses.
    """
    inner, memory = simulated
    datasets, shares = {}, {}
    for noisy in (False, True):
        folder = tmp_path / str(noisy)
        bed = counted_bed(alias, inner, folder, patch, noisy=noisy, seed=4)
        bed.memory = memory
        run_campaign(_plan(), bed).to_parquet(folder / "runs.parquet")
        datasets[noisy] = ProfileDataset.read_parquet(folder / "runs.parquet")
        train(datasets[noisy], models=(_MODEL,)).save(folder / "models")
        shares[noisy] = _shares(folder / "models", datasets[False].select(plan="mix"))
    _require_same_units(datasets, _TOLD[alias])
    mixes = datasets[False].select(plan="mix")
    solo = [datasets[False].solo_mpps(target) for target in mixes.frame["target"]]
    truth = mixes.throughput / np.array(solo)
    errors = {noisy: float(np.abs(np.array(values) - truth).mean()) for noisy, values in shares.items()}
    assert float(np.abs(np.subtract(shares[True], shares[False])).mean()) < 0.02
    assert errors[True] < errors[False] + 0.01


def _require_same_units(datasets: dict[bool, ProfileDataset], metrics: tuple[str, ...]) -> None:
    """Every metric is told of each competition, and where it matters within 15 % of what it is without noise."""
    clean, noisy = (datasets[kind].select(plan="pressure").frame for kind in (False, True))
    for name in (f"{place}.{metric}" for place in ("competition", "own") for metric in metrics):
        assert noisy[name].notna().mean() >= 0.95, f"{name} is missing"
        assert clean[name].notna().all()
        large = (clean[name] > 0.1 * clean[name].max()) & noisy[name].notna()
        off = np.abs(noisy[name][large] / clean[name][large] - 1.0)
        assert float(off.median() if large.any() else 0.0) < 0.05, name
        assert float(off.max() if large.any() else 0.0) < 0.15, name
