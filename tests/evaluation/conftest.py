"""The small library made by hand, shared with the tests of prediction."""

from ..prediction.conftest import gap_library, library

__all__ = ["gap_library", "library"]
