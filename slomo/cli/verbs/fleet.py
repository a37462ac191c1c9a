"""`slomo fleet`: measure network functions on many hosts (a campaign)."""

from typing import TYPE_CHECKING

import click

from slomo.cli.options import json_option, own_network_functions, own_nf_option, scheduler_option
from slomo.cli.output import emit, emit_json, emit_table, note
from slomo.cli.types import DATASET, FILE
from slomo.errors import ConfigurationError, UsageError
from slomo.units import plural

if TYPE_CHECKING:
    from slomo.profiling.plans.plan import ExperimentPlan


@click.group()
def command() -> None:
    """Measure on many hosts at once."""


@command.command("profile")
@click.argument("plan", metavar="PLAN", type=click.Path())
@click.option("--hosts", required=True, type=FILE, help="YAML file that names the hosts.")
@click.option("--out", type=DATASET, help="Dataset to write: .parquet, .csv or a directory.")
@click.option("--store", type=FILE, help="File in which collected runs are kept; by default DATASET.runs.sqlite.")
@scheduler_option
@click.option("--skip-missing", is_flag=True, help="Continue without hosts that cannot be used.")
@click.option(
    "--dry-run", is_flag=True, help="Print the number of runs, their duration and cost, without starting any."
)
@own_nf_option
@json_option
def profile(
    plan: str,
    hosts: str,
    out: str | None,
    store: str | None,
    scheduler: str | None,
    skip_missing: bool,
    dry_run: bool,
    nf_files: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run PLAN, which `slomo profile NF... --dry-run --save-plan PLAN` wrote, on all hosts.

    Ctrl-C keeps finished runs. The same command, started again, collects the runs that the hosts have finished and
    continues.
    """
    from slomo.fleet.campaign import describe_on_hosts, profile_on_hosts
    from slomo.fleet.hosts import load_fleet
    from slomo.records.storage import save_dataset
    from slomo.testbed.registry import make_testbed
    from slomo.workflow.progress import ProgressBar

    experiments, fleet = _plan(plan), load_fleet(hosts)
    if out is None and not dry_run:
        raise UsageError("no file is named for the dataset", hint="add --out profile.parquet, or --dry-run")
    store = store or f"{out or plan}.runs.sqlite"
    own = own_network_functions(nf_files)
    if dry_run:
        testbed = make_testbed(fleet.testbed, experiments.machine, own)
        described = describe_on_hosts(experiments, fleet, store, testbed.estimate_s)
        each = [(s.name, s.runs, s.busy_s, s.cost) for s in described.shares]
        emit(described, ("host", "runs", "busy [s]", "cost"), each, as_json=as_json)
        if not as_json:
            note(str(described))
        return
    assert out is not None
    with ProgressBar("measuring") as bar:
        done = profile_on_hosts(
            experiments, fleet, store, scheduler=scheduler, own=own, skip_missing=skip_missing, progress=bar
        )
    save_dataset(done.dataset, out)
    for host, why in done.left_out.items():
        note(f"note: host '{host}' was left out: {why}")
    if as_json:
        emit_json({"out": out, "rows": len(done.dataset), "hosts": done.shares, "left_out": done.left_out})
        return
    rows = [(s.name, s.runs, s.busy_s, 100.0 * s.busy_s / max(done.wall_s, 1e-9), s.cost) for s in done.shares]
    emit_table(("host", "runs", "busy [s]", "busy [%]", "cost"), rows)
    collected = f", {plural(done.collected, 'run')} collected from before" if done.collected else ""
    note(f"{plural(len(done.dataset), 'row')} written to {out}{collected}")


def _plan(path: str) -> "ExperimentPlan":
    from slomo.files.documents import in_document, parse
    from slomo.files.opening import read_text
    from slomo.profiling.plans.plan import ExperimentPlan

    hint = "write one: slomo profile NF... --dry-run --save-plan plan.json"
    data = parse(read_text(path, limit=1 << 28, hint=hint), path, hint).table(hint)
    try:
        with in_document(path):
            return ExperimentPlan.from_dict(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigurationError(f"{path}: is no plan: {error!r}", hint=hint) from None
