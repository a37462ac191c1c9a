"""`slomo whatif`: predict all tenants of a server under given settings; find the smallest change that keeps SLOs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slomo.cli.asking import asked_about_socket, server_option
from slomo.cli.options import RenamedOption, json_option, prediction_options, settings
from slomo.cli.output import emit_json, emit_table, note, note_reasons
from slomo.cli.types import DIR, MACHINE
from slomo.errors import UnknownNameError, UsageError
from slomo.units import plural

if TYPE_CHECKING:
    from slomo.models.library import ModelLibrary
    from slomo.models.partition_profile import PartitionProfile
    from slomo.prediction.tenants import Named
    from slomo.vocabulary.machine import Machine
    from slomo.vocabulary.workload import Workload
    from slomo.workflow.acting.whatif import PartitionAnswer

_HEADERS = (
    "tenant", "ways", "MBA [%]", "share of core", "memory", "Mpps", "low", "high", "SLO", "kept", "verdict",
    "bottleneck", "lever",
)  # fmt: skip
#: Default machine.
_USUAL = "e5-2620v4"
#: Settings with one number per tenant; each is an option.
_PER_TENANT = ("ways", "bandwidth_percent", "cores", "weights", "nodes", "sockets")


@click.command()
@click.argument("mix", nargs=-1, required=True, metavar="MIX...")
@click.option(
    "--machine",
    type=MACHINE,
    help="Machine: a name or a YAML file. [default: e5-2620v4, or the only machine of --models]",
)
@click.option(
    "--ways",
    metavar="MASK,...",
    help="Way mask of each tenant, separated by commas: 0x3,0x3fc; by default all tenants share all ways.",
)
@click.option(
    "--bandwidth-percent",
    "--mba",
    cls=RenamedOption,
    metavar="PERCENT,...",
    help="Memory bandwidth throttle of each tenant (Intel MBA) [%], separated by commas.",
)
@click.option(
    "--cores",
    metavar="CORE,...",
    help="Core of each tenant, separated by commas; tenants with the same number share a core. By default each"
    " has its own, the first free one, which also decides its last-level cache.",
)
@click.option("--weights", metavar="N,...", help="CPU weight of each tenant on a shared core, separated by commas.")
@click.option(
    "--nodes",
    "--node",
    cls=RenamedOption,
    metavar="NODE,...",
    help="Memory node of each tenant, separated by commas; by default the node of its socket.",
)
@click.option(
    "--sockets",
    metavar="SOCKET,...",
    help="Socket of each tenant, separated by commas; by default all are on the socket of the NIC.",
)
@click.option(
    "--slo",
    multiple=True,
    metavar="PLACE=SHARE",
    help="Promise to the tenant at PLACE: 0=0.9 promises the first tenant 90 % of its solo throughput.",
)
@click.option(
    "--advise", "with_advice", is_flag=True, help="Find the smallest change of settings that keeps all promises."
)
@click.option("--models", type=DIR, help="Predict with trained models, as `slomo predict` does.")
@click.option(
    "--learn",
    is_flag=True,
    help="With --models: profile tenants without partition profiles (with --nodes: of other nodes); store them in DIR.",
)
@click.option(
    "--profiles",
    "--profile",
    "profile_file",
    cls=RenamedOption,
    metavar="FILE|DIR",
    help="File in which profiles are stored, and from which stored ones are read.",
)
@prediction_options
@server_option
@json_option
def command(
    mix: tuple[str, ...],
    machine: str | None,
    slo: tuple[str, ...],
    with_advice: bool,
    models: str | None,
    learn: bool,
    profile_file: str | None,
    port_gbps: float | None,
    model: str | None,
    coverage: float | None,
    service: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Predict throughputs in MIX, such as `lpm:2 snort`, under cache ways, throttles, CPU weights and memory nodes.

    MIX may also be one text, "2 x lpm + snort". With --models, trained models predict; --learn profiles tenants over
    ways, memory noise and throttles if needed. Without --models, each distinct tenant is profiled on the simulator;
    --profiles stores these profiles. With --server, a service predicts the loss of each tenant, and the loss that it
    causes to each other tenant.

    Exit code 1 if a promise is predicted to break (with --advise: if no change was found). A promise above the lower
    bound of its interval counts as kept, but "not certain".

    Example: slomo whatif lpm stats:2 --models slomo-models
    """
    from slomo.models.library import load_library
    from slomo.vocabulary.machine import load_machine
    from slomo.vocabulary.server_setting import ServerSetting
    from slomo.workflow.acting.whatif import require_possible, what_if
    from slomo.workflow.names import host_of, named

    listed = {name: text for name in _PER_TENANT if (text := options.pop(name)) is not None}
    values = {name: [_number(name, each) for each in text.split(",")] for name, text in listed.items()}
    setting = ServerSetting(**values, port_gbps=port_gbps)
    chosen = settings(model=model, method=options["method"], coverage=coverage)
    how = {**options, "model": chosen.model, "coverage": chosen.coverage}
    if service is not None:
        return asked_about_socket(service, mix, machine, setting, how, as_json=as_json)
    if learn and not models:
        raise UsageError("--learn was given without --models", hint="--profiles stores profiles without models")
    if profile_file and models:
        raise UsageError("--profiles and --models were given", hint="--learn stores profiles with the models")
    library = load_library(models) if models else None
    if machine is None and (library is None or _USUAL in library.machines):
        machine = _USUAL
    where = load_machine(machine or _USUAL) if library is None else host_of(library, machine)
    tenants = named(mix)
    promises = _promises(slo, len(tenants))
    require_possible(setting, where, len(tenants))  # before any profiling
    answer = what_if(
        _knowledge(profile_file, where, tenants)
        if library is None or models is None
        else _learned(library, models, where, tenants, nodes=setting.nodes is not None and where.sockets > 1)
        if learn
        else library,
        tenants,
        where,
        setting,
        slo_share=promises,
        with_advice=with_advice,
        **how,
    )
    if as_json:
        advice = None if answer.advice is None else answer.rows(advised=True)
        emit_json({"machine": where.name if machine is None else machine, "tenants": answer.rows(), "advice": advice})
    else:
        _print(answer, with_advice)
    return int(answer.advice is None or not answer.advice.kept) if with_advice else int(not answer.kept)


def _print(answer: "PartitionAnswer", with_advice: bool) -> None:
    _print_rows(answer.rows())
    if not with_advice:
        return
    click.echo()
    if answer.advice is None or answer.situation is None:
        click.echo(
            "no change of ways, throttles, weights and memory nodes keeps every promise: move a tenant elsewhere"
        )
    elif answer.advice.settings == answer.situation.settings:
        click.echo("every promise holds as it is")
    else:
        click.echo("smallest change that keeps every promise:")
        _print_rows(answer.rows(advised=True))


def _print_rows(rows: Sequence[dict[str, Any]]) -> None:
    emit_table(_HEADERS, [_row(row) for row in rows])
    note_reasons((row["tenant"], row["verdict"], row["reasons"]) for row in rows)


def _row(row: dict[str, Any]) -> tuple[object, ...]:
    names = ("throughput_mpps", "low_mpps", "high_mpps", "slo_mpps")
    values = tuple("-" if row[name] is None else row[name] for name in names)
    memory = "-" if "remote_memory" not in row else "remote" if row["remote_memory"] else "own node"
    return (
        row["tenant"],
        row.get("ways", "-"),
        row.get("bandwidth_percent", "-"),
        row.get("core_share", "-"),
        memory,
        *values,
        _kept(row),
        row["verdict"],
        row.get("bottleneck", "-"),
        row.get("lever", "-"),
    )


def _kept(row: dict[str, Any]) -> str:
    """Return whether a promise is kept; "not certain" if the interval's lower bound is below it."""
    if not row["kept"]:
        return "NO"
    return "yes" if row["slo_mpps"] is None or row["low_mpps"] >= row["slo_mpps"] else "not certain"


def _learned(
    library: "ModelLibrary", folder: str, machine: "Machine", tenants: "list[Named]", *, nodes: bool
) -> "ModelLibrary":
    """Return trained models; first profile tenants that lack profiles over cache ways and throttles, and store them.

    `nodes`: the profiles must also have runs with memory on another node.
    """
    missing = []
    for workload in _workloads(tenants):
        try:
            model = library.find(workload.nf if workload.nf in tenants else workload, machine.name)
        except UnknownNameError:
            missing.append(workload)
        else:
            known = model.allocation
            missing += [] if known is not None and (known.away_errors or not nodes) else [model.workload]
    if missing:
        library = _measured(machine, missing).added_to(library, machine)
        library.save(folder)
        note(f"kept in {folder}")
    return library


def _knowledge(path: str | None, machine: "Machine", tenants: "list[Named]") -> "Sequence[PartitionProfile]":
    from slomo.models.partition_profile import load_profiles, save_profiles

    if path is not None and Path(path).exists():
        return load_profiles(path)
    learned = _measured(machine, _workloads(tenants))
    if path is not None:
        save_profiles([learned], path)
        note(f"kept in {path}")
    return [learned]


def _workloads(tenants: "list[Named]") -> "list[Workload]":
    """Return each distinct workload at full load; a plain name means default traffic."""
    from slomo.vocabulary.workload import Workload

    return list(dict.fromkeys(Workload(each) if isinstance(each, str) else each.saturated for each in tenants))


def _measured(machine: "Machine", workloads: "list[Workload]") -> "PartitionProfile":
    from slomo.testbed.simulated import SimulatedTestbed
    from slomo.vocabulary.network_function import load_network_function, stage_names
    from slomo.workflow.acting.partition_profile import learn_partitions

    for name in dict.fromkeys(name for workload in workloads for name in stage_names(workload.nf)):
        load_network_function(name)  # report an unknown name before minutes of profiling
    note(f"profiling {plural(len(workloads), 'workload')} over partitions of simulated {machine.name}")
    return learn_partitions(SimulatedTestbed(machine, scale=32, accesses=100_000), machine, workloads)


def _promises(slo: tuple[str, ...], tenants: int) -> dict[int, float]:
    promises: dict[int, float] = {}
    for text in slo:
        place, _, share = text.partition("=")
        try:
            tenant, promised = int(place), float(share)
        except ValueError:
            raise UsageError(
                f"--slo '{text}' is not understood, needed a tenant's place, counted from 0, and a share of its solo",
                hint="write 0=0.9: the first tenant, 90 % of solo",
            ) from None
        if not 0 <= tenant < tenants or not 0.0 < promised <= 1.0:
            percent = f"{tenant}={promised / 100:g} for {promised:g} %"
            raise UsageError(
                f"--slo '{text}' for {tenants} tenants, needed a place from 0 and a share above 0 up to 1",
                hint=f"write {percent if 1.0 < promised <= 100.0 else '0=0.9 for the first tenant'}",
            )
        if tenant in promises:
            raise UsageError(f"--slo '{text}' is a second promise to tenant {tenant}, needed one")
        promises[tenant] = promised
    return promises


def _number(name: str, text: str) -> int:
    try:
        return int(text.strip(), 0)
    except ValueError:
        option = name.replace("_", "-")
        example = {"ways": "0x3,0x3fc: masks", "bandwidth_percent": "100,50: percent"}.get(name, "0,1")
        raise UsageError(
            f"--{option}: '{text}' is no whole number, needed one for each tenant", hint=f"write --{option} {example}"
        ) from None
