"""`slomo place`: place network functions on a cluster by predictions, check placements, compare policies.

Without a sub-command, the arguments are CLUSTER and REQUESTS, as in `slomo place cluster.yaml requests.yaml`.
"""

import json
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from slomo.cli.asking import placed as placed_by_service
from slomo.cli.asking import server_option
from slomo.cli.options import (
    json_option,
    machine_option,
    method_option,
    model_option,
    models_option,
    own_network_functions,
    own_nf_option,
    report_option,
    run_options,
    seed_option,
    settings,
    simulation_options,
)
from slomo.cli.output import emit_json, emit_table, note
from slomo.cli.progress import announce_compilation
from slomo.cli.types import FILE, POLICY, POSITIVE_COUNT
from slomo.cli.verbs.place_change import change
from slomo.cli.verbs.place_dynamic import (
    are_for_chains,
    batch_chains,
    handover_option,
    judge_on_nodes,
    place_on_nodes,
    timeline,
)
from slomo.cli.verbs.place_output import (
    confidence_option,
    emit_judgements,
    end,
    note_unread_profiles,
    price_option,
    profiles_option,
    show_decisions,
    show_lacking,
    show_measurements,
    show_prices,
)
from slomo.errors import UsageError
from slomo.extras import need
from slomo.files.durable import write_durably
from slomo.units import plural

if TYPE_CHECKING:
    from slomo.placement.online.placer import Placer
    from slomo.placement.over_time.judge import Judge
    from slomo.placement.over_time.judgement import Judgement
    from slomo.placement.problem.cluster import Cluster
    from slomo.placement.problem.decision import Decision
    from slomo.placement.problem.request import Request
    from slomo.workflow.place import Priced


class DefaultGroup(click.Group):
    """A group of commands whose first word may be left out; it then runs `batch`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the word `batch` before CLUSTER, or the options before it, where no other command is named."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["batch", *args]
        return super().parse_args(ctx, args)


_cluster = click.argument("cluster", type=click.Path())
_requests = click.argument("requests", type=click.Path())


@click.group(cls=DefaultGroup)
def command() -> None:
    """Place network functions on a cluster so that they keep their SLOs.

    `slomo place CLUSTER REQUESTS` is short for `slomo place batch`; `slomo place batch --help` lists its options.

    Example: slomo place cluster.yaml requests.yaml --policy predicted --check
    """


@command.command("batch")
@_cluster
@click.argument("requests", type=click.Path(), required=False)
@click.option("--policy", type=POLICY, default="predicted", help="Policy.")
@models_option
@model_option
@method_option
@confidence_option
@price_option
@profiles_option
@click.option(
    "--fallback", type=click.Choice(["refuse", "alone", "worst-case"]), default="refuse",
    help="How to treat a network function that has no model for a machine.",
)  # fmt: skip
@handover_option
@click.option("--check", is_flag=True, help="Run the placed servers on the simulator and count broken SLOs.")
@click.option(
    "--snapshot", type=FILE, help="Write the placed cluster to FILE, for `slomo place change` and `Placer.restore`."
)
@click.option("--stats", is_flag=True, help="Print the number of entries of each cache of the placer.")
@click.option(
    "--worth-measuring", type=POSITIVE_COUNT, help="Name the N mixes whose measurement would save most servers."
)
@own_nf_option
@seed_option
@server_option
@click.option("--what-if", is_flag=True, help="With --server: show the decisions without placing anything.")
@json_option
def batch(
    as_json: bool,
    check: bool,
    snapshot: str | None,
    stats: bool,
    service: str | None,
    what_if: bool,
    worth_measuring: int | None,
    **options: Any,
) -> None:
    """Place REQUESTS on CLUSTER; both are YAML or JSON. The word `batch` may be left out.

    With --server the cluster is the service's: slomo place REQUESTS --server URL.

    Exit code 5 if a request is refused; the other requests are placed. With --check, exit code 1 if all requests are
    placed and an SLO is broken in simulation.

    Example: slomo place cluster.yaml requests.yaml
    """
    if service is not None:
        path = options["cluster"]
        raise click.exceptions.Exit(
            placed_by_service(service, path, show=show_decisions, what_if=what_if, as_json=as_json)
        )
    if options["requests"] is None or what_if:
        raise UsageError("--what-if was given without --server" if what_if else "which requests?",
                         hint="slomo place CLUSTER REQUESTS, or slomo place REQUESTS --server URL")  # fmt: skip
    if are_for_chains([options["policy"]]):
        batch_chains(as_json=as_json, check=check, snapshot=snapshot, **options)
        return
    placer, requests, priced = _placed(**options)
    placed = {request.id for request in placer.requests}
    refused = {item.id: item for item in requests if item.id not in placed}
    decisions = [
        placer.decision(item.id) if item.id in placed else _refusal(placer, item, refused) for item in requests
    ]
    judgement = None
    if check:
        from slomo.placement.over_time.judge import asked_times

        judge = _judge(options["nf_files"], options["seed"], placer.cluster)
        judgement = judge.judge(placer, requests=len(requests), decision_ms=asked_times(placer, requests))
    if snapshot is not None:
        write_durably(snapshot, json.dumps(placer.snapshot(), indent=1) + "\n")
    measurements = None
    if worth_measuring is not None:
        from slomo.placement.over_time.worth_measuring import worth_measuring as named_mixes

        measurements = named_mixes(placer, worth_measuring)
    if as_json:
        document = {"policy": placer.policy.name, "servers_used": placer.servers_used, "decisions": decisions}
        counts = placer.stats() if stats else None
        asked: dict[str, Any] = {"check": judgement, "stats": counts, "worth_measuring": measurements}
        asked["priced"] = priced or None
        emit_json(document | {name: value for name, value in asked.items() if value is not None})
    else:
        if priced:
            show_prices(priced, placer.settings.confidence)
        _show(placer, decisions, judgement)
        if measurements is not None:
            show_measurements(measurements)
        if stats:
            emit_table(("memory", "entries"), list(placer.stats().items()))
    end(refused=len(placed) < len(requests), judgement=judgement)


def _placed(
    cluster: str,
    requests: str,
    policy: str,
    confidence: float,
    price_per_broken: float | None,
    profiles: str | None,
    fallback: Any,
    **options: Any,
) -> "tuple[Placer, Any, tuple[Priced, ...]]":
    from slomo.placement.problem.documents import read_requests
    from slomo.workflow.place import place, place_at_price

    used = ("models", "model", "method", "seed")
    chosen = settings(**{name: options[name] for name in used})
    asked = read_requests(requests)
    note_unread_profiles(profiles, [policy], asked)
    common: dict[str, Any] = {
        "model": chosen.model,
        "profiles": profiles or (),
        "fallback": fallback,
        "method": options["method"],
    }
    if price_per_broken is None:
        return place(cluster, asked, chosen.models, policy, confidence=confidence, **common), asked, ()
    if click.get_current_context().get_parameter_source("confidence") is not ParameterSource.DEFAULT:
        raise UsageError("--confidence and --price-per-broken: the price chooses the confidence",
                         hint="give one of them")  # fmt: skip
    placer, priced = place_at_price(cluster, asked, chosen.models, policy, price_per_broken=price_per_broken, **common)
    return placer, asked, priced


def _judge(
    nf_files: tuple[str, ...],
    seed: int | None,
    cluster: "Cluster",
    jobs: int | None = None,
    scheduler: str | None = None,
) -> "Judge":
    from slomo.workflow.place import make_judge

    announce_compilation()
    own, machines = own_network_functions(nf_files), cluster.machine_types.values()
    spread: dict[str, Any] = {"jobs": 1 if jobs is None else jobs, "scheduler": scheduler}
    return make_judge(own=own, machines=machines, seed=settings(seed=seed).seed, **spread)


def _show(placer: "Placer", decisions: Any, judgement: "Judgement | None") -> None:
    show_decisions(decisions, {request.id: len(request.chain) for request in placer.requests})
    placed = f"{len(placer.requests)} of {len(decisions)} placed"
    note(f"{placed} on {plural(placer.servers_used, 'server')} by policy {placer.policy.name}")
    for remark in placer.policy.remarks:
        note(remark)
    show_lacking(placer)
    if judgement is not None:
        click.echo()
        emit_judgements([judgement])


def _refusal(placer: "Placer", request: "Request", refused: "dict[str, Request]") -> "Decision":
    """Return why a request is not placed."""
    named = {name for name in (*request.affinity, *request.anti_affinity) if isinstance(name, str)}
    if not named & refused.keys():
        return placer.what_if(request)
    return next(item for item in placer.what_if_all(refused.values()) if item.request == request.id)


@command.command("compare")
@_cluster
@_requests
@click.option(
    "--policy",
    "policies",
    type=POLICY,
    multiple=True,
    help="Policy, repeatable; by default all that can place these requests.",
)
@models_option
@model_option
@method_option
@confidence_option
@profiles_option
@report_option
@handover_option
@run_options
def compare(as_json: bool, policies: tuple[str, ...], report: str | None, **options: Any) -> None:
    """Place REQUESTS by several policies, and simulate every result to count broken SLOs.

    Policies for chains on NUMA nodes (numasfp, octans, ...) are compared among themselves.
    """
    if are_for_chains(policies):
        judgements = [judge_on_nodes(place_on_nodes(policy, options), options) for policy in policies]
    else:
        judgements = _compared(policies, options)
    if report is not None:
        from slomo.report.placement_figures import comparison_page

        write_durably(report, comparison_page(judgements))
        note(f"report: {report}")
    if as_json:
        emit_json({"policies": judgements})
    else:
        emit_judgements(judgements)


def _compared(policies: tuple[str, ...], options: dict[str, Any]) -> "list[Judgement]":
    from slomo.models.library import load_library
    from slomo.models.partition_profile import load_profiles
    from slomo.placement.policies.registry import policy_class, policy_names
    from slomo.placement.problem.documents import read_cluster, read_requests
    from slomo.workflow.place import compare as judged

    curves = () if options["profiles"] is None else load_profiles(options["profiles"])
    used = ("models", "model", "method", "seed")
    chosen = settings(**{name: options[name] for name in used})
    names = policies or tuple(name for name in policy_names() if curves or not policy_class(name).needs_profiles)
    cluster, requests = read_cluster(options["cluster"]), read_requests(options["requests"])
    note_unread_profiles(curves, policies, requests)
    return judged(
        cluster,
        requests,
        load_library(chosen.models),
        names,
        model=chosen.model,
        confidence=options["confidence"],
        method=options["method"],
        profiles=curves,
        judge=_judge(options["nf_files"], options["seed"], cluster, options["jobs"], options["scheduler"]),
    )


@command.command("profiles")
@click.argument("network_functions", nargs=-1, required=True, metavar="NF...")
@machine_option
@click.option("--out", required=True, type=FILE, help="File to write.")
@simulation_options
def profiles(**options: Any) -> None:
    """Measure throughput over cache ways and latency over load: another name of `slomo profile NF... --plan ways`."""
    from slomo.cli.verbs.profile import command as profile_command

    need("pandas", extra="simulate")  # the extra that `slomo profile` names, too
    click.get_current_context().invoke(profile_command, plan="ways", **options)


@command.command("workload")
@click.argument("family", metavar="FAMILY")
@click.option("--count", type=POSITIVE_COUNT, default=200, help="Requests.")
@click.option("--out", required=True, type=FILE, help="File to write.")
@seed_option
@json_option
def workload(family: str, count: int, out: str, seed: int | None, as_json: bool) -> None:
    """Write a file of requests for comparing policies.

    FAMILY is sensitive, insensitive or combination (ResQ's), slomo, or numasfp (chains with rates over time).
    """
    from slomo.placement.problem.request import requests_to_dict
    from slomo.placement.workloads import numasfp_chains, resq_requests, slomo_requests

    chosen = settings(seed=seed).seed
    if family == "numasfp":
        chains = numasfp_chains(count, seed=chosen)
        document = {"schema_version": 1, "requests": [item.to_dict() for item in chains]}
    else:
        draw = slomo_requests(count, seed=chosen) if family == "slomo" else resq_requests(family, count, seed=chosen)
        document = requests_to_dict(draw)
    write_durably(out, json.dumps(document, indent=1) + "\n")
    if as_json:
        emit_json({"out": out, "requests": count})
    note(f"{plural(count, 'request')} in {out}")


command.add_command(timeline)
command.add_command(change)
