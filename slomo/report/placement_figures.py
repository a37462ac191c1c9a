"""Tables and figures of placement: servers and broken SLOs per policy, and how they change over time.

After ResQ (NSDI'18) Figures 8 and 9 (violations and machines per scheduler) and NUMASFP's (COMSNETS'22) throughput
over time.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from slomo.report.figures import COLOURS, axes_of, legend_below, styled
from slomo.report.html import Fact, Section, render_html
from slomo.report.tables import Table
from slomo.units import plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from slomo.placement.over_time.judgement import Judgement
    from slomo.placement.over_time.timeline import Timeline

_DASHES = ("-", "--", "-.", ":")


def judgement_rows(judgements: "Sequence[Judgement]") -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Return headings and one row per policy."""
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


def policy_bars(judgements: "Sequence[Judgement]") -> "Figure":
    """Draw servers used and the share of broken SLOs per policy.

    >>> len(policy_bars([]).axes)
    2
    """
    figure, (left, right) = _figure(1, 2, (5.4, 0.9 + 0.42 * max(len(judgements), 3)))
    names = [item.policy for item in judgements]
    place = np.arange(len(names))
    for axes, values, label, colour, unit in (
        (left, [item.servers_used for item in judgements], "servers in use", COLOURS[0], ""),
        (right, [100 * item.violated_share for item in judgements], "SLOs broken [%]", COLOURS[1], " %"),
    ):
        styled(axes, "", label, "")
        axes.barh(place, values, color=colour)
        axes.set_yticks(place, names if axes is left else [])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlim(0, max([1.0, *map(float, values)]) * 1.15)
        for at, value in zip(place, values, strict=True):
            axes.annotate(
                f"{value:.3g}{unit}", (value, at), xytext=(3, 0), textcoords="offset points", va="center", fontsize=9
            )
    figure.suptitle("Servers and broken SLOs per policy", x=0.01, ha="left", fontsize=11, fontweight="bold")
    return figure


def rate_timeline(series: Mapping[str, Sequence[float]]) -> "Figure":
    """Draw one curve per policy over time.

    `series`: policy -> share of the offered load that was served, per interval of 10 s [%].
    """
    figure, axes = axes_of("Throughput over time", "time [s]", "throughput served of offered [%]", (4.8, 4.4))
    for index, (name, values) in enumerate(series.items()):
        times = 10.0 * np.arange(len(values) + 1)
        style: dict[str, Any] = {"color": COLOURS[index % len(COLOURS)], "linestyle": _DASHES[index % len(_DASHES)]}
        axes.step(times, [*values, values[-1]], where="post", label=name, linewidth=2, **style)
    axes.margins(x=0.01)
    if series:
        legend_below(axes, columns=2)
    return figure


def timeline_rows(timelines: "Sequence[Timeline]") -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Return headings and one row per timeline."""
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

    >>> len(cluster_timeline([]).axes)
    2
    """
    figure, (top, bottom) = _figure(2, 1, (4.8, 5.6))
    policies = list(dict.fromkeys(item.policy for item in timelines))
    lines: set[tuple[tuple[float, int], ...]] = set()
    for item in timelines:
        colour = COLOURS[policies.index(item.policy) % len(COLOURS)]
        times = [sample.time_s for sample in item.samples]
        name = (
            f"{item.policy}, planned afresh\nby {item.planner}: {item.migrations} move{'s' * (item.migrations != 1)}"
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
    styled(top, "Requests come and go", "", "servers in use")
    styled(bottom, "", "time [s]", "requests placed")
    for axes in (top, bottom):
        axes.set_ylim(bottom=0)
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.margins(x=0.01)
    if timelines:
        bottom.legend(
            *top.get_legend_handles_labels(), fontsize=9, frameon=False, loc="upper left", bbox_to_anchor=(0.0, -0.3)
        )
    return figure


def _changes(timeline: "Timeline") -> tuple[tuple[float, int], ...]:
    """Return the times at which the number of placed requests changed, and the numbers."""
    changes: list[tuple[float, int]] = [(0.0, 0)]
    for sample in timeline.samples:
        if sample.placed != changes[-1][1]:
            changes.append((sample.time_s, sample.placed))
    return tuple(changes)


def timeline_page(timelines: "Sequence[Timeline]") -> str:
    """Return a self-contained page that shows runs of a placement policy over time."""
    headers, rows = timeline_rows(timelines)
    section = Section(
        "Over time",
        "The same arrivals and departures under each policy. A fresh plan is carried out where it saves more servers "
        "than the threshold; triangles show when, and the servers left in use.",
        Table(headers, tuple(rows)),
        cluster_timeline(timelines),
        "Servers in use and requests placed over time per policy",
    )
    fewest = min(timelines, key=lambda item: item.mean_servers, default=None)
    headline = [] if fewest is None else _over_time(fewest, timelines)
    return render_html("slomo: placement over time", [section], headline=headline, lead="Requests come and go.")


def _over_time(fewest: "Timeline", timelines: "Sequence[Timeline]") -> list[Fact]:
    """Return the headline: fewest servers, refused requests, and broken SLOs if these were checked."""
    plans = f", planned afresh by {fewest.planner}" if fewest.planner else ""
    low, high = min(item.refused for item in timelines), max(item.refused for item in timelines)
    span = f"{low}" if low == high else f"{low} to {high}"
    facts = [
        Fact(f"{fewest.mean_servers:.3g}", f"servers in use on average, with {fewest.policy}{plans}"),
        Fact(span, "requests refused", "Each policy was asked for the same requests."),
    ]
    broken = [sample.violated_share for item in timelines for sample in item.samples if sample.violated_share]
    if any(sample.violated_share is not None for item in timelines for sample in item.samples):
        facts.append(Fact(f"{100 * max(broken, default=0.0):.3g} %", "of the SLOs broken, at the worst time"))
    return facts


def comparison_page(judgements: "Sequence[Judgement]") -> str:
    """Return a self-contained page that compares policies."""
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
    return render_html(
        "slomo: placement policies", sections, headline=_compared(judgements), lead="One workload, one truth."
    )


def _compared(judgements: "Sequence[Judgement]") -> list[Fact]:
    """Return the headline: fewest servers of the policies that kept all SLOs, and the most broken SLOs."""
    if not judgements:
        return []
    most = max(item.placed for item in judgements)
    successful = [item for item in judgements if not item.violations and item.placed == most]
    worst = max(judgements, key=lambda item: item.violated_share)
    facts = [Fact("none", f"of the policies placed {plural(most, 'request')} and kept all SLOs")]
    if successful:
        fewest = min(successful, key=lambda item: item.servers_used)
        suffice = "server suffices" if fewest.servers_used == 1 else "servers suffice"
        text = f"{suffice} for {plural(most, 'request')} with all SLOs kept: {fewest.policy}"
        facts = [Fact(f"{fewest.servers_used}", text)]
    return [*facts, Fact(f"{100 * worst.violated_share:.3g} %", f"of the SLOs broken at worst: {worst.policy}")]


def _figure(rows: int, columns: int, size: tuple[float, float]) -> "tuple[Figure, Any]":
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=120, layout="constrained", facecolor="white")
    return figure, figure.subplots(rows, columns)
