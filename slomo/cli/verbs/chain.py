"""`slomo chain`: service chains whose stages may share cores."""

from collections.abc import Sequence
from typing import Any

import click

from slomo.cli.options import RenamedOption, json_option, own_network_functions, settings, simulation_options
from slomo.cli.output import emit, emit_json, emit_table, figure_path, note
from slomo.cli.types import AMOUNT, COUNT, FILE, POSITIVE_COUNT, SECONDS
from slomo.files.stored import stored
from slomo.units import plural


@click.group()
def command() -> None:
    """Run and simulate service chains whose stages may share cores."""


@command.command("run")
@click.argument("document", metavar="CHAINS.yaml", type=click.Path())
@click.option("--policy", metavar="NAME", default="nfvnice", help="nfvnice, cfs, batch, rr; numasfp, octans, ...")
@click.option(
    "--cpu-scheduler",
    "--scheduler",
    "scheduler",
    cls=RenamedOption,
    metavar="NAME",
    help="Scheduler that nfvnice uses: cfs (default), batch or rr.",
)
@click.option(
    "--without",
    multiple=True,
    metavar="PART",
    help="Part of nfvnice to leave out, repeatable: shares, pressure, local, ecn.",
)
@click.option(
    "--window-s",
    "--seconds",
    "seconds",
    cls=RenamedOption,
    type=SECONDS,
    default=2.0,
    help="Length of the measurement.",
)
@click.option(
    "--interval-s",
    type=SECONDS,
    help="Time between decisions of numasfp, by the rates measured meanwhile (10 s, at most half of the run).",
)
@click.option("--manager-core", type=COUNT, metavar="CPU", help="CPU of the manager and of the traffic generator.")
@click.option("--build", type=click.Choice(["portable", "dpdk"]), default="portable", help="Build of slomo-nf.")
@click.option(
    "--storage-dir",
    metavar="DIR",
    help="Directory to which stages with `storage:` write; by default that of temporary files.",
)
@click.option(
    "--move",
    multiple=True,
    metavar="STAGE=CPU[:NODE]@S",
    help="Move a stage to a CPU and memory node at time S [s], without loss of packets; repeatable.",
)
@click.option("--figure", type=FILE, help="Draw rates and costs over time: .png, .svg or .pdf.")
@json_option
def run(
    document: str,
    policy: str,
    scheduler: str | None,
    without: tuple[str, ...],
    interval_s: float | None,
    move: tuple[str, ...],
    figure: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Run chains as processes on this machine under a policy, and print each chain's throughput and losses.

    cfs, batch and rr are the kernel's schedulers without additions (SCHED_OTHER, SCHED_BATCH, SCHED_RR). nfvnice adds
    weights by arrivals and costs, and back-pressure to the chains' entries. numasfp moves stages between memory nodes
    every interval, as their chains' rates change; octans, node-first, node-balance and node-balance-stages place them
    once, after the first interval. Needs a C compiler. Weights need the right to make control groups, and rr the right
    to set a scheduler; without these rights, the chains run with a note on what to grant.
    """
    from slomo.testbed.host.chains.moves import parse_move
    from slomo.testbed.host.chains.plan import ChainRunSettings
    from slomo.workflow.chains.on_host import run_chains_on_host

    place = figure_path(figure)
    series_ms = 0.0 if place is None else 100.0
    chosen = ChainRunSettings(moves=tuple(map(parse_move, move)), series_ms=series_ms, **options)
    result = run_chains_on_host(
        document,
        policy,
        scheduler=scheduler,
        without=without,
        settings=chosen,
        interval_s=interval_s,
        told=lambda moved: note(str(moved)),
    )
    if place is not None:
        from slomo.report.acting_figures import chains_over_time

        chains_over_time(result).savefig(place)
        note(f"rates and costs over time written to {place}")
    for text in result.notes:
        note(f"{document}: {text}")
    if as_json:
        summary = {"policy": policy, "delivered_mpps": result.delivered_mpps, "wasted": result.wasted}
        emit_json({**summary, "fairness": result.fairness, **stored(result)})
        return
    _emit(
        [
            (c.name, c.offered_mpps, c.delivered_mpps, c.lost_at_entry, 100 * c.wasted, c.p50_us, c.p99_us)
            for c in result.chains
        ],
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
    for chain in result.chains:
        if chain.tcp is not None:
            note(
                f"{chain.name}: kernel TCP, {chain.tcp.goodput_gbps:.3g} Gbit/s received, "
                f"{plural(chain.tcp.retransmitted, 'segment')} sent again, {chain.tcp.marked} marked (ECN)"
            )
    note(
        f"wasted work {100 * result.wasted:.1f} %, Jain's index {result.fairness:.3f}, "
        f"control {100 * result.control_share:.2f} % of a core, {result.weight_writes} weights written"
    )


def _emit(chains: Sequence[tuple[object, ...]], stages: Sequence[tuple[object, ...]]) -> None:
    headers = ("offered [Mpps]", "delivered [Mpps]", "lost at entry", "lost behind [%]", "p50 [us]", "p99 [us]")
    emit_table(("chain", *headers), chains)
    emit_table(("stage", "core share", "served [Mpps]", "cost [cycles]", "switches/s"), stages)


@command.command("predict")
@click.argument("document", metavar="CHAINS.yaml", type=click.Path())
@click.option("--policy", metavar="NAME", default="cfs", help="cfs or nfvnice.")
@click.option("--rounds", type=POSITIVE_COUNT, default=3, help="Number of measurements of each function.")
@click.option("--measure", is_flag=True, help="Also run the functions together, and show their measured throughput.")
@json_option
def predict(document: str, policy: str, rounds: int, measure: bool, as_json: bool) -> None:
    """Predict functions that share a core, from runs of each alone and beside a program that fills the cache.

    Every chain must have one stage, all on the same core. Each function runs for two half seconds per round. From these
    runs, the command computes the scheduler's turns, empty rings, and caches that are cold after other functions'
    turns.
    """
    from slomo.workflow.chains.shared_core import forecast_core

    stages = forecast_core(document, policy, rounds=rounds, measure=measure)
    emit(
        {"policy": policy, "stages": stages},
        ("stage", "predicted [Mpps]", "core share", "turns/s", *(("measured [Mpps]",) if measure else ())),
        [
            (
                stage.name,
                stage.predicted.mpps,
                stage.predicted.share,
                round(stage.predicted.turns_per_s),
                *((stage.measured_mpps,) if measure else ()),
            )
            for stage in stages
        ],
        as_json=as_json,
    )


@command.command("simulate")
@click.argument("document", metavar="CHAINS.yaml", type=click.Path())
@click.option(
    "--policy", metavar="NAME", default="nfvnice", help="nfvnice, or a scheduler without nfvnice: eevdf, cfs, rr, ..."
)
@click.option(
    "--cpu-scheduler",
    "--scheduler",
    "scheduler",
    cls=RenamedOption,
    metavar="NAME",
    default="cfs",
    help="Scheduler that nfvnice uses: eevdf, cfs, rr, ...",
)
@click.option("--quantum-ms", type=SECONDS, default=100.0, metavar="MS", help="Time slice of rr.")
@click.option(
    "--without", multiple=True, metavar="PART", help="Part of nfvnice to leave out, repeatable: shares, pressure."
)
@click.option(
    "--window-ms",
    "--ms",
    "duration_ms",
    cls=RenamedOption,
    type=SECONDS,
    default=500.0,
    metavar="MS",
    help="Simulated time over which packets are counted.",
)
@click.option("--warm-ms", type=AMOUNT, default=200.0, metavar="MS", help="Simulated warm-up time before counting.")
@simulation_options
def simulate(
    document: str, policy: str, nf_files: tuple[str, ...], seed: int | None, as_json: bool, **options: Any
) -> None:
    """Simulate chains on shared cores, with every cache-line access, and print each chain's throughput and losses.

    The document has the format of `slomo chain run`. cfs and batch are Linux's fair scheduler up to 6.5, eevdf and
    eevdf-batch the one since 6.6; rr is SCHED_RR. Ten million packets take about ten seconds.

    Example: slomo chain simulate chains.yaml
    """
    from slomo.vocabulary.service_chains import load_chains
    from slomo.workflow.chains.simulate import simulate_chains, unmarked_chains

    for name in unmarked_chains(load_chains(document), policy, options["without"]):
        note(f"{document}: chains.{name}.kind is tcp, but '{policy}' marks no packets (ECN): it hears of losses alone")
    functions, chosen_seed = own_network_functions(nf_files), settings(seed=seed).seed
    result = simulate_chains(document, policy, functions=functions, seed=chosen_seed, **options)
    if as_json:
        emit_json({"policy": policy, **stored(result)})
        return
    _emit(
        [
            (
                name,
                chain.offered_mpps,
                chain.throughput_mpps,
                chain.entry_dropped_mpps,
                100 * chain.wasted_mpps / max(chain.offered_mpps, 1e-12),
                chain.latency_us.get("p50"),
                chain.latency_us.get("p99"),
            )
            for name, chain in result.chains.items()
        ],
        [
            (
                name,
                stage.cpu_share,
                stage.processed_mpps,
                stage.cycles_per_packet,
                round(stage.voluntary_per_s + stage.involuntary_per_s),
            )
            for name, stage in result.stages.items()
        ],
    )
