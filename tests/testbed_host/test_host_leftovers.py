"""Runs with injected faults: what was there before is there afterwards, and nothing else."""

import gc
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from slomo.errors import MeasurementError, TestbedError
from slomo.profiling.campaign.run import IncompleteCampaignError, run_campaign
from slomo.profiling.plans.plan import ExperimentPlan
from slomo.testbed.host.settings import HostSettings
from slomo.testbed.host.testbed import HostTestbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.network_function import NetworkFunction
from slomo.vocabulary.workload import Workload

MODES = ("good", "crash", "hang", "garbage", "stubborn", "flood", "escapes", "dies", "goes-silent", "good")
ROUNDS = 2
Maker = Callable[..., NetworkFunction]
Beds = Callable[..., HostTestbed]


def _in_a_hurry(fake: Maker, name: str, mode: str) -> NetworkFunction:
    return fake(
        name,
        mode,
        ready={"json": {"event": "ready"}, "limit_s": 0.3 if mode == "hang" else 20},
        stop={"signal": "SIGTERM", "limit_s": 0.05},
        steady={"limit_s": 0.05, "stretch_s": 0.02, "tolerance": 1.0},
    )


@pytest.mark.slow
def test_runs_with_faults_leave_nothing(
    fake: Maker, bed: Beds, quick: HostSettings, tmp_path: Path, running: Callable[[], set[int]]
) -> None:
    """After runs in which most NFs misbehave, processes, descriptors, threads and files are as before."""
    hurry = replace(quick, window_s=0.1, pairs=1, most_pairs=1, attempts=3)
    nfs = [_in_a_hurry(fake, f"nf-{mode}", mode) for mode in dict.fromkeys(MODES)]
    testbed = bed(*nfs, reporters=(), settings=hurry)
    gc.collect()  # what earlier tests left open is not closed meanwhile
    before = (running(), len(os.listdir("/proc/self/fd")))
    served = 0
    for number in range(ROUNDS * len(MODES)):
        mode = MODES[number % len(MODES)]
        try:
            testbed.run(Colocation("test-host", Workload(f"nf-{mode}")))
            served += 1
        except (TestbedError, MeasurementError):
            assert mode not in ("good", "stubborn", "escapes")
    testbed.close()
    assert served >= 4 * ROUNDS
    gc.collect()
    assert running() == before[0]
    assert len(os.listdir("/proc/self/fd")) <= before[1]
    assert not (tmp_path / "lock").exists()


def test_a_campaign_keeps_the_runs_that_succeeded(
    fake: Maker, bed: Beds, quick: HostSettings, tmp_path: Path, running: Callable[[], set[int]]
) -> None:
    """In a campaign one NF's crash is recorded, the others' runs are kept, and only the failed one is run again."""
    nfs = [_in_a_hurry(fake, name, mode) for name, mode in (("one", "good"), ("two", "crash"))]
    testbed = bed(*nfs, reporters=(), settings=quick)
    plan = ExperimentPlan("p", tuple(Colocation("test-host", Workload(nf.name)) for nf in nfs))
    with pytest.raises(IncompleteCampaignError, match="1 of 2 runs") as caught:
        run_campaign(plan, testbed, tmp_path / "runs.sqlite")
    assert caught.value.dataset is not None
    assert len(caught.value.dataset) == 1
    testbed.close()
    mended = bed(_in_a_hurry(fake, "one", "crash"), _in_a_hurry(fake, "two", "crash"), reporters=(), settings=quick)
    with pytest.raises(IncompleteCampaignError, match="1 of 2 runs"):
        run_campaign(ExperimentPlan("p", plan.colocations), _Same(mended, testbed), tmp_path / "runs.sqlite")


class _Same:
    """A testbed that claims the environment of another, to tell which runs a resumed campaign repeats."""

    name = "host"
    exclusive = True

    def __init__(self, inner: HostTestbed, stated: HostTestbed) -> None:
        self.run, self.estimate_s, self.environment = inner.run, inner.estimate_s, stated.environment
