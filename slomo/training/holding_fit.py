"""Learn each NF's occupancy of a full cache as a function of the cache's age (after which unused lines leave).

In a full cache, an NF's occupancy is what the others leave, so occupancies alone do not show how a cache will be
divided. The age does, since an LRU cache evicts all lines that were unused for the same time, whoever owns them (Che et
al., IEEE JSAC 20, 2002). Beside the synthetic competitor, whose accesses are uniform, the age follows from the
competitor's occupancy, references and misses. In a mix it is the age at which all NFs together hold what was measured.
Ages and functions are fitted in turn.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from slomo.equilibrium.rounds import LEAST_AGE, MOST_AGE
from slomo.models.base import Floats
from slomo.models.contentiousness import basis_size
from slomo.models.responses.server_response import packets_of_age
from slomo.training.features import Subject
from slomo.training.response_fit import PRESSURES

if TYPE_CHECKING:
    import pandas as pd

#: Share of the largest total occupancy above which a cache counts as full.
_FULL = 0.93
#: Miss ratio of the competitor below which its misses do not give the age.
_MISSING = 0.05
#: Least number of an NF's rows in full caches.
_FEWEST = 24
#: Weight of a run beside the competitor, relative to a mix; strength of the ridge.
_OF_COMPETITOR, _STRENGTH = 0.3, 3e-2
#: Number of times that ages and functions are fitted in turn, and number of halvings of the range of ages.
_TURNS, _HALVINGS = 6, 50
_LINES_PER_KIB = 16.0


def fit_holdings(subjects: Mapping[str, Subject], mixes: "pd.DataFrame") -> dict[str, Floats]:
    """Return each NF's occupancy of a full cache over the age of lines (`ServerResponse.holding`); empty if unmeasured.

    `mixes` has a row per run and distinct NF, with columns ``mix`` and ``target``.
    """
    needed = {"L3OCC", "L2MISS", "L3MISS"}
    known = {
        key: subject
        for key, subject in subjects.items()
        if needed <= set(subject.beside_names) and set(PRESSURES) <= {*subject.own_names} & {*subject.beside_names}
    }
    columns = ["own.L3OCC", "beside.L3OCC", "throughput_mpps"]
    if not known or not set(columns) <= set(mixes.columns):
        return {}
    everything = (mixes["own.L3OCC"] + mixes["beside.L3OCC"]).to_numpy(dtype=float)
    full_kib = _FULL * np.nanmax(everything, initial=0.0)
    beside = {key: _beside_competitor(subject, full_kib) for key, subject in known.items()}
    means = mixes.assign(total=everything).groupby(["mix", "target"], sort=True)[[*columns, "total"]].mean()
    servers = [
        rows
        for mix, rows in means.reset_index().groupby("mix", sort=True)
        if set(str(mix).split(" + ")) == set(rows["target"]) <= set(known) and rows["total"].mean() > full_kib
    ]
    counts = {key: len(beside[key][0]) + sum(key in set(rows["target"]) for rows in servers) for key in known}
    keys = [key for key in known if counts[key] >= _FEWEST and len(beside[key][0])]
    servers = [rows for rows in servers if set(rows["target"]) <= set(keys)]
    if not servers:
        return {}
    return dict(zip(keys, _in_turn([beside[key] for key in keys], _Full.of(servers, keys)), strict=True))


def _beside_competitor(subject: Subject, full_kib: float) -> tuple[Floats, Floats]:
    """Return, for an NF's runs in full caches, packets per age and occupancy [KiB].

    Lines that are referenced at random, each at rate a, miss with probability exp(-a T), T the age, and stay (1 -
    exp(-a T)) / a from one reference to the next; hence T = occupancy / references * -log(misses) / (1 - misses).
    """
    held, references, misses = (
        subject.beside[:, subject.beside_names.index(name)] for name in ("L3OCC", "L2MISS", "L3MISS")
    )
    own = subject.own[:, subject.own_names.index("L3OCC")]
    share = misses / np.maximum(references, 1e-9)
    is_full = (held + own > full_kib) & (share > _MISSING) & (subject.counts > 0) & (subject.mpps > 0.0)
    share = np.minimum(share[is_full], 0.9999)
    age_us = held[is_full] * _LINES_PER_KIB / references[is_full] * -np.log(share) / (1.0 - share)
    return age_us * subject.mpps[is_full], own[is_full]


class _Full(NamedTuple):
    """Mixes in full caches, with a place for each distinct NF: which, how many, their rate and occupancy; the total."""

    who: NDArray[np.int64]
    alike: Floats
    mpps: Floats
    held: Floats
    total: Floats

    @classmethod
    def of(cls, servers: "list[pd.DataFrame]", keys: list[str]) -> "_Full":
        """Arrange mixes, each with a row per distinct NF."""
        places = max(len(rows) for rows in servers)
        who, (alike, mpps, held) = np.zeros((len(servers), places), dtype=np.int64), np.zeros((3, len(servers), places))
        for number, rows in enumerate(servers):
            here, tenants = slice(len(rows)), str(rows["mix"].iloc[0]).split(" + ")
            who[number, here] = [keys.index(key) for key in rows["target"]]
            alike[number, here] = [tenants.count(key) for key in rows["target"]]
            mpps[number, here], held[number, here] = rows["throughput_mpps"], rows["own.L3OCC"]
        return cls(who, alike, mpps, held, np.array([rows["total"].mean() for rows in servers]))

    def packets(self, holdings: Floats) -> Floats:
        """Return packets per age of every NF, at the age at which the total occupancy equals the measured one."""
        low, high = (np.full(len(self.who), np.log(end)) for end in (LEAST_AGE, MOST_AGE))
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            packets = np.exp(middle)[:, None] * self.mpps
            holds = (_terms(packets, holdings.shape[1]) * holdings[self.who]).sum(axis=2)
            over = (self.alike * holds).sum(axis=1) > self.total
            low, high = np.where(over, low, middle), np.where(over, middle, high)
        return np.asarray(np.exp(0.5 * (low + high))[:, None] * self.mpps)


def _in_turn(beside: list[tuple[Floats, Floats]], mixes: _Full) -> list[Floats]:
    weights = [np.full(len(packets), _OF_COMPETITOR) for packets, _ in beside]
    holdings = [_fitted(*rows, weight) for rows, weight in zip(beside, weights, strict=True)]
    for _ in range(_TURNS):
        packets = mixes.packets(np.array(holdings))
        for number, ((aside, held), weight) in enumerate(zip(beside, weights, strict=True)):
            mine = (mixes.who == number) & (mixes.alike > 0.0)
            rows = np.append(aside, packets[mine]), np.append(held, mixes.held[mine])
            holdings[number] = _fitted(*rows, np.append(weight, np.ones(mine.sum())))
    return holdings


def _fitted(packets: Floats, held: Floats, weight: Floats) -> Floats:
    terms, most = _terms(packets, basis_size(len(PRESSURES))), float(held.max())
    ridge = _STRENGTH * np.eye(terms.shape[1])
    solved, _ = nnls(np.vstack([terms * weight[:, None], ridge]), np.append(weight * held / most, np.zeros(len(ridge))))
    return np.asarray(most * solved)


def _terms(packets: Floats, count: int) -> Floats:
    """Return the terms of `ServerResponse.holding` along a new last axis."""
    share = packets[..., None] / (packets[..., None] + packets_of_age(count))
    return np.concatenate([np.ones((*packets.shape, 1)), share], axis=-1)
