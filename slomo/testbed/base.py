"""What every testbed must do: run network functions together, and return the measurements.

The simulator, a real machine and a replay of recorded runs implement the same interface; a variant wraps another
testbed (as google/vizier's experimenters and Ax's simulated back end do).
"""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from slomo.records.run import RunRecord
from slomo.vocabulary.colocation import Colocation


@runtime_checkable
class Testbed(Protocol):
    """A machine or simulator on which network functions can be run together (a co-location).

    Unless :attr:`exclusive` is true, several processes may call `run` at the same time, each on its own copy.
    """

    #: Name of the testbed in the registry.
    name: str
    #: Whether two concurrent runs would disturb each other, as on a real machine.
    exclusive: bool

    def run(self, colocation: Colocation, *, seed: int = 0) -> RunRecord:
        """Run the competitors alone, then beside the target, and return what was measured.

        Raises TestbedError if the experiment cannot run; UnknownNameError or InvalidValueError for an unknown name or
        invalid value in the co-location.
        """
        ...

    def environment(self) -> Mapping[str, Any]:
        """Return the properties that must be equal for two runs to be comparable (stored as provenance)."""
        ...

    def estimate_s(self, colocation: Colocation) -> float:
        """Return the expected wall time of one run in [s], for `--dry-run` and progress."""
        ...
