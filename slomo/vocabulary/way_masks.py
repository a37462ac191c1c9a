"""Masks of cache ways, as Intel CAT and resctrl write them: bit i is way i."""


def way_block(ways: int, first: int = 0) -> int:
    """Return a mask of `ways` adjacent ways, from way `first` up.

    Examples
    --------
    >>> hex(way_block(3, 2))
    '0x1c'
    """
    return ((1 << ways) - 1) << first


def has_hole(mask: int) -> bool:
    """Return whether the ways of a mask (above 0) are not all adjacent."""
    block = mask // (mask & -mask)
    return block & (block + 1) != 0
