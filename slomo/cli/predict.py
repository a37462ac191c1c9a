"""`slomo predict`: what a network function loses beside others, from saved models, without a rack."""

from collections.abc import Mapping
from typing import Any

import click

from slomo.cli.options import (
    compat_option,
    complete_metrics,
    complete_models,
    complete_network_functions,
    coverage_option,
    json_option,
    machine_option,
    models_option,
    own_nf_option,
    seed_option,
    settings,
)
from slomo.cli.output import emit_json, emit_table, note


@click.command()
@click.option("--target", required=True, metavar="NF", shell_complete=complete_network_functions, help="The network function asked about.")
@click.option(
    "--with", "beside", multiple=True, metavar="NF[:COUNT]", shell_complete=complete_network_functions, help="A competitor, repeatable; none means alone."
)
@models_option
@machine_option
@click.option("--model", metavar="NAME", shell_complete=complete_models, help="Sensitivity model to ask. [setting: model]")
@coverage_option
@compat_option
@click.option("--explain", is_flag=True, help="Show which metric carries the loss, and the composed vector.")
@click.option("--strict", is_flag=True, help="Refuse (exit code 5) instead of giving a verdict of `unsupported`.")
@click.option(
    "--vector", "vector", multiple=True, metavar="METRIC=VALUE", shell_complete=complete_metrics, help="The competition's vector, instead of --with; repeatable."
)
@click.option("--traffic", "traffic", multiple=True, metavar="NAME=VALUE", help="Traffic the target was imported with, beside --vector; repeatable.")
@own_nf_option
@seed_option
@json_option
def command(
    target: str,
    beside: tuple[str, ...],
    vector: tuple[str, ...],
    traffic: tuple[str, ...],
    explain: bool,
    strict: bool,
    as_json: bool,
    compat: str | None,
    nf_files: tuple[str, ...],
    **given: Any,
) -> None:
    """Predict what a network function loses beside others.

    NF is a name, or NAME(knob=value,...)@1500B,1000f for another configuration or traffic.
    Example: slomo predict --target lpm --with stats:2 --with snort
    """
    from slomo.workflow import predict, predict_from_vector
