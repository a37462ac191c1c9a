"""`slomo predict --rows`: every row of an imported table, memory and accelerator composed.

Yala (ASPLOS'25) judges its models so: trained on tables per resource, asked about rows of another one.
"""

from typing import Any

import numpy as np

from slomo.cli.output import emit_json, emit_table, note


def show_rows(
    target: str,
    rows: str,
    accelerator: str | None,
    pattern: str,
    *,
    models: str,
    machine: str | None,
    model: str | None,
    coverage: float,
    as_json: bool,
) -> None:
    """Print the prediction of every row, and how far off it is."""
    from slomo.evaluation.rows import predict_rows
    from slomo.records.catalog import find_dataset
    from slomo.training.service_time_fit import service_time_of
    from slomo.workflow.library import load_library

    known = load_library(models).find(target, machine)
    line = None if accelerator is None else service_time_of(find_dataset(accelerator))
    chosen: Any = pattern
    found = predict_rows(known, find_dataset(rows), line, pattern=chosen, family=model, coverage=coverage)
    table = found.to_frame()
    if as_json:
        emit_json({"model": found.model, "pattern": found.pattern, "coverage": coverage, "rows": table.to_dict("list")})
        return
    headers = ("row", "predicted [Mpps]", "from", "to", "memory", "accelerator", "measured", "error [%]", "verdict")
    emit_table(headers, [(number + 1, *values) for number, values in enumerate(table.itertuples(index=False))])
    known_rows = ~np.isnan(found.error_percent)
    told = f"\nmodel {found.model}, {found.pattern}: "
    if not known_rows.any():
        note(f"{told}{len(known_rows)} rows, none both predicted and measured")
        return
    size = np.abs(found.error_percent)[known_rows]
    inside = ((found.low_mpps <= found.measured_mpps) & (found.measured_mpps <= found.high_mpps))[known_rows]
    note(
        f"{told}mean error {size.mean():.2f} % over {len(size)} rows, "
        f"{100 * inside.mean():.0f} % inside the {100 * coverage:g} % intervals"
    )
