"""Page of one server: its network functions with predictions and promises, its agent, and one more function."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from slomo.service.one_more import OneMore
from slomo.service.page.cluster_page import KINDS, server_link, state, state_text
from slomo.service.page.figures import interval_bar
from slomo.service.page.frame import choice, field, number, promise_field, question_form, share
from slomo.service.page.markup import Markup, joined, table, tag
from slomo.service.servers import RunningNF, RunningServer
from slomo.vocabulary.metrics import METRICS

_SCALE = (
    "Scale: % of the throughput alone. Broad line: interval; stroke: predicted; triangle: promise; circle: observed."
)

#: Shares of solo throughput above which a cost gets the next darker colour.
_HEAT = (0.01, 0.02, 0.05, 0.1, 0.2)


def server_content(
    server: RunningServer,
    costs: dict[str, Any] | None,
    functions: list[str],
    observed: Mapping[str, float],
    report: dict[str, Any] | None = None,
    *,
    can_remove: bool,
) -> Markup:
    """Return the content of a server's page.

    `costs`: cost of each tenant to each other; None if unknown. `observed`: workload -> observed over predicted.
    """
    machine = server.machine or "machine type not known"
    lead = f"{machine}, {len(server.tenants)} of {server.cores} cores in use: {state_text(server)}."
    swatch = tag("span", KINDS[server.kind][0], class_=f"swatch {server.kind}", aria_hidden="true")
    empty = tag("p", "Nothing runs here. Ask below what a network function would do.", class_="hint")
    return joined(
        [
            tag(
                "div",
                tag("p", swatch, lead, class_="lead"),
                _tenants(server.tenants, costs, observed, can_remove=can_remove) if server.tenants else empty,
                _costs(costs) if costs else None,
                None if can_remove and report is None else agent_content(report),
                data_live="tenants",
            ),
            question_form(
                tag("h2", "What if one more came?"),
                tag("input", type="hidden", name="server", value=server.name),
                field("Network function", "add", choice("add", functions)),
                promise_field(""),
            ),
            tag("p", tag("a", "All servers", href="/")),
        ]
    )


def _tenants(
    tenants: Sequence[RunningNF], costs: dict[str, Any] | None, observed: Mapping[str, float], *, can_remove: bool
) -> Markup:
    rows: list[list[Any]] = []
    for place, item in enumerate(tenants):
        remove: Any = ""
        if can_remove:
            remove = tag("button", "Remove", type="button", data_action="remove", data_id=item.owner,
                         aria_label=f"Remove {item.owner}")  # fmt: skip
        core = f", core {item.socket}:{item.seat}" if item.seat else ""
        who = [item.owner, tag("small", f"{item.workload.split('@')[0]}{core}", class_="why")]
        ratio = observed.get(item.workload)
        observed_mpps = None if ratio is None or item.predicted_mpps is None else ratio * item.predicted_mpps
        less = observed_mpps is not None and observed_mpps < item.needed_mpps
        why = "; ".join(filter(None, (item.why, "but less was observed" if less else "")))
        promise = [_promised(item), tag("small", why, class_="why") if why else None]
        support = verdict_badge(costs["tenants"][place]["verdict"]) if costs else "-"
        rows.append([who, _predicted(item, observed_mpps), _lost(item), support, promise, remove])
    headers = ("Whose", "Predicted, with its interval", "Lost", "Support", "Promise", "Action")
    return tag("section", tag("h2", "Tenants"), table("Tenants", headers, rows), tag("p", _SCALE, class_="hint"))


def verdict_badge(verdict: str) -> Markup:
    """Return the verdict on a prediction as a coloured word."""
    kind = {"supported": "ample", "extrapolated": "tight", "unsupported": "broken"}.get(verdict, "unjudged")
    return tag("span", verdict, class_=f"badge {kind}")


def _predicted(item: RunningNF, observed_mpps: float | None = None) -> Any:
    if item.predicted_mpps is None:
        return "not predicted"
    text = f"{number(item.predicted_mpps)} Mpps"
    if item.low_mpps is not None and item.high_mpps is not None:
        text += f", {number(item.low_mpps)} to {number(item.high_mpps)}"
    seen = f"; observed {number(observed_mpps)}" if observed_mpps is not None else ""
    return tag("div", interval_bar(item, observed_mpps), tag("small", text + seen, class_="why"), class_="figure")


def _promised(item: RunningNF) -> Markup:
    amount = f"{number(item.needed_mpps)} Mpps " if item.needed_mpps else ""
    return tag("span", amount, state(item), class_="num")


def _costs(answer: dict[str, Any]) -> Markup:
    """Return a table: each row shows how much throughput a function takes from each of the others."""
    tenants, costs = answer["tenants"], answer["costs_mpps"]
    names = [item["target"] for item in tenants]
    solos = [item["solo_mpps"] or 1.0 for item in tenants]
    rows = []
    for i, name in enumerate(names):
        cells: list[Any] = [f"{i + 1} {name}"]
        for j in range(len(names)):
            part = costs[i][j] / solos[j]
            heat = 0 if i == j else bisect_right(_HEAT, part)
            text = "–" if i == j else f"{100 * part:.1f}"
            cells.append(tag("span", text, class_=f"heat heat-{heat}"))
        rows.append(cells)
    headers = ["takes from, % of its throughput alone", *(f"{i + 1} {name}" for i, name in enumerate(names))]
    note = "What each column's network function would gain if the row's left."
    return tag(
        "section", tag("h2", "Who costs whom"), table("Who costs whom", headers, rows), tag("p", note, class_="hint")
    )


def whatif_content(
    servers: Sequence[str], functions: list[str], asked: tuple[str, str, str], effect: OneMore | str | None
) -> Markup:
    """Return the page about one more function; `effect`: what it does, why that is unknown, or None."""
    server, add, promise = asked
    form = question_form(
        field("Network function", "add", choice("add", functions, add)),
        field("Server", "server", choice("server", servers, server)),
        promise_field(promise),
        kind="card row",
    )
    if effect is None:
        text = "Choose a network function and a server: whose promise would break, and where else would it fit?"
        return joined([tag("p", text, class_="lead"), form])
    if isinstance(effect, str):
        return joined([tag("p", effect, class_="lead broken-text"), form])
    lead = tag("p", tag("a", server, href=server_link(server)), f" with one more {add}:", class_="lead")
    if effect.refusal:
        refusal = tag("p", f"It does not fit there, {effect.refusal}.", class_="lead broken-text")
        return joined([lead, refusal, _elsewhere(effect, server), form])
    rows = []
    for place, item in enumerate(effect.after):
        old = effect.before[place] if place < len(effect.before) else None
        was = "new" if old is None else _lost(old)
        whose = [item.owner or "-", tag("small", item.workload.split("@")[0], class_="why")]
        rows.append([whose, was, _lost(item), _predicted(item), _promised(item)])
    headers = ("Whose", "Lost before", "Lost then", "Predicted then", "Promise then")
    scale = tag("p", _SCALE, class_="hint")
    return joined(
        [lead, _verdict(effect), _elsewhere(effect, server), table("What would happen", headers, rows), scale, form]
    )


def _lost(item: RunningNF) -> str:
    return share(1.0 - item.predicted_mpps / item.solo_mpps) if item.predicted_mpps and item.solo_mpps else "-"


def _verdict(effect: OneMore) -> Markup:
    """Return a text about the promises that would break, or could not be judged, with the additional function."""
    parts = []
    for kind, would in (("broken", "would break"), ("unjudged", "could not be judged")):
        lines = []
        for item in (item for item in effect.after if item.state == kind):
            nf = item.workload.split("@")[0]
            numbers = f"{number(item.needed_mpps)} Mpps promised, {number(item.low_mpps or 0.0)} to be counted on"
            why = numbers if kind == "broken" else item.why
            lines.append(tag("li", tag("strong", item.owner or nf), f" ({nf}): {why}"))
        if lines:
            text = f"This promise {would}:" if len(lines) == 1 else f"These {len(lines)} promises {would}:"
            parts.append(tag("div", tag("p", text, class_="lead"), tag("ul", lines), class_=f"{kind}-text"))
    if not any(item.state == "broken" for item in effect.after):
        parts.append(tag("p", f"No {'other ' if parts else ''}promise would break.", class_="lead ample-text"))
    return joined(parts)


def _elsewhere(effect: OneMore, server: str) -> Markup:
    """Return the servers on which the function would fit without breaking a promise."""
    names = [name for name in effect.fits if name != server]
    if not names:
        return tag("p", "There is no other server on which every promise would hold.", class_="hint")
    links = [[", " if place else "", tag("a", name, href=server_link(name))] for place, name in enumerate(names)]
    return tag("p", "Every promise would hold on ", links, ".", class_="hint")


#: Age above which a report counts as late [s].
LATE_S = 60.0


def agent_content(report: dict[str, Any] | None) -> Markup:
    """Return the section about a node's agent; without an agent, it explains how to start one."""
    head = tag("h2", "Counters")
    if report is None:
        text = "No agent reports from this node. Start one there, and counters of its tenants appear here: "
        command = tag("code", "slomo agent --node NODE --server URL")
        return tag("section", head, tag("p", text, command, class_="hint"))
    age_s = report["age_s"]
    late = f"The agent is silent: its last report is {age_s:.0f} s old."
    warning = tag("p", late, class_="broken-text") if age_s > LATE_S else None
    rows = [
        [item["tenant"], item["nf"].split("@")[0], _counters(item), item["source"] or "-"] for item in report["tenants"]
    ]
    headers = ("Tenant", "Network function", "Counters of its CPU", "Read by")
    shown = table("Counters", headers, rows) if rows else tag("p", "No network function runs there.", class_="hint")
    return joined([tag("section", head, warning, shown), _enforced(report["enforcement"])])


def _counters(item: dict[str, Any]) -> Markup:
    if item["counters"] is None:
        return tag("span", f"No counters: {item['reason']}", class_="why")
    parts = [
        tag("li", f"{name} {number(value)} {METRICS[name].unit}".strip()) for name, value in item["counters"].items()
    ]
    return tag("ul", parts, class_="changes counters")


def _enforced(enforcement: dict[str, Any] | None) -> Markup:
    """Return the settings that the agent has made, and those it has not."""
    head = tag("h2", "Enforced")
    if enforcement is None:
        text = "The agent may not act on its node; slomo agent --enforce resctrl+cgroup allows it to carry out a plan."
        return tag("section", head, tag("p", text, class_="hint"))
    refusals, changes = enforcement["refusals"], enforcement["changes"]
    wrong = tag("ul", [tag("li", text) for text in refusals], class_="alarms") if refusals else None
    done = tag("ul", [tag("li", tag("code", text)) for text in changes], class_="changes") if changes else None
    text = f"By receipt {enforcement['receipt']}:" if enforcement["receipt"] else "Nothing is set by a plan."
    return tag("section", head, wrong, tag("p", text, class_="hint"), done)
