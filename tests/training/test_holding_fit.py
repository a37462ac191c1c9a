"""What NFs hold by age, learned where lines of every NF are referenced at random."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from slomo.models.contentiousness import basis_size
from slomo.models.responses.server_response import packets_of_age
from slomo.training.holding_fit import fit_holdings
from slomo.training.response_fit import PRESSURES

CACHE_KIB, LINES = 20_000.0, 16.0
#: Data [KiB], references per packet, and throughput [Mpps].
NFS = {"small": (3_000.0, 9.0, 1.2), "large": (12_000.0, 8.0, 3.6), "huge": (40_000.0, 20.0, 0.6)}
NAMES = (*PRESSURES, "L3MISS")


def held_kib(data_kib, references_m_s, age_us):
    return data_kib * (1.0 - np.exp(-references_m_s * age_us / (data_kib * LINES)))


def full(parts):
    """Return the age at which parts fill the cache: data and references of each [KiB, M/s]."""
    low, high = 1.0, 1e9
    for _ in range(100):
        age = np.sqrt(low * high)
        low, high = (low, age) if sum(held_kib(*part, age) for part in parts) > CACHE_KIB else (age, high)
    return low


def of(name):
    data, references, mpps = NFS[name]
    return data, references * mpps


def subject(name, draw):
    """Return an NF's runs beside a competitor whose data alone exceed the cache."""
    own, beside, data = [], [], NFS[name]
    for _ in range(40):
        competitor = draw.uniform(25e3, 80e3), np.exp(draw.uniform(np.log(5.0), np.log(200.0)))
        age = full([of(name), competitor])
        held = held_kib(*competitor, age)
        misses = competitor[1] * (1.0 - held / competitor[0])
        own.append([held_kib(*of(name), age), 1.0, 1.0, 1.0])
        beside.append([held, competitor[1], 1.0, 1.0, misses])
    counts = np.ones(40, dtype=np.int64)
    return SimpleNamespace(
        own_names=PRESSURES, beside_names=NAMES, own=np.array(own), beside=np.array(beside), counts=counts,
        mpps=np.full(40, data[2]),
    )  # fmt: skip


def rows_of(mix):
    """Return a row per distinct NF of a mix in a full cache."""
    age = full([of(name) for name in mix])
    for name in dict.fromkeys(mix):
        own = held_kib(*of(name), age)
        yield {"mix": " + ".join(sorted(mix)), "target": name, "own.L3OCC": own, "beside.L3OCC": CACHE_KIB - own,
               "throughput_mpps": NFS[name][2]}  # fmt: skip


def held_by(holdings, name, age_us):
    packets = age_us * NFS[name][2]
    share = packets / (packets + packets_of_age(basis_size(len(PRESSURES))))
    return float(holdings[name] @ [1.0, *share])


def test_what_is_held_at_an_age_is_learned_from_runs_and_mixes():
    """At the age at which the tenants of a new mix fill the cache, each holds what it truly holds."""
    draw = np.random.default_rng(5)
    subjects = {name: subject(name, draw) for name in NFS}
    mixes = [tuple(draw.choice(list(NFS), int(size))) for size in draw.integers(3, 8, 40)]
    mixes = [mix for mix in dict.fromkeys(tuple(sorted(mix)) for mix in mixes) if "huge" in mix]
    new = ("huge", "large", "large", "small")
    learned = pd.DataFrame([row for mix in mixes if mix != new for row in rows_of(mix)])
    holdings = fit_holdings(subjects, learned)
    ages, true = np.logspace(2, 6, 4_001), full([of(name) for name in new])
    age = min(ages, key=lambda age: abs(sum(held_by(holdings, name, age) for name in new) - CACHE_KIB))
    for name in NFS:
        assert held_by(holdings, name, age) == pytest.approx(held_kib(*of(name), true), rel=0.05)


def test_without_misses_of_the_competition_nothing_is_learned():
    """Without the metrics that tell the age, or without mixes in full caches, no holding is made up."""
    draw = np.random.default_rng(6)
    subjects = {name: subject(name, draw) for name in NFS}
    learned = pd.DataFrame([*rows_of(("huge", "large", "small"))])
    for each in subjects.values():
        each.beside_names, each.beside = PRESSURES, each.beside[:, :-1]
    assert fit_holdings(subjects, learned) == {}
    assert fit_holdings({}, learned) == {}
