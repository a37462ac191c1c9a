"""Section of a server's page about the node's agent: counters of the node's pods, and settings that the agent made."""

from typing import Any

from slomo.service.page.frame import number
from slomo.service.page.markup import Markup, joined, table, tag
from slomo.vocabulary.metrics import METRICS

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
