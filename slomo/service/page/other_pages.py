"""Pages of jobs, history, drift of models, changes that can be undone, and the login form."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from slomo.service.jobs import Job
from slomo.service.page.figures import ChartLine, ratio_line, time_chart
from slomo.service.page.frame import field, share
from slomo.service.page.markup import Markup, joined, table, tag


def jobs_content(jobs: Sequence[Job]) -> Markup:
    """Return the content of the jobs page; server-sent events update running jobs."""
    if not jobs:
        text = "No long work so far. A large placement becomes a job, and is followed here:"
        header = "curl -H 'Prefer: respond-async' -H 'Content-Type: application/json' -d @requests.json .../v1/place"
        return joined([tag("p", text, class_="lead"), tag("p", tag("code", header))])
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
    return table("Jobs", ("Job", "What", "Accepted", "State", "Progress", "Where it is", "Action"), rows)


def drift_content(report: dict[str, Any], history: dict[tuple[str, str], list[float]]) -> Markup:
    """Return the content of the drift page: prediction errors and alarms."""
    if not report["errors"]:
        text = "No outcomes yet. Send what a placed network function was seen to do, and it is compared here:"
        body = '{"observations": [{"target": "lpm", "competitors": ["nat"], "throughput_mpps": 4.1}]}'
        command = f"curl -H 'Content-Type: application/json' -d '{body}' .../v1/observations"
        return joined([tag("p", text, class_="lead"), tag("p", tag("code", command))])
    alarms = [
        tag(
            "li",
            f"{machine}: {alarm['workload']}, {alarm['channel']} {100 * alarm['deviation']:+.0f} % off its model: "
            "measure it again",
        )
        for machine, machine_report in report["drift"].items()
        for alarm in machine_report["alarms"]
    ]
    rows = [
        [row["target"].split("@")[0], row["machine"], str(row["observations"]), _off(row["ratio"]),
         ratio_line(history.get((row["machine"], row["target"]), []))]
        for row in sorted(report["errors"], key=lambda row: -abs(row["ratio"] - 1.0))
    ]  # fmt: skip
    alarm_list = tag("ul", alarms, class_="alarms") if alarms else tag("p", "No alarm.", class_="lead")
    headers = ("Network function", "Machine", "Outcomes", "Observed against predicted", "Over time, -20 to +20 %")
    return joined(
        [alarm_list, table("Observed against predicted throughput", headers, rows), tag("p", _BASES, class_="hint")]
    )


#: Explains the bases of comparison of the two figures of one function.
_BASES = (
    "An alarm compares outcomes with the function's own model beside its neighbours' profiles, the table with the "
    "prediction of the whole server: the two differ by a few per cent."
)


def _off(ratio: float) -> Markup:
    """Return how far measured throughputs are from predictions [%], in colour."""
    off = round(100.0 * (ratio - 1.0), 1) + 0.0  # avoids "-0.0"
    kind = "ample" if abs(off) < TOLERATED else "tight" if abs(off) < 2.0 * TOLERATED else "broken"
    return tag("span", f"{off:+.1f} %", class_=f"badge {kind}")


#: Deviation of outcomes above which the page colours them [%].
TOLERATED = 5.0


def receipts_content(receipts: Sequence[dict[str, Any]]) -> Markup:
    """Return the content of the page of changes, each with an undo button."""
    if not receipts:
        text = (
            "Nothing was changed yet. Every change of the cluster leaves a receipt here, with a button that undoes it."
        )
        return tag("p", text, class_="lead")
    rows = []
    for item in receipts:
        names = sorted(item["after"])
        changes = [
            tag("li", f"{name}: {_where(item['before'][name])} → {_where(item['after'][name])}") for name in names
        ]
        what = tag("ul", changes[:3], class_="changes")
        if more := changes[3:]:
            summary = tag("summary", f"and {len(more)} more")
            what = tag("div", what, tag("details", summary, tag("ul", more, class_="changes")))
        undone = item["undone_by"]
        button: Any = f"undone by {undone}"
        if undone is None:
            label = f"Undo receipt {item['number']}, {item['verb']}"
            button = tag("button", "Undo", type="button", data_action="undo", data_id=item["number"], aria_label=label)
        rows.append(
            [f"#{item['number']}", item["at"][:19].replace("T", " "), item["verb"], what, item["caller"], button]
        )
    return table("Receipts", ("Receipt", "When (UTC)", "What", "From where to where", "By", "Action"), rows)


def _where(entry: dict[str, Any] | None) -> str:
    """Return the servers on which a request is placed."""
    return "nowhere" if entry is None else ", ".join(sorted({piece["server"] for piece in entry["pieces"]}))


def login_content(*, is_wrong: bool) -> Markup:
    """Return the form in which a user enters a token."""
    token = tag("input", type="password", name="token", id="token", required=True, autocomplete="current-password")
    message = tag("p", "This token is not known.", class_="lead broken-text", role="alert") if is_wrong else None
    lead = tag("p", "The token is the secret that this service's operator gave you.", class_="lead")
    button = tag("p", tag("button", "Log in", type="submit", class_="strong"), class_="actions")
    return joined(
        [
            message or lead,
            tag("form", field("Token", "token", token), button, method="post", action="/login", class_="card"),
        ]
    )


#: Lengths of time windows to choose from [h].
HOURS = (1, 6, 24)
#: Largest number of rows of the table.
MOST_ROWS = 48


def history_content(history: dict[str, Any], rows: list[dict[str, Any]], hours: int, every_s: float) -> Markup:
    """Return the content of the history page: `history` by `History.told`, and fewer `rows` of it for the table."""
    links = [
        tag("a", f"{item} h", href=f"/history?hours={item}", aria_current="true" if item == hours else None)
        for item in HOURS
    ]
    choose = tag("nav", tag("ul", [tag("li", link) for link in links]), aria_label="Length of time", class_="windows")
    if not history["points"]:
        text = (
            f"Nothing was kept in this time. While servers are known, a point is taken every {every_s:.0f} s and kept "
            "for a day: shares, headroom, promises and decisions appear here."
        )
        hint = tag("p", "Add servers, or watch a cluster of Kubernetes: see ", tag("a", "Cluster", href="/"), ".")
        return joined([choose, tag("div", tag("p", text, class_="lead"), hint, data_live="charts")])
    charts = tag("div", _charts(history), class_="charts", data_live="charts")
    columns = ("Time (UTC)", "Lowest share", "Median share", "Least headroom", "Promises kept", "May break",
               "Not judged", "Decisions")  # fmt: skip
    cells = [_row(item) for item in reversed(rows)]
    numbers = tag("div", table("The cluster over time", columns, cells), data_live="numbers")
    return joined([choose, charts, tag("details", tag("summary", "The same as a table"), numbers)])


def _charts(history: dict[str, Any]) -> list[Markup]:
    points = history["points"]

    def line(name: str, key: str, kind: str, factor: float = 1.0) -> ChartLine:
        values = [(item["at_s"], None if item[key] is None else factor * item[key]) for item in points]
        return ChartLine(name, kind, values)

    return [
        time_chart("Share of the throughput alone that is predicted", "%", history, (0.0, 100.0),
                   [line("lowest", "least_share", "first", 100.0), line("median", "median_share", "second", 100.0)]),
        time_chart("Least headroom above a promise", "%", history, None,
                   [line("headroom", "least_headroom", "first", 100.0)]),
        time_chart("Promises", "", history, None,
                   [line("kept", "kept", "first"), line("may break", "broken", "bad"),
                    line("not judged", "unjudged", "third")]),
        time_chart("Decisions", "", history, None,
                   [line("accepted", "accepted", "first"), line("refused", "refused", "bad")]),
    ]  # fmt: skip


def _row(item: dict[str, Any]) -> list[str]:
    at = datetime.fromtimestamp(item["at_s"], UTC).strftime("%Y-%m-%d %H:%M:%S")
    percent: Callable[[float | None], str] = lambda value: "-" if value is None else share(value)  # noqa: E731
    counts = [str(item[name]) for name in ("kept", "broken", "unjudged")]
    shares = [percent(item[name]) for name in ("least_share", "median_share", "least_headroom")]
    return [at, *shares, *counts, f"{item['accepted'] + item['refused']}, {item['refused']} refused"]
