"""Calibrate reporters: measure the cache's size, each candidate beside strong competitors, and the machine's noise.

Eleven candidates are run beside four competitors, each of which loads one resource; this takes about two minutes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from slomo.errors import UnstableMeasurementError
from slomo.testbed.host.interleaving import Paired, WindowTaker, one_more
from slomo.testbed.host.machine.cache_levels import find_levels
from slomo.testbed.host.nf.definition import HostDefinition
from slomo.testbed.host.probe.calibration import Calibration
from slomo.testbed.host.probe.reporters import Reporter, bubbles, candidates, extra_time, never_hits
from slomo.testbed.host.probe.sentinel import Sentinel, scatter_of
from slomo.testbed.host.probe.standing import StandingPrograms
from slomo.testbed.host.run import Run
from slomo.testbed.host.settings import HostSettings
from slomo.testbed.host.tenant import HostTenant, paused
from slomo.vocabulary.workload import Workload

#: Least relative extra time beside the strongest competitor for its resource; 0.25 is a slowdown of 20 %.
ENOUGH = 0.25
#: Added to the extra time caused by other resources, since smaller differences are noise.
_FLOOR = 0.05
_SURE = 2.0  # standard errors by which extra time must exceed 0
_LEAST = 0.02
#: Additional data sizes to measure, as shares of L2 and of the last-level cache according to the kernel.
_INSIDE, _BEYOND = (0.25, 0.5), (1.3, 2.0)
#: Least data size of a competitor, as a multiple of L2; smaller data put no pressure on shared resources.
_LEAST_OVER_L2 = 2.0
_READS = 64
_WINDOWS = 3
_LOOKS = 9
SIZES_MIB = (3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96)


@dataclass(frozen=True)
class CandidateTrial:
    """How much one candidate program slows down beside each competitor."""

    #: The candidate program.
    reporter: Reporter
    #: Metric of the competitor's resource -> relative extra time beside that competitor.
    extra: Mapping[str, float]
    #: Standard errors of `extra`.
    error: Mapping[str, float]

    @property
    def own(self) -> float:
        """Relative extra time of the candidate beside the strongest competitor for its own resource."""
        return self.extra[self.reporter.metric]

    @property
    def others(self) -> float:
        """Largest relative extra time of the candidate beside a competitor for another resource."""
        return max((value for name, value in self.extra.items() if name != self.reporter.metric), default=0.0)

    @property
    def feels(self) -> bool:
        """Whether `own`, the extra time for the candidate's own resource, exceeds measurement noise."""
        return self.own > max(_LEAST, _SURE * self.error[self.reporter.metric])


def choose(trials: Sequence[CandidateTrial]) -> tuple[CandidateTrial, ...]:
    """Return the best candidate per metric; none for a metric without a sensitive candidate."""
    chosen = []
    for metric in dict.fromkeys(trial.reporter.metric for trial in trials):
        feeling = [trial for trial in trials if trial.reporter.metric == metric and trial.feels]
        strong = [trial for trial in feeling if trial.own >= ENOUGH]
        if strong:
            chosen.append(max(strong, key=lambda trial: trial.own / (max(trial.others, 0.0) + _FLOOR)))
        elif feeling:
            chosen.append(max(feeling, key=lambda trial: trial.own))
    return tuple(chosen)


@dataclass(frozen=True)
class CalibrationScope:
    """Cores, cache sizes and settings of a calibration."""

    #: Size of the private cache, and of the shared cache according to the kernel [MiB].
    l2_mib: float
    largest_llc_mib: float
    #: Identity of the machine and the program.
    identity: str
    #: Data sizes for measuring the shared cache [MiB].
    sizes_mib: Sequence[float] = SIZES_MIB


def calibrate(
    definition: HostDefinition, cores: Sequence[int], settings: HostSettings, scope: CalibrationScope
) -> Calibration:
    """Choose the reporters that suit the machine's present state; UnstableMeasurementError if no reporter responds.

    `definition`: definition of the synthetic competitor. `cores`: core of the reporters, core of the competitor.
    """
    taker = WindowTaker(replace(settings, attempts=settings.attempts * 2), settings.probe_window_s)
    llc_mib = _cache(definition, cores[1], taker, scope)
    standing = StandingPrograms(definition, cores[0])
    sentinel = Sentinel.on(definition, cores[0], settings, l2_mib=scope.l2_mib, llc_mib=llc_mib)
    try:
        looks = [sentinel.look() for _ in range(_LOOKS)]
        chosen = choose(_trials(standing, definition, cores[1], taker, settings.probe_pairs, (scope.l2_mib, llc_mib)))
        full = _full(standing, [trial.reporter for trial in chosen], taker, llc_mib)
        looks.append(sentinel.look())
    finally:
        sentinel.standing.close()
        standing.close()
    if not chosen:
        raise UnstableMeasurementError(
            f"no reporter feels anything beside the strongest competitors, with {llc_mib:.1f} MiB of cache to share: "
            "each lost less than twice its standard error",
            hint="the two cores hardly share cache or memory bandwidth: see `slomo doctor`",
        )
    return Calibration(
        l2_mib=scope.l2_mib,
        llc_mib=llc_mib,
        reporters=tuple(trial.reporter for trial in chosen),
        felt={trial.reporter.metric: dict(trial.extra) for trial in chosen},
        full=full,
        sentinel=looks[-1].rates,
        scatter=scatter_of(looks),
        identity=scope.identity,
    )


def _trials(
    standing: StandingPrograms,
    definition: HostDefinition,
    core: int,
    taker: WindowTaker,
    pairs: int,
    caches_mib: tuple[float, float],
) -> list[CandidateTrial]:
    """Return how much each candidate slows down beside each competitor."""
    tried = {reporter: dict.fromkeys(bubbles(*caches_mib), Paired((), ())) for reporter in candidates(*caches_mib)}
    for _ in range(pairs):
        for metric, workload in bubbles(*caches_mib).items():
            with Run() as run:
                competitor = run.start(definition, workload, (core,))
                for reporter, measured in tried.items():
                    with standing.awake(reporter.workload) as tenant:
                        measured[metric] = one_more(measured[metric], tenant, [competitor], taker)
    return [_trial(reporter, measured) for reporter, measured in tried.items()]


def _trial(reporter: Reporter, measured: dict[str, Paired]) -> CandidateTrial:
    ratios = {metric: pairs.ratio for metric, pairs in measured.items()}
    extra = {metric: extra_time(ratio.median) for metric, ratio in ratios.items()}
    error = {name: ratios[name].standard_error * (1.0 + extra[name]) for name in ratios}
    return CandidateTrial(reporter, extra, error)


def _full(
    standing: StandingPrograms, reporters: Sequence[Reporter], taker: WindowTaker, llc_mib: float
) -> float | None:
    """Return the relative extra time of the cache's reporter if none of its accesses hits the cache."""
    for reporter in reporters:
        if reporter.metric == "FELTLLC":
            rates = []
            for workload in (reporter.workload, never_hits(reporter, llc_mib)):
                with standing.awake(workload) as tenant:
                    rates.append(max(_rate(tenant, taker) for _ in range(_WINDOWS)))
            return max(extra_time(rates[1] / rates[0]), 1e-6) if rates[0] > 0.0 else None
    return None


def _cache(definition: HostDefinition, core: int, taker: WindowTaker, scope: CalibrationScope) -> float:
    """Return the size of the cache that one core can use [MiB], by the fastest of several windows each."""
    inside = [round(share * scope.l2_mib, 3) for share in _INSIDE]
    beyond = [round(times * scope.largest_llc_mib, 3) for times in _BEYOND]
    sizes = sorted({*inside, *scope.sizes_mib, *(size for size in beyond if size > max(scope.sizes_mib))})
    latencies_ns = []
    for size in sizes:
        chain = Workload("synthetic", {"data_size_mib": size, "pattern": "chain", "reads_per_packet": _READS})
        with Run() as run:
            tenant = run.start(definition, chain, (core,))
            latencies_ns.append(1e3 / (_READS * max(_rate(tenant, taker) for _ in range(_WINDOWS))))
    levels = find_levels(sizes, latencies_ns, scope.l2_mib, scope.largest_llc_mib)
    return max(_LEAST_OVER_L2 * scope.l2_mib, levels.cache_mib) if levels else scope.largest_llc_mib


def _rate(tenant: HostTenant, taker: WindowTaker) -> float:
    paused([tenant], False)
    return taker.take([tenant])[0].rate_mpps
