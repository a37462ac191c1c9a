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

    `threads`: number of hardware threads over which PCM averages; 0 if unknown, then only IPC can be computed.
    """
    counts = {name: text.values[:, columns[name][0]] for name in ("INST", "ACYC") if name in columns}
    time = interval.ticks * threads if threads else np.full(len(text.stamps), np.nan)
    if "INST" in counts:
        finer(values, "EXEC", counts["INST"], time)
    if "ACYC" in counts:
        finer(values, "FREQ", counts["ACYC"], time)
        if "INST" in counts:
            finer(values, "IPC", counts["INST"], counts["ACYC"])


def finer(values: dict[str, Floats], name: str, above: Floats, below: Floats, enough: float = np.inf) -> None:
    """Replace a metric by the quotient of two counts where it is 0, or the count above the line is `enough`."""
    if name not in values:
        return
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = above / below
    coarse = (values[name] == 0.0) & (quotient > 0.0) | (above >= enough)
    values[name] = np.where(coarse & np.isfinite(quotient), quotient, values[name])
