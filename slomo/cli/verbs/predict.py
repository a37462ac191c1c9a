"""`slomo predict`: predict the throughput that a network function loses beside others, with saved models."""

from typing import TYPE_CHECKING, Any

import click

from slomo.cli.asking import predicted, server_option
from slomo.cli.options import (
    complete_metrics,
    jobs_option,
    json_option,
    machine_option,
    models_option,
    own_network_functions,
    own_nf_option,
    prediction_options,
    scheduler_option,
    seed_option,
    settings,
)
from slomo.cli.output import SHARES, emit_json, figure_path, format_table, note, tell
from slomo.cli.types import FILE, NF, RATE
from slomo.errors import InvalidValueError, UsageError
from slomo.units import plural

if TYPE_CHECKING:
    from slomo.models.library import ModelLibrary
    from slomo.prediction.explanation import Explanation
    from slomo.prediction.latency_result import LatencyPrediction
    from slomo.prediction.result import Prediction


@click.command()
@click.option("--target", type=NF, help="The network function whose throughput is predicted.")
@click.option(
    "--with",
    "beside",
    multiple=True,
    metavar="NF[:COUNT]",
    type=NF,
    help="A competitor or several, such as stats:2 or '2 x stats + nat'; repeatable.",
)
@click.option(
    "--shares-core-with",
    "partners",
    multiple=True,
    metavar="NF[:COUNT]",
    type=NF,
    help="A network function on the target's own core, repeatable; the core's time is divided fairly.",
)
@models_option
@machine_option
@prediction_options
@click.option(
    "--offered", type=RATE, metavar="MPPS", help="Offered load of the target; with it, latency is predicted, too."
)
@click.option(
    "--explain",
    is_flag=True,
    help="Show how much each competitor costs, by resource and metric, and the composed vector.",
)
@click.option("--figure", type=FILE, help="Draw the loss as a waterfall: .png, .svg or .pdf.")
@click.option("--strict", is_flag=True, help="Exit with code 5 if the prediction is unsupported or unknown.")
@click.option(
    "--vector",
    multiple=True,
    metavar="METRIC=VALUE",
    shell_complete=complete_metrics,
    help="Socket-level metric of the competitors, instead of --with; repeatable.",
)
@click.option(
    "--traffic",
    multiple=True,
    metavar="NAME=VALUE",
    help="With --vector: traffic attribute with which the target was imported; repeatable.",
)
@own_nf_option
@seed_option
@server_option
@click.option(
    "--from",
    "mixes",
    metavar="PARQUET",
    type=click.Path(),
    help="Instead: predict every mix of a file with the columns target and competitors (lists). After an "
    "interruption, the same command continues.",
)
@click.option(
    "--to", metavar="PARQUET", type=click.Path(), help="File to which --from writes the mixes and their predictions."
)
@click.option(
    "--verdicts", is_flag=True, help="With --from: also write unit, verdict and reasons of every mix; slower."
)
@scheduler_option
@jobs_option
@json_option
def command(
    explain: bool,
    as_json: bool,
    figure: str | None,
    service: str | None,
    **options: Any,
) -> None:
    """Predict how much throughput a network function loses beside others, or predict every mix of a file.

    NF is a name, or NAME(knob=value,...)@1500B,1000f for another configuration or traffic. Without --with, the result
    is the measured solo throughput.

    Example: slomo predict --target lpm --with stats:2 --with snort
    """
    bulk = {name: options.pop(name) for name in ("mixes", "to", "scheduler", "jobs", "verdicts")}
    if bulk["mixes"] is not None or bulk["to"] is not None:
        options |= {"explain": explain, "figure": figure, "service": service}
        _bulk(**bulk, as_json=as_json, options=options)
        return
    if options["target"] is None:
        raise UsageError("no target is named", hint="add --target NF, or --from mixes.parquet --to predicted.parquet")
    if unread := [name for name in ("scheduler", "jobs", "verdicts") if bulk[name]]:
        raise UsageError(f"--{unread[0]} was given without --from", hint="leave it out: it is for files of mixes")
    place = figure_path(figure)
    if service is not None:
        prediction = predicted(service, explain=explain, options=options)
    else:
        _check(options)
        prediction = _predicted(options)
    if place is not None:
        from slomo.report.explanation_figures import waterfall

        waterfall(prediction).savefig(place)
        note(f"waterfall written to {place}")
    if as_json:
        emit_json(prediction.to_dict())
        return
    click.echo(_text(prediction))
    if explain:
        click.echo(_explanation(prediction) or "  explained   not: it serves what it is offered")


def _bulk(
    mixes: str | None,
    to: str | None,
    scheduler: str | None,
    jobs: int | None,
    *,
    verdicts: bool,
    as_json: bool,
    options: dict[str, Any],
) -> None:
    """Predict every mix of a file."""
    from slomo.fleet.batches import BulkQuestion
    from slomo.fleet.bulk import predict_file
    from slomo.models.library import load_library
    from slomo.prediction.options import PredictionOptions
    from slomo.workflow.progress import ProgressBar

    if mixes is None or to is None:
        lacking, there = ("--from", "--to") if mixes is None else ("--to", "--from")
        raise UsageError(f"{there} was given without {lacking}", hint=f"add {lacking} FILE.parquet")
    same = ("models", "machine", "model", "coverage", "seed", "method", "compat", "window_s")
    how = {name: options.pop(name) for name in same}
    if other := [name for name, value in options.items() if value]:
        raise UsageError(
            f"--{other[0].replace('_', '-')} was given with --from",
            hint="the file names the target and competitors of every mix; leave out options of a single question",
        )
    chosen = settings(
        **{name: how[name] for name in ("models", "machine", "model", "method", "coverage", "seed")}, jobs=jobs
    )
    machine = _machine(how["machine"], chosen.machine, load_library(chosen.models))
    how_predicted = PredictionOptions(
        how["method"], chosen.model, how["compat"], chosen.coverage, explain=False, window_s=how["window_s"]
    )
    question = BulkQuestion(chosen.models, machine, how_predicted, verdicts)
    with ProgressBar("predicting") as bar:
        done = predict_file(
            mixes,
            to,
            question,
            jobs=chosen.jobs or None,
            scheduler=scheduler,
            report=lambda group, groups: bar.advance(group) if group else bar.start(groups),
        )
    resumed = f", {done.kept} of {plural(done.row_groups, 'row group')} kept from before" if done.kept else ""
    tell(
        {**vars(done), "to": to}, f"{plural(done.mixes, 'mix', 'mixes')} predicted into {to}{resumed}", as_json=as_json
    )


def _check(options: dict[str, Any]) -> None:
    """Refuse options that contradict or override each other."""
    vector, joint = options["vector"], options["method"] == "equilibrium"
    for wrong, what, hint in (
        (vector and options["beside"],
         "--vector and --with were given, needed one of them", "--vector stands for all competitors together"),
        (options["traffic"] and not vector,
         "--traffic was given without --vector", "with --with, write the traffic into the name: lpm@1500B,1000f"),
        (vector and joint, "--vector and --method equilibrium were given",
         "a whole server is solved from its NFs; name them --with"),
        (vector and options["offered"] is not None, "--vector and --offered were given",
         "latency is predicted beside NFs that are known by name; name them --with"),
        (vector and options["port_gbps"] is not None, "--port-gbps and --vector were given",
         "a port is shared with NFs that are known by name; name them --with"),
        (vector and options["partners"], "--shares-core-with and --vector were given",
         "a core is shared with NFs that are known; name them --with"),
    ):  # fmt: skip
        if wrong:
            raise UsageError(what, hint=hint)


def _predicted(options: dict[str, Any]) -> "Prediction":
    from slomo.models.library import load_library
    from slomo.records.provenance import holds_shares
    from slomo.workflow.predict import predict

    chosen = settings(**{name: options[name] for name in ("models", "machine", "model", "method", "coverage", "seed")})
    library = load_library(chosen.models)
    machine = _machine(options["machine"], chosen.machine, library)
    for function in own_network_functions(options["nf_files"]):
        library.find(function.name, machine)  # refused without a model, which alone predicts
    if options["vector"]:
        from slomo.prediction.predictor import Predictor
        from slomo.workflow.names import target_named

        vector, traffic = _pairs("--vector", options["vector"]), _pairs("--traffic", options["traffic"])
        predictor, target = Predictor(library, machine, chosen.model), target_named(options["target"])
        return predictor.predict_vector(target, vector, traffic, chosen.coverage, strict=options["strict"])
    prediction = predict(
        options["target"],
        options["beside"],
        library,
        shares_core_with=options["partners"],
        offered_mpps=options["offered"],
        machine=machine,
        model=chosen.model,
        coverage=chosen.coverage,
        **{name: options[name] for name in ("strict", "port_gbps", "window_s", "compat", "method")},
    )
    model = library.get((prediction.machine, prediction.target.key))
    if model is not None and holds_shares(model.manifest.get("environment", {})):
        note(SHARES)
    return prediction


def _machine(requested: str | None, default: str, library: "ModelLibrary") -> str | None:
    """Return the requested machine, which must equal the models', else the settings' if models include it, or None."""
    if requested is None:
        return default if default in library.machines else None
    from slomo.workflow.names import machine_given

    return library.name_of(machine_given(requested))


def _pairs(option: str, texts: tuple[str, ...]) -> dict[str, float]:
    pairs: dict[str, float] = {}
    for text in texts:
        name, equals, value = map(str.strip, text.partition("="))
        if name in pairs:
            raise InvalidValueError(f"{option} '{text}' is a second value of {name}, needed one")
        try:
            pairs[name] = float(value)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise InvalidValueError(
                f"{option} '{text}' is no pair of a name and a number",
                hint=f"write for instance {option} {name or 'L3OCC'}=1024",
            )
    return pairs


def _text(prediction: "Prediction") -> str:
    from slomo.prediction.result import label
    from slomo.vocabulary.workload_text import counted

    beside = counted(map(label, prediction.competitors))
    composed = prediction.composition
    if not beside and composed is not None and any(composed.vector.values()):
        beside = "a given vector"
    company = f" beside {beside}" if beside else ", alone,"
    low, high = prediction.interval
    unit = "of solo" if prediction.unit == "share" else prediction.unit
    lines = [f"{label(prediction.target)}{company} on {prediction.machine}, model {prediction.model}"]
    lines.append(f"  alone       {prediction.solo_mpps:.3f} {unit}")
    share = f"{100 * prediction.coverage:g} % interval"
    of = "" if prediction.noise is None else f", of the next measurement, a median of {prediction.noise.runs} runs"
    lines.append(f"  predicted   {prediction.throughput_mpps:.3f} {unit}  ({share} {low:.3f} to {high:.3f}{of})")
    if prediction.noise is not None:
        low, high = prediction.mean_interval
        one = f"one scatters by {100 * prediction.noise.next_measurement:.1f} %"
        lines.append(f"  mean        {low:.3f} to {high:.3f} {unit}  ({share} of the mean of many; {one})")
    lines.append(f"  slowdown    {100 * prediction.slowdown:.1f} %")
    if prediction.carrier is not None:
        lines.append(f"  main cause  {prediction.carrier[0]} ({100 * prediction.carrier[1]:.0f} % of the loss)")
    lines.append(f"  verdict     {'; '.join([str(prediction.verdict), *prediction.reasons])}")
    if prediction.evidence is not None:
        lines.append(f"  evidence    {prediction.evidence.text}")
    if prediction.latency is not None:
        lines += _latency(prediction.latency)
    return "\n".join(lines)


def _who(why: "Explanation") -> str:
    """Return a text with the loss that each competitor causes through each resource, largest first."""
    from slomo.prediction.explanation import group_of

    rows = []
    for who, metrics in (why.competitors or {"all together": why.metrics}).items():
        for through, part in (why.by_competitor.get(who) or why.groups).items():
            mostly = max((name for name in metrics if group_of(name) == through), key=lambda name: metrics[name])
            rows.append((who, through, mostly, part, 100 * part / why.loss_mpps))
    rows = sorted((row for row in rows if row[3]), key=lambda row: -row[3])
    rest = why.unattributed_mpps
    total = ("sum", "", "", why.loss_mpps, 100.0)
    return format_table(
        ("competitor", "through", "mostly", "loss [Mpps]", "share [%]"),
        [*rows, ("not attributed", "", "", rest, 100 * rest / why.loss_mpps), total],
    )


def _latency(delay: "LatencyPrediction") -> list[str]:
    """Return the lines about latency, the time from a packet's arrival to its departure."""
    lines = [
        f"  load        {delay.load:.3f} ({delay.offered_mpps:.3f} of {delay.possible_mpps:.3f} Mpps it could serve)"
    ]
    for name, value in delay.percentiles_us.items():
        low, high = delay.intervals_us[name]
        ends = f"{low:.2f} us and more" if high is None else f"{low:.2f} to {high:.2f} us"
        lines.append(f"  {name:11} {value:.2f} us  ({100 * delay.coverage:g} % interval {ends})")
    lines.append(f"  latency     {'; '.join([str(delay.verdict), *delay.reasons])}")
    return lines


def _explanation(prediction: "Prediction") -> str:
    from slomo.vocabulary.metrics import METRICS

    parts, why = [], prediction.explanation
    if why is not None and not why.metrics and prediction.slowdown > 0:
        return f"  explained   not: model '{prediction.model}' reads no counters that would tell through which resource"
    if why is not None and why.loss_mpps > 0:
        loss = why.loss_mpps
        parts.append(_who(why))
        if why.bottleneck is not None:
            part = 100 * why.groups[why.bottleneck] / loss
            parts.append(f"bottleneck {why.bottleneck} ({part:.0f} % of the loss); what helps: {why.lever}")
        shares = sorted(why.metrics.items(), key=lambda item: -item[1])
        rows: list[tuple[object, ...]] = [(name, part, 100 * part / loss) for name, part in shares]
        rows.append(("not attributed", why.unattributed_mpps, None))
        parts.append(format_table(("metric", "loss [Mpps]", "share [%]"), rows))
    if prediction.composition is not None:
        vector, rules = prediction.composition.vector, prediction.composition.rules
        capped = set(getattr(prediction.composition, "capped", ()))
        rows_ = [(n, v, METRICS[n].unit, rules.get(n, "-"), "yes" if n in capped else "") for n, v in vector.items()]
        parts.append(format_table(("composed metric", "value", "unit", "rule", "at its cap"), rows_))
    return "\n\n".join(["", *parts]) if parts else ""
