"""`slomo demo`: profile, train and predict on the simulator; compare predicted with simulated slowdown.

A small version of SLOMO's (SIGCOMM'20) evaluation on its two machines: profile, train, predict mixes that were never
run, run them, compare.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slomo.cli.options import jobs_option, json_option, machine_option, seed_option, settings
from slomo.cli.output import emit_json, emit_table, note
from slomo.cli.progress import announce_compilation
from slomo.cli.types import DIR
from slomo.files.durable import write_durably

if TYPE_CHECKING:
    from slomo.evaluation.evaluate import Evaluation
    from slomo.models.library import ModelLibrary
    from slomo.prediction.result import Prediction
    from slomo.records.dataset import ProfileDataset

#: Network functions: some are sensitive, some contentious, some neither.
NETWORK_FUNCTIONS = ("lpm", "stats", "mazunat", "snort", "endre", "firewall")
#: Sizes of the demonstration: it takes a minute or two on two cores, and models are accurate enough to be shown.
RUNS, CALIBRATION_MIXES, TEST_MIXES, SHOWN_MIXES = 48, 60, 40, 12


@dataclass(frozen=True)
class Demonstration:
    """All results that `slomo demo` prints, in order."""

    dataset: "ProfileDataset"
    library: "ModelLibrary"
    predictions: "tuple[Prediction, ...]"
    measured_mpps: tuple[float, ...]
    evaluation: "Evaluation"


@click.command()
@click.option("--out", required=True, type=DIR, help="Directory for dataset, models and report.")
@machine_option
@jobs_option
@seed_option
@json_option
def command(out: str, as_json: bool, **options: Any) -> None:
    """Profile, train, predict mixes that were never run, simulate these mixes, and compare. Needs no special hardware.

    Writes profile.parquet, models/ and report.html to DIR; runs that DIR already holds are not repeated.
    """
    chosen = settings(**options)
    started = time.perf_counter()
    folder = Path(out)
    announce_compilation()
    made = _demonstrate(folder, chosen.machine, chosen.seed, chosen.jobs or None)
    report = folder / "report.html"
    write_durably(report, _page(made, chosen.machine))
    if as_json:
        emit_json(_document(made, report))
    else:
        _show(made)
    note(f"report: {report} ({time.perf_counter() - started:.0f} s)")


def _demonstrate(folder: Path, machine: str, seed: int, jobs: int | None) -> Demonstration:
    from slomo.records.storage import save_dataset
    from slomo.vocabulary.machine import load_machine
    from slomo.workflow.evaluate import evaluate
    from slomo.workflow.predict import predict
    from slomo.workflow.profile import plan_experiments, profile
    from slomo.workflow.progress import ProgressBar
    from slomo.workflow.train import train

    load_machine(machine)  # an unknown machine, as a missing extra above, is told before a folder is made
    folder.mkdir(parents=True, exist_ok=True)
    common: dict[str, Any] = {"machine": machine, "seed": seed, "jobs": jobs}
    note(f"1/4 profiling {len(NETWORK_FUNCTIONS)} network functions on {machine}, alone, under pressure and in mixes")
    with ProgressBar("measuring") as bar:
        profiled: dict[str, Any] = {
            "design": "sources",
            "runs": RUNS,
            "mixes": CALIBRATION_MIXES,
            "store": folder / "profile.sqlite",
        }
        dataset = profile(NETWORK_FUNCTIONS, plan="all", progress=bar, **profiled, **common)
    save_dataset(dataset, folder / "profile.parquet")
    note("2/4 training every model of the registry on them")
    library = train(dataset, seed=seed)
    library.save(folder / "models")
    note(f"3/4 predicting {TEST_MIXES} mixes that were never run")
    test: dict[str, Any] = {"plan": "mixes", "mixes": TEST_MIXES, "stream": "test"}
    mixes = plan_experiments(NETWORK_FUNCTIONS, machine=machine, seed=seed, **test).colocations
    predictions = tuple(predict(mix.target, mix.competitors, library) for mix in mixes if mix.target is not None)
    note("4/4 running these mixes to see whether that was right")
    with ProgressBar("running mixes") as bar:
        tested = profile(NETWORK_FUNCTIONS, store=folder / "mixes.sqlite", progress=bar, **test, **common)
    frame = tested.frame
    measured = tuple(frame.loc[frame["tenant"] == 0, "throughput_mpps"].tolist())
    return Demonstration(dataset, library, predictions, measured, evaluate(library, tested))


def _page(made: Demonstration, machine: str) -> str:
    from importlib.metadata import version

    from slomo.evaluation.baselines import default_of
    from slomo.prediction.predictor import Predictor
    from slomo.report import sections
    from slomo.report.html import render_html
    from slomo.vocabulary.machine import load_machine

    host, answering = load_machine(machine), default_of(made.evaluation.models)
    assert answering is not None, "BUG: an evaluation without the default"
    parts = [
        sections.accuracy_section(made.evaluation),
        sections.scatter_section(made.evaluation, answering),
        sections.per_nf_section(made.evaluation, [answering]),
        sections.pairs_section(Predictor(made.library), instances=host.cores_per_socket - 1),
        *(sections.surface_section(made.dataset, target, llc_mib=host.llc_mib) for target in made.dataset.targets[:2]),
        sections.mixes_section(made.predictions, made.measured_mpps),
        sections.dataset_section(made.dataset),
    ]
    lead = (
        f"Network functions profiled on a simulated {host.description}, and predicted in mixes they were never run in."
    )
    headline = sections.headline(made.evaluation, answering)
    by = f"Made by slomo {version('slomo')}, seed {made.dataset.environment.get('seed')}."
    footer = f"{by} The simulator is the ground truth here; a rack may differ."
    return render_html("Predicted and simulated slowdown", parts, headline=headline, lead=lead, footer=footer)


def _show(made: Demonstration) -> None:
    from slomo.evaluation.baselines import default_of
    from slomo.report.sections import mixes_rows
    from slomo.report.tables import accuracy_table

    table = mixes_rows(made.predictions[:SHOWN_MIXES], made.measured_mpps[:SHOWN_MIXES])
    click.echo(f"Mixes never run before ({SHOWN_MIXES} of {len(made.predictions)}; all are in the report)\n")
    emit_table([header.replace("measured", "simulated") for header in table.headers], table.rows)
    accuracy = accuracy_table(made.evaluation.to_dict()["models"])
    click.echo("\nErrors over all of them, every tenant a target once\n")
    emit_table(accuracy.headers, accuracy.rows)
    click.echo(f"\nslomo predict answers by '{default_of(made.evaluation.models)}'; the others are for comparison")


def _document(made: Demonstration, report: Path) -> dict[str, Any]:
    mixes = [
        {
            "target": item.target.nf,
            "competitors": [workload.nf for workload in item.competitors],
            "predicted_slowdown": item.slowdown,
            "simulated_slowdown": 1.0 - measured / item.solo_mpps,
            "verdict": str(item.verdict),
        }
        for item, measured in zip(made.predictions, made.measured_mpps, strict=True)
    ]
    return {"report": str(report), "mixes": mixes, "evaluation": made.evaluation.to_dict()}
