"""Remember the predicted throughputs of whole mixes, by their tenants: promises vary more than mixes do.

SLOMO (SIGCOMM'20) predicts throughput from the mix alone; a promise only decides whether that is enough. A socket has
few cores and a cluster few kinds of network functions, so all useful mixes can be predicted ahead, in few batches. A
mix is useful if it and all its sub-mixes keep their promises: then no departure breaks another tenant's promise. Such
mixes grow from each other tenant by tenant, like frequent item sets (Agrawal and Srikant, VLDB'94).

Bounds of single mixes come from each mix's own kind of neighbourhood, and are not ordered among each other. More
competitors never raise a tenant's throughput (law 3), so a promise must hold with all neighbours and without any of
them. The bound of a tenant is the least over all sub-mixes that contain it (isotonic over sub-mixes).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from slomo.placement.feasibility.estimates import Rate, Tenants, ThroughputEstimates
from slomo.placement.feasibility.memo import Memo
from slomo.vocabulary.vector import Floats

Mix = tuple[int, ...]
Tenant = TypeVar("Tenant", int, str)
#: Largest number of mixes with cached rates, and with a cached minimum over their sub-mixes.
MOST_RATES = 200_000
#: Largest number of sub-mixes examined; for larger mixes, only those with one or two tenants less.
MOST_PARTS = 30_000
#: Machine, mix, and the number of its different workloads with a promise.
_Key = tuple[str, Tenants, int]


@dataclass(frozen=True, eq=False)
class RateTable:
    """Predicted throughputs of all mixes of some network functions that can keep the promises."""

    #: Workload key, in ascending order -> least useful rate [Mpps].
    floors: dict[str, float]
    #: Largest number of tenants in a mix.
    cores: int
    #: Number of tenants up to which all useful mixes are present; below `cores` if growing was cut off.
    reach: int
    #: Number of mixes in the table after which no larger ones are added.
    most: int
    #: Number of instances of each workload, shape (mixes, workloads).
    counts: NDArray[np.int8]
    #: Predicted throughput and interval of each workload in each mix [Mpps]; NaN for absent workloads, shape (mixes,
    #: workloads).
    mpps: Floats
    low: Floats
    high: Floats
    #: Smallest `low` over all sub-mixes [Mpps], shape (mixes, workloads).
    least: Floats
    #: Workload numbers in ascending order -> mix.
    rows: dict[Mix, int]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number by which the table refers to each workload key."""
        return {key: number for number, key in enumerate(self.floors)}

    def covers(self, floors: Mapping[str, float], cores: int, most: int) -> bool:
        """Return whether the table has every mix that can keep the promises `floors`."""
        floors_covered = all(self.floors.get(key, np.inf) <= need for key, need in floors.items())
        return floors_covered and (cores <= self.reach or (cores <= self.cores and most <= self.most))


class RateBook:
    """Predicts each mix only once and remembers the throughputs; `mixes_predicted` counts them."""

    def __init__(self, estimates: ThroughputEstimates) -> None:
        self._estimates = estimates
        self._seen: Memo[_Key, dict[str, Rate]] = Memo(MOST_RATES)
        self._lowest: Memo[_Key, dict[str, float]] = Memo(MOST_RATES)
        self._tables: dict[str, RateTable] = {}
        self.mixes_predicted = 0

    def rates(self, machine: str, mixes: Sequence[Tenants], promises: Sequence[int]) -> list[dict[str, Rate]]:
        """Return the throughputs of mixes of sorted workload keys, as `ThroughputEstimates.rates` does."""
        keys = [(machine, mix, promised) for mix, promised in zip(mixes, promises, strict=True)]
        rates_by_key = {key: self._seen.recall(key) or self._from_table(key) for key in dict.fromkeys(keys)}
        missing = [key for key, rates in rates_by_key.items() if rates is None]
        if missing:
            self.mixes_predicted += len(missing)
            fresh_rates = self._estimates.rates(machine, [key[1] for key in missing], [key[2] for key in missing])
            for key, predicted in zip(missing, fresh_rates, strict=True):
                rates_by_key[key] = self._seen[key] = predicted
        return [rates for key in keys if (rates := rates_by_key[key]) is not None]

    def sizes(self) -> dict[str, int]:
        """Return the number of cached mixes."""
        tabulated = sum(len(table.rows) for table in self._tables.values())
        return {
            "rates": len(self._seen),
            "tabulated mixes": tabulated,
            "mixes looked at in every part": len(self._lowest),
        }

    def table(self, machine: str, floors: Mapping[str, float], cores: int, most: int) -> RateTable:
        """Return a table of mixes, at most `most`, of up to `cores` tenants that keep the promises `floors` [Mpps]."""
        earlier_table = self._tables.get(machine)
        if earlier_table is not None and earlier_table.covers(floors, cores, most):
            return earlier_table
        made = _tabulated(self._estimates, machine, dict(sorted(floors.items())), cores, most)
        self.mixes_predicted += len(made.rows)
        self._tables[machine] = made
        return made

    def hopeless(self, machine: str, mix: Tenants, needs: Mapping[str, float]) -> bool:
        """Return whether a mix is known to break a promise, because a smaller mix of it does."""
        table = self._tables.get(machine)
        if table is None or len(mix) > table.reach or not table.covers(needs, len(mix), 0):
            return False
        return tuple(table.numbers[workload] for workload in mix) not in table.rows

    def below(self, machine: str, mix: Tenants, promised: int, rates: dict[str, Rate]) -> dict[str, Rate]:
        """Return the throughputs of a mix of sorted keys, with lower bounds taken over all its smaller mixes.

        `promised` is how many different workloads of the mix are promised something.
        """
        least = self._known_least((machine, mix, promised)) or self._found_least(machine, mix, promised)
        return {key: (rate[0], _lower(rate[1], least[key]), rate[2]) for key, rate in rates.items()}

    def _known_least(self, key: _Key) -> dict[str, float] | None:
        """Return each tenant's lowest throughput over all parts of a mix [Mpps]; None if it was not found yet."""
        if (seen := self._lowest.recall(key)) is not None:
            return seen
        table, row = self._row(*key)
        if table is None or row is None:
            return None
        return {name: float(table.least[row, table.numbers[name]]) for name in dict.fromkeys(key[1])}

    def _found_least(self, machine: str, mix: Tenants, promised: int) -> dict[str, float]:
        kinds = list(dict.fromkeys(mix))
        counts = [mix.count(kind) for kind in kinds]
        least_of: dict[Tenants, dict[str, float]] = {}
        everything = math.prod(count + 1 for count in counts) <= MOST_PARTS
        spans = [range(count + 1) if everything else range(max(count - 2, 0), count + 1) for count in counts]
        parts = [part for part in product(*spans) if sum(part) > 0 and (everything or sum(part) >= len(mix) - 2)]
        keys: list[_Key] = []
        for part in sorted(parts, key=sum):  # the smaller parts come first
            tenants = tuple(sorted(kind for kind, count in zip(kinds, part, strict=True) for _ in range(count)))
            key = (machine, tenants, min(promised, len(set(tenants))))
            if (known := self._known_least(key)) is None:
                keys.append(key)
            else:
                least_of[tenants] = known
        rates = self.rates(machine, [key[1] for key in keys], [key[2] for key in keys])
        for key, own in zip(keys, rates, strict=True):
            lowest = {kind: rate[1] for kind, rate in own.items()}
            for smaller in without_one(key[1]):
                for kind, low in least_of.get(smaller, {}).items():
                    lowest[kind] = _lower(lowest[kind], low)
            least_of[key[1]] = self._lowest[key] = lowest
        return least_of[mix]

    def _row(self, machine: str, mix: Tenants, promised: int) -> tuple[RateTable | None, int | None]:
        """Return a machine's table, and the row of a mix in it."""
        table = self._tables.get(machine)
        if table is None or promised != len(set(mix)):
            return None, None
        return table, table.rows.get(tuple(table.numbers.get(workload, -1) for workload in mix))

    def _from_table(self, key: _Key) -> dict[str, Rate] | None:
        """Return a mix's throughputs from the table, if the table has the mix."""
        machine, mix, promised = key
        table, row = self._row(machine, mix, promised)
        if table is None or row is None:
            return None
        parts = (table.mpps[row].tolist(), table.low[row].tolist(), table.high[row].tolist())
        places = [(workload, table.numbers[workload]) for workload in dict.fromkeys(mix)]
        rates = {workload: (parts[0][at], parts[1][at], parts[2][at]) for workload, at in places}
        self._seen[key] = rates
        return rates


def _lower(one: float, other: float) -> float:
    """Return the lower of two throughputs; NaN (an unknown smaller mix) is ignored."""
    return one if not other < one else other


def _tabulated(
    estimates: ThroughputEstimates, machine: str, floors: dict[str, float], cores: int, most: int
) -> RateTable:
    codes = np.array(estimates.codes(machine, floors), dtype=np.int64)
    floor = np.array([*floors.values()])
    rows: dict[Mix, int] = {}
    mixes_by_size: list[list[Mix]] = []
    tallies: list[NDArray[np.int8]] = []
    tables: list[Floats] = []
    mixes: list[Mix] = [(kind,) for kind in range(len(floors))]
    reach = judged = 0
    while reach < cores and (reach == 0 or judged + len(mixes) <= most):
        reach, judged = reach + 1, judged + len(mixes)
        tally, rates = _rates(estimates, machine, codes, np.array(mixes, dtype=np.int64).reshape(-1, reach))
        rates[3] = _least(mixes, rates[1], tables[-1][3] if tables else rates[1], rows)
        holds = ((tally == 0) | (rates[3] / floor - 1.0 >= 0.0)).all(axis=1)
        mixes = [mix for mix, good in zip(mixes, holds.tolist(), strict=True) if good]
        rows = {mix: number for number, mix in enumerate(mixes)}  # of this size
        tallies.append(tally[holds])
        tables.append(rates[:, holds])
        mixes_by_size.append(mixes)
        mixes = list(_grown(mixes, rows)) if reach < cores else []
    mpps, low, high, least = np.concatenate(tables, axis=1)
    everything = {mix: number for number, mix in enumerate(chain.from_iterable(mixes_by_size))}
    return RateTable(floors, cores, reach, most, np.concatenate(tallies), mpps, low, high, least, everything)


def _least(mixes: Sequence[Mix], low: Floats, before: Floats, rows: Mapping[Mix, int]) -> Floats:
    """Return each tenant's lowest throughput over all smaller mixes, from those with one tenant less."""
    whole = [(number, part) for number, mix in enumerate(mixes) for part in without_one(mix)]
    result = low.copy()
    if rows:
        numbers = np.array([number for number, _ in whole], dtype=np.int64)
        parts = np.array([rows[part] for _, part in whole], dtype=np.int64)
        np.minimum.at(result, numbers, np.where(np.isnan(before[parts]), np.inf, before[parts]))
    return result


def without_one(mix: tuple[Tenant, ...]) -> list[tuple[Tenant, ...]]:
    """Return a mix without one tenant, once for each group of equal tenants."""
    return [mix[:at] + mix[at + 1 :] for at, kind in enumerate(mix) if at == 0 or kind != mix[at - 1]]


def _rates(
    estimates: ThroughputEstimates, machine: str, codes: NDArray[np.int64], members: NDArray[np.int64]
) -> tuple[NDArray[np.int8], Floats]:
    """Return how often each workload is in each mix, and its throughput, bounds and room for one more."""
    tally = np.zeros((len(members), len(codes)), dtype=np.int8)
    table = np.full((4, *tally.shape), np.nan)
    everyone = np.arange(len(members))
    rate_parts = estimates.rates_of_places(machine, codes[members]) if len(members) else ()
    for place in range(members.shape[1]):
        tally[everyone, members[:, place]] += 1
        for part, values in zip(table, rate_parts, strict=False):
            part[everyone, members[:, place]] = values[:, place]
    return tally, table


def _grown(mixes: Sequence[Mix], holding: Mapping[Mix, int]) -> Iterator[Mix]:
    """Yield mixes with one more tenant, all of whose smaller mixes keep every promise."""
    kinds = sorted({mix[-1] for mix in mixes})
    for mix in mixes:
        for kind in kinds:
            if kind >= mix[-1]:
                made = (*mix, kind)
                if all(part in holding for part in without_one(made)):
                    yield made
