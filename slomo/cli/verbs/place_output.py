"""Options, shell completions and tables that several commands of `slomo place` share."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from slomo.cli.output import emit_table, note
from slomo.cli.types import AMOUNT, SHARE

if TYPE_CHECKING:
    from slomo.placement.online.placer import Placer
    from slomo.placement.over_time.judgement import Judgement
    from slomo.placement.over_time.worth_measuring import Measurements
    from slomo.placement.problem.decision import Decision
    from slomo.placement.problem.request import Request
    from slomo.workflow.place import Priced


confidence_option = click.option(
    "--confidence", type=SHARE, default=0.95,
    help="Probability with which all SLOs of a socket must hold, 0.5 to below 1.",
)  # fmt: skip


profiles_option = click.option(
    "--profiles", "--resource-table", metavar="FILE|DIR", type=click.Path(),
    help="Profiles of NFs over cache ways and throttles: a file of `slomo profile --plan ways` or "
"`partitions`, or models that include them.",
)  # fmt: skip
price_option = click.option(
    "--price-per-broken", type=AMOUNT, metavar="SERVERS",
    help="Cost of a server that breaks a promise, in servers; slomo then chooses the confidence at which used "
"servers and expected broken ones together cost least.",
)  # fmt: skip


def show_prices(priced: "Sequence[Priced]", chosen: float) -> None:
    """Print the total cost at each confidence, and the confidence that was chosen."""
    emit_table(
        ("confidence", "placed", "cost of servers", "servers expected to break", "together", ""),
        [
            (f"{p.confidence:g}", p.placed, p.servers, p.broken, p.cost, "taken" * (p.confidence == chosen))
            for p in priced
        ],
    )


def show_measurements(measurements: "Measurements") -> None:
    """Print the mixes that are worth measuring, and how to measure them."""
    if measurements.mixes:
        emit_table(
            ("mix to measure", "machine", "servers that hold it"),
            [(m.mix, m.machine, m.servers) for m in measurements.mixes],
        )
        words = " ".join(f"--mix '{each.mix}'" for each in measurements.mixes)
        where = f"--machine {measurements.mixes[0].machine} --replicates 3 --out mixes.parquet"
        note(f"slomo profile {words} {where}, then merge and train again")
    note(measurements.text)


def show_decisions(decisions: "Sequence[Decision]", stages: Mapping[str, int] | None = None) -> None:
    """Print where every request was placed or why it was refused; `stages` of chains tell the load of all instances."""
    stages = stages or {}
    placed = [item for decision in decisions for item in decision.assignments]
    partitioned = any(item.llc_way_mask is not None for item in placed)
    throttled = any(item.memory_bandwidth_percent is not None for item in placed)
    instances = {each.request: len(each.assignments) // stages.get(each.request, 1) for each in decisions}
    several = bool(stages) and any(count > 1 for count in instances.values())
    rows: list[tuple[object, ...]] = []
    extra = ["all instances [Mpps]"] * several + ["LLC ways"] * partitioned + ["memory bandwidth [%]"] * throttled
    for decision in decisions:
        if not decision.accepted:
            rows.append((decision.request, "refused", *(None,) * (4 + len(extra))))
        for item in decision.assignments:
            nf, where = item.workload.split("@")[0], f"{item.server}/{item.socket}"
            row = (decision.request, nf, where, item.seat, item.needed_mpps, item.predicted_mpps)
            mask = None if item.llc_way_mask is None else f"{item.llc_way_mask:#x}"
            together = [instances[decision.request] * item.needed_mpps] * several
            rows.append((*row, *together, *[mask] * partitioned, *[item.memory_bandwidth_percent] * throttled))
    headers = ("request", "network function", "server/socket", "core", "needed [Mpps]", "predicted [Mpps]", *extra)
    emit_table(headers, rows)
    for decision in decisions:
        if decision.refused is not None:
            note(f"refused: {decision.request}: {decision.refused.text}")
        for reason in decision.reasons if decision.accepted else ():
            if "on demand" in reason:
                note(f"{decision.request}: {reason}")


def show_lacking(placer: "Placer") -> None:
    """Print the network functions that get no promise on a shared socket, since too few prediction errors are known."""
    if not placer.policy.predicts:
        return
    keys = sorted({workload.saturated.key for request in placer.requests for workload in request.chain})
    for machine in placer.cluster.machine_types:
        short = {key: lacking for key in keys if (lacking := placer.estimates.lacking(machine, key)) is not None}
        if short:
            needed, names = max(short.values())[0], " ".join(f"'{key}'" for key in short)
            there = ", ".join(f"{key} {count}" for key, (_, count) in short.items())
            note(f"promised nothing beside others on {machine}: at confidence {placer.settings.confidence:g} at least "
                 f"{needed} held-out errors are needed, there are: {there}. "
                 f"Run slomo profile {names} --machine {machine} with more --runs and --mixes, and train")  # fmt: skip


def note_unread_profiles(profiles: object, policies: "Sequence[str]", requests: "Iterable[Request]") -> None:
    """Print which policies do not read the file given by `--profiles` for these requests."""
    from slomo.placement.chains.policies import chain_policy, chain_policy_names
    from slomo.placement.feasibility.latency import promises_latency
    from slomo.placement.policies.registry import policy_class, policy_names

    if not profiles:
        return
    for policy in policies:
        if policy in chain_policy_names():
            if not chain_policy(policy).allocates:
                note(f"policy {policy} does not read --profiles; numasfp does")
        elif not policy_class(policy).reads_profiles and not any(
            request.slo.kind == "on-demand" or promises_latency(request) for request in requests
        ):
            others = ", ".join(name for name in policy_names() if policy_class(name).reads_profiles)
            note(f"policy {policy} gives no cache ways by --profiles ({others} do); it reads them for latency and "
                 "on-demand SLOs, which no request has, and for network functions without a model")  # fmt: skip


def end(*, refused: bool, judgement: "Judgement | None") -> None:
    """End `slomo place` with exit code 5 if a request was refused, 1 if an SLO broke under `--check`."""
    if refused:
        raise click.exceptions.Exit(5)
    if judgement is not None and judgement.violations:
        raise click.exceptions.Exit(1)


def emit_judgements(judgements: "Sequence[Judgement]") -> None:
    """Print the simulated results of placements, and the first broken SLOs under each policy."""
    from slomo.report.placement_figures import judgement_rows

    headers, rows = judgement_rows(judgements)
    emit_table(headers, rows)
    for judgement in judgements:
        for item in judgement.violations[:5]:
            unit = "Mpps" if item.what == "throughput" else "us"
            note(f"broken under {judgement.policy}: {item.what} of '{item.request}' ({item.label}) on {item.server}: "
                 f"promised {item.promised:.3f}, measured {item.measured:.3f} {unit}")  # fmt: skip
        if len(judgement.violations) > 5:
            note(f"broken under {judgement.policy}: and {len(judgement.violations) - 5} more (--json lists all)")
        if judgement.on_demand_unmet:
            names = ", ".join(judgement.on_demand_unmet[:5])
            count = len(judgement.on_demand_unmet)
            note(f"on demand under {judgement.policy}: {count} miss what they ask for: {names}")
        if judgement.not_run:
            names = ", ".join(judgement.not_run[:5])
            note(f"not run under {judgement.policy}: {len(judgement.not_run)} share cores as hyper-threads: {names}")
