"""`slomo serve`: answer questions over HTTP; with `--demo`, by example models and an example cluster."""

import logging
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from slomo.cli.options import json_option, models_option, settings
from slomo.cli.output import emit_json, note, tell
from slomo.cli.types import COUNT, POSITIVE_COUNT, SHARE

FILE = click.Path(path_type=Path)


@click.command()
@click.option("--demo", is_flag=True, help="Models, a cluster and requests of the shipped datasets, in memory.")
@models_option
@click.option("--state", metavar="FILE", type=FILE, help="SQLite file that keeps the cluster over restarts.")
@click.option("--cluster", metavar="FILE", type=FILE, help="Cluster to begin with where the state has none.")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen at.")
@click.option(
    "--port", type=COUNT, default=8080, show_default=True, metavar="N", help="Port to listen at; 0 takes a free one."
)
@click.option("--token-file", metavar="FILE", type=FILE, help="NAME SCOPE SECRET per line.")
@click.option("--open-loopback", is_flag=True, help="Callers on this machine need no token; never behind a proxy.")
@click.option("--certificate", metavar="FILE", type=FILE, help="TLS certificate.")
@click.option("--key", metavar="FILE", type=FILE, help="Its key.")
@click.option("--client-ca", metavar="FILE", type=FILE, help="Authority that signs clients' certificates.")
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
@click.option("--receipts", metavar="FOLDER", type=FILE, help="Receipts of what was done to this host.")
@click.option("--pools", metavar="FILE", type=FILE, help="RMD's rmd.toml: answer as RMD.")
@click.option("--policies", metavar="FILE", type=FILE, help="RMD's policy.yaml.")
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
@click.option("--backup", metavar="FILE", type=FILE, help="Copy the state, also while in use, and end.")
@json_option
def command(demo: bool, backup: Path | None, body_limit_mib: int, log: str, as_json: bool, **options: Any) -> None:
    """Serve predictions, placement, a Kubernetes scheduler extender and a web page over HTTP.

    Listens at loopback; beyond it needs --token-file or --client-ca. The API is described at /openapi.json.

    Example: slomo serve --demo
    """
    from slomo.service.server import serve
    from slomo.service.settings import ServiceSettings

    if backup is not None:
        _backup(options["state"], backup)
        tell({"copied": str(backup)}, f"copied to {backup}", as_json=as_json)
        return
    _log_to_stderr(log)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # else every write to an API server is a line
    models, begin, prepare = Path(settings(models=options.pop("models")).models), None, None
    if demo:
        from slomo.service.demo import demo_folder, demo_models, fill

        models, begin, prepare = demo_folder(), fill, partial(demo_models, note)
    chosen = ServiceSettings(models, body_limit_b=body_limit_mib << 20, **options)

    def ready(address: str) -> None:
        note(f"slomo answers at {address}")
        if as_json:
            emit_json({"address": address})

    serve(chosen, on_ready=ready, begin=begin, prepare=prepare)


def _log_to_stderr(form: str) -> None:
    from slomo.service.logs import JsonLines

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter("%(asctime)s %(name)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO)


def _backup(state: Path | None, target: Path) -> None:
    from slomo.errors import UsageError
    from slomo.service.state.store import copy_state

    if state is None:
        hint = "slomo serve --state FILE --backup COPY"
        raise UsageError("--backup needs --state: which state is to be copied?", hint=hint)
    copy_state(state, target)
