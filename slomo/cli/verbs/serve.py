"""`slomo serve`: answer over HTTP, for orchestrators and people; `--demo` fills it with an example."""

import logging
import sys
from pathlib import Path
from typing import Any

import click

from slomo.cli.options import json_option, models_option, settings
from slomo.cli.output import emit_json, note
from slomo.cli.types import COUNT, POSITIVE_COUNT, SHARE


@click.command()
@click.option("--demo", is_flag=True, help="Models, a cluster and requests of the shipped datasets, in memory.")
@models_option
@click.option("--state", metavar="FILE", type=click.Path(), help="SQLite file that keeps the cluster over restarts.")
@click.option("--cluster", metavar="FILE", type=click.Path(), help="Cluster to begin with where the state has none.")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen at.")
@click.option(
    "--port", type=COUNT, default=8080, show_default=True, metavar="N", help="Port to listen at; 0 takes a free one."
)
@click.option("--token-file", metavar="FILE", type=click.Path(), help="NAME SCOPE SECRET per line.")
@click.option("--open-loopback", is_flag=True, help="Callers on this machine need no token; never behind a proxy.")
@click.option("--certificate", metavar="FILE", type=click.Path(), help="TLS certificate.")
@click.option("--key", metavar="FILE", type=click.Path(), help="Its key.")
@click.option("--client-ca", metavar="FILE", type=click.Path(), help="Authority that signs clients' certificates.")
@click.option("--kubernetes", metavar="URL", help="API server to watch; `in-cluster` for a pod's own.")
@click.option(
    "--evict",
    type=click.Choice(["off", "dry-run", "on"]),
    default="dry-run",
    show_default=True,
    help="Move pods from nodes where a promise is broken.",
)
@click.option(
    "--evict-per-minute", type=POSITIVE_COUNT, default=60, show_default=True, metavar="N", help="So many at most."
)
@click.option(
    "--confidence", type=SHARE, default=0.95, show_default=True, metavar="SHARE", help="Probability that all SLOs hold."
)
@click.option("--enforce", metavar="BACKEND", help="Let admins act on this host: auto, resctrl, pqos, cgroup, ...")
@click.option(
    "--log", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Form of the log's lines."
)
@click.option("--otlp", metavar="URL", help="OpenTelemetry collector (OTLP over HTTP) that gets spans.")
@click.option("--control", is_flag=True, help="Let admins run control loops on simulated machines.")
@click.option("--receipts", metavar="FOLDER", type=click.Path(), help="Receipts of what was done to this host.")
@click.option("--pools", metavar="FILE", type=click.Path(), help="RMD's rmd.toml: answer as RMD.")
@click.option("--policies", metavar="FILE", type=click.Path(), help="RMD's policy.yaml.")
@click.option("--host-machine", metavar="NAME", help="Machine type of this host, for the ways of its cache.")
@click.option("--correct", is_flag=True, help="Correct predictions by observed outcomes, within 10 %.")
@click.option(
    "--body-limit-mib",
    type=POSITIVE_COUNT,
    default=32,
    show_default=True,
    metavar="N",
    help="Largest body of a request.",
)
@click.option("--backup", metavar="FILE", type=click.Path(), help="Copy the state, also while in use, and end.")
@json_option
def command(demo: bool, backup: str | None, body_limit_mib: int, log: str, as_json: bool, **options: Any) -> None:
    """Answer over HTTP: predictions, placement, the Kubernetes scheduler, and a page.

    Listens at loopback; beyond it needs --token-file or --client-ca. The API is described at /openapi.json.

    Example: slomo serve --demo
    """
    from slomo.service.server import serve
    from slomo.service.settings import ServiceSettings

    if backup is not None:
        _backup(options["state"], Path(backup))
        if as_json:
            emit_json({"copied": backup})
        return
    _log_to_stderr(log)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # else every write to an API server is a line
    models = _demo_folder() if demo else Path(settings(models=options["models"]).models)
    paths: dict[str, Any] = {
        name: _path(options[name])
        for name in ("state", "token_file", "certificate", "key", "client_ca", "receipts", "pools", "policies")
    }
    plain = {name: options[name] for name in _PLAIN}
    cluster = _path(options["cluster"])
    chosen = ServiceSettings(models, cluster=cluster, body_limit_b=body_limit_mib << 20, **paths, **plain)

    def ready(address: str) -> None:
        note(f"slomo answers at {address}")
        if as_json:
            emit_json({"address": address})

    serve(chosen, on_ready=ready, begin=_fill if demo else None, prepare=_demo_models if demo else None)


_PLAIN = (
    "host",
    "port",
    "kubernetes",
    "evict",
    "evict_per_minute",
    "otlp",
    "confidence",
    "open_loopback",
    "enforce",
    "control",
    "host_machine",
    "correct",
)


def _log_to_stderr(form: str) -> None:
    from slomo.service.logs import JsonLines

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter("%(asctime)s %(name)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO)


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _demo_folder() -> Path:
    from slomo.service.demo import demo_folder

    return demo_folder()


def _demo_models() -> None:
    """Train the demonstration's models if they are not stored yet."""
    from slomo.service.demo import demo_models

    demo_models(note)


def _fill(service: Any) -> None:
    """Put the demonstration's servers and requests into an empty service."""
    from slomo.service.demo import fill

    fill(service)


def _backup(state: str | None, target: Path) -> None:
    from slomo.errors import UsageError
    from slomo.service.state.store import copy_state

    if state is None:
        hint = "slomo serve --state FILE --backup COPY"
        raise UsageError("--backup needs --state: which state is to be copied?", hint=hint)
    copy_state(Path(state), target)
    note(f"copied to {target}")
