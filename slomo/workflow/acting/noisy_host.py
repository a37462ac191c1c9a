"""Run the noisy-neighbour test on this machine: a victim and noisy neighbours as processes, with and without a policy.

Windows without noise, with noise, and with noise under each policy alternate, so that other load on the machine affects
all of them alike. The victim's rate is packets per second of its CPU time. The mean loss is reported with its standard
error, and a loss within that error counts as zero: on few machines do neighbours cost a measurable amount of
throughput.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from slomo.control.host_plant import whole_core_mpps
from slomo.enforce.backends.cgroup import CgroupBackend
from slomo.enforce.change import Backend
from slomo.enforce.executor import apply, undo
from slomo.enforce.plan import EnforcementPlan, TenantSetting
from slomo.errors import TestbedError, UnknownNameError
from slomo.files.documents import parse
from slomo.files.opening import read_text
from slomo.files.ranges import Name, Part, PositiveCount, Seconds
from slomo.files.stored import Stored
from slomo.host.cores import assign_cores, available_cores
from slomo.testbed.host.nf.definition import host_definition
from slomo.testbed.host.run import Run
from slomo.testbed.host.tenant import HostTenant, paused, take_windows
from slomo.vocabulary.workload_text import parse_workload

HOST = "host"
HOST_POLICIES = ("none", "quota")
_HINT = "see docs/examples/noisy-neighbour/host.yaml"
#: Two-sided 95 % quantile of a normal distribution; at least ten repetitions justify it.
_SURE = 1.96


class _HostNoise(Struct, forbid_unknown_fields=True, frozen=True):
    nf: Name
    levels: Annotated[tuple[PositiveCount, ...], Meta(min_length=1)] = (1,)


class HostNoiseTest(Struct, forbid_unknown_fields=True, frozen=True):
    """A noisy-neighbour test on this machine; the fields are those of its file."""

    machine: Literal["host"]
    #: The measured victim.
    victim: Name
    #: What every noisy neighbour runs, and their numbers; each has a core of its own.
    noise: _HostNoise
    policies: tuple[str, ...] = HOST_POLICIES
    #: Windows of each kind, and their length.
    repetitions: Annotated[int, Meta(ge=3, le=100_000)] = 10
    window_s: Seconds = 0.5
    #: CPU time that a noisy neighbour keeps under policy ``quota`` [cores].
    quota: Part = 0.25


@dataclass(frozen=True)
class HostNoiseRow(Stored, derived=("verdict",)):
    """How much throughput the victim loses to noisy neighbours under one policy."""

    #: Noisy neighbours.
    noise: int
    #: What was enforced.
    policy: str
    #: The victim's rate while the noise pauses.
    quiet_mpps: float
    #: Share of that rate lost while the noise runs.
    lost_share: float
    #: 95 % error of the lost share, from the scatter of the repetitions.
    error_share: float

    @property
    def verdict(self) -> str:
        """Meaning of the result, in words.

        >>> HostNoiseRow(1, "none", 4.0, 0.01, 0.03).verdict, HostNoiseRow(1, "none", 4.0, 0.2, 0.03).verdict
        ('nothing to tell', 'loses')
        """
        if abs(self.lost_share) <= self.error_share:
            return "nothing to tell"
        return "loses" if self.lost_share > 0.0 else "gains"


def host_noise_test(path: str | Path) -> HostNoiseTest | None:
    """Read a configuration whose machine is ``host``; return None for a simulated machine."""
    document = parse(read_text(path), str(path))
    if document.table(_HINT).get("machine") != HOST:
        return None
    test = document.to(HostNoiseTest, _HINT)
    for name in test.policies:
        if name not in HOST_POLICIES:
            raise UnknownNameError("policy", name, HOST_POLICIES)
    return test


def run_host_noise(test: HostNoiseTest) -> list[HostNoiseRow]:
    """Run the test on this machine."""
    backend = CgroupBackend()
    able, why = backend.available()
    if "quota" in test.policies and not able:
        raise TestbedError(f"this host's control groups cannot be set: {why}", hint="leave the policy 'quota' out")
    quiet, noisy = parse_workload(test.victim), parse_workload(test.noise.nf)
    rows: list[HostNoiseRow] = []
    for level in test.noise.levels:
        cores = assign_cores(available_cores(), [1] * (1 + level), "the noisy-neighbour test")
        with Run() as run:
            victim = run.start(host_definition(quiet.nf), quiet, cores[0])
            noise = [run.start(host_definition(noisy.nf), noisy, own_cores) for own_cores in cores[1:]]
            rows += _rows(test, victim, noise, backend)
    return rows


def _rows(test: HostNoiseTest, victim: HostTenant, noise: list[HostTenant], backend: Backend) -> list[HostNoiseRow]:
    """Measure windows of every kind in turn; compare each with the window without noise of the same round."""
    quiet: list[float] = []
    rates: dict[str, list[float]] = {policy: [] for policy in test.policies}
    for _ in range(test.repetitions):
        paused(noise, True)
        alone = _rate(test, victim)
        quiet.append(alone)
        paused(noise, False)
        for policy, ratios in rates.items():
            plan = _plan(test, noise) if policy == "quota" else EnforcementPlan("noisy")
            receipt = apply(plan, backend) if plan.tenants else None
            try:
                ratios.append(_rate(test, victim) / alone)
            finally:
                if receipt is not None:
                    undo(receipt, backend)
    return [_row(len(noise), policy, statistics.median(quiet), ratios) for policy, ratios in rates.items()]


def _rate(test: HostNoiseTest, victim: HostTenant) -> float:
    rate = whole_core_mpps(take_windows([victim], test.window_s)[0])
    if not rate > 0.0:
        raise TestbedError("the victim did nothing in a window", hint="take longer windows: window_s")
    return rate


def _plan(test: HostNoiseTest, noise: Sequence[HostTenant]) -> EnforcementPlan:
    settings = [
        TenantSetting(f"noise{number}", process_ids=(tenant.process.pid,), cpu_quota=test.quota)
        for number, tenant in enumerate(noise)
    ]
    return EnforcementPlan("noisy", tuple(settings))


def _row(level: int, policy: str, quiet_mpps: float, ratios: Sequence[float]) -> HostNoiseRow:
    """Return the victim's mean loss at one level of noise under one policy, with its standard error."""
    error = _SURE * statistics.stdev(ratios) / math.sqrt(len(ratios))
    return HostNoiseRow(level, policy, quiet_mpps, 1.0 - statistics.fmean(ratios), error)
