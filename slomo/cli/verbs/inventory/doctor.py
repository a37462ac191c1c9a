"""`slomo doctor`: show what this host can measure, and what would disturb measurements.

It inspects the host, and measures memory and the drift of speed for some seconds; it changes nothing. Exit code 1 if
network functions cannot be measured.
"""

from typing import TYPE_CHECKING

import click

from slomo.cli.options import RenamedOption, json_option
from slomo.cli.output import emit_json, note, output_path

if TYPE_CHECKING:
    from slomo.testbed.host.doctor.diagnosis import Diagnosis


@click.command()
@click.option(
    "--quick", is_flag=True, help="Skip measurements that take seconds: cache size, latency curve, bandwidth, drift."
)
@click.option(
    "--out",
    "--machine",
    "machine_file",
    cls=RenamedOption,
    metavar="FILE",
    help="Write a machine file of this host with the measured values, so that the simulator can imitate the host.",
)
@json_option
def command(quick: bool, machine_file: str | None, as_json: bool) -> int:
    """Print what this host can measure and what would disturb measurements, with the command that repairs each problem.

    Changes nothing. Exit code 1 if a check fails, that is, network functions cannot be measured on this host.
    """
    from slomo.testbed.host.doctor.check import Status
    from slomo.testbed.host.doctor.diagnosis import diagnose, this_system
    from slomo.testbed.host.doctor.machine_file import machine_of, write_machine

    path = None if machine_file is None else output_path(machine_file, "machine", (".yaml", ".yml"))
    diagnosis = diagnose(this_system(), quick=quick)
    if as_json:
        emit_json({**diagnosis.to_dict(), "machine_file": machine_file})
    else:
        click.echo("\n".join(_lines(diagnosis)))
    if path is not None:
        machine, origins = machine_of(this_system(), diagnosis.curve, path.stem)
        write_machine(path, machine, origins)
        note(f"wrote {path}: use it with --machine {path}")
    return int(diagnosis.status is Status.FAIL)


def _lines(diagnosis: "Diagnosis") -> list[str]:
    lines: list[str] = []
    for check in diagnosis.checks:
        lines.append(f"{check.status:<5} {check.group:<9}  {check.name}: {check.finding}")
        lines += [] if check.remedy is None else [f"{'':18}mend: {check.remedy}"]
    counts = {status: sum(check.status == status for check in diagnosis.checks) for status in ("ok", "warn", "fail")}
    return [*lines, ", ".join(f"{count} {status}" for status, count in counts.items())]
