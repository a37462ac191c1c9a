"""`slomo serve`: answer questions over HTTP; with `--demo`, for example models and an example cluster."""

import logging
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from slomo.cli.options import json_option, models_option, settings
from slomo.cli.output import emit_json, note, tell
from slomo.cli.types import COUNT, POSITIVE_COUNT, SHARE
from slomo.errors import UsageError

FILE = click.Path(path_type=Path)


@click.command()
@click.option(
    "--demo", is_flag=True, help="Serve example models, an example cluster and example requests, all in memory."
)
@models_option
@click.option("--state", metavar="FILE", type=FILE, help="SQLite file in which the cluster survives restarts.")
@click.option("--cluster", metavar="FILE", type=FILE, help="Initial cluster, if the state has none.")
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Address on which to listen.")
@click.option("--port", type=COUNT, default=8080, help="Port on which to listen; 0 takes a free one.")
@click.option("--token-file", metavar="FILE", type=FILE, help="File of tokens, one `NAME SCOPE SECRET` per line.")
@click.option("--open-loopback", is_flag=True, help="Callers on this machine need no token; never behind a proxy.")
@click.option("--certificate", metavar="FILE", type=FILE, help="TLS certificate.")
@click.option("--key", metavar="FILE", type=FILE, help="Key of the TLS certificate.")
@click.option("--client-ca", metavar="FILE", type=FILE, help="Authority that signs clients' certificates.")
@click.option(
    "--kubernetes", metavar="URL", help="Kubernetes API server to watch; `in-cluster` for the pod's own cluster."
)
@click.option(
    "--evict",
    type=click.Choice(["off", "dry-run", "on"]),
    default="dry-run",
    help="Evict pods from nodes on which a promise is broken.",
)
@click.option("--evict-per-minute", type=POSITIVE_COUNT, default=60, help="Largest number of evictions per minute.")
@click.option("--confidence", type=SHARE, default=0.95, help="Probability with which all SLOs of a socket must hold.")
@click.option(
    "--enforce",
    metavar="BACKEND",
    help="Backend through which admins may change settings of this host: auto, resctrl, pqos, cgroup, ...",
)
@click.option("--log", type=click.Choice(["text", "json"]), default="text", help="Format of log lines.")
@click.option("--otlp", metavar="URL", help="OpenTelemetry collector (OTLP over HTTP) to which spans are sent.")
@click.option("--control", is_flag=True, help="Let admins run control loops on simulated machines.")
@click.option("--receipts", metavar="DIR", type=FILE, help="Folder for the receipts of changes to this host.")
@click.option("--pools", metavar="FILE", type=FILE, help="RMD's rmd.toml; with it the service also answers RMD's API.")
@click.option("--policies", metavar="FILE", type=FILE, help="RMD's policy.yaml.")
@click.option("--host-machine", metavar="NAME", help="Machine type of this host, which gives the number of cache ways.")
@click.option("--correct", is_flag=True, help="Correct predictions by observed outcomes, by at most 10 %.")
@click.option("--body-limit-mib", type=POSITIVE_COUNT, default=32, help="Largest size of a request's body [MiB].")
@click.option(
    "--backup", metavar="FILE", type=FILE, help="Copy the state to FILE, even while a service uses it, and exit."
)
@json_option
def command(demo: bool, backup: Path | None, body_limit_mib: int, log: str, as_json: bool, **options: Any) -> None:
    """Serve predictions, placement, a Kubernetes scheduler extender and a web page over HTTP.

    Listens on loopback by default; other addresses need --token-file or --client-ca. /openapi.json describes the API.

    Example: slomo serve --demo
    """
    from slomo.service.logs import JsonLines
    from slomo.service.server import serve
    from slomo.service.settings import ServiceSettings
    from slomo.service.state.store import copy_state

    if backup is not None:
        if options["state"] is None:
            hint = "slomo serve --state FILE --backup COPY"
            raise UsageError("--backup needs --state: which state is to be copied?", hint=hint)
        copy_state(options["state"], backup)
        tell({"copied": str(backup)}, f"copied to {backup}", as_json=as_json)
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if log == "json" else logging.Formatter("%(asctime)s %(name)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # else every write to an API server is logged
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
