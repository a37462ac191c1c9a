"""`slomo place` for changes over time: chains with changing rates, and requests that come and go."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from slomo.cli.options import (
    model_option,
    models_option,
    own_network_functions,
    report_option,
    settings,
    simulation_options,
)
from slomo.cli.output import emit, emit_json, note
from slomo.cli.progress import announce_compilation
from slomo.cli.types import AMOUNT, COUNT, POLICY, RATE, SECONDS
from slomo.cli.verbs.place_output import (
    confidence_option,
    emit_judgements,
    end,
    note_unread_profiles,
    profiles_option,
    show_decisions,
)
from slomo.errors import InvalidValueError, UnknownNameError
from slomo.files.durable import write_durably
from slomo.units import plural

if TYPE_CHECKING:
    from slomo.placement.over_time.judgement import Judgement
    from slomo.placement.problem.chain import RatedChain
    from slomo.workflow.chains.on_nodes import Handover, PlacedChains

handover_option = click.option(
    "--handover", type=click.Choice(["simulated", "measured"]), default="simulated",
    help="Cost of a hand-over between NUMA nodes that `slomo-numa` assumes: the simulated one, or the one "
"NUMASFP measured.",
)  # fmt: skip


def are_for_chains(policies: Sequence[str]) -> bool:
    """Return whether policies place chains on NUMA nodes."""
    from slomo.placement.chains.policies import chain_policy_names

    inside = [name for name in policies if name in chain_policy_names()]
    if inside and len(inside) < len(policies):
        others = ", ".join(name for name in policies if name not in inside)
        raise InvalidValueError(
            f"policies for chains on NUMA nodes ({', '.join(inside)}) beside others ({others}): no common measure",
            hint="compare them in two runs",
        )
    return bool(inside)


def place_on_nodes(policy: str, options: dict[str, Any]) -> "PlacedChains":
    """Place the chains of the requests file on NUMA nodes."""
    from slomo.models.library import load_library
    from slomo.models.partition_profile import load_profiles
    from slomo.placement.chains.policies import chain_policy
    from slomo.placement.problem.documents import read_chains, read_cluster
    from slomo.workflow.chains.on_nodes import place_chains

    cluster, chains = read_cluster(options["cluster"]), read_chains(options["requests"])
    chosen = settings(models=options["models"], model=options["model"])
    profiles = () if options["profiles"] is None else load_profiles(options["profiles"])
    note_unread_profiles(profiles, [policy], ())
    suffice = profiles and all(each.throttled_us for item in profiles for each in item.responses.values())
    needs_models = chain_policy(policy).predicts or (policy == "numasfp" and not suffice)
    library = load_library(chosen.models) if needs_models else None
    handover: Handover = options["handover"]
    measured = [key for profile in profiles for key in profile.responses]
    _check_names(chains, options["nf_files"], [*measured, *(key for _, key in library or ())])
    return place_chains(cluster, chains, policy, library, model=chosen.model, needs=profiles, handover=handover)


def _check_names(
    chains: "Sequence[RatedChain]",
    files: tuple[str, ...],
    known: "Sequence[str]",
) -> None:
    """Raise an error for network functions without description, model or profile, whose names may be mistyped."""
    from slomo.models.library import nf_of
    from slomo.vocabulary.network_function import network_function_names, stage_names

    nf_names = {*network_function_names(), *(function.name for function in own_network_functions(files))}
    nf_names |= {nf_of(key) for key in known}
    for item in chains:
        for workload in item.request.chain:
            if workload.nf not in nf_names and not {*stage_names(workload.nf)} <= nf_names:
                raise UnknownNameError("network function", workload.nf, nf_names, where=f"of chain '{item.request.id}'")


def judge_on_nodes(placed: "PlacedChains", options: dict[str, Any]) -> "Judgement":
    """Simulate chains that were placed on NUMA nodes."""
    from slomo.workflow.chains.judge import judge_chains

    announce_compilation()
    own = own_network_functions(options["nf_files"])
    return judge_chains(placed, own=own, seed=settings(seed=options["seed"]).seed)


def batch_chains(*, as_json: bool, check: bool, snapshot: str | None, policy: str, **options: Any) -> None:
    """Run `slomo place` for chains on NUMA nodes."""
    if snapshot is not None:
        raise InvalidValueError(f"--snapshot with policy '{policy}': a plan over time is no state to restore")
    placed = place_on_nodes(policy, options)
    decisions = placed.decisions()
    judgement = judge_on_nodes(placed, options) if check else None
    if as_json:
        plan = placed.plan
        document: dict[str, Any] = {
            "policy": policy,
            "servers_used": placed.servers_used,
            "decisions": decisions,
            "migrations": plan.migrations,
            "intervals": [{name: list(seats) for name, seats in interval.items()} for interval in plan.seats],
        }
        emit_json(document if judgement is None else {**document, "check": judgement})
    else:
        show_decisions(decisions)
        summary = f"{len(decisions) - len(placed.plan.unplaced)} of {len(decisions)} placed"
        over = f"{plural(len(placed.plan.seats), 'interval')}, {plural(placed.plan.migrations, 'stage')} migrated"
        note(f"{summary} on {plural(placed.servers_used, 'server')} by policy {policy}; {over}")
        if judgement is not None:
            click.echo()
            emit_judgements([judgement])
    end(refused=bool(placed.plan.unplaced), judgement=judgement)


@click.command("timeline")
@click.argument("cluster", type=click.Path())
@click.argument("requests", type=click.Path())
@click.option(
    "--policy",
    "policies",
    type=POLICY,
    multiple=True,
    default=("predicted",),
    help="Policy that admits requests, repeatable.",
)
@click.option("--per-s", type=RATE, default=1.0, metavar="RATE", help="Arriving requests per second.")
@click.option("--stay-s", type=SECONDS, default=100.0, help="Mean time for which a request stays.")
@click.option("--every-s", type=SECONDS, help="Time between two re-optimisations; by default there are none.")
@click.option(
    "--threshold", type=AMOUNT, default=0.1, metavar="SHARE",
    help="Migrate if a new plan saves more than this share of servers.",
)  # fmt: skip
@click.option(
    "--planner", type=POLICY,
    help="Policy that makes new plans, for instance resq-milp with resq-greedy as --policy; by default the "
"admitting policy.",
)  # fmt: skip
@click.option(
    "--max-moves",
    type=COUNT,
    help="Largest number of instances that a re-optimisation may move; by default a twentieth of all.",
)
@click.option(
    "--moves-per-hour", type=RATE, metavar="SHARE",
    help="Share of all instances that may move within an hour; by default unlimited.",
)  # fmt: skip
@click.option(
    "--cost-per-move", type=AMOUNT, default=0.0, metavar="SERVERS",
    help="Cost of a move in servers; at 0.1, saving a server is worth nine moves but not ten.",
)  # fmt: skip
@click.option(
    "--outage-s", type=AMOUNT, default=0.0, metavar="S",
    help="Time for which a moved instance serves no packets; it lowers ANAT.",
)  # fmt: skip
@models_option
@model_option
@confidence_option
@profiles_option
@click.option("--check", is_flag=True, help="Simulate the placed servers at intervals, and count broken SLOs.")
@report_option
@simulation_options
def timeline(as_json: bool, report: str | None, policies: tuple[str, ...], **options: Any) -> None:
    """Simulate requests that come and go on CLUSTER, with periodic re-optimisation (ResQ, NSDI'18, section 5.3).

    REQUESTS arrive at random times in the order of the file and stay for random times. With --every-s, each policy is
    run twice: without and with re-optimisation.
    """
    from slomo.models.library import load_library
    from slomo.models.partition_profile import load_profiles
    from slomo.placement.online.placer import Placer
    from slomo.placement.over_time.repack import MoveBudget
    from slomo.placement.over_time.timeline import play
    from slomo.placement.problem.documents import read_cluster, read_requests
    from slomo.placement.workloads import arrivals
    from slomo.report.placement_figures import timeline_page, timeline_rows
    from slomo.workflow.place import check_model, make_judge

    chosen = settings(models=options["models"], model=options["model"], seed=options["seed"])
    cluster, requests = read_cluster(options["cluster"]), read_requests(options["requests"])
    curves = () if options["profiles"] is None else load_profiles(options["profiles"])
    note_unread_profiles(curves, policies, requests)
    events = arrivals(requests, per_s=options["per_s"], mean_stay_s=options["stay_s"], seed=chosen.seed)
    library, own = load_library(chosen.models), own_network_functions(options["nf_files"])
    machines = cluster.machine_types.values()
    judge = make_judge(own=own, machines=machines, seed=chosen.seed) if options["check"] else None
    for policy in policies:
        check_model(library, policy, chosen.model)
    budget = MoveBudget(
        options["max_moves"], options["cost_per_move"], options["outage_s"], share_per_hour=options["moves_per_hour"]
    )
    timelines = []
    for policy in policies:
        for every_s in (None,) if options["every_s"] is None else (None, options["every_s"]):
            placer = Placer(
                library, cluster, policy, model=chosen.model, confidence=options["confidence"], profiles=curves
            )
            how = {"threshold": options["threshold"], "planner": options["planner"], "judge": judge, "moves": budget}
            timelines.append(play(placer, events, every_s=every_s, **how))
    if report is not None:
        write_durably(report, timeline_page(timelines))
        note(f"report: {report}")
    emit({"timelines": timelines}, *timeline_rows(timelines), as_json=as_json)
    for item in () if as_json else timelines:
        for when, what in item.reoptimisations:
            if what.migrated:
                note(f"{item.policy}: {when:g} s: {what.text}")
