"""`slomo noisy-neighbour`: find the highest throughput within a loss ratio beside a noisy program, under policies."""

from typing import TYPE_CHECKING

import click

from slomo.cli.options import RenamedOption, json_option
from slomo.cli.output import emit, note
from slomo.errors import ConfigurationError
from slomo.files.durable import write_durably

if TYPE_CHECKING:
    from slomo.workflow.acting.noisy_host import HostNoiseTest
    from slomo.workflow.acting.noisy_neighbour import NoisyNeighbourRow


@click.command()
@click.argument("configuration", metavar="CONFIG")
@click.option("--csv", "csv_file", metavar="FILE", help="Also write the rows to a CSV file.")
@click.option(
    "--report", "--html", "html_file", cls=RenamedOption, metavar="HTML", help="Also write a report with a figure."
)
@json_option
def command(configuration: str, csv_file: str | None, html_file: str | None, as_json: bool) -> None:
    """Run the noisy-neighbour test that CONFIG describes, on the simulator or on this host (`machine: host`).

    Each row is a level of noise under a policy. On the simulator, a row shows the highest load whose packet loss is
    within the ratio (MLRsearch), the latency at that load, the throughput lost relative to a run without noise, and how
    much of this the policy recovers. On this host, it shows the throughput that one victim loses beside noise on other
    cores, and whether this exceeds the variation between measurement windows.
    """
    from slomo.records.provenance import versions
    from slomo.report.acting_figures import noisy_neighbour_page, noisy_neighbour_table
    from slomo.workflow.acting.noisy_host import host_noise_test
    from slomo.workflow.acting.noisy_neighbour import (
        read_noisy_neighbour_file,
        run_noisy_neighbour,
        summary,
        to_csv,
    )

    on_host = host_noise_test(configuration)
    if on_host is not None:
        _on_host(on_host, csv_file, html_file, as_json)
        return
    test = read_noisy_neighbour_file(configuration)

    def told(row: "NoisyNeighbourRow") -> None:
        note(f"{row.noise} noisy, {row.policy}: {row.throughput_mpps:.3f} Mpps after {row.trials} trials")

    rows = run_noisy_neighbour(test, told)
    if csv_file is not None:
        write_durably(csv_file, to_csv(rows))
    if html_file is not None:
        write_durably(html_file, noisy_neighbour_page(summary(rows), test.machine.name))
    table, stated = noisy_neighbour_table(summary(rows)), {"machine": test.machine.name, "versions": versions()}
    document = {**stated, "loss_ratio": test.settings.loss_ratio, "rows": summary(rows)}
    emit(document, table.headers, table.rows, as_json=as_json)


def _on_host(test: "HostNoiseTest", csv_file: str | None, html_file: str | None, as_json: bool) -> None:
    from slomo.workflow.acting.noisy_host import run_host_noise

    if csv_file is not None or html_file is not None:
        raise ConfigurationError("a test on this host is printed as a table or as JSON", hint="use --json")
    rows = run_host_noise(test)
    table = [
        (r.noise, r.policy, r.quiet_mpps, 100 * r.lost_share, f"± {100 * r.error_share:.1f}", r.verdict) for r in rows
    ]
    headers = ("noise", "policy", "quiet [Mpps]", "lost [%]", "error (95 %)", "verdict")
    emit({"rows": rows}, headers, table, as_json=as_json)
    if not as_json and all(row.verdict == "nothing to tell" for row in rows if row.policy == "none"):
        note("noise on other cores costs nothing here that these windows could tell; other machines may differ")
