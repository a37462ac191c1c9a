"""`slomo whatif`: what every tenant would do under a partition, and the smallest change that keeps all SLOs."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from slomo.cli.asking import asked_about_socket, server_option
from slomo.cli.options import complete_machines, json_option
from slomo.cli.output import emit_json, emit_table, note

if TYPE_CHECKING:
    from slomo.vocabulary.machine import Machine
    from slomo.vocabulary.workload import Workload
    from slomo.workflow.acting.whatif import PartitionAnswer, PartitionKnowledge

_HEADERS = ("tenant", "ways", "MBA [%]", "core", "memory", "Mpps", "low", "high", "SLO", "kept", "bottleneck", "lever")
#: Options with one number per tenant -> what they are of a partition.
_FIELDS = {"ways": "ways", "mba": "bandwidth_percent", "cores": "cores", "weights": "weights", "node": "nodes"}


@click.command()
@click.argument("mix", nargs=-1, required=True, metavar="MIX...")
@click.option("--machine", default="e5-2620v4", show_default=True, shell_complete=complete_machines, help="Where.")
@click.option("--ways", help="Way mask of each tenant, with commas: 0x3,0x3fc; all ways for all if not given.")
@click.option("--mba", help="Memory bandwidth throttle of each tenant [%], with commas.")
@click.option("--cores", help="Core of each tenant, with commas: who has the same shares it. One each if not given.")
@click.option("--weights", help="CPU weight of each tenant on a shared core, with commas.")
@click.option("--node", help="Node of each tenant's memory, with commas; that of its core if not given.")
@click.option("--slo", multiple=True, metavar="PLACE=SHARE", help="Promise: 0=0.9 is 90 % of solo for the first.")
@click.option("--advise", "with_advice", is_flag=True, help="Search the smallest change that keeps all promises.")
@click.option("--profile", "profile_file", metavar="FILE", help="Keep what was profiled here, and take it from here.")
@server_option
@json_option
def command(
    mix: tuple[str, ...],
    machine: str,
    slo: tuple[str, ...],
    with_advice: bool,
    profile_file: str | None,
    service: str | None,
    as_json: bool,
    **given: str | None,
) -> int:
    """Predict MIX, for instance `2xlpm snort`, under cache ways, throttles, CPU weights and memory nodes.

    Each distinct tenant is profiled on the simulator over ways, memory noise and throttles; --profile keeps that.
    With --server the service answers from its models, without ways: what each loses, and what it costs the others.

    Exit code 1 where a promise is predicted to break (with --advise: where no change was found).
    """
    from slomo.vocabulary.machine import load_machine
    from slomo.workflow.acting.whatif import AskedPartition, what_if

    if service is not None:
        return asked_about_socket(service, mix, machine, as_json=as_json)
    where, tenants = load_machine(machine), _tenants(mix)
    answer = what_if(
        _knowledge(profile_file, where, tenants),
        tenants,
        where,
        AskedPartition(**{_FIELDS[name]: _numbers(text, 0) for name, text in given.items()}),
        slo_share=_promises(slo, len(tenants)),
        with_advice=with_advice,
    )
    if as_json:
        advice = None if answer.advice is None else answer.rows(answer.advice)
        emit_json({"machine": machine, "tenants": answer.rows(), "advice": advice})
    else:
        _print(answer, with_advice)
    final = answer.advice if with_advice else answer.outlook
    return int(final is None or not final.kept)


def _print(answer: "PartitionAnswer", with_advice: bool) -> None:
    emit_table(_HEADERS, [_row(row) for row in answer.rows()])
    if not with_advice:
        return
    click.echo()
    if answer.advice is None:
        click.echo(
            "no change of ways, throttles, weights and memory nodes keeps every promise: move a tenant elsewhere"
        )
    elif answer.advice.settings == answer.situation.settings:
        click.echo("every promise holds as it is")
    else:
        click.echo("smallest change that keeps every promise:")
        emit_table(_HEADERS, [_row(row) for row in answer.rows(answer.advice)])


def _row(row: dict[str, object]) -> tuple[object, ...]:
    names = ("throughput_mpps", "low_mpps", "high_mpps", "slo_mpps")
    values = tuple("-" if row[name] is None else row[name] for name in names)
    core, memory = row["core_share"], "remote" if row["remote_memory"] else "own node"
    return (
        row["tenant"],
        row["ways"],
        row["bandwidth_percent"],
        core,
        memory,
        *values,
        "yes" if row["kept"] else "NO",
        row["bottleneck"],
        row["lever"],
    )


def _tenants(mix: tuple[str, ...]) -> "list[Workload]":
    from slomo.vocabulary.workload_text import parse_workload

    tenants = []
    for text in mix:
        count, times, rest = text.partition("x")
        repeated = int(count) if times and count.isdigit() else 1
        tenants += [parse_workload(rest if times and count.isdigit() else text)] * repeated
    return tenants


def _knowledge(path: str | None, machine: "Machine", tenants: "list[Workload]") -> "PartitionKnowledge":
    from slomo.testbed.simulated import SimulatedTestbed
    from slomo.workflow.acting.whatif import PartitionKnowledge, learn_partitions

    if path is not None and Path(path).exists():
        return PartitionKnowledge.load(path)
    distinct = list(dict.fromkeys(tenants))
    note(f"profiling {len(distinct)} workload(s) over partitions of simulated {machine.name}")
    learned = learn_partitions(SimulatedTestbed(machine, scale=32, accesses=100_000), machine, distinct)
    if path is not None:
        learned.save(path)
        note(f"kept in {path}")
    return learned


def _promises(slo: tuple[str, ...], tenants: int) -> dict[int, float]:
    from slomo.errors import UsageError

    promises = {}
    for text in slo:
        place, _, share = text.partition("=")
        try:
            promises[int(place)] = float(share)
        except ValueError:
            raise UsageError(f"--slo '{text}' is not understood", hint="write 0=0.9") from None
        if not 0 <= int(place) < tenants or not 0.0 < promises[int(place)] <= 1.0:
            raise UsageError(f"--slo '{text}' for {tenants} tenants", hint="a place from 0 and a share up to 1")
    return promises


def _numbers(texts: str | None, base: int) -> list[int] | None:
    return None if texts is None else [_number(text, base) for text in texts.split(",")]


def _number(text: str, base: int) -> int:
    from slomo.errors import UsageError

    try:
        return int(text.strip(), base)
    except ValueError:
        raise UsageError(f"'{text}' is no number", hint="--ways 0x3,0x3fc --mba 100,50") from None
