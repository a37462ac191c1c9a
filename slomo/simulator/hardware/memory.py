"""Simulate memory channels and the link between sockets, whose latency rises with utilisation.

Latency follows ResQ (NSDI'18) Fig. 3: the speed of an access falls linearly until about 90 % load and then steeply to
40 % of the unloaded value. Utilisation is measured over a short window. Unserved work is a backlog. A backlog longer
than the queues of a memory controller delays every request by the excess, so that no channel moves more than its
capacity. A shorter backlog adds no delay, since the measured curve includes it.
"""

from slomo.simulator import state as s
from slomo.simulator.compilation import compiled, inner
from slomo.simulator.state import Floats


@compiled
def latency_factor(utilisation: float, timing: tuple[float, ...]) -> float:
    """Return the latency at a `utilisation` (0 to 1), as a multiple of the unloaded latency."""
    knee, at_knee = timing[s.X_KNEE], timing[s.X_SPEED_AT_KNEE]
    if utilisation <= knee:
        return 1.0 / (1.0 - (1.0 - at_knee) * utilisation / knee)
    beyond = min(1.0, (utilisation - knee) / (1.0 - knee))
    return 1.0 / (at_knee - (at_knee - timing[s.X_SPEED_FULL]) * beyond * beyond)


@inner
def close_window(channels: Floats, channel: int, now: float, elapsed: float, timing: tuple[float, ...]) -> None:
    """End a window in which utilisation is measured, and set the latency of the next window."""
    fresh = min(1.0, channels[channel, s.H_WINDOW_BUSY] / elapsed)
    utilisation = 0.5 * (channels[channel, s.H_UTILISATION] + fresh)
    channels[channel, s.H_UTILISATION] = utilisation
    channels[channel, s.H_FACTOR] = latency_factor(utilisation, timing)
    channels[channel, s.H_WINDOW_START] = now
    channels[channel, s.H_WINDOW_BUSY] = 0.0


@inner
def beyond(backlog: float, timing: tuple[float, ...]) -> float:
    """Return how much of the waiting work exceeds the queues of the memory controller [ns]."""
    return backlog - timing[s.X_BUFFERED]


@compiled
def request(channels: Floats, channel: int, now: float, work: float, timing: tuple[float, ...]) -> float:
    """Ask a channel for `work` units of service at time `now`; return the waiting time [ns] before service."""
    window = now - channels[channel, s.H_WINDOW_START]
    if window >= timing[s.X_WINDOW]:
        close_window(channels, channel, now, window, timing)
    elapsed = now - channels[channel, s.H_LAST]
    if elapsed > 0.0:
        channels[channel, s.H_BACKLOG] = max(0.0, channels[channel, s.H_BACKLOG] - elapsed)
        channels[channel, s.H_LAST] = now
    backlog = channels[channel, s.H_BACKLOG]
    service = work * channels[channel, s.H_SERVICE]
    channels[channel, s.H_BACKLOG] = backlog + service
    channels[channel, s.H_WINDOW_BUSY] += service
    channels[channel, s.H_BUSY_TOTAL] += service
    if backlog <= timing[s.X_BUFFERED]:  # a branch: predicted, so that the clocks need not wait
        return 0.0
    return beyond(backlog, timing)
