"""Recover values that PCM rounded to zero: PCM prints few decimals, so an idle core's EXEC of 0.002 becomes 0.00.

INST, ACYC and TIME(ticks) are printed in millions with more digits. EXEC is INST over TIME, FREQ is ACYC over TIME, IPC
is INST over ACYC (opcm/pcm, cpucounters.h: getExecUsage, getRelativeFrequency over active time, getIPC).
"""

from collections.abc import Mapping, Sequence

import numpy as np

from slomo.records.pcm.csv import PcmText
from slomo.records.pcm.units import Interval
from slomo.vocabulary.vector import Floats


def unrounded(
    values: dict[str, Floats], text: PcmText, columns: Mapping[str, Sequence[int]], interval: Interval, threads: int
) -> None:
    """Replace zeros of EXEC, FREQ and IPC by values computed from more precise columns of the same core or socket.

    `values`: metrics of a core, socket or system, each of shape (samples,); changed in place. `text`, `columns`,
    `interval`: the file, its columns for these metrics, and the length of the samples (TIME in millions of ticks).
    `threads`: number of hardware threads over which PCM averages; 0 if unknown, then only IPC can be computed.
    """
    counts = {name: text.values[:, columns[name][0]] for name in ("INST", "ACYC") if name in columns}
    time = interval.ticks * threads if threads else np.full(len(text.stamps), np.nan)
    if "INST" in counts:
        _finer(values, "EXEC", counts["INST"], time)
    if "ACYC" in counts:
        _finer(values, "FREQ", counts["ACYC"], time)
        if "INST" in counts:
            _finer(values, "IPC", counts["INST"], counts["ACYC"])


def _finer(values: dict[str, Floats], name: str, above: Floats, below: Floats) -> None:
    if name not in values:
        return
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = above / below
    rounded = (values[name] == 0.0) & np.isfinite(quotient) & (quotient > 0.0)
    values[name] = np.where(rounded, quotient, values[name])
