"""Placement in tables and figures: machines and broken SLOs per policy, a map of servers, rates over time.

After ResQ (NSDI'18) Figures 8 and 9 (violations and machines per scheduler) and NUMASFP's (COMSNETS'22) throughput
over time.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from slomo.report.html import Section, render_html
from slomo.report.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from slomo.placement.over_time.judgement import Judgement
    from slomo.placement.over_time.timeline import Timeline
    from slomo.placement.problem.decision import Assignment

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
_DASHES = ("-", "--", "-.", ":")
#: Servers a map shows at most; more would be too small to read.
_MOST_SERVERS = 60


def judgement_rows(judgements: "Sequence[Judgement]") -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Return headings and one row per policy.

    Examples
    --------
    >>> judgement_rows([])[0][0]
    'policy'
    """
    headers = (
        "policy",
        "placed",
        "servers",
        "SLOs broken [%]",
        "ANAT [%]",
        "cores in use [%]",
        "moves",
        "decision p50 [ms]",
        "p99 [ms]",
    )
    rows: list[tuple[object, ...]] = [
        (
            item.policy,
            f"{item.placed} of {item.requests}",
            item.servers_used,
            100 * item.violated_share,
            100 * item.anat,
            100 * item.utilisation,
            item.migrations,
            *item.decision_ms,
        )
        for item in judgements
    ]
    return headers, rows


def policy_bars(judgements: "Sequence[Judgement]", *, title: str = "Servers and broken SLOs per policy") -> "Figure":
    """Draw servers used and the share of broken SLOs per policy.

    Examples
    --------
    >>> len(policy_bars([]).axes)
    2
    """
    figure, (left, right) = _figure(1, 2, (9.0, 0.8 + 0.42 * max(len(judgements), 3)))
    names = [item.policy for item in judgements]
    place = np.arange(len(names))
    for axes, values, label, colour, unit in (
        (left, [item.servers_used for item in judgements], "servers in use", _COLOURS[0], ""),
        (right, [100 * item.violated_share for item in judgements], "SLOs broken [%]", _COLOURS[1], " %"),
    ):
        axes.barh(place, values, color=colour)
        axes.set_yticks(place, names if axes is left else [])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(label)
        axes.set_xlim(0, max([1.0, *map(float, values)]) * 1.15)
        for at, value in zip(place, values, strict=True):
            axes.annotate(
                f"{value:.3g}{unit}", (value, at), xytext=(3, 0), textcoords="offset points", va="center", fontsize=8
            )
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    return figure


def server_map(layout: "Mapping[str, Sequence[Assignment]]", solo_mpps: Mapping[str, float], *, cores: int) -> "Figure":
    """Draw every server as a row of cores, coloured by predicted slowdown.

    Parameters
    ----------
    layout : mapping of str to sequence of Assignment
        What runs on each server, from `Placer.layout`.
    solo_mpps : mapping of str to float
        Solo throughput per workload key [Mpps].
    cores : int
        Cores per socket for network functions.

    Examples
    --------
    >>> server_map({}, {}, cores=8).axes[0].get_xlabel()
    'core'
    """
    rows = sorted({(name, item.socket) for name, items in layout.items() for item in items}, key=_order(layout))
    shown = rows[:_MOST_SERVERS]
    values = np.full((max(len(shown), 1), cores), np.nan)
    figure, axes = _figure(1, 1, (1.6 + 0.75 * cores, 1.4 + 0.34 * max(len(shown), 3)))
    texts: list[tuple[int, int, str]] = []
    for row, (name, socket) in enumerate(shown):
        for item in (each for each in layout[name] if each.socket == socket):
            solo, nf = solo_mpps.get(item.workload), item.workload.split("@")[0][:10]
            has_prediction = bool(solo) and item.predicted_mpps is not None
            values[row, item.core] = (
                100 * max(1 - (item.predicted_mpps or 0.0) / (solo or 1.0), 0.0) if has_prediction else 0.0
            )
            texts.append((row, item.core, f"{nf}\n{values[row, item.core]:.0f} %" if has_prediction else f"{nf}\n?"))
    top = max(float(np.nanmax(values)) if np.isfinite(values).any() else 0.0, 10.0)
    axes.set_facecolor("#F2F2F2")  # idle cores
    image = axes.imshow(values, cmap="YlOrRd", vmin=0, vmax=top, aspect="auto")
    for row, core, text in texts:
        dark = values[row, core] > 0.6 * top
        axes.text(core, row, text, ha="center", va="center", fontsize=6.5, color="white" if dark else "black")
    several = len({socket for _, socket in rows}) > 1
    axes.set_yticks(range(len(shown)), [f"{name}/{at}" if several else name for name, at in shown], fontsize=7)
    axes.set_xticks(range(cores))
    axes.set_xticks(np.arange(cores + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(values.shape[0] + 1) - 0.5, minor=True)
    axes.grid(visible=False)
    axes.grid(visible=True, which="minor", color="white", linewidth=2)
    axes.tick_params(which="minor", length=0)
    axes.set_xlabel("core")
    figure.colorbar(image, ax=axes, pad=0.02).set_label("predicted slowdown [%]")
    more = f" (first {len(shown)} of {len(rows)} sockets)" if len(rows) > len(shown) else ""
    axes.set_title(
        f"What runs where, and what it is predicted to lose{more}", loc="left", fontsize=11, fontweight="bold"
    )
    return figure


def _order(layout: "Mapping[str, Sequence[Assignment]]") -> "Callable[[tuple[str, int]], tuple[int, int]]":
    """Return a key that sorts sockets by their server's place in the layout."""
    places = {name: number for number, name in enumerate(layout)}
    return lambda row: (places[row[0]], row[1])


def rate_timeline(
    series: Mapping[str, Sequence[float]], *, step_s: float = 10.0, label: str = "throughput served of offered [%]"
) -> "Figure":
    """Draw one curve per policy over time.

    Parameters
    ----------
    series : mapping of str to sequence of float
        Policy -> value per interval.
    step_s : float
        Length of an interval [s].
    label : str
        What the values are.

    Examples
    --------
    >>> rate_timeline({"numasfp": [90.0, 95.0]}).axes[0].get_xlabel()
    'time [s]'
    """
    figure, axes = _figure(1, 1, (6.4, 3.8))
    for index, (name, values) in enumerate(series.items()):
        times = step_s * np.arange(len(values) + 1)
        style = {"color": _COLOURS[index % len(_COLOURS)], "linestyle": _DASHES[index % len(_DASHES)]}
        axes.step(times, [*values, values[-1]], where="post", label=name, linewidth=2, **style)
    axes.set_xlabel("time [s]")
    axes.set_ylabel(label)
    axes.margins(x=0.01)
    if series:
        axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.set_title("Throughput over time", loc="left", fontsize=11, fontweight="bold")
    return figure


def timeline_rows(timelines: "Sequence[Timeline]") -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Return headings and one row per timeline.

    Examples
    --------
    >>> timeline_rows([])[0][:2]
    ('policy', 'plans afresh')
    """
    headers = (
        "policy",
        "plans afresh",
        "servers, mean",
        "at most",
        "refused",
        "moves",
        "SLOs broken, worst [%]",
        "ANAT [%]",
        "decision p50 [ms]",
        "p99 [ms]",
    )
    rows: list[tuple[object, ...]] = []
    for item in timelines:
        broken = [sample.violated_share for sample in item.samples if sample.violated_share is not None]
        worst = 100 * max(broken) if broken else None
        most = max((sample.servers_used for sample in item.samples), default=0)
        plans, last = item.planner or "-", (None if item.anat is None else 100 * item.anat, *item.decision_ms)
        rows.append((item.policy, plans, item.mean_servers, most, item.refused, item.migrations, worst, *last))
    return headers, rows


def cluster_timeline(timelines: "Sequence[Timeline]") -> "Figure":
    """Draw servers in use over time, with a mark where something migrated, above the requests placed.

    Examples
    --------
    >>> len(cluster_timeline([]).axes)
    2
    """
    figure, (top, bottom) = _figure(2, 1, (9.0, 5.2))
    policies = list(dict.fromkeys(item.policy for item in timelines))
    lines: set[tuple[tuple[float, int], ...]] = set()
    for item in timelines:
        colour = _COLOURS[policies.index(item.policy) % len(_COLOURS)]
        times = [sample.time_s for sample in item.samples]
        name = (
            f"{item.policy}, planned afresh\nby {item.planner}: {item.migrations} moves"
            if item.planner
            else item.policy
        )
        used = [sample.servers_used for sample in item.samples]
        top.step(
            times, used, where="post", label=name, linewidth=1.8, color=colour, linestyle="--" if item.planner else "-"
        )
        moved = [(when, what.servers_planned or 0) for when, what in item.reoptimisations if what.migrated]
        if moved:
            top.plot(*zip(*moved, strict=True), "v", color=colour, markersize=6)
        placed = _changes(item)
        if placed not in lines:
            bottom.step(*zip(*placed, strict=True), where="post", linewidth=1.4, color=colour if lines else "#555555")
        lines.add(placed)
    top.set_ylabel("servers in use")
    bottom.set_ylabel("requests placed")
    bottom.set_xlabel("time [s]")
    for axes in (top, bottom):
        axes.set_ylim(bottom=0)
        axes.margins(x=0.01)
    if timelines:
        top.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    top.set_title(
        "Requests come and go; triangles: migrated to a fresh plan", loc="left", fontsize=11, fontweight="bold"
    )
    return figure


def _changes(timeline: "Timeline") -> tuple[tuple[float, int], ...]:
    """Return when the number of requests placed changed, and to what."""
    changes: list[tuple[float, int]] = [(0.0, 0)]
    for sample in timeline.samples:
        if sample.placed != changes[-1][1]:
            changes.append((sample.time_s, sample.placed))
    return tuple(changes)


def timeline_page(timelines: "Sequence[Timeline]") -> str:
    """Return a self-contained page of runs over time.

    Examples
    --------
    >>> "<html" in timeline_page([])
    True
    """
    headers, rows = timeline_rows(timelines)
    section = Section(
        "Over time",
        "The same arrivals and departures under each policy. A fresh plan is carried out where it saves more servers "
        "than the threshold; marks show when, and the servers left in use.",
        Table(headers, tuple(rows)),
        cluster_timeline(timelines),
        "Servers in use and requests placed over time per policy",
    )
    return render_html("slomo: placement over time", [section], lead="Requests come and go.")


def comparison_page(judgements: "Sequence[Judgement]") -> str:
    """Return a self-contained page that compares policies.

    Examples
    --------
    >>> "<html" in comparison_page([])
    True
    """
    headers, rows = judgement_rows(judgements)
    section = Section(
        "Policies",
        "The same requests, placed by each policy and run on the simulator. ANAT is the throughput served, up to what "
        "was promised, over what was promised.",
        Table(headers, tuple(rows)),
        policy_bars(judgements),
        "Bars of servers in use and of broken SLOs per policy",
    )
    sections = [section]
    series = {item.policy: [100 * share for share in item.anat_over_time] for item in judgements if item.anat_over_time}
    if series:
        text = "Throughput served over throughput offered in every interval of 10 s."
        sections.append(Section("Over time", text, figure=rate_timeline(series), alternative="Throughput per policy"))
    return render_html("slomo: placement policies", sections, lead="One workload, one truth.")


def _figure(rows: int, columns: int, size: tuple[float, float]) -> "tuple[Figure, Any]":
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=120, layout="constrained", facecolor="white")
    axes = figure.subplots(rows, columns)
    for item in np.atleast_1d(axes):
        item.grid(visible=True, color="#E4E4E4", linewidth=0.7)
        item.set_axisbelow(True)
        item.spines[["top", "right"]].set_visible(False)
        item.tick_params(labelsize=8)
    return figure, axes
