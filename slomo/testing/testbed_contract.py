"""Tests that every testbed must pass: subclass the class and override two methods.

As in vizier and scikit-learn, the library's own checks are shipped, so that other testbeds meet the same contract as
the simulator.
"""

import math

import pytest

from slomo.errors import UnknownNameError
from slomo.records.run import Phase, RunRecord
from slomo.testbed.base import Testbed as AnyTestbed
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.metrics import METRICS, Scope
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Workload


class TestbedContract:
    """Tests of a testbed; pytest collects them in subclasses whose name begins with ``Test``.

    Examples
    --------
    In a test module of yours::

        class TestMyRack(TestbedContract):
            __test__ = True

            def make_testbed(self):
                return MyRack()

            def colocations(self):
                return (Colocation("rack", Workload("lpm")), Colocation("rack", Workload("lpm"), (Workload("stats"),)))
    """

    __test__ = False
    #: Relative excess over the solo run that a co-located run may have by noise, 0 to 1.
    noise = 0.02
    #: Whether equal seeds give equal records; a real machine cannot promise that.
    repeatable = True

    def make_testbed(self) -> AnyTestbed:
        """Return the testbed to be checked."""
        raise NotImplementedError

    def colocations(self) -> tuple[Colocation, Colocation]:
        """Return a solo run and a run of the same target beside competitors."""
        raise NotImplementedError

    def test_same_seed_same_record(self) -> None:
        """Equal network functions and equal seeds give equal records."""
        if not self.repeatable:
            pytest.skip("this testbed measures the world, which does not repeat itself")
        for colocation in self.colocations():
            first, again = (self.make_testbed().run(colocation, seed=7) for _ in range(2))
            assert first == again

    def test_results_are_values(self) -> None:
        """A record that is written as a mapping and read back is equal."""
        record = self.make_testbed().run(self.colocations()[1], seed=1)

        assert RunRecord.from_dict(record.to_dict()).to_dict() == record.to_dict()
        assert record.colocation == self.colocations()[1]
        assert record.seed == 1 or not self.repeatable

    def test_neighbours_never_speed_a_target_up(self) -> None:
        """A target beside competitors is not faster than alone, beyond noise."""
        testbed, (solo, beside) = self.make_testbed(), self.colocations()
        alone, contended = (testbed.run(colocation, seed=3).target.throughput_mpps for colocation in (solo, beside))

        assert 0.0 <= contended <= alone * (1.0 + self.noise)

    def test_both_phases_are_there(self) -> None:
        """Competitors are measured alone and beside the target; a solo run has no first phase."""
        testbed, (solo, beside) = self.make_testbed(), self.colocations()

        assert testbed.run(solo).alone is None
        record = testbed.run(beside)
        assert record.alone is not None
        assert record.beside is not None
        assert len(record.alone.tenants) == len(beside.competitors)
        assert len(record.beside.tenants) == len(beside.tenants)

    def test_competition_alone_needs_no_target(self) -> None:
        """Without a target, only the competitors are measured."""
        beside = self.colocations()[1]
        record = self.make_testbed().run(Colocation(beside.machine, None, beside.competitors))

        assert record.alone is not None
        assert record.beside is None

    def test_metrics_have_their_scope(self) -> None:
        """Records have core-level counters of network functions, and socket-level ones of each phase."""
        record = self.make_testbed().run(self.colocations()[1])
        for phase in (record.alone, record.beside):
            assert phase is not None
            for vector, scope in _vectors(phase):
                assert vector.scope is scope
                assert all(scope in METRICS[name].scopes for name in vector)
                assert all(math.isfinite(value) for value in vector.values())

    def test_unknown_function_is_refused(self) -> None:
        """An error names a network function that the testbed does not have."""
        solo = self.colocations()[0]
        with pytest.raises(UnknownNameError, match="no-such-function"):
            self.make_testbed().run(Colocation(solo.machine, Workload("no-such-function")))

    def test_environment_and_estimate_are_stated(self) -> None:
        """The environment identifies the testbed; the estimated time is positive."""
        testbed = self.make_testbed()

        assert testbed.environment()["testbed"]
        assert testbed.environment() == testbed.environment()
        assert 0.0 <= testbed.estimate_s(self.colocations()[1]) < math.inf


def _vectors(phase: Phase) -> list[tuple[MetricVector, Scope]]:
    tenants = [(tenant.vector, Scope.CORE) for tenant in phase.tenants]
    system = [] if phase.system is None else [(phase.system, Scope.SYSTEM)]
    return [*tenants, (phase.socket, Scope.SOCKET), *system]
