"""`slomo agent`: observe the network functions of one Kubernetes node, and tell the service."""

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

import click

from slomo.cli.options import json_option
from slomo.cli.output import emit_json, note
from slomo.cli.types import POSITIVE_COUNT


@click.command()
@click.option("--node", required=True, metavar="NAME", envvar="NODE_NAME", help="Which node; else NODE_NAME.")
@click.option("--service", required=True, metavar="URL", help="The service that outcomes are sent to.")
@click.option("--token-file", metavar="FILE", type=click.Path(), help="File with the secret of a token (observe).")
@click.option("--kubernetes", default="in-cluster", show_default=True, metavar="URL", help="API server.")
@click.option("--every", type=POSITIVE_COUNT, default=10, show_default=True, metavar="S", help="Seconds between looks.")
@click.option("--looks", type=POSITIVE_COUNT, metavar="N", help="End after so many looks.")
@json_option
def command(as_json: bool, **given: Any) -> None:
    """Observe the network functions of one Kubernetes node, and tell the service.

    Reads each pod's counters, named by its annotation slomo.io/rate; sends throughput while packets are dropped.

    Example: slomo agent --node worker-1 --service http://slomo.slomo:8080 --token-file token
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    counts = asyncio.run(_observe(**given))
    if as_json:
        emit_json(counts)
    else:
        note(f"looks: {counts}")


async def _observe(
    node: str, service: str, token_file: str | None, kubernetes: str, every: int, looks: int | None
) -> dict[str, int]:
    from slomo.client import AsyncClient
    from slomo.errors import SlomoError
    from slomo.files.opening import read_text
    from slomo.service.kubernetes.agent import NodeAgent
    from slomo.service.kubernetes.view import ClusterView
    from slomo.service.kubernetes.watch import Watch

    token = None if token_file is None else read_text(Path(token_file)).strip()
    async with AsyncClient(service, token=token) as client:

        async def send(observed: list[dict[str, Any]]) -> None:
            await client.observe(observed)

        watch = Watch(kubernetes, ClusterView())
        agent = NodeAgent(watch, node, send)
        done = 0
        while looks is None or done < looks:
            if done:
                await asyncio.sleep(every)
            try:
                await agent.look()
            except SlomoError as error:
                note(f"{type(error).__name__}: {error}")
            done += 1
        await watch.close()
    return dict(agent.counts)
