"""`slomo probes`: predict pairs of applications from their run times beside probe programs, without counters.

The method is that of Bubble-Up (MICRO'11, section 3); `slomo.evaluation.probes` explains the range that applications'
phases cause.
"""

import click

from slomo.cli.options import json_option
from slomo.cli.output import emit
from slomo.cli.types import DATASET


@click.command()
@click.argument("tables", type=click.Path(), metavar="PROBES.json")
@click.option("--target", metavar="NAME", help="Application whose speed is predicted; by default every application.")
@click.option("--with", "beside", metavar="NAME", help="Application that runs beside it; by default every application.")
@click.option(
    "--measured",
    type=DATASET,
    help="Measured pairs (`slomo dataset import pairs.csv`), whose errors set the width of the intervals.",
)
@json_option
def command(tables: str, target: str | None, beside: str | None, measured: str | None, as_json: bool) -> None:
    """Predict how fast applications run beside one other application, from run times of two kinds of probe programs.

    PROBES.json comes from `slomo dataset import FOLDER --mapping MAP --out PROBES.json`, MAP being of kind `probes`.
    Performance is the speed beside the competitor divided by the solo speed; its range covers the competitor's phases.
    Without measured pairs the error is not known, and the verdict is `unknown`.
    """
    from slomo.evaluation.probes import COVERAGE, ProbeModel, measured_pairs
    from slomo.records.catalog import find_dataset
    from slomo.records.importing.probe_tables import load_probe_tables

    model = ProbeModel(load_probe_tables(tables))
    if measured is not None:
        model = model.calibrated(measured_pairs(find_dataset(measured)))
    targets = model.tables.names if target is None else (target,)
    competitors = model.tables.names if beside is None else (beside,)
    answers = [model.predict(one, other) for one in targets for other in competitors]
    rows = [
        (
            a.target,
            a.competitor,
            a.performance,
            f"{a.low:.3f} to {a.high:.3f}",
            f"{a.interval[0]:.3f} to {a.interval[1]:.3f}",
            f"{a.verdict}; {a.reason}".removesuffix("; "),
        )
        for a in answers
    ]
    head = ("target", "beside", "performance", "range", f"{100.0 * COVERAGE:.0f} % interval", "verdict")
    emit(answers, head, rows, as_json=as_json)
