"""Read counters by PCM's other tools: ``pcm-memory`` for bandwidth, ``pcm-pcie`` for devices' hits and misses.

Both tools use uncore counters that ``pcm`` uses too, so only one of the three can run at a time. They give no
core-level vectors and are never chosen automatically. ``pcm-iio`` counts bytes per PCIe stack but no hits and misses in
the last-level cache, so no metric of the vocabulary follows from it (opcm/pcm src/pcm-iio.cpp).
"""

import statistics
from collections.abc import Iterable
from pathlib import Path

from slomo.errors import TestbedError
from slomo.testbed.host.counters.base import CounterSample
from slomo.testbed.host.counters.pcm import PcmTool
from slomo.vocabulary.metrics import Scope
from slomo.vocabulary.vector import MetricVector

_LARGEST_B = 64 * 2**20
_LONGEST_LINE = 4_000
#: Columns of pcm-pcie for requests by the processor, which are ignored, instead of by a device.
_BY_PROCESSOR = {"PRd", "WiL", "UCRdF", "WCiL", "WCiLF"}


class PcmMemoryReader(PcmTool):
    """Reads ``pcm-memory -csv``: READ and WRITE of each socket."""

    name = "pcm-memory"


class PcmPcieReader(PcmTool):
    """Reads ``pcm-pcie -csv -e``: PCIEHIT and PCIEMISS of each socket.

    The tool multiplexes its events over the interval, which is therefore one second.
    """

    name = "pcm-pcie"
    options = ("-e",)
    header_lines, fewest_samples = 0, 0  # it writes its file in blocks, complete only at the end
    trial_lines = 2  # it writes a header and exits with 0 even if it may not count

    def __init__(self, command: str | None = None, interval_s: float = 1.0) -> None:
        super().__init__(command, interval_s)

    def _sample(self, file: Path) -> CounterSample:
        try:
            text = file.read_bytes()[:_LARGEST_B].decode("utf-8", "replace")
        except OSError as problem:
            raise TestbedError(f"what 'pcm-pcie' wrote cannot be read: {problem.strerror}") from None
        blocks = pcie_lookups(text.splitlines())
        if not any(blocks.values()):
            raise TestbedError(
                "'pcm-pcie' reported no hits and misses of the last-level cache",
                hint="this processor may not split them; use 'pcm' and leave PCIEHIT and PCIEMISS out",
            )
        sockets = {socket: self._vector(rows) for socket, rows in blocks.items()}
        return CounterSample(sockets=sockets, duration_s=self.interval_s * max(map(len, blocks.values())))

    def _vector(self, rows: list[tuple[float, float]]) -> MetricVector:
        if not rows:
            return MetricVector({}, scope=Scope.SOCKET)
        hits, misses = (statistics.median(row[side] for row in rows) for side in (0, 1))
        per_second = self.interval_s * 1e6
        return MetricVector({"PCIEHIT": hits / per_second, "PCIEMISS": misses / per_second}, scope=Scope.SOCKET)


def pcie_lookups(lines: Iterable[str]) -> dict[int, list[tuple[float, float]]]:
    """Return hits and misses of device accesses per sample, by socket.

    `lines`: blocks of ``Skt,EVENT,...`` and three lines per socket that end in ``(Total)``, ``(Miss)`` and ``(Hit)``
    (opcm/pcm src/pcm-pcie.h, printSocketScopeEvents).
    """
    names: list[str] = []
    samples: dict[int, dict[str, list[float]]] = {}
    for row in (line.split(",") for line in lines if len(line) < _LONGEST_LINE):
        if row[0].strip() == "Skt":
            names = [name.strip() for name in row]
            continue
        kind = next((kind for kind in ("Miss", "Hit") if row[-1].rstrip().endswith(f"({kind})")), None)
        if kind is None or len(row) != len(names) or not row[0].strip().isdecimal():
            continue
        cells = {name: cell.partition("(")[0].strip() for name, cell in zip(names[1:], row[1:], strict=True)}
        of_devices = [cell for name, cell in cells.items() if name not in _BY_PROCESSOR and not name.endswith("(B)")]
        counts = [float(cell) for cell in of_devices if cell.isdecimal()]
        samples.setdefault(int(row[0]), {"Hit": [], "Miss": []})[kind].append(sum(counts))
    return {socket: list(zip(kinds["Hit"], kinds["Miss"], strict=False)) for socket, kinds in samples.items()}
