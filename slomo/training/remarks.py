"""Describe the weaknesses of a trained model: too few known errors, no slowdown to learn, no measured mixes."""

from slomo.models.nf_model import NFModel
from slomo.units import plural
from slomo.vocabulary.defaults import DEFAULT_MODEL

#: Default coverage of predictions.
USUAL_COVERAGE = 0.9


def remarks(model: NFModel) -> tuple[str, ...]:
    """Return the weaknesses of a model, one sentence each; empty if there are none."""
    sentences = []
    rows = model.manifest.get("rows", {})
    if rows.get("settings", 0) > 1 and rows.get("throughputs") == 1:
        sentences.append(
            f"its throughput is the same in all {rows['fitted']} rows: there is nothing to learn from them"
        )
    calibration = model.calibration.get(model.named(DEFAULT_MODEL))
    lacking = 0 if calibration is None else calibration.missing(USUAL_COVERAGE)
    if calibration is not None and lacking:
        sentences.append(
            f"intervals of {100 * USUAL_COVERAGE:g} % need {lacking} more rows than the {calibration.count} there are; "
            "until then they span everything it can do"
        )
    if source := model.manifest.get("transfer"):
        sentences.append(
            f"carried over from {source['from']}, corrected by {plural(source['runs'], 'run')} on {model.machine}"
        )
    if following := model.manifest.get("pairs", {}).get("next"):
        sentences.append(f"the pair to measure next is with {following}: its loss is least certain")
    table = model.manifest.get("table", {})
    if table:
        family = model.named(DEFAULT_MODEL)
        error = model.manifest.get("default", {}).get("error_percent_of_solo", {}).get(family)
        scenarios = rows.get("settings", 0) if rows.get("settings", 0) < rows.get("fitted", 0) else 0
        by = f" that leaves out whole scenarios ({scenarios})" if scenarios else ""
        off = "" if error is None else f", {error:.2g} % off in cross-validation{by}"
        sentences.append(
            f"'{family}' answers{off}; it reads {', '.join(model.model(family).feature_names) or 'nothing'}"
        )
    sentences += [f"{name} is left out: {why}" for name, why in table.get("columns_left_out", {}).items()]
    return tuple(sentences)
