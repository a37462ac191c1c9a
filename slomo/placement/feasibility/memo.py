"""A bounded cache of results; the least recently used entry is dropped first."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Memo(OrderedDict[Key, Value]):
    """A mapping of limited size; if it is full, it drops the least recently used entry.

    Where it holds more than `most` entries, the least recently used ones are dropped.

    >>> memo = Memo[str, int](2)
    >>> memo["a"], memo["b"] = 1, 2
    >>> memo.recall("a")
    1
    >>> memo["c"] = 3
    >>> list(memo)
    ['a', 'c']
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __setitem__(self, key: Key, value: Value) -> None:
        super().__setitem__(key, value)
        while len(self) > self.most:
            try:
                self.popitem(last=False)
            except KeyError:  # another thread was quicker
                return

    def recall(self, key: Key) -> Value | None:
        """Return the value of a key and mark the entry as used; None if there is no entry."""
        value = self.get(key)
        if value is not None:
            try:
                self.move_to_end(key)
            except KeyError:  # another thread let it go meanwhile
                return value
        return value
