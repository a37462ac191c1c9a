"""`slomo agent`: on a Kubernetes node, report network functions to the service and apply the node's plan."""

import asyncio
import contextlib
import logging
import signal
import sys
from pathlib import Path
from typing import Any

import click

from slomo.cli.options import RenamedOption, json_option
from slomo.cli.output import note, tell
from slomo.cli.types import FILE, POSITIVE_COUNT
from slomo.errors import SlomoError


@click.command()
@click.option(
    "--node",
    required=True,
    metavar="NAME",
    envvar="NODE_NAME",
    help="Name of the node; by default the environment variable NODE_NAME.",
)
@click.option(
    "--server",
    "--service",
    "service",
    cls=RenamedOption,
    required=True,
    metavar="URL",
    help="Service to which measurements are sent.",
)
@click.option("--token-file", type=FILE, help="File with the secret of a token of scope `observe`.")
@click.option("--kubernetes", default="in-cluster", metavar="URL", help="Address of the Kubernetes API server.")
@click.option(
    "--every-s",
    "--every",
    cls=RenamedOption,
    type=POSITIVE_COUNT,
    default=10,
    metavar="S",
    help="Time between two readings.",
)
@click.option(
    "--counters", default="auto", metavar="READER", help="Reader of hardware counters: its name, auto, or off."
)
@click.option("--enforce", metavar="BACKEND", help="Apply the node's plan through resctrl, cgroup or resctrl+cgroup.")
@click.option("--readings", "--looks", cls=RenamedOption, type=POSITIVE_COUNT, help="End after N readings.")
@json_option
def command(as_json: bool, **options: Any) -> None:
    """Observe the network functions of one Kubernetes node, and report to the service.

    Reads each pod's packet counters, which its annotation slomo.io/rate names, and sends its throughput if packets were
    dropped. Reads hardware counters of pods with a CPU to themselves. With --enforce, applies the service's plan for
    this node, and undoes it at the end.

    Example: slomo agent --node worker-1 --server http://slomo.slomo:8080 --token-file token
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    counts = asyncio.run(_observe(**options))
    tell(counts, f"looks: {counts}", as_json=as_json)


async def _observe(
    node: str,
    service: str,
    token_file: str | None,
    kubernetes: str,
    every_s: int,
    readings: int | None,
    counters: str = "auto",
    enforce: str | None = None,
) -> dict[str, int]:
    from slomo.client import AsyncClient
    from slomo.files.opening import read_text
    from slomo.service.kubernetes.agent import NodeAgent
    from slomo.service.kubernetes.counting import PodCounting
    from slomo.service.kubernetes.enforcing import NodeEnforcer
    from slomo.service.kubernetes.view import ClusterView
    from slomo.service.kubernetes.watch import Watch

    token = None if token_file is None else read_text(Path(token_file)).strip()
    enforcer = None if enforce is None else NodeEnforcer.of(node, enforce)
    stop = asyncio.Event()
    with contextlib.suppress(NotImplementedError, RuntimeError):  # only the main thread can handle signals
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with AsyncClient(service, token=token) as client:
        watch = Watch(kubernetes, ClusterView())
        agent = NodeAgent(watch, node, client, PodCounting.of(counters), enforcer=enforcer)
        done = 0
        try:
            while not stop.is_set() and (readings is None or done < readings):
                try:
                    await agent.look()
                except SlomoError as error:
                    note(f"{type(error).__name__}: {error}")
                done += 1
                if readings is None or done < readings:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(stop.wait(), every_s)
        finally:
            await agent.end()
            await watch.close()
    return dict(agent.counts)
