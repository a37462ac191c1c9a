"""`slomo profile`: measure network functions alone, beside the synthetic competitor and in mixes."""

import json
from typing import TYPE_CHECKING, Any

import click

from slomo.cli.options import RenamedOption, machine_option, own_network_functions, run_options, settings
from slomo.cli.output import emit, emit_json, note, output_path
from slomo.cli.progress import announce_compilation
from slomo.cli.types import COUNT, DATASET, FILE, NF, POSITIVE_COUNT
from slomo.errors import InvalidValueError, UnknownNameError, UsageError
from slomo.extras import need
from slomo.files.stored import stored
from slomo.units import plural

if TYPE_CHECKING:
    from slomo.profiling.adaptive.outcome import AdaptiveOutcome
    from slomo.testbed.base import Testbed
    from slomo.vocabulary.machine import Machine

#: Plans that measure partitions; each run is chosen by the results before it, and the results are profiles, not
#: datasets.
_OVER_PARTITIONS = ("ways", "partitions", "resource-table")


@click.command()
@click.argument("network_functions", metavar="[NF...]", nargs=-1, type=NF)
@machine_option
@click.option(
    "--plan",
    default="all",
    metavar="PLAN",
    help="solo, pressure (solo and under pressure), mixes, all, accelerator (beside a competitor for an "
    "accelerator), ways (throughput over cache ways, latency over load), partitions (throughput over "
    "ways, throttles and memory traffic), or resource-table (partitions, and a printed table of what each"
    " NF needs for 1 to 10 Gbit/s).",
)
@click.option(
    "--design",
    default="sources",
    metavar="DESIGN",
    help="Design of the pressure settings: sources (cache, I/O and memory in turn), farthest (the five "
    "of these that differ most, then others), grid, slomo-grid (as published), sobol, adaptive (those of "
    "`sources` in turn, until the error is small), or link (all memory on the other socket, for ranking metrics).",
)
@click.option(
    "--runs",
    type=POSITIVE_COUNT,
    help="Number of settings of the design per NF; by default 588, with design `adaptive` at most 60, with "
    "`farthest` 10.",
)
@click.option(
    "--target-error",
    metavar="SHARE",
    help="Held-out error relative to solo throughput at which design `adaptive` stops; by default 2%.",
)
@click.option("--mixes", type=COUNT, help="Number of mixes to run; by default up to 200, 0 for none.")
@click.option(
    "--mix",
    "named_mixes",
    multiple=True,
    metavar="MIX",
    help="Run only this mix, such as '2 x lpm + stats'; repeatable, instead of NF.",
)
@click.option(
    "--stream",
    type=click.Choice(["calibration", "test"]),
    help="Half of all mixes from which mixes are drawn; by default calibration with plan `all`, test with plan"
    " `mixes`.",
)
@click.option(
    "--latency",
    is_flag=True,
    help="Afterwards also measure latency at eight loads, alone and beside five sets of competitors: 48 runs per NF.",
)
@click.option(
    "--reduced-mixes",
    type=COUNT,
    default=0,
    help="Afterwards also run N mixes with network functions at 15 to 95 % of their solo throughput; 60 mixes "
    "suffice for the intervals of whole servers at reduced load.",
)
@click.option(
    "--packed-mixes",
    type=COUNT,
    default=0,
    help="Afterwards also run up to N mixes of the kind that placement puts on servers; 60 mixes suffice for "
    "the confidence of `slomo place`.",
)
@click.option("--replicates", type=POSITIVE_COUNT, default=1, help="Number of runs of every experiment.")
@click.option("--out", type=DATASET, help="Dataset to write: .parquet, .csv or a directory.")
@click.option("--store", type=FILE, help="File in which finished runs are kept; by default DATASET.runs.sqlite.")
@click.option("--testbed", metavar="NAME", help="simulated, replay or host. [setting: testbed]")
@click.option("--source", type=DATASET, help="Recorded runs for testbed `replay`: a dataset, or a campaign's store.")
@click.option(
    "--host-file",
    "--host",
    cls=RenamedOption,
    type=FILE,
    help="YAML file that describes testbed `host`: cores, counters, settings, generator.",
)
@click.option("--dry-run", is_flag=True, help="Print the runs, their number and duration, without starting any.")
@click.option("--save-plan", type=FILE, help="With --dry-run: write the plan to FILE, for `slomo fleet profile`.")
@run_options
def command(
    out: str | None,
    store: str | None,
    dry_run: bool,
    save_plan: str | None,
    as_json: bool,
    named_mixes: tuple[str, ...],
    **options: Any,
) -> None:
    """Measure network functions alone, beside the synthetic competitor, and in mixes of each other.

    Ctrl-C keeps finished runs; the same command, started again, continues from them.

    NF is a name, or NAME(knob=value,...)@1500B,1000f for another configuration or traffic; --nf FILE adds a network
    function of your own.

    Example: slomo profile lpm stats --runs 120 --out profile.parquet
    """
    if settings(testbed=options["testbed"]).testbed == "host":
        need("pandas", "pyarrow", "scipy", extra="host")  # the extra of `profile` would install the simulator, too
    from slomo.workflow.campaign import PLANS

    if bool(named_mixes) == bool(options["network_functions"]):
        raise UsageError(
            "network functions and --mix were given" if named_mixes else "which network functions?",
            hint="slomo profile NF..., or slomo profile --mix '2 x lpm'",
        )
    if named_mixes and (options["mixes"] is not None or options["plan"] not in ("all", "mixes")):
        raise UsageError("--mix names the mixes to run; --mixes or --plan ask for others", hint="leave them out")
    if named_mixes:
        options |= {"plan": "mixes", "mixes": named_mixes}
    if options["plan"] not in (every_plan := (*PLANS, *_OVER_PARTITIONS)):
        raise UnknownNameError("plan", options["plan"], every_plan)
    if options["plan"] in _OVER_PARTITIONS:
        if dry_run:
            raise UsageError(
                f"--dry-run cannot describe --plan {options['plan']}: each run depends on those before it",
                hint="leave --dry-run out; without --out the table is printed only",
            )
        if unused := [name for name in ("runs", "mixes") if options[name] is not None]:
            raise UsageError(
                f"--{unused[0]} was given with --plan {options['plan']}, which chooses its runs itself",
                hint="leave it out",
            )
        _show_partitions(out, as_json, **options)
        return
    options["target_error"] = _target_error(options["target_error"], options["design"])
    if out is None and not dry_run:
        raise UsageError(
            "no file is named for the dataset", hint="add --out profile.parquet, or --dry-run to see what would run"
        )
    store = store or (None if out is None else f"{out.rstrip('/')}.runs.sqlite")
    if save_plan is not None and not dry_run:
        raise UsageError("--save-plan was given without --dry-run", hint="add --dry-run: nothing is run here then")
    if dry_run:
        _describe(store, as_json, save_plan, **options)
    else:
        assert out is not None
        _measure(out, store, as_json, **options)


def _arguments(
    testbed: str | None,
    source: str | None,
    host_file: str | None,
    nf_files: tuple[str, ...],
    machine: str | None,
    seed: int | None,
    **options: Any,
) -> dict[str, Any]:
    """Make the testbed, and return the keyword arguments of `workflow.profile`, which include it."""
    from slomo.config import Settings
    from slomo.profiling.campaign.store import stored_records
    from slomo.testbed.registry import machine_of, make_testbed

    chosen = settings(testbed=testbed, machine=machine, seed=seed, jobs=options.pop("jobs"))
    if source is not None and chosen.testbed != "replay":
        raise UsageError(
            f"--source was given to testbed '{chosen.testbed}', which replays nothing", hint="add --testbed replay"
        )
    if host_file is not None and chosen.testbed != "host":
        raise UsageError(
            f"--host-file was given to testbed '{chosen.testbed}', which is no real machine", hint="add --testbed host"
        )
    host: Machine = machine_of(chosen.testbed, chosen.machine, Settings.machine)
    own = own_network_functions(nf_files)
    if host_file is None:
        recorded = stored_records(source) if source is not None and source.endswith(".sqlite") else source
        made: Testbed = make_testbed(chosen.testbed, host, own, recorded)
    else:
        from slomo.testbed.host.host_file import load_host

        made = load_host(host_file, host, own)
    return {**options, "machine": host, "testbed": made, "seed": chosen.seed, "jobs": chosen.jobs or None}


def _target_error(text: str | None, design: str) -> float | None:
    """Return a target error given as ``2%`` or ``0.02``."""
    if text is None:
        return None
    if design != "adaptive":
        raise UsageError(f"--target-error was given to design '{design}'", hint="add --design adaptive")
    try:
        return float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        raise InvalidValueError(f"target error is '{text}', needed a share", hint="2% or 0.02") from None


def _describe(store: str | None, as_json: bool, save_plan: str | None, **options: Any) -> None:
    from slomo.files.durable import write_durably
    from slomo.profiling.campaign.description import describe_campaign, duration_text
    from slomo.profiling.plans.latency_plans import LOADS, PRESSURES
    from slomo.profiling.plans.reduced_mixes import part_load_runs
    from slomo.simulator.first_compile import is_compiled
    from slomo.workflow.profile import plan_experiments

    arguments = _arguments(**options)
    testbed, jobs, latency = arguments.pop("testbed"), arguments.pop("jobs"), arguments.pop("latency")
    reduced, packed, _ = (arguments.pop(name) for name in ("reduced_mixes", "packed_mixes", "scheduler"))
    plan, mixes = plan_experiments(**arguments), 0
    if save_plan is not None:
        write_durably(save_plan, json.dumps(plan.to_dict()) + "\n")
    elif arguments["plan"] == "all":
        known, plan = len(plan), plan_experiments(**arguments | {"mixes": 0})
        mixes = (known - len(plan)) * plan.replicates
    described = describe_campaign(plan, testbed, store, jobs)
    contended, targets = arguments["plan"] in ("all", "pressure"), len(arguments["network_functions"])
    idle = part_load_runs(arguments["design"], arguments["runs"]) if contended else 0
    timed = len(LOADS) * (1 + PRESSURES) if latency else 0
    more = mixes + targets * (idle + timed) + reduced + packed
    whole_s = described.with_more_s(more)
    compiles = testbed.name == "simulated" and not is_compiled()
    if as_json:
        after = {
            "mixes": mixes,
            "part_load_runs": idle * targets,
            "later_runs": more,
            "whole_s": whole_s,
            "compiles_first": compiles,
        }
        emit_json({"dry_run": True, **described.to_dict(), **after})
    else:
        click.echo(str(described))
        if compiles:
            click.echo("  before that up to a minute to compile the simulator, once per installation")
        if arguments["design"] == "adaptive":
            click.echo("  these are sure; what else is run, within the plan's most, depends on what comes of them")
        if mixes:
            share = "a third each that contend for cache, I/O and memory, as far as they can"
            click.echo(f"  then {plural(mixes, 'mix', 'mixes')}, {share}")
        if save_plan is not None and arguments["plan"] == "all":
            click.echo("  its mixes are drawn at random: no profile tells yet what they contend for")
        if idle:
            click.echo(f"  then {plural(idle, 'run')} per network function at 15 to 95 % of what it served alone")
        if timed:
            each = f"{plural(timed, 'run')} per network function"
            click.echo(f"  then {each} for latency, at loads that depend on what it served")
        later = (
            (reduced, "mixes at reduced load, as shares of what the network functions served alone"),
            (packed, "mixes or fewer, as placement fills servers"),
        )
        for count, what in filter(all, later):
            click.echo(f"  then {count} {what}")
        if more:
            click.echo(f"  in all {plural(described.pending + more, 'run')}, about {duration_text(whole_s)}")


def _measure(out: str, store: str | None, as_json: bool, **options: Any) -> None:
    from slomo.records.schema import PACKED
    from slomo.records.storage import save_dataset
    from slomo.workflow.profile import profile
    from slomo.workflow.progress import ProgressBar

    arguments = _arguments(**options)
    output_path(out, "dataset", ("", ".parquet", ".csv"))
    announce_compilation()
    outcomes: list[AdaptiveOutcome] = []
    with ProgressBar("measuring") as bar:
        dataset = profile(**arguments, store=store, progress=bar, report=outcomes.append)
    save_dataset(dataset, out)
    if as_json:
        emit_json(
            {
                **({"adaptive": [outcome.to_dict() for outcome in outcomes]} if outcomes else {}),
                "out": out,
                "store": store,
                "rows": len(dataset),
                "unconverged": len(dataset) - len(dataset.converged()),
                "machine": arguments["machine"].name,
                "targets": list(dataset.profiled_targets),
                **({"mixes": dataset.environment["mixes"]} if "mixes" in dataset.environment else {}),
                **({"packed_mixes": len(dataset.environment[PACKED])} if PACKED in dataset.environment else {}),
            }
        )
    else:
        for outcome in outcomes:
            note(str(outcome))
        note(f"{plural(len(dataset), 'row')} of {plural(len(dataset.profiled_targets), 'target')} written to {out}")
        if "mixes" in dataset.environment:
            note(str(dataset.environment["mixes"]))
        if PACKED in dataset.environment:
            note(f"{plural(len(dataset.environment[PACKED]), 'mix', 'mixes')} as placement fills servers")
        if open_ended := len(dataset) - len(dataset.converged()):
            note(f"note: {open_ended} of them did not converge; they are kept, and train nothing")


def _show_partitions(out: str | None, as_json: bool, **options: Any) -> None:
    """Measure NFs with different cache ways and throttles; write the profile to `out`, print a table of the plan."""
    from slomo.models.partition_profile import save_profiles
    from slomo.placement.chains.allocation import resource_rows
    from slomo.workflow.names import workloads_of

    need("pandas", "numba", extra="simulate")  # checked together, before the imports check them one by one
    from slomo.workflow.acting.partition_profile import learn_partitions
    from slomo.workflow.profile_ways import profile_ways

    arguments = _arguments(**options)
    testbed, machine, seed, plan = (arguments[name] for name in ("testbed", "machine", "seed", "plan"))
    workloads = workloads_of(arguments["network_functions"])
    announce_compilation()
    profile = (profile_ways if plan == "ways" else learn_partitions)(testbed, machine, workloads, seed=seed)
    responses = profile.responses.values()
    if out is not None:
        save_profiles([profile], out)
    head: tuple[str, ...]
    table: list[tuple[Any, ...]]
    if plan == "resource-table":
        headers = ("workload", "gbps", "mpps", "cores", "ways", "memory_percent", "memory_gb_s")
        table = [row for each in responses for row in resource_rows(each, machine, range(1, 11))]
        shown: dict[str, Any] = {
            "machine": machine.name, "rows": [dict(zip(headers, row, strict=True)) for row in table]
        }  # fmt: skip
        head = ("nf", "Gbit/s", "Mpps", "cores", "LLC ways", "memory bandwidth [%]", "moved [GB/s]")
    else:
        table = [(each.workload, ways, mpps) for each in responses for ways, mpps in each.curve]
        shown, head = {"profiles": [stored(profile)]}, ("network function", "cache ways", "throughput [Mpps]")
    emit({"out": out, **shown}, head, table, as_json=as_json)
    if out is not None and not as_json:
        note(f"{plural(len(responses), 'profile')} in {out}")
