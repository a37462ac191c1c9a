"""The cache kernel counts misses as true LRU does."""

import logging
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slomo.errors import InvalidValueError
from slomo.simulator import first_compile
from slomo.simulator.compilation import kernel
from slomo.simulator.hardware.cache import count_misses
from slomo.simulator.programs.layout import zipf_table


def misses_by_dictionary(lines, sets, ways):
    """Count misses with one ordered dictionary per set."""
    cache, misses = [OrderedDict() for _ in range(sets)], 0
    for line in lines:
        held = cache[line % sets]
        if line in held:
            held.move_to_end(line)
            continue
        misses += 1
        held[line] = True
        if len(held) > ways:
            held.popitem(last=False)
    return misses


@given(lines=st.lists(st.integers(0, 300), max_size=400), sets=st.integers(1, 9), ways=st.integers(1, 32))
def test_misses_equal_those_of_plain_lru(lines, sets, ways):
    """On any trace and shape the misses are those of a dictionary per set."""
    assert count_misses(np.array(lines, dtype=np.int64), sets, ways) == misses_by_dictionary(lines, sets, ways)


@pytest.mark.parametrize("ways", [4, 16, 20, 32])
def test_misses_equal_those_of_plain_lru_after_a_set_has_renumbered_its_stamps(ways):
    """Stamps of 16 bits leave a set some 2000 uses; it then starts again with its lines in the same order."""
    lines = np.random.default_rng(ways).zipf(1.2, 20_000) % (4 * ways)
    assert count_misses(lines, 2, ways) == misses_by_dictionary(lines, 2, ways)


@pytest.mark.parametrize(("sets", "ways"), [(64, 8), (256, 16)])
def test_misses_equal_pycachesim(sets, ways):
    """On a random trace the misses are exactly those of pycachesim's LRU."""
    cachesim = pytest.importorskip("cachesim", reason="pycachesim is not installed")
    lines = np.random.default_rng(5).zipf(1.3, 60_000) % (4 * sets * ways)
    memory = cachesim.MainMemory()
    level = cachesim.Cache("L3", sets, ways, 64, "LRU")
    memory.load_to(level)
    memory.store_from(level)
    simulator = cachesim.CacheSimulator(level, memory)
    for line in lines:
        simulator.load(int(line) * 64, length=1)
    assert count_misses(lines, sets, ways) == level.stats()["MISS_count"]


def test_too_many_ways_are_refused():
    """A cache wider than the kernel's lanes is refused."""
    with pytest.raises(InvalidValueError, match="33 ways"):
        count_misses(np.zeros(1, dtype=np.int64), 1, 33)


@given(lines=st.integers(1, 5000), exponent=st.floats(0.1, 2.5))
def test_a_zipf_table_is_an_inverse_distribution(lines, exponent):
    """The table rises from 0 to the number of lines."""
    table = zipf_table(lines, exponent)
    assert table[0] == 0
    assert table[-1] == lines
    assert (np.diff(table) >= 0).all()


def test_kernels_without_a_folder_for_their_code_are_compiled_in_each_process(monkeypatch):
    """As where slomo's folder and HOME are read-only: numba finds no folder, and the simulator runs nevertheless."""
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])

    made = kernel(misses_by_dictionary)

    assert made.py_func is misses_by_dictionary
    assert not first_compile.is_compiled(made)


def test_the_slow_compilation_is_announced_once(monkeypatch, caplog):
    """Listeners hear one line before the first compilation; without any, the logger does."""
    heard = []
    monkeypatch.setattr(first_compile, "is_compiled", lambda _: False)
    monkeypatch.setattr(first_compile, "_announced", [])
    monkeypatch.setattr(first_compile, "_listeners", [])
    with caplog.at_level(logging.WARNING, "slomo.simulator"):
        first_compile.announce()
    assert [record.message for record in caplog.records] == [first_compile.NOTICE]
    monkeypatch.setattr(first_compile, "_announced", [])
    first_compile.on_first_compile(heard.append)
    first_compile.announce()
    first_compile.announce()
    assert heard == [first_compile.NOTICE]
