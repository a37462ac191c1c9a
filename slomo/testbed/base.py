"""The contract every testbed keeps: run one co-location, return what was measured.

One interface for world and model: the simulator, the rack and a replay of recorded runs implement the same method,
and variation comes by wrapping (google/vizier's experimenters; Ax's simulated back end).
"""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from slomo.records.run import RunRecord
from slomo.vocabulary.colocation import Colocation


@runtime_checkable
class Testbed(Protocol):
    """Something that can run co-locations.

    Implementations are values or own their resources; `run` may be called from several processes, each with its own
    copy, unless :attr:`exclusive` is true.
    """

    #: Alias under which the registry knows it.
    name: str
    #: True where two runs at the same time would disturb each other (a real machine).
    exclusive: bool

    def run(self, colocation: Colocation, *, seed: int = 0) -> RunRecord:
        """Run both phases and return the record.

        Raises TestbedError when the experiment cannot be run; UnknownNameError, InvalidValueError when the co-location
        names or asks for what does not exist.
        """
        ...

    def environment(self) -> Mapping[str, Any]:
        """Describe what must be equal for two runs to be comparable (goes into provenance)."""
        ...

    def estimate_s(self, colocation: Colocation) -> float:
        """Return the expected wall time of one run in [s], for `--dry-run` and progress."""
        ...
