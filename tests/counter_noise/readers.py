"""The readers of slomo, put before the stand-ins of the tools they read."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from slomo.host.resctrl_tree import ResctrlTree
from slomo.host.tool import Finished
from slomo.testbed.host.counters import pcm, perf, pqos, resctrl
from slomo.testbed.host.counters.base import CounterReader, ProgramReader
from slomo.testbed.host.counters.pcm import PcmReader
from slomo.testbed.host.counters.perf import PerfReader
from slomo.testbed.host.counters.pqos import PqosReader
from slomo.testbed.host.counters.registry import CombinedReader
from slomo.testbed.host.counters.resctrl import ResctrlReader
from slomo.testbed.simulated import SimulatedTestbed
from tests.counter_noise.bed import Clock, CountedBed, CountingFiles
from tests.counter_noise.told import Truth, pcm_csv, perf_lines, pqos_lines

ALIASES = ("pcm", "perf+resctrl", "pqos")
_TELLERS = {"pcm": pcm_csv, "perf+resctrl": perf_lines, "pqos": pqos_lines}


def counted_bed(
    alias: str, inner: SimulatedTestbed, folder: Path, patch: pytest.MonkeyPatch, *, noisy: bool = True, seed: int = 0
) -> CountedBed:
    """Return a testbed read by `alias`, whose tools print what real ones make of the truth."""
    folder.mkdir(parents=True, exist_ok=True)
    random, clock, told = np.random.default_rng(seed), Clock(), folder / "told"
    files = CountingFiles(folder, clock, random)
    patch.setattr(resctrl, "time", clock)
    for module in (pcm, perf, pqos):
        patch.setattr(module, "RunningTool", functools.partial(ToldTool, told))

    def tell(truth: Truth) -> None:
        files.truth = truth
        told.write_text(_TELLERS[alias](truth, random), encoding="ascii")

    return CountedBed(inner, _reader(alias, folder, files), tell, noisy, clock)


def _reader(alias: str, folder: Path, files: CountingFiles) -> CounterReader:
    if alias == "pcm":
        return _trusted(PcmReader("pcm"))
    if alias == "pqos":
        return _trusted(PqosReader(operating_system=False, has_pmu=True))
    tree = ResctrlReader(ResctrlTree(folder / "resctrl", files), lambda domain: domain)
    return CombinedReader([_trusted(PerfReader(vendor="intel", devices=folder)), tree])


def _trusted(reader: ProgramReader) -> ProgramReader:
    """Return a reader that need not try its program, which never starts."""
    reader._verdict = (True, "a stand-in")
    return reader


class ToldTool:
    """Stands in for `RunningTool`: what a program would write is there at once, and no program starts."""

    alive = True

    def __init__(self, told: Path, words: Sequence[str]) -> None:
        self.words, self._text = tuple(words), told.read_text(encoding="ascii")
        for word in words:
            if word.startswith("-csv="):
                Path(word.removeprefix("-csv=")).write_text(self._text, encoding="ascii")

    def wait(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Return whether `condition` holds: nothing changes any more."""
        return condition()

    def lines(self, stream: str = "stdout") -> list[str]:
        """Return what was printed, wherever the tool prints it."""
        return self._text.splitlines()

    def stop(self) -> Finished:
        """Return all of it."""
        return Finished(self.words, 0, self._text, self._text)
