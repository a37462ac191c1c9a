"""Make random but reproducible requests to compare policies, as in the papers of ResQ, SLOMO and NUMASFP.

ResQ (NSDI'18) section 6: about 200 SLO terms over cache-sensitive, cache-insensitive or all network functions, at 90 %
of solo throughput. SLOMO (SIGCOMM'20) Table 1: its network functions. NUMASFP (COMSNETS'22): 20 chains of three, rates
from 1 to 10 Gbit/s over 120 s.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from slomo.errors import InvalidValueError, UnknownNameError
from slomo.placement.problem.chain import RatedChain
from slomo.placement.problem.request import SLO, Request
from slomo.vocabulary.network_function import load_network_function, network_function_names
from slomo.vocabulary.workload import Traffic, Workload

#: ResQ's families -> the classes of network functions in each.
RESQ_FAMILIES = {
    "insensitive": ("insensitive",),
    "combination": ("sensitive", "neutral", "insensitive"),
    "sensitive": ("sensitive",),
}
#: Largest number of instances of a term (ResQ's greedy scheduler starts several if a fair share of the cache is too
#: slow).
RESQ_REPLICAS = 4


def resq_requests(family: str, terms: int = 200, *, seed: int = 0) -> tuple[Request, ...]:
    """Return ResQ's requests of one family, each with a promise of 90 % of solo throughput.

    Raises UnknownNameError for another family.

    Families are insensitive, combination, sensitive. `terms`: number of SLO terms.

    >>> sorted({request.label for request in resq_requests("insensitive")})
    ['efficuts', 'firewall', 'ipsec']
    """
    if family not in RESQ_FAMILIES:
        raise UnknownNameError("family of ResQ's SLO terms", family, RESQ_FAMILIES)
    names = [name for name in _tagged("resq") if load_network_function(name).klass in RESQ_FAMILIES[family]]
    drawn = _draw(names, terms, seed)
    return tuple(
        Request(f"{family}-{i}", (Workload(name),), SLO(min_share=0.9), replicas=RESQ_REPLICAS)
        for i, name in enumerate(drawn, 1)
    )


def slomo_requests(count: int = 200, *, seed: int = 0, nfs: Sequence[str] | None = None) -> tuple[Request, ...]:
    """Return requests for single network functions, SLOMO's by default, with SLOs between 75 and 95 % of solo.

    >>> len(slomo_requests(10))
    10
    """
    generator = np.random.default_rng(seed)
    names = _draw(list(nfs) if nfs is not None else [*_tagged("slomo")], count, seed + 1)
    shares = generator.choice([0.75, 0.8, 0.85, 0.9, 0.95], size=count).tolist()
    pairs = zip(names, shares, strict=True)
    return tuple(Request(f"slomo-{i}", (Workload(nf),), SLO(min_share=share)) for i, (nf, share) in enumerate(pairs, 1))


def numasfp_chains(
    count: int = 20,
    *,
    intervals: int = 12,
    seed: int = 0,
    nfs: Sequence[str] | None = None,
    change: Literal["drift", "jump"] = "drift",
    packet_size_b: int = 64,
) -> tuple[RatedChain, ...]:
    """Return NUMASFP's chains, with rates from 1 to 10 Gbit/s that change every interval (10 s of its 120 s).

    `count` chains of three stages have a rate per interval. `nfs`: to draw from; SLOMO's by default. With `change`
    ``"drift"`` a rate goes steadily from one level to another, so that two chains change places about once, as in the
    paper's run of two chains; with ``"jump"`` it is drawn afresh for every interval.

    >>> chains = numasfp_chains()
    >>> len(chains), len(chains[0].request.chain), len(chains[0].gbps)
    (20, 3, 12)
    """
    _positive("chains", count)
    generator = np.random.default_rng(seed)
    names = list(nfs) if nfs is not None else list(_tagged("slomo"))
    made = []
    for number in range(1, count + 1):
        traffic = Traffic(packet_size_b=packet_size_b)
        chain = tuple(Workload(str(name), traffic=traffic) for name in generator.choice(names, size=3))
        levels = generator.uniform(1.0, 10.0, size=intervals if change == "jump" else 2)
        rates = levels if change == "jump" else np.linspace(levels[0], levels[1], intervals)
        made.append(RatedChain(Request(f"chain-{number}", chain), tuple(float(rate) for rate in rates.round(2))))
    return tuple(made)


@dataclass(frozen=True)
class Event:
    """Arrival or departure of a request at a time."""

    #: When [s].
    time_s: float
    #: Comes; else goes.
    arrives: bool
    #: Which.
    request: Request


def arrivals(
    requests: Sequence[Request], *, per_s: float = 1.0, mean_stay_s: float = 100.0, seed: int = 0
) -> tuple[Event, ...]:
    """Return Poisson arrivals with exponential durations as events in order of time.

    Raises InvalidValueError for a rate or stay that is not above 0.

    >>> events = arrivals(resq_requests("sensitive", 5))
    >>> len(events), events[0].arrives
    (10, True)
    """
    if not (per_s > 0 and mean_stay_s > 0):
        raise InvalidValueError(f"arrivals at {per_s}/s that stay {mean_stay_s} s, needed numbers above 0")
    generator = np.random.default_rng(seed)
    come = np.cumsum(generator.exponential(1.0 / per_s, len(requests)))
    go = come + generator.exponential(mean_stay_s, len(requests))
    events = [Event(float(time), True, request) for time, request in zip(come, requests, strict=True)]
    events += [Event(float(time), False, request) for time, request in zip(go, requests, strict=True)]
    return tuple(sorted(events, key=lambda event: (event.time_s, not event.arrives, event.request.id)))


def _tagged(tag: str) -> tuple[str, ...]:
    """Return the network functions used in a paper, without the paper's synthetic competitors."""
    functions = ((name, load_network_function(name)) for name in network_function_names())
    return tuple(name for name, function in functions if tag in function.tags and function.klass != "competitor")


def _draw(names: Sequence[str], count: int, seed: int) -> list[str]:
    _positive("requests", count)
    return [str(name) for name in np.random.default_rng(seed).choice(list(names), size=count)]


def _positive(what: str, count: int) -> None:
    if count < 1:
        raise InvalidValueError(f"{count} {what}, needed 1 or more")
