"""`slomo chain`: service chains whose stages may share cores."""

from typing import TYPE_CHECKING

import click

from slomo.cli.options import json_option
from slomo.cli.output import emit_json, emit_table, note

if TYPE_CHECKING:
    from slomo.testbed.host.chains.looks import HostChainResult


@click.group()
def command() -> None:
    """Run service chains whose stages may share cores."""


@command.command("run")
@click.argument("document", metavar="CHAINS.yaml", type=click.Path())
@click.option("--policy", metavar="NAME", default="nfvnice", show_default=True, help="nfvnice, cfs, batch or rr.")
@click.option("--scheduler", metavar="NAME", help="Under which nfvnice works: cfs (default), batch or rr.")
@click.option(
    "--without", multiple=True, metavar="PART", help="Leave out a part of nfvnice, repeatable: shares, pressure, local."
)
@click.option("--seconds", type=float, default=2.0, show_default=True, metavar="S", help="How long to measure.")
@click.option("--manager-core", type=click.IntRange(min=0), metavar="CPU", help="CPU of the manager and the traffic.")
@click.option(
    "--build", type=click.Choice(["portable", "dpdk"]), default="portable", show_default=True, help="Of slomo-nf."
)
@json_option
def run(
    document: str,
    policy: str,
    scheduler: str | None,
    without: tuple[str, ...],
    seconds: float,
    manager_core: int | None,
    build: str,
    as_json: bool,
) -> None:
    """Run chains as processes on this machine, and say what got through.

    cfs, batch and rr are the kernel's schedulers alone (SCHED_OTHER, SCHED_BATCH, SCHED_RR). nfvnice adds weights by
    arrivals and costs, and back-pressure to the chains' entries. Needs a C compiler; weights need the right to make
    control groups, rr the right to set a scheduler: without them it runs, and says what to grant.
    """
    from dataclasses import asdict

    from slomo.testbed.host.chains.plan import ChainRunSettings
    from slomo.workflow.chain import run_chains_on_host

    settings = ChainRunSettings(
        seconds=seconds, manager_core=manager_core, build="dpdk" if build == "dpdk" else "portable"
    )
    result = run_chains_on_host(document, policy, scheduler=scheduler, without=without, settings=settings)
    for text in result.notes:
        note(text)
    if as_json:
        summary = {"policy": policy, "delivered_mpps": result.delivered_mpps, "wasted": result.wasted}
        emit_json({**summary, "fairness": result.fairness, **asdict(result)})
        return
    _print(result)


def _print(result: "HostChainResult") -> None:
    emit_table(
        ("chain", "offered [Mpps]", "delivered [Mpps]", "lost at entry", "lost behind [%]", "p50 [us]", "p99 [us]"),
        [
            (c.name, c.offered_mpps, c.delivered_mpps, c.lost_at_entry, 100 * c.wasted, c.p50_us, c.p99_us)
            for c in result.chains
        ],
    )
    emit_table(
        ("stage", "core share", "served [Mpps]", "cost [cycles]", "switches/s"),
        [
            (
                s.name,
                s.processor_share,
                s.served / result.seconds / 1e6,
                s.cost_cycles,
                round((s.voluntary_switches + s.involuntary_switches) / result.seconds),
            )
            for s in result.stages
        ],
    )
    note(
        f"wasted work {100 * result.wasted:.1f} %, Jain's index {result.fairness:.3f}, "
        f"control {100 * result.control_share:.2f} % of a core, {result.weight_writes} weights written"
    )
