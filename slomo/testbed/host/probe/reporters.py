"""The reporters: four small programs, each slowed by one kind of pressure, that stand in for counters.

Bubble-Up (MICRO'11, section 4.2) measures the pressure of an application by how much it slows a reporter of known
sensitivity; one reporter per shared resource of SLOMO (SIGCOMM'20, section 3) gives a vector instead of a score.
"""

from dataclasses import dataclass

from slomo.vocabulary.workload import Setting, Workload

#: sizes of the cache-occupancy reporter that calibration chooses among, as shares of the cache
OCCUPANCY_SHARES = (0.35, 0.5, 0.65, 0.8)
_STREAM_AT_LEAST_MIB = 64.0
_STREAM_AT_MOST_MIB = 512.0


@dataclass(frozen=True)
class Reporter:
    """One reporter.

    Attributes
    ----------
    name : str
        What it reacts to.
    metric : str
        The metric its slowdown is calibrated to.
    workload : Workload
        How the synthetic NF is set for it.
    """

    name: str
    metric: str
    workload: Workload


def reporters(l2_mib: float, llc_mib: float, occupancy_mib: float | None = None) -> tuple[Reporter, ...]:
    """Return the reporters for a machine with these caches.

    Parameters
    ----------
    l2_mib, llc_mib : float
        Private cache of a core, and what one core can use of the shared one [MiB].
    occupancy_mib : float, optional
        Working set of the cache-occupancy reporter [MiB]; half of the shared cache if not given.

    Examples
    --------
    >>> [reporter.metric for reporter in reporters(2, 14)]
    ['L3OCC', 'L2MISS', 'READ', 'WRITE']
    """
    return (
        occupancy_reporter(occupancy_mib or 0.5 * llc_mib),
        # Just beyond L2, each load waits for the one before: its speed is the latency of the shared cache.
        _reporter("access-rate", "L2MISS", data_size_mib=round(1.5 * l2_mib, 3), reads_per_packet=256, pattern="chain"),
        _reporter(
            "streaming-bandwidth",
            "READ",
            data_size_mib=stream_mib(llc_mib),
            reads_per_packet=4096,
            pattern="sequential",
        ),
        # Whole frames through a pool of buffers too large for L2: what a NIC's queues would do.
        _reporter("io", "WRITE", data_size_mib=0.0625, reads_per_packet=0, packet_buffers=4096, packet_size_b=1514),
    )


def occupancy_reporter(data_size_mib: float) -> Reporter:
    """Return the cache-occupancy reporter with this working set."""
    return _reporter(
        "cache-occupancy", "L3OCC", data_size_mib=round(data_size_mib, 3), reads_per_packet=256, pattern="random"
    )


def stream_mib(llc_mib: float) -> float:
    """Return a size no cache of the machine holds."""
    return round(min(max(_STREAM_AT_LEAST_MIB, 4.0 * llc_mib), _STREAM_AT_MOST_MIB), 3)


def _reporter(name: str, metric: str, **knobs: Setting) -> Reporter:
    return Reporter(name, metric, Workload("synthetic", {"burst": 1, **knobs}))
