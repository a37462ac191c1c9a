"""Decide whether a mix keeps every SLO: it needs enough cores, ways, and predicted throughput at a confidence.

SLOMO (SIGCOMM'20) section 2: predict the loss of a network function beside others before placing it there. A mix counts
as feasible only if all its sub-mixes are: then no departure of a tenant breaks a promise. Verdicts are cached per kind
of socket and signature; rates per mix, independent of promises, new ones in one batch.

Of a shared port, a network function without a stated load takes its solo throughput; a stage of a chain counts as one.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from slomo.compose.ports import port_shares_mpps
from slomo.placement.feasibility.estimates import Rate, Tenants, ThroughputEstimates
from slomo.placement.feasibility.kinds import without_load
from slomo.placement.feasibility.memo import Memo
from slomo.placement.feasibility.mixes import Host, Piece, Pieces, Signature, tenants_of
from slomo.placement.feasibility.rates import RateBook, RateTable
from slomo.prediction.answers import answers_on
from slomo.prediction.tenants import server_of
from slomo.vocabulary.server_setting import ServerSetting
from slomo.vocabulary.workload_text import parse_workload

Solo = Callable[[str, str], float | None]
#: Reported limit if a promise would have to hold beside a hyper-thread neighbour.
HYPER_THREADS = "cores of their own beside hyper-threads"
#: Reported limit if a shared port lets too little through.
PORT = "share of the NIC port"
#: Reported limit if too few prediction errors are known for the confidence.
EVIDENCE = "held-out errors"
#: Largest number of mixes predicted ahead. All mixes of nine kinds on nine cores are 48 619.
MOST_MIXES = 150_000
#: Largest number of cached verdicts per kind of socket.
MOST_VERDICTS = 200_000
#: Largest number of cached mixes with one piece more; beyond, all are dropped.
MOST_GROWN = 400_000


def port_shares(host: Host, tenants: Sequence[str], solo_mpps: Solo) -> dict[str, float]:
    """Return the load that reaches each workload of a mix through the shared port [Mpps]; empty without a port.

    >>> port_shares(Host("m", 8, 18, port_gbps=10.0), ["lpm@1230B", "nat@1230B"], lambda machine, key: 4.0)
    {'lpm@1230B': 0.5, 'nat@1230B': 0.5}
    """
    if host.port_gbps is None:
        return {}
    traffic = [parse_workload(key).traffic for key in tenants]
    demand_mpps = [
        solo_mpps(host.machine, key) if each.offered_mpps is None else each.offered_mpps
        for key, each in zip(tenants, traffic, strict=True)
    ]
    shares = port_shares_mpps([each.packet_size_b for each in traffic], demand_mpps, host.port_gbps)
    return dict(zip(tenants, shares, strict=True))


def behind_port(host: Host, tenants: Sequence[str], estimates: ThroughputEstimates) -> dict[str, str]:
    """Return the mix's workloads, each with the load that the shared port lets through.

    If all have models, the port is divided as for every question (`slomo.prediction.answers.answers_on`); else by
    solo throughputs. A workload that cannot serve its part is left unchanged: its ring is full in both cases.
    """
    loaded, solo_mpps = {key: key for key in tenants}, estimates.solo_mpps
    if host.port_gbps is None:
        return loaded
    if all((host.machine, without_load(key)) in estimates.library for key in tenants):
        server = server_of(estimates.library, tenants, host.machine, ServerSetting(port_gbps=host.port_gbps))
        for tenant, load in zip(server.tenants, answers_on(server, estimates.how).loads, strict=True):
            if load != tenant.offered_mpps and load is not None:
                loaded[tenant.workload.key] = tenant.workload.offered(load).key
        return loaded
    shares = port_shares(host, tenants, solo_mpps)
    for key, share in shares.items():
        workload = parse_workload(key)
        offered = workload.traffic.offered_mpps
        most = solo_mpps(host.machine, key) if offered is None else offered
        if most is not None and share < most:
            loaded[key] = workload.offered(share).key
    return loaded


@dataclass(frozen=True)
class Breach:
    """A promise that does not hold in a mix, and what it lacks."""

    piece: Piece
    workload: str
    what: str
    needed: float
    possible: float

    @property
    def state(self) -> Literal["broken", "unjudged"]:
        """Whether the promise is broken, or cannot be judged for want of known prediction errors."""
        return "unjudged" if self.what == EVIDENCE else "broken"

    @property
    def why(self) -> str:
        """Reason for the state, for display."""
        if self.what == "throughput":
            return "less than promised is to be counted on beside what runs there"
        return f"{self.needed:g} {self.what} would be needed, {self.possible:g} are there"


@dataclass(frozen=True)
class MixVerdict:
    """Whether a mix keeps every SLO, and if not, which breaks first."""

    #: Smallest relative margin above a promised throughput; infinite without promises.
    headroom: float
    #: The broken promise; None if all hold.
    breach: Breach | None
    #: Predicted throughput per workload; empty if nothing is predicted.
    rates: dict[str, Rate]
    #: Number of different tenants with a promise, which share the risk.
    promised: int = 0

    @property
    def ok(self) -> bool:
        """Whether the mix keeps every SLO."""
        return self.breach is None


class Grown(NamedTuple):
    """A mix that keeps every SLO, made from another one by adding a piece (unit of placement)."""

    base: Signature
    cores: int
    headroom: float


class Oracle:
    """Decides whether mixes keep every SLO, and remembers the verdicts.

    With `predicts`, throughput in the shared cache is judged by prediction; else only cores and ways count.
    """

    def __init__(self, pieces: Pieces, estimates: ThroughputEstimates, *, predicts: bool) -> None:
        self.pieces, self.estimates, self.predicts = pieces, estimates, predicts
        self.book = RateBook(estimates)
        self._known: defaultdict[Host, Memo[Signature, MixVerdict]] = defaultdict(lambda: Memo(MOST_VERDICTS))
        self._hopeless: defaultdict[Host, Memo[Signature, bool]] = defaultdict(lambda: Memo(MOST_VERDICTS))
        self._grown: dict[tuple[Host, int], dict[Signature, Grown | None]] = {}
        self._grown_count = 0

    def sizes(self) -> dict[str, int]:
        """Return the number of entries in each cache."""
        return {
            "verdicts": sum(map(len, self._known.values())),
            "hopeless mixes": sum(map(len, self._hopeless.values())),
            "mixes with one piece more": self._grown_count,
            **self.book.sizes(),
        }

    def verdict(self, host: Host, signature: Signature) -> MixVerdict:
        """Return whether one mix keeps every SLO."""
        return self.verdicts(host, (signature,))[0]

    def verdicts(self, host: Host, signatures: Sequence[Signature]) -> list[MixVerdict]:
        """Return whether many mixes keep every SLO; new mixes are predicted in one batch."""
        memo = self._known[host]
        judged = {signature: memo.recall(signature) for signature in dict.fromkeys(signatures)}
        missing = [signature for signature, verdict in judged.items() if verdict is None]
        if missing:
            for signature, fresh in self._judged(host, missing).items():
                judged[signature] = memo[signature] = fresh
        return [verdict for signature in signatures if (verdict := judged[signature]) is not None]

    def holding(self, host: Host, piece: int, signatures: Iterable[Signature], *, hopeful: bool) -> list[Grown]:
        """Return the mixes that still keep every SLO if one more piece (instances placed together) is added.

        With `hopeful`, mixes with a sub-mix known to break a promise are skipped.
        """
        if self._grown_count > MOST_GROWN:
            self._grown, self._grown_count = {}, 0
        here = self._grown.setdefault((host, piece), {})
        fresh = [signature for signature in signatures if signature not in here]
        if fresh:
            self._grown_count += len(fresh)
            mixes = {signature: self.pieces.grown(signature, piece) for signature in fresh}
            if hopeful:
                mixes = {signature: mix for signature, mix in mixes.items() if not self.hopeless(host, mix)}
            here.update(dict.fromkeys(fresh))
            for (signature, mix), verdict in zip(mixes.items(), self.verdicts(host, list(mixes.values())), strict=True):
                if verdict.ok:
                    here[signature] = Grown(signature, self.pieces.cores(mix), verdict.headroom)
        return [grown for signature in signatures if (grown := here[signature]) is not None]

    def table(self, host: Host, floors: Mapping[str, float], most: int = MOST_MIXES) -> RateTable:
        """Return the predicted throughputs of at most `most` mixes in which every tenant can reach its promise."""
        return self.book.table(host.machine, floors, host.cores, min(most, MOST_MIXES))

    def hopeless(self, host: Host, signature: Signature) -> bool:
        """Return whether a mix is known to break a promise, because a smaller mix already does."""
        hopeless = self._hopeless[host]
        if hopeless.recall(signature):
            return True
        if signature in self._known.get(host, ()) or host.port_gbps is not None or not self._breaks(host, signature):
            return False
        hopeless[signature] = True
        return True

    def _breaks(self, host: Host, signature: Signature) -> bool:
        needs: dict[str, float] = {}
        tenants: list[str] = []
        for piece in self.pieces.of(signature):
            if piece.needed_mpps <= 0.0 or piece.ways or piece.exclusive:
                return False
            tenants += piece.workloads
            for workload in piece.workloads:
                needs[workload] = min(needs.get(workload, math.inf), piece.needed_mpps)
        return self.book.hopeless(host.machine, tuple(sorted(tenants)), needs)

    def _judged(self, host: Host, signatures: list[Signature]) -> dict[Signature, MixVerdict]:
        verdicts: dict[Signature, MixVerdict] = {}
        asked: list[tuple[Signature, tuple[Piece, ...], dict[str, str], Tenants, int]] = []
        for signature in signatures:
            pieces = self.pieces.of(signature)
            breach = _crowded(host, pieces) or _cut_short(host, pieces, self.estimates.solo_mpps)
            shared = any(not piece.ways and not piece.exclusive for piece in pieces)
            crowded = self.pieces.cores(signature) > host.cores  # hyper-threads: nothing predicts those
            if breach is not None or not self.predicts or not shared or crowded:
                verdicts[signature] = MixVerdict(-math.inf if breach else math.inf, breach, {})
                continue
            load = behind_port(host, tenants_of(pieces), self.estimates)
            mix = tuple(sorted(load[key] for key in tenants_of(pieces)))
            promised = len({load[key] for key in tenants_of(piece for piece in pieces if piece.needed_mpps > 0)})
            asked.append((signature, pieces, load, mix, promised))
        predicted = self.book.rates(host.machine, [each[3] for each in asked], [each[4] for each in asked])
        for (signature, pieces, load, mix, promised), rates in zip(asked, predicted, strict=True):
            verdict = _by_rates(pieces, {key: rates[loaded] for key, loaded in load.items()})
            if verdict.ok and promised:
                lower = self.book.below(host.machine, mix, promised, rates)
                verdict = _by_rates(pieces, {key: lower[loaded] for key, loaded in load.items()})
            breach = verdict.breach and self._explained(host.machine, verdict.breach, promised)
            verdicts[signature] = replace(verdict, breach=breach, promised=promised)
        return verdicts

    def breach(self, machine: str, piece: Piece, workload: str, verdict: MixVerdict) -> Breach | None:
        """Return what a piece (unit of placement) lacks in a mix that breaks a promise; None if nothing."""
        if not verdict.rates:
            return verdict.breach
        if piece.needed_mpps <= 0.0 or piece.ways or (low := verdict.rates[workload][1]) >= piece.needed_mpps:
            return None
        short = Breach(piece, workload, "throughput", piece.needed_mpps, low)
        return self._explained(machine, short, verdict.promised)

    def _explained(self, machine: str, breach: Breach, promised: int) -> Breach:
        """Return the breach, with the missing prediction errors as reason if nothing can be promised without them."""
        lacking = None if breach.possible > 0.0 else self.estimates.lacking(machine, breach.workload, promised)
        if lacking is None:
            return breach
        return replace(breach, what=EVIDENCE, needed=lacking[0], possible=lacking[1])


def _crowded(host: Host, pieces: tuple[Piece, ...]) -> Breach | None:
    """Return what is short if a mix lacks cores or ways, or gives a neighbour to something that must be alone."""
    cores = sum(len(piece.workloads) for piece in pieces)
    if cores > host.places:
        return Breach(pieces[-1], pieces[-1].workloads[0], "cores", cores, host.places)
    promised = next((piece for piece in pieces if piece.needed_mpps > 0.0 or piece.ways), None)
    if cores > host.cores and promised is not None:
        return Breach(promised, promised.workloads[0], HYPER_THREADS, cores, host.cores)
    ways = sum(sum(piece.ways) for piece in pieces)
    ways += any(not piece.ways for piece in pieces) and ways > 0  # tenants in the shared cache need a way
    if ways > host.ways:
        return Breach(pieces[-1], pieces[-1].workloads[0], "ways", ways, host.ways)
    sharing = next((piece for piece in pieces if piece.needed_mpps > 0.0 and not piece.ways), None)
    if ways and sharing is not None:  # what shares the cache is predicted with all of it
        return Breach(sharing, sharing.workloads[0], "ways", host.ways, host.ways - ways + 1)
    alone = next((piece for piece in pieces if piece.exclusive), None)
    if alone is not None and len(pieces) > 1:
        return Breach(alone, alone.workloads[0], "model", 1, 1)
    return None


def _cut_short(host: Host, pieces: tuple[Piece, ...], solo_mpps: Solo) -> Breach | None:
    """Return what is short if the network port limits a tenant below its promise."""
    if host.port_gbps is None and any(piece.ways for piece in pieces):
        host = replace(host, port_gbps=host.wire_gbps)
    shares = port_shares(host, tenants_of(pieces), solo_mpps)
    for piece in pieces if shares else ():
        workload = min(piece.workloads, key=lambda key: shares[key])
        if piece.needed_mpps > shares[workload] * (1.0 + 1e-9):
            return Breach(piece, workload, PORT, piece.needed_mpps, shares[workload])
    return None


def _by_rates(pieces: tuple[Piece, ...], rates: dict[str, Rate]) -> MixVerdict:
    worst, breach = math.inf, None
    for piece in pieces:
        if piece.needed_mpps <= 0.0 or piece.ways:
            continue
        for workload in piece.workloads:
            low = rates[workload][1]
            headroom = low / piece.needed_mpps - 1.0 if low == low else -math.inf  # NaN: nothing is known
            if headroom < worst:
                worst = headroom
                if headroom < 0.0:
                    breach = Breach(piece, workload, "throughput", piece.needed_mpps, low)
    return MixVerdict(worst, breach, rates)
