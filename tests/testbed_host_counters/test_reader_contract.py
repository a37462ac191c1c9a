"""Every shipped counter reader keeps the contract that is shipped for everybody's."""

import pytest

from slomo.plugins import imported
from slomo.testbed.host.counters.base import CounterReader
from slomo.testbed.host.counters.registry import READERS
from slomo.testing.reader_contract import CounterReaderContract


@pytest.mark.parametrize("alias", READERS)
class TestShippedReaders(CounterReaderContract):
    """The readers of the registry, on this host."""

    __test__ = True

    @pytest.fixture(autouse=True)
    def _choose(self, alias: str) -> None:
        self.alias = alias

    def make_reader(self) -> CounterReader:
        return imported(READERS[self.alias])()
