"""Tests that every counter reader must pass: subclass the class and say how to make the reader.

On a host where the reader does not work, only its report of that is checked.
"""

import math
import os
import time

import pytest

from slomo.testbed.host.counters.base import CounterReader, CounterSample
from slomo.vocabulary.metrics import METRICS, Scope


class CounterReaderContract:
    """Tests of a counter reader; pytest collects them in subclasses whose name begins with ``Test``.

    Examples
    --------
    In a test module of yours::

        class TestMyReader(CounterReaderContract):
            __test__ = True

            def make_reader(self):
                return MyReader()
    """

    __test__ = False
    #: How long is counted [s].
    counting_s = 0.2

    def make_reader(self) -> CounterReader:
        """Return the reader to be checked."""
        raise NotImplementedError("override make_reader")

    def counted(self) -> CounterSample:
        """Return the reader's counts on one CPU; skip the test if it cannot read."""
        reader = self.make_reader()
        usable, why = reader.available()
        if not usable:
            pytest.skip(f"{reader.name} cannot read here: {why}")
        reader.start([min(os.sched_getaffinity(0))])
        time.sleep(self.counting_s)
        return reader.stop()

    def test_it_says_who_it_is_and_whether_it_can_read(self) -> None:
        """A reader has a name, and says whether it works and why not."""
        reader = self.make_reader()
        assert isinstance(reader, CounterReader)
        assert reader.name
        usable, why = reader.available()
        assert isinstance(usable, bool)
        assert usable or why

    def test_vectors_have_their_scope(self) -> None:
        """Cores have core-level counters, sockets socket-level ones; none is negative or infinite."""
        sample = self.counted()
        for vectors, scope in ((sample.cores, Scope.CORE), (sample.sockets, Scope.SOCKET)):
            for vector in vectors.values():
                assert vector.scope is scope
                assert all(scope in METRICS[name].scopes for name in vector)
                assert all(math.isfinite(value) and value >= 0.0 for value in vector.values())

    def test_the_duration_is_that_of_the_counting(self) -> None:
        """The sample says for how long was counted, as measured between start and stop."""
        assert 0.5 * self.counting_s <= self.counted().duration_s <= 100.0 * self.counting_s + 10.0

    def test_it_counts_again(self) -> None:
        """A reader that was stopped can be started again."""
        reader = self.make_reader()
        if reader.available()[0]:
            for _ in range(2):
                reader.start([min(os.sched_getaffinity(0))])
                reader.stop()
