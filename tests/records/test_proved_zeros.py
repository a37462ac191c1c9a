"""Zeros that are true come back where the counter works; nothing else does."""

from slomo.records.proved_zeros import ZERO_THROUGHOUT, with_proved_zeros
from slomo.records.run import Phase, RunRecord, TenantSample
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Workload


def _run(seed: int, values: dict[str, float], zeros: list[str]) -> RunRecord:
    """Return a run alone whose core read `values`, and 0 throughout for `zeros`."""
    phase = Phase((TenantSample(1.0, MetricVector(values, scope=Scope.CORE)),), MetricVector({}))
    host = {"beside": {"source": "pcm", **({ZERO_THROUGHOUT: {"core": zeros}} if zeros else {})}}
    return RunRecord(Colocation("toy", Workload("lpm")), seed, None, phase, {"host": host})


def test_what_works_elsewhere_was_zero() -> None:
    """A metric that another run reads above 0 was 0; one that nobody ever read stays missing; order says nothing."""
    runs = [_run(0, {"LMB": 5.0}, []), _run(1, {}, ["LMB", "RMB", "L3MISS"]), _run(2, {}, [])]
    for ordered in (runs, runs[::-1]):
        vectors = {run.seed: dict(run.target.vector) for run in with_proved_zeros(ordered)}
        assert vectors == {0: {"LMB": 5.0}, 1: {"LMB": 0.0, "RMB": 0.0}, 2: {}}
