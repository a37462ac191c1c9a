"""Learn the waiting time of requests at a full memory channel, from the latency of cache misses beside an NF.

Traffic does not show this waiting time: a full channel moves its maximum whatever the demand, and each function's share
depends on how many requests of others wait before its own. Latency shows the wait, and is the same for all functions.
Latency is converted to traffic: twice the latency of a just full channel counts as the traffic of one additional
channel.
"""

from typing import TYPE_CHECKING

import numpy as np

from slomo.models.base import Floats
from slomo.training.features import Subject
from slomo.vocabulary.capacities import Capacities
from slomo.vocabulary.metrics import METRICS

if TYPE_CHECKING:
    import pandas as pd

#: Utilisation above which a channel counts as full.
FULL_CHANNEL = 0.985
#: Least number of runs with a full channel; utilisation of a just full one, at which network cards are held back; and
#: utilisation from which runs tell how latency rises towards it.
_FEWEST, _JUST_FULL, _BUSY = 5, 0.99, 0.9
_TRAFFIC, _LATENCY = "LMB", "LLCMISSLAT"


def full_channel_ns(frame: "pd.DataFrame", capacities: Capacities | None) -> float:
    """Return the latency of misses when the channel is just full [ns]; 0 if too few runs fill it.

    It is the shortest latency at that utilisation or above. Where demand exceeds the channel, requests wait longer.
    """
    names = [f"own.{_TRAFFIC}", f"beside.{_TRAFFIC}", f"beside.{_LATENCY}"]
    if capacities is None or not set(names) <= set(frame.columns):
        return 0.0
    own, beside, latency = (frame[name].to_numpy(dtype=float) for name in names)
    share = (own + beside) / capacities.limit(METRICS[_TRAFFIC])
    if ((share > FULL_CHANNEL) & (latency > 0.0)).sum() < _FEWEST:
        return 0.0
    busy = np.flatnonzero((share > _BUSY) & (latency > 0.0))
    busy = busy[np.argsort(share[busy], kind="stable")]
    shortest = np.minimum.accumulate(latency[busy][::-1])[::-1]
    return float(np.interp(_JUST_FULL, share[busy], shortest))


def with_waiting(
    names: tuple[str, ...], pressure: Floats, subject: Subject, beside: Floats, channel: tuple[float, float]
) -> Floats:
    """Return pressures with waiting for memory added as equivalent traffic.

    `beside`: the competitors' counters beside the target, with the subject's columns. `channel`: latency at which the
    channel is just full [ns], 0 if unknown, and its largest traffic [MiB/s].
    """
    full_ns, most = channel
    if not full_ns or _TRAFFIC not in names or _LATENCY not in subject.beside_names:
        return pressure
    latency = beside[:, subject.beside_names.index(_LATENCY)]
    added = np.zeros(pressure.shape)
    added[:, names.index(_TRAFFIC)] = most * np.maximum(np.nan_to_num(latency) / full_ns - 1.0, 0.0)
    return pressure + added
