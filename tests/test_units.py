"""Units: law 8, conversions round-trip; nonsense is refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slomo.errors import InvalidValueError
from slomo.units import UNITS, convert, parse_quantity, unit_factor

PAIRS = [(a, b) for a in UNITS for b in UNITS if UNITS[a][0] == UNITS[b][0]]


@given(value=st.floats(-1e12, 1e12), pair=st.sampled_from(PAIRS))
def test_conversion_round_trips(value: float, pair: tuple[str, str]) -> None:
    """There and back again is the same number within rounding."""
    there = convert(value, *pair)

    assert math.isclose(convert(there, pair[1], pair[0]), value, rel_tol=1e-12, abs_tol=1e-300)


@given(value=st.floats(1e-6, 1e12), unit=st.sampled_from(sorted(UNITS)))
def test_printed_quantities_parse(value: float, unit: str) -> None:
    """What is printed can be read back to the printed precision."""
    assert math.isclose(parse_quantity(f"{value:.12g} {unit}", unit), value, rel_tol=1e-9)


@pytest.mark.parametrize("text", ["", "fast", "3 parsec", "nan", "inf", "1e999", "3 Mpps extra", "--3"])
def test_nonsense_is_refused(text: str) -> None:
    """Text that is no finite quantity raises with the unit that was needed."""
    with pytest.raises(InvalidValueError):
        parse_quantity(text, "MiB")


def test_dimensions_do_not_mix() -> None:
    """A size is not a rate."""
    with pytest.raises(InvalidValueError, match="cannot convert MiB"):
        unit_factor("MiB", "Mpps")
