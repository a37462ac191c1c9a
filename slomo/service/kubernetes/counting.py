"""Read hardware counters of those pods of a node that have a CPU to themselves.

A metric that no reader reads is missing. For a pod whose counters cannot be read, the result has a reason instead of
numbers.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slomo.errors import SlomoError
from slomo.host.cores import socket_of
from slomo.records.measurement import others_of
from slomo.testbed.host.counters.base import CounterReader
from slomo.testbed.host.counters.registry import AUTOMATIC, choose_reader
from slomo.vocabulary.vector import MetricVector

#: Time for which counters are read in each round [s].
COUNT_S = 1.0


@dataclass(frozen=True)
class Counted:
    """Counters of one pod, or the reason why there are none."""

    #: Core-level vector, and the socket's vector minus that of the core; None if unknown.
    own: MetricVector | None = None
    beside: MetricVector | None = None
    #: Reason why there are no counters; empty if there are.
    reason: str = ""


class PodCounting:
    """Reads hardware counters of pods; without a `reader` there are none, for the given `reason`."""

    def __init__(
        self, reader: CounterReader | None, reason: str = "", socket: Callable[[int], int] = socket_of
    ) -> None:
        self._reader, self._reason, self._socket = reader, reason, socket

    @classmethod
    def of(cls, name: str) -> "PodCounting":
        """Create counting with a named reader; ``"auto"`` takes the first reader that works, or none with a reason."""
        if name == "off":
            return cls(None, "the agent was started with --counters off")
        try:
            reader = choose_reader(None if name == "auto" else name)
        except SlomoError as problem:
            return cls(None, problem.message)
        except ModuleNotFoundError as problem:
            if name != "auto":
                raise
            return cls(None, f"reading counters needs the package '{problem.name}': pip install 'slomo[host]'")
        return cls(reader, f"none of {', '.join(AUTOMATIC)} can read counters here; see `slomo doctor`")

    @property
    def source(self) -> str:
        """Name of the counter reader; empty if there is none."""
        return "" if self._reader is None else self._reader.name

    def count(self, where: Mapping[str, int | str]) -> dict[str, Counted]:
        """Count for one second each pod's counters; `where`: pod -> its CPU, or why it has none."""
        uses = Counter(cpu for cpu in where.values() if isinstance(cpu, int))
        if self._reader is None or not uses:
            return {uid: Counted(reason=cpu if isinstance(cpu, str) else self._reason) for uid, cpu in where.items()}
        try:
            self._reader.start(sorted(uses))
            try:
                time.sleep(COUNT_S)
            finally:
                sample = self._reader.stop()
        except SlomoError as problem:
            return {uid: Counted(reason=cpu if isinstance(cpu, str) else problem.message) for uid, cpu in where.items()}
        counted = {}
        for uid, cpu in where.items():
            if isinstance(cpu, str):
                counted[uid] = Counted(reason=cpu)
            elif uses[cpu] > 1:
                counted[uid] = Counted(reason=f"{uses[cpu]} pods share CPU {cpu}: whose its counts are is unknown")
            elif not (own := sample.cores.get(cpu)):
                counted[uid] = Counted(reason=f"{self.source} read nothing of CPU {cpu}")
            else:
                socket = sample.sockets.get(self._socket(cpu))
                counted[uid] = Counted(own, None if socket is None else others_of(socket, own))
        return counted
