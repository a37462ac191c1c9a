"""Options that several commands share, and the settings from which defaults come."""

import functools
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import click

from slomo.cli.output import note, output_path
from slomo.cli.types import COUNT, DIR, FILE, MACHINE, MODEL, RATE, SECONDS, SEED, SHARE
from slomo.config import Settings, load_settings
from slomo.errors import ConfigurationError
from slomo.vocabulary.defaults import COMPATS, DEFAULT_METHOD, DEFAULT_MODEL, EQUILIBRIUM, METHODS

if TYPE_CHECKING:
    from slomo.vocabulary.network_function import NetworkFunction


class RenamedOption(click.Option):
    """An option whose second name is an earlier one: it still works, with a note, but is not in the help."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.earlier = self.opts.pop()

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Let the parser read both names; values by the earlier one are stored under that name."""
        super().add_to_parser(parser, ctx)
        by_earlier_name = copy(self)
        by_earlier_name.name, by_earlier_name.opts = self.earlier, [self.earlier]
        super(RenamedOption, by_earlier_name).add_to_parser(parser, ctx)

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> Any:
        """Return the value; print a note if it was given by the earlier name."""
        if self.earlier in opts:
            if not ctx.resilient_parsing:
                note(f"note: {self.earlier} is called {self.opts[0]} now; the next version refuses the earlier name")
            opts = {str(self.name): opts[self.earlier], **opts}
        return super().consume_value(ctx, opts)


def settings(*, method: str | None = None, **options: Any) -> Settings:
    """Return slomo's settings (from `slomo.toml` and the environment), overridden by the options of this command.

    The `method` equilibrium uses no model; if the command names none, that of `slomo.toml` is left out, too.
    """
    if method == EQUILIBRIUM and options["model"] is None:
        options["model"] = DEFAULT_MODEL
    return load_settings(options, file=click.get_current_context().find_root().params.get("config"))


def own_network_functions(paths: Sequence[str]) -> "list[NetworkFunction]":
    """Load the user's own network functions from ``--nf FILE``; print a note if one replaces a shipped one."""
    if not paths:
        return []
    from slomo.vocabulary.network_function import load_network_function, network_function_names

    for path in paths:
        if not path.endswith((".yaml", ".yml")):
            raise ConfigurationError(
                f"--nf '{path}' is no YAML file",
                hint="a shipped network function needs no --nf; name it where it is used",
            )
    functions = [load_network_function(path) for path in paths]
    for path, function in zip(paths, functions, strict=True):
        if function.name in network_function_names() and function != load_network_function(function.name):
            note(f"note: '{function.name}' is that of {path}, not the shipped network function of this name")
    return functions


def complete_metrics(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a metric, with the equals sign that follows it."""
    from slomo.vocabulary.metrics import METRICS

    return [f"{name}=" for name in METRICS if name.startswith(incomplete.rstrip("="))]


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document on stdout; errors become JSON on stderr."
)
yaml_option = click.option(
    "--yaml", "as_yaml", is_flag=True, help="Print a YAML file, which you can change and use as input."
)
model_option = click.option("--model", type=MODEL, help="Sensitivity model. [setting: model]")
machine_option = click.option(
    "--machine", type=MACHINE, help="Machine: a name of `slomo machine list` or a YAML file. [setting: machine]"
)
models_option = click.option("--models", type=DIR, help="Directory of saved models. [setting: models]")
seed_option = click.option("--seed", type=SEED, help="Seed of all random numbers, 0 or more. [setting: seed]")
coverage_option = click.option(
    "--coverage", type=SHARE, help="Coverage of prediction intervals, above 0 and below 1. [setting: coverage]"
)
jobs_option = click.option("--jobs", type=COUNT, help="Number of parallel runs; 0 uses every core. [setting: jobs]")
scheduler_option = click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Address of a Dask scheduler, whose workers compute instead of this machine; they must see the same files.",
)
report_option = click.option(
    "--report",
    metavar="HTML",
    type=click.Path(),
    callback=lambda _context, _option, name: name and str(output_path(name, "report")),
    help="Write a self-contained HTML page with tables and figures.",
)
own_nf_option = click.option(
    "--nf", "nf_files", multiple=True, type=FILE, help="YAML file of your own network function, repeatable."
)
compat_option = click.option(
    "--compat",
    type=click.Choice(COMPATS),
    metavar="published",
    help="`published`: compose contentiousness by the rule of SLOMO's scripts, for comparison.",
)
method_option = click.option(
    "--method",
    type=click.Choice(METHODS),
    default=DEFAULT_METHOD,
    help="`equilibrium` solves the whole server at once, `composed` composes the competitors' vectors. `auto` "
    "is `equilibrium` if all models support it and neither --model nor --compat requires `composed`; --model and "
    "--compat contradict `equilibrium`.",
)
port_option = click.option(
    "--port-gbps",
    type=RATE,
    metavar="GBPS",
    help="Line rate [Gbit/s] of the one NIC port that all network functions of the server, on any socket, share; by "
    "default they share the machine's ports.",
)
window_option = click.option(
    "--window-s",
    "--window",
    cls=RenamedOption,
    type=SECONDS,
    help="Length of the measurement for which the interval shall hold; in a short one, random arrivals and "
    "incomplete turns on a shared core add variation.",
)


def together(*options: Callable[..., Any]) -> Callable[..., Any]:
    """Return one decorator for several options, which the help lists in this order."""
    return lambda command: functools.reduce(lambda made, option: option(made), reversed(options), command)


#: Options of `slomo.prediction.options.PredictionOptions`, and the shared port.
prediction_options = together(model_option, method_option, port_option, window_option, coverage_option, compat_option)
#: Options of a command that simulates, and of one that runs many experiments or mixes.
simulation_options = together(own_nf_option, seed_option, json_option)
run_options = together(own_nf_option, jobs_option, scheduler_option, seed_option, json_option)
