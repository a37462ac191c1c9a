"""Search assignments of chains to nodes: all of them if there are few chains, else by moves and exchanges."""

import itertools
from collections.abc import Callable, Iterator, Sequence

from slomo.placement.chains.nodes import Node

#: The node of each stage of each chain.
Choice = tuple[tuple[int, ...], ...]
#: Choices -> value of each; higher is better.
Worth = Callable[[Sequence[Choice]], Sequence[float]]
#: Largest number of assignments of whole chains that are all evaluated.
MOST_WAYS = 1024
#: Largest number of steps of one local search.
MOST_STEPS = 40


def every_choice(lengths: Sequence[int], nodes: Sequence[Node]) -> list[Choice]:
    """Return all assignments that put whole chains on nodes; if none fits, those that split one chain once."""
    whole = [[(node,) * length for node in range(len(nodes))] for length in lengths]
    fitting = [choice for choice in itertools.product(*whole) if fits(choice, nodes)]
    return fitting or list(_splitting(whole, lengths, nodes))


def _splitting(
    whole: Sequence[Sequence[tuple[int, ...]]], lengths: Sequence[int], nodes: Sequence[Node]
) -> Iterator[Choice]:
    for place, length in enumerate(lengths):
        cut = [
            (first,) * at + (second,) * (length - at)
            for at in range(1, length)
            for first, second in itertools.permutations(range(len(nodes)), 2)
        ]
        choices = itertools.product(*whole[:place], cut, *whole[place + 1 :])
        yield from (choice for choice in choices if fits(choice, nodes))


def fits(choice: Choice, nodes: Sequence[Node]) -> bool:
    """Return whether an assignment gives every stage a core."""
    return all(sum(seats.count(number) for seats in choice) <= node.cores for number, node in enumerate(nodes))


def climbed(starts: Sequence[Choice], nodes: Sequence[Node], worth: Worth) -> Choice:
    """Return the best assignment of a local search, which moves or exchanges chains as long as that helps.

    The search starts at each of `starts` and ends when no step improves, after at most `MOST_STEPS`. With n stages on
    two nodes a step evaluates up to n + n * n / 4 neighbours.

    All `starts` must fit; the first wins among equals.

    Examples
    --------
    >>> two = (Node(2, 20), Node(2, 20))
    >>> climbed([((0,), (0,), (1,))], two, lambda choices: [sum(map(sum, choice)) for choice in choices])
    ((1,), (0,), (1,))
    """
    ends = [_climb(start, nodes, worth) for start in dict.fromkeys(starts)]
    return max(ends, key=lambda end: end[1])[0]


def _climb(here: Choice, nodes: Sequence[Node], worth: Worth) -> tuple[Choice, float]:
    """Return the assignment at which a local search ends, and its value."""
    value = worth([here])[0]
    for _ in range(MOST_STEPS):
        near = [choice for choice in dict.fromkeys(_near(here, len(nodes))) if fits(choice, nodes)]
        values = worth(near) if near else []
        best = max(range(len(near)), key=lambda place: values[place], default=-1)
        if best < 0 or values[best] <= value:
            break
        here, value = near[best], values[best]
    return here, value


def _near(choice: Choice, nodes: int) -> Iterator[Choice]:
    """Yield assignments that differ by moving one whole chain, or by exchanging two chains of equal length."""
    for place, seats in enumerate(choice):
        for node in range(nodes):
            if seats != (node,) * len(seats):
                yield (*choice[:place], (node,) * len(seats), *choice[place + 1 :])
    for one, other in itertools.combinations(range(len(choice)), 2):
        if choice[one] != choice[other] and len(choice[one]) == len(choice[other]):
            swapped = list(choice)
            swapped[one], swapped[other] = choice[other], choice[one]
            yield tuple(swapped)
