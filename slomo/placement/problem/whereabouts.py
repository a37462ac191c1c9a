"""Values of placement constraints: taints, spread, neighbours chosen by labels, preferences.

Terms and text forms are those of Kubernetes' scheduler (taints and tolerations, topology spread constraints, pod
affinity), so a manifest can be copied. A *domain* is a value of a label of servers, a rack for instance; each server is
a domain of its own under the label ``host``.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from slomo.errors import InvalidValueError, UnknownNameError

Pairs = tuple[tuple[str, str], ...]
#: Label under which each server is a domain of its own.
HOST = "host"
#: Effect of a taint on a request that does not tolerate it: excluded, avoided, or evicted.
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
Value = TypeVar("Value")


def pairs(labels: Mapping[str, str] | Iterable[tuple[str, str]]) -> Pairs:
    """Return labels in order of name. Raises InvalidValueError if the value is neither a mapping nor pairs."""
    try:
        return tuple(sorted(dict(labels).items()))
    except (TypeError, ValueError):
        raise InvalidValueError(
            f"labels are {str(labels)[:60]!r}, needed a mapping", hint="write for instance {'rack': 'r1'}"
        ) from None


@dataclass(frozen=True)
class Taint:
    """A server's mark that keeps requests away, or a request's toleration of one.

    >>> Taint.of("gpu=a100:NoExecute").key, Taint.of("gpu").tolerates(Taint.of("gpu=a100:NoExecute"))
    ('gpu', True)
    """

    #: Its subject; in a toleration, an empty value matches any.
    key: str
    value: str = ""
    #: One of `EFFECTS`; empty in a toleration for any; a taint without one has ``NoSchedule``.
    effect: str = ""

    @classmethod
    def of(cls, text: str) -> "Taint":
        """Parse ``key``, ``key=value``, ``key:effect`` or ``key=value:effect``."""
        pair, _, effect = text.partition(":")
        if effect and effect not in EFFECTS:
            raise UnknownNameError("effect", effect, EFFECTS, where=f"of taint '{text}'")
        key, _, value = pair.partition("=")
        return cls(key, value, effect)

    def tolerates(self, taint: "Taint") -> bool:
        """Return whether this toleration matches a taint."""
        effect = taint.effect or EFFECTS[0]
        return self.key == taint.key and self.value in ("", taint.value) and self.effect in ("", effect)


def untolerated(taints: Iterable[str], tolerations: Sequence[str], effects: Sequence[str]) -> list[str]:
    """Return the taints with given effects that no toleration matches."""
    tolerant = [Taint.of(text) for text in tolerations]
    marks = [(text, Taint.of(text)) for text in taints]
    return [
        text
        for text, taint in marks
        if (taint.effect or EFFECTS[0]) in effects and not any(each.tolerates(taint) for each in tolerant)
    ]


@dataclass(frozen=True)
class Spread:
    """How the instances of a request are spread over the values of a label."""

    #: Label over whose values they are spread; ``host`` for servers.
    label: str
    #: Largest excess of a domain over the emptiest one; None: at most one per domain.
    max_skew: int | None = None
    #: Weight of a preference; None for a mandatory constraint.
    weight: float | None = None

    def __post_init__(self) -> None:
        if self.max_skew is not None and self.max_skew < 1:
            raise InvalidValueError(f"spread over '{self.label}': max_skew is {self.max_skew}, needed 1 or more")
        check_weight(f"spread over '{self.label}'", self.weight)

    @property
    def text(self) -> str:
        """The constraint as text for display."""
        return f"spread over {self.label}" + ("" if self.max_skew is None else f" (max_skew {self.max_skew})")


@dataclass(frozen=True)
class Neighbours:
    """Requests, selected by labels, near or away from which another request wants to be."""

    #: All of which they carry.
    labels: Pairs
    #: Label whose domain counts as near; ``host`` for the same server.
    within: str = HOST
    #: Weight of a preference; None for a mandatory constraint.
    weight: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", pairs(self.labels))
        if not self.labels:
            raise InvalidValueError("neighbours: no labels, needed one or more", hint="labels: {app: web}")
        check_weight(f"neighbours {self.words}", self.weight)

    @property
    def words(self) -> str:
        """The labels as text for display."""
        return ", ".join(f"{name}={value}" for name, value in self.labels)

    def names(self, labels: Pairs) -> bool:
        """Return whether a request with the given labels is selected."""
        return set(self.labels) <= set(labels)


@dataclass(frozen=True)
class Preference:
    """A preference for servers with some labels."""

    #: Labels of the servers.
    selector: Pairs
    #: How much, beside other preferences.
    weight: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "selector", pairs(self.selector))
        check_weight("preference", self.weight)


@dataclass(frozen=True)
class Reserved:
    """Cores of a server reserved for requests with some labels."""

    #: Number over all its sockets, 1 or more.
    cores: int
    #: Labels of requests that may use them.
    labels: Pairs

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", pairs(self.labels))
        if self.cores < 1 or not self.labels:
            raise InvalidValueError(
                f"reserved: {self.cores} cores for {dict(self.labels)}, needed 1 or more and a label",
                hint="reserved: {cores: 2, labels: {tier: gold}}",
            )


def check_weight(whose: str, weight: float | None) -> None:
    """Raise InvalidValueError, naming the object, if a weight is not above 0."""
    if weight is not None and not (math.isfinite(weight) and weight > 0.0):
        raise InvalidValueError(f"{whose}: weight is {weight!r}, needed a number above 0")


def values_of(kind: type[Value], values: Any, short: str = "") -> tuple[Any, ...]:
    """Return one or several values of a type, given as values, mappings, or texts for the field `short`.

    Without `short`, texts are returned unchanged. Raises InvalidValueError for anything else.

    >>> values_of(Spread, "rack", short="label")
    (Spread(label='rack', max_skew=None, weight=None),)
    """
    if values is None:
        return ()
    if isinstance(values, (str, Mapping, kind)):
        return (_value(kind, values, short),)
    if not isinstance(values, Iterable):
        raise InvalidValueError(f"{values!r} is no {kind.__name__}, nor several of them")
    return tuple(_value(kind, item, short) for item in values)


def _value(kind: Any, item: Any, short: str) -> Any:
    if isinstance(item, str):
        return kind(**{short: item}) if short else item
    return kind(**item) if isinstance(item, Mapping) else item


def plain(value: Any) -> Any:
    """Return a value for JSON: a text if the text says everything, else a mapping without default fields."""
    if isinstance(value, str):
        return value
    stated = {item.name: getattr(value, item.name) for item in fields(value)}
    stated = {name: dict(v) if isinstance(v, tuple) else v for name, v in stated.items() if v is not None}
    if isinstance(value, Spread) and len(stated) == 1:
        return value.label
    if isinstance(value, Neighbours) and value.within == HOST:
        del stated["within"]
    return stated
