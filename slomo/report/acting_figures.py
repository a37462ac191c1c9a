"""Acting in pictures: masks, loads and decisions over time, before and after."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slomo.report.html import Section, render_html
from slomo.report.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")


def masks_figure(masks: Mapping[str, int], ways: int) -> "Figure":
    """Draw who may fill which cache ways: a row per tenant, the lowest way at the right as in a mask.

    Examples
    --------
    >>> figure = masks_figure({"lpm": 0x3, "noise": 0x7FC}, 11)
    >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
    ['lpm', 'noise']
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 0.8 + 0.35 * len(masks)), layout="constrained")
    axes = figure.add_subplot()
    for row, mask in enumerate(masks.values()):
        held = [way for way in range(ways) if mask >> way & 1]
        axes.barh([row] * len(held), 0.9, left=[way - 0.45 for way in held], height=0.7, color=_COLOURS[row % 8])
        axes.text(-1.0, row, f"{mask:#x}", va="center", ha="left", fontsize=8)
    axes.set_yticks(range(len(masks)), list(masks))
    axes.set_xlim(ways - 0.5, -3.5)
    axes.set_xticks(range(0, ways, 2))
    axes.set_ylim(len(masks) - 0.5, -0.5)
    axes.set_xlabel("cache way")
    return figure


def timeline_figure(
    times_s: Sequence[float],
    throughput: Mapping[str, Sequence[float]],
    promised: Mapping[str, float],
    changes_s: Sequence[float] = (),
    offered: Mapping[str, Sequence[float]] | None = None,
) -> "Figure":
    """Draw loads (thin), throughput (thick), promises (dotted) and the times of changes (vertical) of a control loop.

    Examples
    --------
    >>> figure = timeline_figure([0, 1], {"lpm": [4.0, 5.0]}, {"lpm": 4.5}, [0.5])
    >>> figure.axes[0].get_ylabel()
    'throughput [Mpps]'
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for number, (name, values) in enumerate(throughput.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        axes.plot(times_s, values, color=colour, linewidth=1.8, label=name)
        if offered is not None and name in offered:
            axes.plot(times_s, offered[name], color=colour, linewidth=0.7, label=f"{name}, load")
        if name in promised:
            axes.axhline(promised[name], color=colour, linestyle=":", linewidth=1.2, label=f"{name}, promised")
    for number, when in enumerate(changes_s):
        axes.axvline(when, color="#7F7F7F", linewidth=0.8, zorder=0, label="change" if number == 0 else None)
    axes.set_xlabel("time [s]")
    axes.set_ylabel("throughput [Mpps]")
    axes.set_ylim(bottom=0)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return figure


def before_after_figure(
    bars: Mapping[str, float], reference: float | None = None, meaning: str = "no noise"
) -> "Figure":
    """Draw one bar per situation, with its value, and a line at what they are held against.

    Examples
    --------
    >>> len(before_after_figure({"none": 3.2, "pools": 4.1}, 4.8).axes[0].patches)
    2
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.6 + 0.9 * len(bars), 3.2), layout="constrained")
    axes = figure.add_subplot()
    drawn = axes.bar(list(bars), list(bars.values()), color=_COLOURS[0], width=0.65)
    axes.bar_label(drawn, fmt="%.2f", padding=2, fontsize=9)
    if reference is not None:
        axes.axhline(reference, color=_COLOURS[1], linestyle="--", linewidth=1.2, label=f"{meaning}: {reference:.2f}")
        axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(0.0, 1.16))
    axes.set_ylabel("throughput [Mpps]")
    axes.set_ylim(0, 1.12 * max([*bars.values(), reference or 0.0], default=1.0))
    axes.tick_params(axis="x", labelrotation=20 if len(bars) > 4 else 0)
    return figure


def noisy_neighbour_page(rows: Sequence[Mapping[str, Any]], machine: str) -> str:
    """Return the report of a noisy-neighbour test as one HTML file.

    Examples
    --------
    >>> row = {"noise": 0, "policy": "none", "throughput_mpps": 4.0, "upper_mpps": 4.1, "trials": 9}
    >>> more = {"latency_us": {}, "settings": {}, "misses_m_s": {}, "lost_share": 0.0, "gain_over_unmanaged": None}
    >>> "noisy neighbour" in noisy_neighbour_page([{**row, **more}], "e5-2699v4")
    True
    """
    latencies = ("p50 [us]", "p95 [us]", "p99 [us]")
    headers = ("noise", "policy", "Mpps", "upper", "lost [%]", "won back [%]", *latencies, "trials")
    table = [
        (
            row["noise"],
            row["policy"],
            row["throughput_mpps"],
            row["upper_mpps"],
            _percent(row["lost_share"]),
            _percent(row["gain_over_unmanaged"]),
            *(row["latency_us"].get(name, "-") for name in ("p50", "p95", "p99")),
            row["trials"],
        )
        for row in rows
    ]
    settings = [(f"{r['noise']}, {r['policy']}", knob, value) for r in rows for knob, value in r["settings"].items()]
    quiet = next((row["throughput_mpps"] for row in rows if not row["noise"]), None)
    bars = {f"{row['noise']}: {row['policy']}": row["throughput_mpps"] for row in rows if row["noise"]}
    figure = before_after_figure(bars, quiet) if bars else None
    sections = [
        Section("Throughput at the loss ratio", "", Table(headers, tuple(table)), figure, "bars: throughput by policy"),
        Section("Settings, read back", "", Table(("noise, policy", "knob", "value"), tuple(settings))),
    ]
    return render_html(f"noisy neighbour on {machine}", sections)


def _percent(share: float | None) -> object:
    return "-" if share is None else 100.0 * share
