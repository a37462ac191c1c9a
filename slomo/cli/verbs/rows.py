"""`slomo rows`: predict every row of an imported table from models of memory and accelerator, and print the errors.

Yala (ASPLOS'25) evaluates its models in this way: they are trained on one table per resource and tested on rows of
another table.
"""

from typing import TYPE_CHECKING, Any

import click

from slomo.cli.options import (
    coverage_option,
    json_option,
    machine_option,
    models_option,
    settings,
)
from slomo.cli.output import emit_json, emit_table, note
from slomo.cli.types import DATASET, MODEL, NF
from slomo.units import plural

if TYPE_CHECKING:
    from slomo.evaluation.rows import RowPredictions

_HEADERS = ("row", "predicted [Mpps]", "from", "to", "memory", "accelerator", "measured", "error [%]", "verdict", "why")


@click.command()
@click.argument("rows", metavar="DATASET", type=click.Path())
@click.option("--target", required=True, type=NF, help="The network function of the rows.")
@click.option(
    "--accelerator",
    type=DATASET,
    help="Imported runs of the accelerator alone, over match density; they are composed with memory.",
)
@click.option(
    "--pattern", type=click.Choice(["pipeline", "run-to-completion"]), default="pipeline",
    help="Composition of memory and --accelerator: the slower of the two, or the sum of their times.",
)  # fmt: skip
@models_option
@machine_option
@click.option("--model", type=MODEL, help="Sensitivity model; by default the best.")
@coverage_option
@click.option("--strict", is_flag=True, help="Exit with code 5 if the measurements do not support a row.")
@json_option
def command(
    rows: str,
    target: str,
    accelerator: str | None,
    pattern: str,
    model: str | None,
    strict: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Predict every row of an imported table, and compare predictions with measured throughputs.

    Example: slomo rows mixed.parquet --target flow-monitor --accelerator regex.parquet
    """
    from slomo.evaluation.rows import predict_rows
    from slomo.models.library import load_library
    from slomo.records.catalog import find_dataset
    from slomo.training.service_time_fit import service_time_of

    chosen = settings(**options)
    subject = load_library(chosen.models).find(target, options["machine"])
    line = None if accelerator is None else service_time_of(find_dataset(accelerator))
    predictions = predict_rows(
        subject, find_dataset(rows), line, pattern=pattern, family=model, coverage=chosen.coverage, strict=strict
    )
    table = predictions.to_frame()
    if as_json:
        about = {"model": predictions.model, "pattern": predictions.pattern, "coverage": predictions.coverage}
        emit_json({**about, "rows": table.to_dict("list")})
        return
    emit_table(_HEADERS, [(number + 1, *values) for number, values in enumerate(table.itertuples(index=False))])
    note(_summary(predictions))


def _summary(predictions: "RowPredictions") -> str:
    both = predictions.error_percent == predictions.error_percent  # NaN where either is missing
    heading = f"\nmodel {predictions.model}, {predictions.pattern}: "
    if not both.any():
        return f"{heading}{plural(len(both), 'row')}, none both predicted and measured"
    size = abs(predictions.error_percent[both])
    inside = (
        (predictions.low_mpps <= predictions.measured_mpps) & (predictions.measured_mpps <= predictions.high_mpps)
    )[both]
    return (
        f"{heading}mean error {size.mean():.2f} % over {plural(len(size), 'row')}, "
        f"{100 * inside.mean():.0f} % inside the {100 * predictions.coverage:g} % intervals"
    )
