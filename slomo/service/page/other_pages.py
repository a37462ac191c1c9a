"""Jobs with their progress, drift of the models, receipts with undo, and the way in where tokens are needed."""

from collections.abc import Sequence
from typing import Any

from slomo.service.jobs import Job
from slomo.service.page.figures import ratio_line
from slomo.service.page.frame import field, number
from slomo.service.page.markup import Markup, joined, table, tag


def jobs_content(jobs: Sequence[Job]) -> Markup:
    """Return the jobs; those at work are kept up to date by server-sent events."""
    if not jobs:
        return tag("p", "No long work so far. Large placements become jobs with Prefer: respond-async.", class_="lead")
    rows = []
    for job in jobs:
        bar = tag("progress", max="1", value=job.done, aria_label=f"Progress of {job.id}")
        name = tag("span", job.id, data_job=job.id if not job.has_ended else None)
        label = f"Resume job {job.id}, {job.kind}"
        button = tag("button", "Resume", type="button", data_action="resume", data_id=job.id, aria_label=label)
        rows.append([
            name, job.kind, job.at[:19].replace("T", " "),
            tag("span", job.state, class_="state"), bar, tag("span", job.message, class_="message"),
            button if job.state == "interrupted" else "",
        ])  # fmt: skip
    return table("Jobs", ("Job", "What", "Accepted", "State", "Progress", "Where it is", ""), rows)


def drift_content(report: dict[str, Any], history: dict[tuple[str, str], list[float]]) -> Markup:
    """Return errors and alarms."""
    if not report["errors"]:
        return tag("p", "No outcomes yet. POST them to /v1/observations, and they are compared here.", class_="lead")
    alarms = [
        tag(
            "li",
            f"{machine}: {alarm['workload']}, {alarm['channel']} {100 * alarm['deviation']:+.0f} %: measure it again",
        )
        for machine, machine_report in report["drift"].items()
        for alarm in machine_report["alarms"]
    ]
    rows = [
        [row["target"].split("@")[0], row["machine"], str(row["observations"]), number(row["ratio"]),
         ratio_line(history.get((row["machine"], row["target"]), []))]
        for row in report["errors"]
    ]  # fmt: skip
    said = tag("ul", alarms, class_="alarms") if alarms else tag("p", "No alarm.", class_="lead")
    headers = ("Network function", "Machine", "Outcomes", "Observed / predicted", "Over time")
    return joined([said, table("Observed against predicted throughput", headers, rows)])


def receipts_content(receipts: Sequence[dict[str, Any]]) -> Markup:
    """Return the latest changes, each with a button that takes it back."""
    if not receipts:
        return tag("p", "Nothing was changed yet.", class_="lead")
    rows = []
    for item in receipts:
        names = sorted(item["after"])
        what = f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
        undone = item["undone_by"]
        button: Any = f"undone by {undone}"
        if undone is None:
            label = f"Undo receipt {item['number']}, {item['verb']}"
            button = tag("button", "Undo", type="button", data_action="undo", data_id=item["number"], aria_label=label)
        rows.append(
            [f"#{item['number']}", item["at"][:19].replace("T", " "), item["verb"], what, item["caller"], button]
        )
    return table("Receipts", ("Receipt", "When (UTC)", "What", "Requests", "By", ""), rows)


def login_content(*, is_wrong: bool) -> Markup:
    """Return the form for a token."""
    token = tag("input", type="password", name="token", id="token", required=True, autocomplete="current-password")
    said = tag("p", "This token is not known.", class_="lead broken-text", role="alert") if is_wrong else None
    button = tag("p", tag("button", "Enter", type="submit", class_="strong"), class_="actions")
    return joined(
        [said, tag("form", field("Token", "token", token), button, method="post", action="/login", class_="card")]
    )
