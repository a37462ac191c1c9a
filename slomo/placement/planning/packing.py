"""Pack a batch by filling all sockets with the same mix together; the time grows with mixes, not instances.

Best fit with servers grouped by state: a hundred thousand instances are of few kinds, and so are the sockets they fill.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from slomo.placement.feasibility.mixes import Host, Signature
from slomo.placement.feasibility.oracle import Oracle


def pack(
    oracle: Oracle,
    host: Host,
    demand: Mapping[int, int],
    order: Sequence[int],
    alternatives: Mapping[int, Sequence[int]],
) -> dict[Signature, int]:
    """Put each piece (unit of placement) on the fullest socket where all promises are kept, else on an empty one.

    `order` is that in which pieces are packed. `alternatives` are pieces that serve the same request, the preferred
    first; a socket in use goes before a new one. Pieces that fit on no empty socket are left out.
    """
    sockets: Counter[Signature] = Counter()
    for piece in order:
        left = demand[piece]
        while left > 0:
            chosen, option = fullest(oracle, host, sockets, alternatives.get(piece, (piece,)))
            if chosen == () and not oracle.verdict(host, (option,)).ok:
                break
            moved = min(left, sockets[chosen]) if chosen else left
            left -= _fill(oracle, host, sockets, chosen, option, moved, left)
    return {signature: count for signature, count in sockets.items() if count}


def fullest(oracle: Oracle, host: Host, sockets: Counter[Signature], options: Sequence[int]) -> tuple[Signature, int]:
    """Return the fullest mix to which one of the options can be added, or an empty socket.

    Fullest means more cores in use, then less headroom.
    """
    open_ = [signature for signature, count in sockets.items() if count]
    for option in options:
        grown = [oracle.pieces.grown(signature, option) for signature in open_]
        holds = [
            (oracle.pieces.cores(mix), -verdict.headroom, mix, signature)
            for signature, mix, verdict in zip(open_, grown, oracle.verdicts(host, grown), strict=True)
            if verdict.ok
        ]
        if holds:
            return max(holds)[-1], option
    return (), options[0]


def _fill(
    oracle: Oracle, host: Host, sockets: Counter[Signature], base: Signature, piece: int, available: int, left: int
) -> int:
    """Add copies of one group of instances, as many as fit, to sockets that have the same mix; return their number."""
    depth, mix = 0, base
    while depth < left:
        grown = oracle.pieces.grown(mix, piece)
        if not oracle.verdict(host, grown).ok:
            break
        mix, depth = grown, depth + 1
    full = min(left // depth, available)
    rest = left - full * depth if full < available else 0
    _move(sockets, base, mix, full)
    if rest:
        part = base
        for _ in range(rest):
            part = oracle.pieces.grown(part, piece)
        _move(sockets, base, part, 1)
    return full * depth + rest


def _move(sockets: Counter[Signature], source: Signature, target: Signature, count: int) -> None:
    if source != ():
        sockets[source] -= count
    sockets[target] += count
