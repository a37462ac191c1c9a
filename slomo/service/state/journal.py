"""Read and write the tables of the service's state: cluster, decisions, recorded changes, jobs, measurements, plans.

Rows are ordered by number, never by time: a clock that is set back affects only displayed times.
"""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

Entry = dict[str, Any]
#: Number of newest answers to idempotency keys that are kept.
KEPT_KEYS = 100_000
#: Number of newest rows that are kept in growing tables; number of insertions after which older rows are deleted.
KEPT = {"decisions": 200_000, "receipts": 50_000, "audit": 200_000, "observations": 200_000}
PRUNE_EVERY = 100
_RECEIPT = ("number", "at", "verb", "caller", "before", "after", "undone_by")
_DOCUMENTS = frozenset({"document", "decision", "before", "after", "result"})


def now() -> str:
    """Return the present time as text."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def revision(connection: sqlite3.Connection) -> int:
    """Return the revision of the cluster: the number of changes so far."""
    return int(connection.execute("SELECT number FROM revision").fetchone()[0])


def advance(connection: sqlite3.Connection) -> int:
    """Increase the revision of the cluster and return it."""
    connection.execute("UPDATE revision SET number = number + 1")
    return revision(connection)


def servers(connection: sqlite3.Connection) -> list[Entry]:
    """Return the cluster's servers in order."""
    rows = connection.execute("SELECT document FROM cluster ORDER BY position")
    return [json.loads(row[0]) for row in rows]


def put_servers(connection: sqlite3.Connection, documents: Iterable[Entry]) -> None:
    """Store new servers, or replace stored ones of the same names."""
    for document in documents:
        connection.execute(
            "INSERT INTO cluster (name, document) VALUES (?, ?)"
            " ON CONFLICT (name) DO UPDATE SET document = excluded.document",
            (document["name"], json.dumps(document)),
        )


def drop_server(connection: sqlite3.Connection, name: str) -> None:
    """Remove a server from the stored cluster."""
    connection.execute("DELETE FROM cluster WHERE name = ?", (name,))
    connection.execute("DELETE FROM closed WHERE server = ?", (name,))


def closed(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the servers closed for new requests, each with its reason (``"cordoned"``, ``"failed"``)."""
    return dict(connection.execute("SELECT server, why FROM closed ORDER BY server").fetchall())


def put_closed(connection: sqlite3.Connection, servers: Mapping[str, str]) -> None:
    """Store which servers are closed for new requests; all others are open."""
    connection.execute("DELETE FROM closed")
    connection.executemany("INSERT INTO closed (server, why) VALUES (?, ?)", sorted(servers.items()))


def entries(connection: sqlite3.Connection) -> list[Entry]:
    """Return the placed requests, in order of placement."""
    rows = connection.execute("SELECT entry FROM placed ORDER BY position")
    return [json.loads(row[0]) for row in rows]


def put_entries(connection: sqlite3.Connection, changed: Mapping[str, Entry | None]) -> None:
    """Store placed requests; an entry that is None is removed."""
    for request, entry in changed.items():
        if entry is None:
            connection.execute("DELETE FROM placed WHERE request = ?", (request,))
            continue
        connection.execute(
            "INSERT INTO placed (request, entry) VALUES (?, ?)"
            " ON CONFLICT (request) DO UPDATE SET entry = excluded.entry",
            (request, json.dumps(entry)),
        )


def put_order(connection: sqlite3.Connection, requests: Sequence[str]) -> None:
    """Store the order in which requests were placed."""
    stored = [row[0] for row in connection.execute("SELECT request FROM placed ORDER BY position")]
    if stored == list(requests):
        return
    last = connection.execute("SELECT MAX(position) FROM placed").fetchone()[0] or 0
    rows = [(last + place, request) for place, request in enumerate(requests, start=1)]
    connection.executemany("UPDATE placed SET position = ? WHERE request = ?", rows)


def add_decision(
    connection: sqlite3.Connection, verb: str, request: str, document: Mapping[str, Any], fingerprint: str
) -> None:
    """Store a placement decision."""
    row = {"at": now(), "request": request, "verb": verb, "fingerprint": fingerprint, "document": json.dumps(document)}
    _add(connection, "decisions", row)


def decisions(connection: sqlite3.Connection, limit: int, request: str | None = None) -> list[Entry]:
    """Return the latest decisions, newest first."""
    names = ("number", "at", "request", "verb", "fingerprint", "document AS decision")
    where, values = ("WHERE request = ?", [request]) if request is not None else ("", [])
    return _listed(connection, "decisions", names, f"{where} ORDER BY number DESC LIMIT ?", [*values, limit])


def add_receipt(
    connection: sqlite3.Connection,
    verb: str,
    caller: str,
    before: Mapping[str, Entry | None],
    after: Mapping[str, Entry | None],
) -> int:
    """Store a change with the states before and after it, so that it can be undone; return its number."""
    row = {"at": now(), "verb": verb, "caller": caller, "before": json.dumps(before), "after": json.dumps(after)}
    return _add(connection, "receipts", row)


def receipts(connection: sqlite3.Connection, limit: int) -> list[Entry]:
    """Return the latest recorded changes, newest first."""
    return _listed(connection, "receipts", _RECEIPT, "ORDER BY number DESC LIMIT ?", (limit,))


def receipt(connection: sqlite3.Connection, number: int) -> Entry | None:
    """Return one recorded change."""
    return next(iter(_listed(connection, "receipts", _RECEIPT, "WHERE number = ?", (number,))), None)


def open_receipts(connection: sqlite3.Connection) -> int:
    """Return the number of changes that can be undone."""
    return int(connection.execute("SELECT COUNT(*) FROM receipts WHERE undone_by IS NULL").fetchone()[0])


def mark_undone(connection: sqlite3.Connection, number: int, by: int) -> None:
    """Store the number of the change that undid another change."""
    connection.execute("UPDATE receipts SET undone_by = ? WHERE number = ?", (by, number))


def add_job(connection: sqlite3.Connection, job: Mapping[str, Any], errand: Any) -> None:
    """Store a new job with its request, which is kept until the job ends."""
    put_job(connection, job)
    connection.execute("UPDATE jobs SET asked = ? WHERE id = ?", (json.dumps(errand), job["id"]))


def asked_of_job(connection: sqlite3.Connection, identifier: str) -> Any:
    """Return the request that started a job; None if it is not stored."""
    row = connection.execute("SELECT asked FROM jobs WHERE id = ?", (identifier,)).fetchone()
    return None if row is None or row[0] is None else json.loads(row[0])


def forget_asked(connection: sqlite3.Connection, identifier: str) -> None:
    """Delete the request of a finished job."""
    connection.execute("UPDATE jobs SET asked = NULL WHERE id = ?", (identifier,))


def interrupt_jobs(connection: sqlite3.Connection, why: str, identifier: str | None = None) -> None:
    """Mark all running jobs, or one, as interrupted; their stored progress stays."""
    connection.execute(
        "UPDATE jobs SET state = 'interrupted', message = CASE message WHEN '' THEN ?1 ELSE message || '; ' || ?1 END"
        " WHERE state IN ('waiting', 'running') AND (?2 IS NULL OR id = ?2)",
        (why, identifier),
    )


def put_job(connection: sqlite3.Connection, job: Mapping[str, Any]) -> None:
    """Store a job's state."""
    result = None if job["result"] is None else json.dumps(job["result"])
    connection.execute(
        "INSERT INTO jobs (id, at, kind, state, done, message, result) VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET"
        " state = excluded.state, done = excluded.done, message = excluded.message, result = excluded.result",
        (job["id"], job["at"], job["kind"], job["state"], job["done"], job["message"], result),
    )


def jobs(connection: sqlite3.Connection, limit: int = 100, identifier: str | None = None) -> list[Entry]:
    """Return jobs, newest first, or only the job with the given identifier."""
    names = ("id", "at", "kind", "state", "done", "message", "result")
    which = "WHERE ?1 IS NULL OR id = ?1 ORDER BY number DESC LIMIT ?2"
    return _listed(connection, "jobs", names, which, (identifier, limit))


def add_observation(
    connection: sqlite3.Connection,
    machine: str,
    target: str,
    document: Entry,
    predicted_mpps: float | None,
    fingerprint: str,
) -> None:
    """Store one measured throughput, with the fingerprint of the models that predicted it."""
    row: Entry = {"at": now(), "machine": machine, "target": target, "document": json.dumps(document)}
    row |= {"predicted_mpps": predicted_mpps, "throughput_mpps": document["throughput_mpps"]}
    row["fingerprint"] = fingerprint
    _add(connection, "observations", row)


def observations(connection: sqlite3.Connection, limit: int) -> list[Entry]:
    """Return the latest `limit` measured throughputs, oldest first."""
    names = ("number", "at", "machine", "target", "document", "predicted_mpps", "throughput_mpps", "fingerprint")
    return _listed(connection, "observations", names, "ORDER BY number DESC LIMIT ?", (limit,))[::-1]


def remembered(connection: sqlite3.Connection, key: str) -> tuple[str, int, Entry, bytes] | None:
    """Return the stored answer to an idempotency key: digest, status, headers and body."""
    row = connection.execute("SELECT digest, status, headers, body FROM idempotency WHERE key = ?", (key,)).fetchone()
    return None if row is None else (row[0], row[1], json.loads(row[2]), row[3])


def remember(connection: sqlite3.Connection, key: str, digest: str, status: int, headers: Entry, body: bytes) -> None:
    """Store the answer to an idempotency key."""
    cursor = connection.execute(
        "INSERT INTO idempotency (key, digest, status, headers, body) VALUES (?, ?, ?, ?, ?)",
        (key, digest, status, json.dumps(headers), body),
    )
    connection.execute("DELETE FROM idempotency WHERE position <= ?", ((cursor.lastrowid or 0) - KEPT_KEYS,))


def add_audit(connection: sqlite3.Connection, caller: str, verb: str, request_id: str, status: int) -> None:
    """Store a caller's action in the audit log."""
    row = {"at": now(), "caller": caller, "verb": verb, "request_id": request_id, "status": status}
    _add(connection, "audit", row)


def _add(connection: sqlite3.Connection, table: str, row: Mapping[str, Any]) -> int:
    """Add a row to a table and return its number; from time to time the oldest rows are deleted."""
    places = ", ".join("?" * len(row))
    statement = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})"  # noqa: S608 - no text of a caller
    number = connection.execute(statement, tuple(row.values())).lastrowid or 0
    if number % PRUNE_EVERY == 0:
        connection.execute(f"DELETE FROM {table} WHERE number <= ?", (number - KEPT[table],))  # noqa: S608
    return number


def _listed(
    connection: sqlite3.Connection, table: str, names: Sequence[str], which: str, values: Sequence[object]
) -> list[Entry]:
    """Return rows as mappings by column name; columns of `_DOCUMENTS` are decoded from JSON."""
    cursor = connection.execute(f"SELECT {', '.join(names)} FROM {table} {which}", values)  # noqa: S608
    keys = [column[0] for column in cursor.description]
    return [
        {key: json.loads(value) if key in _DOCUMENTS and value is not None else value
         for key, value in zip(keys, row, strict=True)}
        for row in cursor
    ]  # fmt: skip


def plan(connection: sqlite3.Connection, node: str) -> str | None:
    """Return the plan for a node's agent as JSON; None if there is none."""
    row = connection.execute("SELECT document FROM plans WHERE node = ?", (node,)).fetchone()
    return None if row is None else str(row[0])


def put_plan(connection: sqlite3.Connection, node: str, document: str | None) -> None:
    """Store the plan for a node's agent; None removes it."""
    connection.execute("DELETE FROM plans WHERE node = ?", (node,))
    if document is not None:
        connection.execute("INSERT INTO plans (node, at, document) VALUES (?, ?, ?)", (node, now(), document))


def add_point(connection: sqlite3.Connection, at_s: float, document: Mapping[str, Any], most: int) -> None:
    """Store the cluster's figures of one moment, and delete all but the latest `most`."""
    cursor = connection.execute("INSERT INTO history (at_s, document) VALUES (?, ?)", (at_s, json.dumps(document)))
    connection.execute("DELETE FROM history WHERE number <= ?", ((cursor.lastrowid or 0) - most,))


def points(connection: sqlite3.Connection) -> list[Entry]:
    """Return the cluster's figures over time, oldest first."""
    return [json.loads(row[0]) for row in connection.execute("SELECT document FROM history ORDER BY number")]
