"""`slomo place change`: drain servers of a placed cluster or change it in other ways, and save it."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from slomo.cli.options import json_option, models_option, settings
from slomo.cli.output import emit_json, emit_table, note
from slomo.cli.types import AMOUNT, COUNT
from slomo.cli.verbs.place_output import note_unread_profiles, profiles_option
from slomo.errors import UsageError
from slomo.vocabulary.defaults import DEFAULT_MODEL, EQUILIBRIUM

if TYPE_CHECKING:
    from slomo.placement.online.change import ClusterChange
    from slomo.placement.online.placer import Placer

_ON_SERVERS = ("drain", "fail", "cordon", "uncordon", "remove", "taint")
_FROM_FILES = ("add", "update", "preempt")
#: Actions on the whole cluster, with their options.
_ON_ALL: dict[str, tuple[str, ...]] = {"at-risk": (), "reoptimise": ("threshold", "max_moves", "cost_per_move")}
#: Methods of `Lifecycle` that have longer names than their action.
_METHODS = {"add": "add_server", "remove": "remove_server"}


@click.command("change")
@click.argument("snapshot", type=click.Path())
@click.argument("action", type=click.Choice([*_ON_SERVERS, *_FROM_FILES, "use", *_ON_ALL]))
@click.argument("subject", required=False, metavar="[SERVER | FILE | DIR]")
@click.option("--what-if", is_flag=True, help="Show the changes without making them.")
@click.option(
    "--max-moves",
    type=COUNT,
    help="Largest number of instances that may move; by default all with `drain`, a twentieth with `reoptimise`.",
)
@click.option(
    "--cost-per-move", type=AMOUNT, default=0.0, metavar="SERVERS",
    help="With `reoptimise`: cost of a move in servers; at 0.1, saving a server is worth nine moves but not "
"ten.",
)  # fmt: skip
@click.option(
    "--threshold", type=AMOUNT, default=0.1, metavar="SHARE",
    help="With `reoptimise`: instances move only if a new plan saves more than this share of servers.",
)  # fmt: skip
@click.option(
    "--taint", "taints", multiple=True, metavar="TAINT",
    help="With `taint`: key, key=value, key:effect or key=value:effect; repeatable. Without --taint, all "
"taints are removed.",
)  # fmt: skip
@click.option(
    "--no-surge", "surge", flag_value=False, default=True, show_default=False,
    help="With `update`: remove the old version before the new one is placed.",
)  # fmt: skip
@profiles_option
@models_option
@json_option
def change(
    snapshot: str,
    action: str,
    subject: str | None,
    as_json: bool,
    models: str | None,
    profiles: str | None,
    **flags: Any,
) -> None:
    """Apply ACTION to the cluster in SNAPSHOT, which `slomo place --snapshot` wrote, and save the cluster there.

    ACTION takes a server (drain, fail, cordon, uncordon, remove, taint), a label's value (fail rack=r3), a file (add: a
    cluster's servers; update and preempt: requests), a directory of other models (use), nothing (at-risk), or nothing
    or a file of requests to be placed in the same plan (reoptimise). If ACTION is impossible, exit code 5 without any
    change.
    """
    placer = _restored(snapshot, models, profiles)
    if action not in _ON_ALL and subject is None:
        raise UsageError(f"`{action}` of what?", hint="name a server, or a file: slomo place change --help")
    if action == "at-risk" and subject is not None:
        raise UsageError(f"`at-risk` takes no '{subject}'", hint="it lists the promises of all servers")
    changes = _changes(placer, action, subject or "", flags)
    whole = all(item.done for item in changes)
    if whole and not flags["what_if"] and action != "at-risk":
        from slomo.files.durable import write_durably

        write_durably(snapshot, json.dumps(placer.snapshot(), indent=1) + "\n")
    if as_json:
        emit_json({"what_if": flags["what_if"], "changes": changes})
    else:
        _show(changes)
    if not whole:
        note(f"nothing is changed: {snapshot} stays as it was")
        raise click.exceptions.Exit(5)


#: Largest size of a snapshot.
MOST_BYTES = 256 * 2**20


def _restored(path: str, models: str | None, profiles: str | None) -> "Placer":
    from slomo.files.documents import convert
    from slomo.files.json_text import parse_json
    from slomo.files.opening import read_text
    from slomo.models.library import load_library
    from slomo.models.partition_profile import load_profiles
    from slomo.placement.online.persistence import SnapshotBody
    from slomo.placement.online.placer import Placer
    from slomo.placement.problem.cluster import Cluster

    hint = "slomo place ... --snapshot FILE"
    document = parse_json(read_text(path, MOST_BYTES, hint), path, hint)
    held = convert(document, SnapshotBody, path, hint)
    cluster = Cluster.from_dict(document["cluster"])
    options = {name: getattr(held, name) for name in ("confidence", "method", "model", "fallback")}
    if held.method == EQUILIBRIUM:  # snapshots of earlier versions may name a model, which this method never used
        options["model"] = DEFAULT_MODEL
    way_profiles = load_profiles(profiles) if profiles else ()
    placer = Placer(
        load_library(settings(models=models).models), cluster, held.policy, profiles=way_profiles, **options
    )
    for name in placer.restore(document, keep_at_risk=True).at_risk:
        note(f"at risk by these models: '{name}'; `slomo place change {path} at-risk` says of what")
    note_unread_profiles(profiles, [held.policy], placer.requests)
    return placer


def _changes(placer: "Placer", action: str, subject: str, flags: dict[str, Any]) -> "list[ClusterChange]":
    from slomo.models.library import load_library
    from slomo.placement.online.change import ClusterChange
    from slomo.placement.online.lifecycle import CHANGES, taken_options
    from slomo.placement.over_time.reoptimise import reoptimise
    from slomo.placement.problem.documents import read_cluster, read_requests

    life = placer.lifecycle
    method = _METHODS.get(action, action)
    takes = _ON_ALL[action] if action in _ON_ALL else CHANGES[method]
    spelled = {item.name or "": item.opts[0] for item in click.get_current_context().command.params}
    options = {name: flags[name] for name in ("max_moves", "taints", "surge", "threshold", "cost_per_move")}
    options = taken_options(action, takes, options, spelled.__getitem__)
    if action == "at-risk":
        rows = life.at_risk()
        return [ClusterChange(f"promises{'' if rows else ', none at risk'}", True, at_risk=rows)]
    if action == "reoptimise":
        done = reoptimise(placer, **options, arriving=read_requests(subject) if subject else ())
        refused = tuple(decision for decision in done.decisions if not decision.accepted)
        return [ClusterChange(f"re-optimise ({done.text})", True, moves=done.moves, refused=refused)]
    if action == "fail" and "=" in subject:
        method = "fail_domain"
        subject, _, options["value"] = subject.partition("=")
    subjects: Sequence[Any] = (subject,)
    if action in _FROM_FILES:
        subjects = read_cluster(subject).servers if action == "add" else read_requests(subject)
    elif action == "use":
        subjects = (load_library(subject),)
    return [life.act(method, each, what_if=flags["what_if"], **options) for each in subjects]


def _show(changes: "list[ClusterChange]") -> None:
    rows = [(move.request, move.source, move.target) for item in changes for move in item.moves]
    if rows:
        emit_table(("request", "from", "to"), rows)
    for item in changes:
        note(item.text)
        for decision in item.refused:
            note(f"refused: {decision.request}: {'; '.join(decision.reasons)}")
        for risk in item.at_risk:
            head = "at risk" if risk.state == "broken" else "not judged"
            place = f"{risk.server}, core {risk.socket}:{risk.core}"
            lack = f"needed {risk.needed:.4g}, to be counted on {risk.possible:.4g}"
            note(f"{head}: {risk.what} of '{risk.request}' ({risk.workload}) on {place}: {lack}: {risk.why}")
