"""Figures about acting on machines: throughput before and after, and the report of a noisy-neighbour test."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slomo.report.figures import COLOURS
from slomo.report.html import Section, render_html
from slomo.report.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from slomo.testbed.host.chains.looks import HostChainResult


def before_after_figure(bars: Mapping[str, float], quiet_mpps: float | None = None, line: str = "no noise") -> "Figure":
    """Draw one bar per situation with its value, and a line at the throughput without noise.

    >>> len(before_after_figure({"none": 3.2, "pools": 4.1}, 4.8).axes[0].patches)
    2
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.6 + 0.9 * len(bars), 3.2), layout="constrained")
    axes = figure.add_subplot()
    drawn = axes.bar(list(bars), list(bars.values()), color=COLOURS[0], width=0.65)
    axes.bar_label(drawn, fmt="%.2f", padding=2, fontsize=9)
    if quiet_mpps is not None:
        axes.axhline(quiet_mpps, color=COLOURS[1], linestyle="--", linewidth=1.2, label=f"{line}: {quiet_mpps:.2f}")
        axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(0.0, 1.16))
    axes.set_ylabel("throughput [Mpps]")
    axes.set_ylim(0, 1.12 * max([*bars.values(), quiet_mpps or 0.0], default=1.0))
    axes.tick_params(axis="x", labelrotation=20 if len(bars) > 4 else 0)
    return figure


def chains_over_time(result: "HostChainResult") -> "Figure":
    """Draw the throughput of every chain, and below it each stage's processor time per packet, over time.

    >>> from slomo.testbed.host.chains.looks import HostChainResult
    >>> len(chains_over_time(HostChainResult(1.0, (), (), 0.5)).axes)
    2
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 5.2), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True)
    rates = result.rates()
    for number, chain in enumerate(result.chains):
        line = [(at_s, each[number]) for at_s, each in rates]
        top.plot(*zip(*line, strict=True), label=chain.name, color=COLOURS[number % len(COLOURS)], linewidth=1.4)
    for number, stage in enumerate(result.stages):
        paid = [(look.time_s, look.stages[number].paid_cycles) for look in result.series]
        costs = [(at_s, cost) for at_s, cost in paid if cost is not None]
        if costs:
            bottom.plot(
                *zip(*costs, strict=True), label=stage.name, color=COLOURS[number % len(COLOURS)], linewidth=1.4
            )
    for axes, label in ((top, "throughput [Mpps]"), (bottom, "cost [cycles/packet]")):
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.margins(x=0.01)
        if axes.lines:
            axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    bottom.set_xlabel("time [s]")
    return figure


def noisy_neighbour_page(rows: Sequence[Mapping[str, Any]], machine: str) -> str:
    """Return the report of a noisy-neighbour test as one HTML file.

    >>> row = {"noise": 0, "policy": "none", "throughput_mpps": 4.0, "upper_mpps": 4.1, "trials": 9}
    >>> more = {"latency_us": {}, "settings": {}, "misses_m_s": {}, "lost_share": 0.0, "gain_over_unmanaged": None}
    >>> "noisy neighbour" in noisy_neighbour_page([{**row, **more}], "e5-2699v4")
    True
    """
    settings = [(f"{r['noise']}, {r['policy']}", knob, value) for r in rows for knob, value in r["settings"].items()]
    quiet = next((row["throughput_mpps"] for row in rows if not row["noise"]), None)
    bars = {f"{row['noise']}: {row['policy']}": row["throughput_mpps"] for row in rows if row["noise"]}
    figure = before_after_figure(bars, quiet) if bars else None
    sections = [
        Section("Throughput at the loss ratio", "", noisy_neighbour_table(rows), figure, "bars: throughput by policy"),
        Section("Settings, read back", "", Table(("noise, policy", "knob", "value"), tuple(settings))),
    ]
    return render_html(f"noisy neighbour on {machine}", sections)


def noisy_neighbour_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return one row per level of noise and policy, from the test's summary."""
    latencies = ("p50 [us]", "p95 [us]", "p99 [us]")
    headers = ("noise", "policy", "Mpps", "upper", "lost [%]", "won back [%]", *latencies, "trials")
    table = [
        (
            *(row[name] for name in ("noise", "policy", "throughput_mpps", "upper_mpps")),
            *(None if row[name] is None else 100.0 * row[name] for name in ("lost_share", "gain_over_unmanaged")),
            *(row["latency_us"].get(name) for name in ("p50", "p95", "p99")),
            row["trials"],
        )
        for row in rows
    ]
    return Table(headers, tuple(table))
