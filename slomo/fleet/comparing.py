"""Check that hosts measure the same: version, machine, settings, the result of one run, and probe readings."""

import statistics
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from slomo.errors import IncompatibleMeasurementsError, TestbedError
from slomo.fleet.asking import ReachedHosts
from slomo.fleet.measuring import FleetWork, HostDescription, compare_on
from slomo.profiling.campaign.run import RunOutcome
from slomo.profiling.campaign.schedule import record_throughput
from slomo.profiling.campaign.store import CampaignStore
from slomo.profiling.plans.plan import ExperimentPlan, PlannedRun
from slomo.records.host_effect import (
    FEWEST,
    MOST_MISFIT,
    HostEffect,
    calibration_of,
    host_effects,
    shared_environment,
)
from slomo.records.provenance import difference, versions

#: Least number of hosts for comparing them with each other.
_LEAST_COMPARED = 3
#: Number of competitions by which probed hosts are compared.
_COMPARED_BY = 8


def require_alike(described: Mapping[str, HostDescription], plan: ExperimentPlan, fingerprint: str) -> None:
    """Raise an error if hosts differ in slomo version, machine or settings, or if two are the same machine."""
    ours, first = versions(), next(iter(described.values()))
    kernels: dict[str, str] = {}
    for host, each in described.items():
        if each.versions.get("slomo") != ours.get("slomo"):
            raise TestbedError(
                f"host '{host}' has slomo {each.versions.get('slomo')}, this machine has {ours.get('slomo')}",
                hint="install the same version on all hosts",
            )
        expected = fingerprint or first.fingerprint
        if each.fingerprint != expected:
            raise TestbedError(
                f"host '{host}' is not the machine '{plan.machine}': fingerprint {each.fingerprint}, needed {expected}",
                hint="hosts of one fleet are of one type; make a file of hosts for each type",
            )
        if lines := difference(shared_environment(first.environment), shared_environment(each.environment)):
            raise TestbedError(
                f"hosts '{first.name}' and '{host}' do not measure alike (first | second):\n  " + "\n  ".join(lines),
                hint="give them the same settings and network functions",
            )
        if each.kernel and (other := kernels.setdefault(each.kernel, host)) != host:
            raise TestbedError(
                f"hosts '{other}' and '{host}' are the same machine (boot {each.kernel})",
                hint="name each machine once in the file of hosts",
            )


def compared_run(plan: ExperimentPlan) -> PlannedRun:
    """Return the run that all hosts make, so that their results can be compared."""
    return plan.run(next((each for each in plan.colocations if not each.competitors), plan.colocations[0]), 0)


def outliers(
    hosts: ReachedHosts, work: FleetWork, plan: ExperimentPlan, made: Mapping[str, RunOutcome]
) -> dict[str, str]:
    """Compare all hosts by one run; return those that differ from the median by more than twice the plan's limit.

    `made`: results of hosts that an earlier coordinator compared.
    """
    if len(hosts.names) < _LEAST_COMPARED:
        return {}
    run, missing = compared_run(plan), [name for name in hosts.names if name not in made]
    by_host = {**made, **hosts.ask(compare_on, work, run, of=missing, needed=True)}
    if suspects := _far(by_host, run.colocation.label, plan.dispersion_limit):
        by_host |= hosts.ask(compare_on, work, run, True, of=suspects, needed=True)
    return _far(by_host, run.colocation.label, plan.dispersion_limit)


def _far(made: Mapping[str, RunOutcome], label: str, limit: float) -> dict[str, str]:
    """Return the hosts whose run failed or differs from the median by more than a limit, with reasons."""
    mpps = {host: record_throughput(each.record) for host, each in made.items() if each.record is not None}
    failed = {host: f"its first run failed: {each.errors[-1]}" for host, each in made.items() if host not in mpps}
    middle = statistics.median(mpps.values()) if mpps else 0.0
    return failed | {
        host: f"{label}: {100 * (value / middle - 1.0):+.1f} % from the median of {len(mpps)} hosts, "
        f"limit {100 * limit:g} %"
        for host, value in mpps.items()
        if middle > 0.0 and abs(value / middle - 1.0) > limit
    }


def calibrations(
    hosts: ReachedHosts,
    work: FleetWork,
    plan: ExperimentPlan,
    described: Mapping[str, HostDescription],
    store: CampaignStore,
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return the factors that convert each host's probe readings, and hosts that measure something else.

    If calibrations differ, every host first probes the same competitions.
    """
    known: dict[str, dict[str, Any]] = store.settings().get("calibrations", {})
    own = {host: calibration_of(described[host].environment) for host in hosts.names}
    for host, calibration in own.items():
        reporters = described[host].environment.get("settings", {}).get("reporters", {})
        if calibration:
            known.setdefault(calibration, {"host": host, "reporters": reporters, "readings": []})
    if len(known) > 1:
        made = [hosts.ask(compare_on, work, run, needed=True) for run in _competitions(plan)]
        for host, calibration in own.items():
            runs = [each[host] for each in made]
            if failed := next((run for run in runs if run.record is None), None):
                raise TestbedError(f"host '{host}': a run that hosts are compared by failed: {failed.errors[-1]}")
            known[calibration]["readings"] = [dict(run.record.alone.socket) for run in runs]
    store.note("calibrations", known)
    readings = {calibration: each["readings"] for calibration, each in known.items() if each["readings"]}
    effects = host_effects(readings) if len(readings) > 1 else {}
    strange = {
        known[calibration]["host"]: f"its reporters follow something else than those of the other hosts: "
        f"{100 * effect.misfit:.0f} % off, limit {100 * MOST_MISFIT:g} %"
        for calibration, effect in effects.items()
        if effect.misfit > MOST_MISFIT
    }
    if strange and len(effects) < _LEAST_COMPARED:
        host, why = next(iter(strange.items()))
        raise IncompatibleMeasurementsError(
            f"host '{host}': {why}", hint="which of two hosts is wrong cannot be told: calibrate both again, or use one"
        )
    alone = HostEffect({}, 0.0)
    return {
        calibration: {"host": each["host"], "reporters": each["reporters"], **asdict(effects.get(calibration, alone))}
        for calibration, each in known.items()
        if each["host"] not in strange
    }, {host: why for host, why in strange.items() if host in hosts.names}


def _competitions(plan: ExperimentPlan) -> list[PlannedRun]:
    """Return runs with different sets of competitors, for comparing hosts."""
    first = {each.competitors: each for each in reversed(plan.colocations) if each.competitors}
    if len(first) < FEWEST:
        raise IncompatibleMeasurementsError(
            f"the hosts' probes are calibrated differently, and the plan has {len(first)} competitions to compare them "
            f"by, needed {FEWEST}",
            hint="plan more competitions, or measure on one host",
        )
    chosen = list(first.values())[:: max(1, len(first) // _COMPARED_BY)][:_COMPARED_BY]
    return [plan.run(each, 0) for each in chosen]
