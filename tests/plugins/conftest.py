"""A package with a plug-in of every kind, on the path as an installed one would be."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slomo.plugins import plugins

MODULE = """
from dataclasses import dataclass

import numpy as np

from slomo.placement.policies.base import Policy
from slomo.service.kubernetes.rates import PacketCount
from slomo.testbed.host.counters.base import CounterSample
from slomo.testing.builders import ToyTestbed


@dataclass(frozen=True)
class HalfModel:
    name: str
    solo_mpps: float
    feature_names: tuple = ()
    composition: str = "none"

    def predict_mpps(self, vectors):
        return np.full(len(vectors), 0.5 * self.solo_mpps)

    def to_dict(self):
        return {"kind": "half", "name": self.name, "solo_mpps": self.solo_mpps}


def half_from_dict(data, source):
    return HalfModel(str(data["name"]), float(data["solo_mpps"]))


@dataclass(frozen=True)
class HalfFamily:
    name: str = "half"
    composition: str = "none"

    def select_features(self, available):
        return ()

    def fit(self, names, vectors, mpps, *, solo_mpps, seed):
        return HalfModel(self.name, solo_mpps)


class LastFit(Policy):
    name = "last-fit"


class SilentReader:
    name = "silent"

    def available(self):
        return True, "reads nothing"

    def start(self, cores):
        import time

        self._since = time.monotonic()

    def stop(self):
        import time

        return CounterSample(duration_s=time.monotonic() - self._since)


async def read_nothing(annotation, address):
    return PacketCount(0.0, 0.0, 0.0)


def toy(machine, network_functions):
    return ToyTestbed()
"""
ENTRY_POINTS = """
[slomo.models]
half = halves:HalfFamily
broken = halves:NoSuchThing

[slomo.model_kinds]
half = halves:half_from_dict

[slomo.policies]
last-fit = halves:LastFit

[slomo.counter_readers]
silent = halves:SilentReader

[slomo.rate_readers]
still = halves:read_nothing

[slomo.testbeds]
toy = halves:toy
"""


@pytest.fixture
def halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the package `halves` for one test."""
    (tmp_path / "halves.py").write_text(MODULE, encoding="utf-8")
    described = tmp_path / "halves-1.2.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: halves\nVersion: 1.2\n", encoding="utf-8")
    (described / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins.cache_clear()
    yield
    plugins.cache_clear()
    sys.modules.pop("halves", None)
