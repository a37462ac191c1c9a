"""Masks of cache ways, as Intel CAT and resctrl write them: bit i is way i."""


def way_block(ways: int, first: int = 0) -> int:
    """Return a mask of `ways` adjacent ways, from way `first` up.

    >>> hex(way_block(3, 2))
    '0x1c'
    """
    return ((1 << ways) - 1) << first


def refusal(mask: int, full: int, where: str, *, sparse: bool = False, least: int = 1) -> str:
    """Return why a machine (`where`) whose cache has the ways `full` takes no such mask; an empty text if it does.

    `sparse`: whether masks may have gaps, as resctrl tells of AMD's and newer Intel processors. No run is made with
    such a mask, so no prediction takes one.

    Examples
    --------
    >>> refusal(0x5, 0xFFFFF, "'e5-2620v4'")
    "way mask 0x5 on 'e5-2620v4', needed 1 or more adjacent ways of 0xfffff"
    """
    if not mask & ~full and mask.bit_count() >= least and (sparse or not has_hole(mask)):
        return ""
    return f"way mask {mask:#x} on {where}, needed {least} or more {'' if sparse else 'adjacent '}ways of {full:#x}"


def has_hole(mask: int) -> bool:
    """Return whether the ways of a mask (above 0) are not all adjacent."""
    block = mask // (mask & -mask)
    return block & (block + 1) != 0
