"""The calibration itself: the cache's size, the most sensitive working set, then every setting beside every reporter.

About two minutes, once per machine and build of the synthetic competitor.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from slomo.testbed.host.interleaving import WindowTaker
from slomo.testbed.host.machine.cache_levels import find_levels
from slomo.testbed.host.nf.definition import HostDefinition
from slomo.testbed.host.probe.calibration import (
    Calibration,
    CalibrationPoint,
    calibration_settings,
    fit_calibration,
    occupancy_candidates,
)
from slomo.testbed.host.probe.reading import read_pressure
from slomo.testbed.host.probe.reporters import OCCUPANCY_SHARES, reporters, stream_mib
from slomo.testbed.host.run import Run
from slomo.testbed.host.settings import HostSettings
from slomo.testbed.host.tenant import HostTenant, paused
from slomo.vocabulary.workload import Workload

#: sizes that are sought in addition, in shares of L2 and of the cache the kernel states
_INSIDE, _BEYOND = (0.25, 0.5), (1.3, 2.0)
#: settings of the competitor are shares of the cache; at least so many times L2, as less presses on nothing shared
_LEAST_OVER_L2 = 2.0
_READS = 64
_WINDOWS = 3
_SIZES_MIB = (3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96)


def calibrate(
    definition: HostDefinition,
    cores: Sequence[int],
    settings: HostSettings,
    *,
    l2_mib: float,
    largest_llc_mib: float,
    identity: str,
    shapes: Callable[[float], Sequence[Workload]] = calibration_settings,
    sizes_mib: Sequence[float] = _SIZES_MIB,
) -> Calibration:
    """Calibrate the reporters on this machine.

    Parameters
    ----------
    definition : HostDefinition
        Of the synthetic competitor.
    cores : sequence of int
        Core of the reporters, core of the competitor.
    settings : HostSettings
        Windows and pairs.
    l2_mib, largest_llc_mib : float
        Private cache, and the shared one as the kernel states it [MiB].
    identity : str
        Of machine and program.
    shapes : callable
        Shared cache's size [MiB] -> settings of the competitor.
    sizes_mib : sequence of float
        Data sizes over which the shared cache is sought [MiB].
    """
    taker = WindowTaker(replace(settings, attempts=settings.attempts * 2), settings.probe_window_s)
    llc_mib = _cache(definition, cores[1], taker, sizes_mib, l2_mib, largest_llc_mib)
    with Run() as run:
        stream = run.start(
            definition,
            Workload(
                "synthetic", {"data_size_mib": stream_mib(llc_mib), "pattern": "sequential", "reads_per_packet": 256}
            ),
            (cores[1],),
        )
        candidates = occupancy_candidates(llc_mib, OCCUPANCY_SHARES)
        felt = read_pressure(run, [stream], candidates, definition, cores[0], settings).ratios
        occupancy_mib = float(min(felt, key=felt.__getitem__)) * llc_mib
    chosen = reporters(l2_mib, llc_mib, occupancy_mib)
    points = []
    for workload in shapes(llc_mib):
        with Run() as run:
            competitor = run.start(definition, workload, (cores[1],))
            rate_mpps = _rate(competitor, taker)
            points.append(
                CalibrationPoint(
                    workload, rate_mpps, read_pressure(run, [competitor], chosen, definition, cores[0], settings)
                )
            )
    return fit_calibration(points, l2_mib, llc_mib, occupancy_mib, identity)


def _cache(
    definition: HostDefinition,
    core: int,
    taker: WindowTaker,
    sizes_mib: Sequence[float],
    l2_mib: float,
    largest_mib: float,
) -> float:
    """Return how much cache one core can use; of several windows the fastest, as disturbance only slows."""
    inside = [round(share * l2_mib, 3) for share in _INSIDE]
    beyond = [round(factor * largest_mib, 3) for factor in _BEYOND]
    sizes = sorted({*inside, *sizes_mib, *(size for size in beyond if size > max(sizes_mib))})
    latencies_ns = []
    for size in sizes:
        chain = Workload("synthetic", {"data_size_mib": size, "pattern": "chain", "reads_per_packet": _READS})
        with Run() as run:
            tenant = run.start(definition, chain, (core,))
            latencies_ns.append(1e3 / (_READS * max(_rate(tenant, taker) for _ in range(_WINDOWS))))
    levels = find_levels(sizes, latencies_ns, l2_mib, largest_mib)
    return max(_LEAST_OVER_L2 * l2_mib, levels.cache_mib) if levels else largest_mib


def _rate(tenant: HostTenant, taker: WindowTaker) -> float:
    paused([tenant], False)
    return taker.take([tenant])[0].rate_mpps
