"""The option `--server URL`: send a question to a running slomo service instead of answering it with local models."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from slomo.cli.output import emit, emit_json, note, note_reasons
from slomo.errors import UsageError

if TYPE_CHECKING:
    from slomo.client import Client
    from slomo.placement.problem.decision import Decision
    from slomo.prediction.result import Prediction
    from slomo.vocabulary.server_setting import ServerSetting

server_option = click.option(
    "--server",
    "service",
    metavar="URL",
    help="Send the question to the service at URL (`slomo serve`) instead of using local models; the access "
    "token is read from SLOMO_TOKEN.",
)


def client(url: str) -> "Client":
    """Return a client of the service at `url`, with the access token from the environment."""
    from slomo.client import Client

    return Client(url, os.environ.get("SLOMO_TOKEN"), timeout_s=120.0)


def refuse_others(service: str, *forwarded: str) -> None:
    """Raise an error for options that cannot be sent to a service; `forwarded` lists the options that can."""
    context = click.get_current_context()
    for item in context.command.params:
        name = item.name or ""
        source = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if source and name not in (*forwarded, "service", "as_json"):
            spelled = item.opts[-1] if item.opts else name
            raise UsageError(f"{spelled} was given with --server {service}", hint=f"leave {spelled} out")


def predicted(service: str, *, explain: bool, options: dict[str, Any]) -> "Prediction":
    """Return a service's answer to `slomo predict`."""
    from slomo.workflow.names import named

    same = ("machine", "model", "method", "compat", "port_gbps", "window_s", "coverage", "strict")
    refuse_others(service, *same, "target", "beside", "partners", "offered", "explain", "figure")
    beside, partners = (
        [item if isinstance(item, str) else item.key for item in named(options[name])]
        for name in ("beside", "partners")
    )
    question: dict[str, Any] = {name: options[name] for name in same}
    question |= {"offered_mpps": options["offered"], "shares_core_with": partners, "explain": explain}
    with client(service) as line:
        return line.predict(options["target"], beside, **question)


def placed(
    service: str, path: str, *, show: "Callable[[Sequence[Decision]], None]", what_if: bool, as_json: bool
) -> int:
    """Ask a service to place a file's requests on its own cluster, `show` the decisions, and return the exit code."""
    from slomo.placement.problem.documents import read_requests

    refuse_others(service, "cluster", "what_if")
    with client(service) as line:
        decisions = line.place(read_requests(path), what_if=what_if)
    if as_json:
        emit_json({"server": service, "what_if": what_if, "decisions": decisions})
    else:
        show(decisions)
        done = sum(item.accepted for item in decisions)
        note(f"{done} of {len(decisions)} {'would be placed' if what_if else 'placed'} by {service}")
    return 0 if all(item.accepted for item in decisions) else 5


def asked_about_socket(
    service: str,
    mix: tuple[str, ...],
    machine: str | None,
    setting: "ServerSetting",
    how: Mapping[str, Any],
    *,
    as_json: bool,
) -> int:
    """Print a service's prediction of all tenants of a server, with each neighbour's cost; return the exit code."""
    settings = asdict(setting)
    refuse_others(service, "mix", "machine", *settings, *how)
    chosen = {name: value for name, value in settings.items() if value is not None}
    with client(service) as line:
        answer = line.whatif(mix, machine, setting=chosen or None, **how)
    rows = [
        (
            item["target"],
            item["throughput_mpps"],
            *item["interval"],
            100.0 * item["slowdown"],
            item["verdict"],
            1e3 * sum(answer["costs_mpps"][number]),
        )
        for number, item in enumerate(answer["tenants"])
    ]
    headers = ("tenant", "Mpps", "low", "high", "slowdown [%]", "verdict", "costs others [kpps]")
    emit(answer, headers, rows, as_json=as_json)
    if not as_json:
        tenants = answer["tenants"]
        note_reasons((f"{i}:{each['target']}", each["verdict"], each["reasons"]) for i, each in enumerate(tenants))
    return 0
