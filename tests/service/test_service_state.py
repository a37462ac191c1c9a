"""What was answered is on disk: kills, full disks, repeated keys, old revisions, undo and backup."""

import json
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from slomo.equilibrium import one_question, settling
from slomo.errors import ConfigurationError, StoreError, UnknownNameError
from slomo.models.functions import compilation, monotone_kernel
from slomo.models.library import ModelLibrary
from slomo.service.application import Service
from slomo.service.state import journal
from slomo.service.state.store import VERSION, Store, copy_state, make_tables
from tests.service.conftest import SERVERS, Running, Started

REQUEST = {"id": "edge", "nf": "lpm", "slo": {"min_share": 0.5}}


def placed(client: TestClient | httpx.Client) -> list[str]:
    """Return the ids of what is placed."""
    return [item["id"] for item in client.get("/v1/cluster/requests").json()["requests"]]


def test_what_is_placed_survives_a_restart_with_cores(start: Started, tmp_path: Path) -> None:
    """A service started on the same file has the same cluster, core by core; the file alone, copied, is whole."""
    first = start(state=tmp_path / "state.sqlite")
    first.post("/v1/cluster/servers", json={"servers": SERVERS})
    first.post("/v1/place", json={"requests": [REQUEST, {"id": "b", "chain": ["nat", "ids"]}]})
    before = first.get("/v1/cluster").json()
    first.__exit__(None, None, None)
    copied = Path(shutil.copy(tmp_path / "state.sqlite", tmp_path / "copy.sqlite"))

    for state in (tmp_path / "state.sqlite", copied):
        assert start(state=state).get("/v1/cluster").json() == before


def test_a_function_whose_models_are_gone_is_named(start: Started, toy_library: ModelLibrary, tmp_path: Path) -> None:
    """Models without a function that runs: the service does not start, and names function and request."""
    first = start(state=tmp_path / "state.sqlite")
    first.post("/v1/cluster/servers", json={"servers": SERVERS})
    assert first.post("/v1/place", json={"requests": [REQUEST]}).json()["decisions"][0]["accepted"]
    first.__exit__(None, None, None)
    fewer = ModelLibrary(model for model in toy_library.values() if model.workload.nf != REQUEST["nf"])

    with pytest.raises(UnknownNameError, match=f"'{REQUEST['nf']}' of request '{REQUEST['id']}'"):
        start(state=tmp_path / "state.sqlite", models=fewer.save(tmp_path / "fewer"))


def test_the_order_of_requests_survives_a_restart(start: Started, tmp_path: Path) -> None:
    """Also of those that were moved, taken off and put back: later changes begin from the same cluster."""
    first = start(state=tmp_path / "state.sqlite")
    first.post("/v1/cluster/servers", json={"servers": SERVERS})
    wishes = [{"id": f"r{n}", "nf": ("lpm", "nat", "ids")[n % 3], "slo": {"min_share": 0.6}} for n in range(9)]
    first.post("/v1/place", json={"requests": wishes[:6]})
    first.post("/v1/place", json={"requests": wishes[6:]})
    for server in ("s1", "s2"):
        first.post("/v1/cluster/changes", json={"action": "drain", "server": server})
        first.post("/v1/cluster/changes", json={"action": "uncordon", "server": server})
    receipt = first.delete("/v1/cluster/requests/r2").json()["receipt"]
    first.post("/v1/cluster/rebalance", json={"max_moves": 5})
    assert first.post(f"/v1/receipts/{receipt}/undo").status_code == 200
    before = placed(first)
    first.__exit__(None, None, None)

    assert placed(start(state=tmp_path / "state.sqlite")) == before
    assert before != sorted(before)


def test_old_decisions_and_receipts_are_deleted(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables that only grow keep their newest rows; what is placed stays, also without its decision."""
    monkeypatch.setattr(journal, "PRUNE_EVERY", 1)
    monkeypatch.setattr(journal, "KEPT", dict.fromkeys(journal.KEPT, 3))
    client.post("/v1/place", json={"requests": [REQUEST]})
    for number in range(4):
        client.post("/v1/place", json={"requests": [{"id": f"r{number}", "nf": "nat"}]})
    observed = [{"target": "lpm", "throughput_mpps": 4.0}] * 5
    assert client.post("/v1/observations", json={"observations": observed}).json()["kept"] == 5

    assert [item["number"] for item in client.get("/v1/receipts").json()["receipts"]] == [5, 4, 3]
    assert [item["request"] for item in client.get("/v1/decisions").json()["decisions"]] == ["r3", "r2", "r1"]
    told = client.get("/v1/cluster/requests/edge").json()
    assert told["history"] == []
    assert told["decision"]["accepted"]
    count = client.service.store.read(  # type: ignore[attr-defined]
        lambda opened: [opened.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in journal.KEPT]
    )
    assert count == [3, 3, 3, 3]


def test_one_writer_at_a_time(start: Started, tmp_path: Path) -> None:
    """A second service on the same file is refused."""
    start(state=tmp_path / "state.sqlite")

    with pytest.raises(StoreError, match="another service"):
        Store(tmp_path / "state.sqlite")


def test_a_key_used_twice_places_once(client: TestClient) -> None:
    """The same key and body get the first answer; another body is refused."""
    headers = {"Idempotency-Key": "k1"}
    first = client.post("/v1/place", json={"requests": [REQUEST]}, headers=headers)
    second = client.post("/v1/place", json={"requests": [REQUEST]}, headers=headers)
    other = client.post("/v1/place", json={"requests": [{**REQUEST, "id": "x"}]}, headers=headers)

    assert first.status_code == second.status_code == 200
    assert first.content == second.content
    assert second.headers["idempotency-replayed"] == "true"
    assert other.status_code == 422
    assert placed(client) == ["edge"]


def test_a_decision_on_an_old_revision_is_refused(client: TestClient) -> None:
    """If-Match with a tag that has gone by changes nothing."""
    tag = client.get("/v1/cluster").headers["etag"]
    assert client.get("/v1/cluster", headers={"If-None-Match": tag}).status_code == 304
    assert client.post("/v1/place", json={"requests": [REQUEST]}, headers={"If-Match": tag}).status_code == 200
    late = client.post("/v1/place", json={"requests": [{**REQUEST, "id": "b"}]}, headers={"If-Match": tag})

    assert late.status_code == 412
    assert placed(client) == ["edge"]


def test_what_if_changes_nothing(client: TestClient) -> None:
    """A question whether something fits leaves revision and cluster as they are."""
    before = client.get("/v1/cluster").content
    told = client.post("/v1/place", json={"requests": [REQUEST], "what_if": True}).json()

    assert told["decisions"][0]["accepted"]
    assert client.get("/v1/cluster").content == before


def test_undo_puts_back_core_by_core_and_only_once(client: TestClient) -> None:
    """Removing and undoing leaves the cluster as it was; a second undo, or one after a later change, is refused."""
    made = client.post("/v1/place", json={"requests": [REQUEST, {"id": "b", "nf": "nat"}]}).json()
    before = client.get("/v1/cluster").json()["servers"]
    removed = client.delete("/v1/cluster/requests/edge").json()["receipt"]

    assert client.post(f"/v1/receipts/{made['receipt']}/undo").status_code == 409
    assert client.post(f"/v1/receipts/{removed}/undo").status_code == 200
    assert client.get("/v1/cluster").json()["servers"] == before
    assert client.post(f"/v1/receipts/{removed}/undo").status_code == 409
    assert client.post(f"/v1/receipts/{made['receipt']}/undo").status_code == 200
    assert placed(client) == []
    assert client.post("/v1/receipts/999/undo").status_code == 404


def test_servers_come_and_go(client: TestClient) -> None:
    """An empty server can be removed, one in use cannot, and a name is given once."""
    client.post("/v1/place", json={"requests": [REQUEST]})
    used = client.get("/v1/cluster/requests/edge").json()["decision"]["assignments"][0]["server"]
    free = next(item["name"] for item in SERVERS if item["name"] != used)

    assert client.delete(f"/v1/cluster/servers/{used}").status_code == 409
    assert client.delete(f"/v1/cluster/servers/{free}").status_code == 200
    assert client.delete(f"/v1/cluster/servers/{free}").status_code == 404
    assert (
        client.post("/v1/cluster/servers", json={"servers": [{"name": used, "machine": "e5-2620v4"}]}).status_code
        == 409
    )
    assert placed(client) == ["edge"]


def test_a_machine_is_never_a_file(client: TestClient, tmp_path: Path) -> None:
    """No request can make the service open a path."""
    for name in ("/etc/passwd", "../x.yaml", "x.yaml", str(tmp_path)):
        answer = client.post("/v1/cluster/servers", json={"servers": [{"name": "s9", "machine": name}]})
        assert answer.status_code == 422


def test_disk_full_refuses_writes_and_answers_reads(start: Started, tmp_path: Path) -> None:
    """Where nothing can be written the answer is 507, memory follows the disk, and reads go on."""
    client = start(state=tmp_path / "state.sqlite")
    client.post("/v1/cluster/servers", json={"servers": SERVERS})
    client.post("/v1/place", json={"requests": [REQUEST]})
    before = client.get("/v1/cluster").json()
    store: Store = client.service.store  # type: ignore[attr-defined]
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    big = [{"id": f"r{number}-{'x' * 150}", "nf": "ids"} for number in range(12)]
    refused = client.post("/v1/place", json={"requests": big})

    assert refused.status_code == 507
    assert client.get("/v1/cluster").json() == before
    assert client.post("/v1/predict", json={"target": "lpm", "competitors": ["nat"]}).status_code == 200
    store._connection.execute(f"PRAGMA max_page_count = {pages + 10_000}")
    assert client.post("/v1/place", json={"requests": big}).status_code == 200


def test_a_disk_that_is_really_full_refuses_writes_and_answers_reads(start: Started, tmp_path: Path) -> None:
    """On a file system without room writes are refused with 507, reads go on, and writes do once there is room."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        client = start(state=disk / "state.sqlite")
        client.post("/v1/cluster/servers", json={"servers": SERVERS})
        assert client.post("/v1/place", json={"requests": [REQUEST]}).status_code == 200
        before = client.get("/v1/cluster").json()
        (disk / "filler").write_bytes(b"x" * (os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize))
        codes = set()
        for number in range(40):
            body = {"requests": [{"id": f"r{number}", "nf": "ids", "slo": {"kind": "on-demand"}}]}
            codes.add(client.post("/v1/place", json=body).status_code)
            if 507 in codes:
                break
        assert 507 in codes
        assert codes <= {200, 507}
        kept = client.get("/v1/cluster").json()
        assert len(kept["servers"]) == len(before["servers"])
        assert client.post("/v1/predict", json={"target": "lpm", "competitors": ["nat"]}).status_code == 200
        (disk / "filler").unlink()
        again = client.post("/v1/place", json={"requests": [{"id": "late", "nf": "ids", "slo": {"kind": "on-demand"}}]})
        assert again.status_code == 200
        assert "late" in placed(client)
        client.__exit__(None, None, None)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_clock_that_is_set_back_changes_only_what_is_shown(
    start: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Order is by number: with a clock that runs backwards everything is found again, newest first, and undone."""
    client = start(state=tmp_path / "state.sqlite")
    days = iter(range(1000, 0, -1))

    def earlier() -> str:
        return (datetime(2020, 1, 1, tzinfo=UTC) + timedelta(days=next(days))).isoformat(timespec="milliseconds")

    monkeypatch.setattr(journal, "now", earlier)
    client.post("/v1/cluster/servers", json={"servers": SERVERS})
    for name in ("a", "b"):
        assert client.post("/v1/place", json={"requests": [{**REQUEST, "id": name}]}).status_code == 200
    jobs = [
        client.post("/v1/place", json={"requests": [{**REQUEST, "id": name}]}, headers={"Prefer": "respond-async"})
        for name in ("c", "d")
    ]
    for job in jobs:
        with client.stream("GET", f"{job.headers['location']}/events") as events:
            list(events.iter_lines())
    seen = [{"target": "lpm", "throughput_mpps": 4.0 + 0.1 * n} for n in range(3)]
    client.post("/v1/observations", json={"observations": seen})

    assert [row["id"] for row in client.get("/v1/jobs").json()["jobs"]] == [job.json()["job"] for job in jobs][::-1]
    assert [row["request"] for row in client.get("/v1/decisions").json()["decisions"]] == ["d", "c", "b", "a"]
    newest = client.get("/v1/receipts").json()["receipts"][0]
    assert list(newest["after"]) == ["d"]
    assert client.post(f"/v1/receipts/{newest['number']}/undo").status_code == 200
    client.__exit__(None, None, None)
    again = start(state=tmp_path / "state.sqlite")
    assert sorted(placed(again)) == ["a", "b", "c"]
    assert again.get("/readyz").json()["status"] == "ready"


def test_writes_of_one_transaction_fail_alone(tmp_path: Path) -> None:
    """A write that fails is undone; those that share its transaction are kept."""
    store = Store(tmp_path / "s.sqlite")

    def wrong(connection: sqlite3.Connection) -> None:
        journal.put_entries(connection, {"bad": {"x": 1}})
        raise ValueError("no")

    futures = [store.write(lambda c, i=i: journal.put_entries(c, {f"r{i}": {"n": i}})) for i in range(5)]  # type: ignore[misc]
    failing = store.write(wrong)
    futures += [store.write(lambda c: journal.put_entries(c, {"last": {}}))]
    for future in futures:
        future.result()
    with pytest.raises(ValueError, match="no"):
        failing.result()

    assert len(store.read(journal.entries)) == 6
    store.close()


def test_backup_while_in_use_is_whole(tmp_path: Path) -> None:
    """A copy taken during writes opens, and holds a state that was."""
    store = Store(tmp_path / "s.sqlite")
    futures = []
    for number in range(200):
        futures.append(store.write(lambda c, i=number: journal.put_entries(c, {f"r{i}": {"n": i}})))  # type: ignore[misc]
        if number == 100:
            copy_state(tmp_path / "s.sqlite", tmp_path / "copy.sqlite")
    for future in futures:
        future.result()
    store.close()
    copy = Store(tmp_path / "copy.sqlite")

    assert [entry["n"] for entry in copy.read(journal.entries)] == list(range(len(copy.read(journal.entries))))
    copy.close()


@pytest.mark.parametrize("version", [1, VERSION + 1])
def test_a_state_of_another_version_is_refused(version: int, tmp_path: Path) -> None:
    """A file that another version of slomo wrote is left as it is."""
    connection = sqlite3.connect(tmp_path / "other.sqlite")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()

    with pytest.raises(ConfigurationError, match=f"of version {version}"):
        Store(tmp_path / "other.sqlite")


def test_a_full_disk_is_no_foreign_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a state cannot be begun since the disk is full, space is asked for, not another kind of file."""

    def full(connection: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("slomo.service.state.store.make_tables", full)
    with pytest.raises(StoreError, match=r"cannot be opened: database or disk is full(?s:.)*free some space"):
        Store(tmp_path / "new.sqlite")


def test_a_state_of_version_6_is_taken_over(tmp_path: Path) -> None:
    """It gets the tables that version 7 added, and keeps what it holds."""
    connection = sqlite3.connect(tmp_path / "six.sqlite", isolation_level=None)
    make_tables(connection)
    journal.put_closed(connection, {"s1": "cordoned"})
    connection.executescript("DROP TABLE plans; DROP TABLE history; PRAGMA user_version = 6;")
    connection.close()

    store = Store(tmp_path / "six.sqlite")
    store.write(lambda opened: journal.put_plan(opened, "n", "{}")).result()
    assert (store.read(journal.closed), store.read(lambda opened: journal.plan(opened, "n"))) == (
        {"s1": "cordoned"},
        "{}",
    )
    store.close()


def test_no_state_to_copy_is_said(tmp_path: Path) -> None:
    """Backing up what is not there is an error, not an empty file."""
    with pytest.raises(StoreError, match="no state"):
        copy_state(tmp_path / "nowhere", tmp_path / "copy")


def test_a_job_places_in_the_background_and_tells(client: TestClient) -> None:
    """Prefer: respond-async answers 202 at once; the job ends, its events say so."""
    many = [{"id": f"r{number}", "nf": "ids", "slo": {"kind": "on-demand"}} for number in range(20)]
    accepted = client.post("/v1/place", json={"requests": many}, headers={"Prefer": "respond-async"})
    assert accepted.status_code == 202
    where = accepted.headers["location"]
    with client.stream("GET", f"{where}/events") as events:
        lines = [json.loads(line[6:]) for line in events.iter_lines() if line.startswith("data: ")]

    assert lines[-1]["state"] == "done"
    assert lines[-1]["result"] == {"accepted": 20, "refused": 0}
    assert client.get(where).json()["done"] == 1.0
    assert client.get("/v1/jobs/none").status_code == 404


def test_a_batch_is_decided_together_whether_it_is_done_or_only_asked(client: TestClient) -> None:
    """What-if of a batch says what placing it decides: forty requests do not all get the last cores of four servers."""
    many = [{"id": f"r{number}", "nf": "ids", "slo": {"kind": "on-demand"}} for number in range(40)]
    told = client.post("/v1/place", json={"requests": many, "what_if": True}).json()["decisions"]
    done = client.post("/v1/place", json={"requests": many}).json()["decisions"]

    assert sum(item["accepted"] for item in told) == 32
    assert [item["assignments"] for item in told] == [item["assignments"] for item in done]


def changed(client: TestClient, action: str, **more: Any) -> dict[str, Any]:
    """Let something happen to the cluster."""
    answer = client.post("/v1/cluster/changes", json={"action": action, **more})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def busy_cores(client: TestClient) -> dict[str, list[int]]:
    """Return the cores in use of each server."""
    rows = client.get("/v1/cluster").json()["servers"]
    return {row["name"]: sorted(item["core"] for item in row["assignments"]) for row in rows}


def test_servers_are_drained_fail_and_come_back(start: Started, tmp_path: Path) -> None:
    """Drained, a server is empty and stays closed over a restart; a receipt undoes the moves, unless it has failed."""
    client = start(state=tmp_path / "state.sqlite")
    client.post("/v1/cluster/servers", json={"servers": SERVERS})
    many = [{"id": f"r{number}", "nf": "ids", "slo": {"kind": "on-demand"}} for number in range(6)]
    client.post("/v1/place", json={"requests": many})
    before = busy_cores(client)
    busy = max(before, key=lambda name: len(before[name]))
    asked = changed(client, "drain", server=busy, what_if=True)
    assert busy_cores(client) == before
    drained = changed(client, "drain", server=busy)
    assert drained["moves"] == asked["moves"]
    assert busy_cores(client)[busy] == []
    client.__exit__(None, None, None)
    client = start(state=tmp_path / "state.sqlite")
    assert {row["name"]: row["closed"] for row in client.get("/v1/cluster").json()["servers"]}[busy] == "cordoned"
    after = client.post("/v1/place", json={"requests": [REQUEST]}).json()["decisions"][0]["assignments"]
    assert {item["server"] for item in after} != {busy}
    assert client.post(f"/v1/receipts/{drained['receipt']}/undo").status_code == 200
    assert busy_cores(client)[busy] == before[busy]
    failed = changed(client, "fail", server=busy)
    assert busy_cores(client)[busy] == []
    assert client.post(f"/v1/receipts/{failed['receipt']}/undo").status_code == 409
    changed(client, "uncordon", server=busy)

    assert client.post(f"/v1/receipts/{failed['receipt']}/undo").status_code == 200
    assert busy_cores(client)[busy] == before[busy]
    assert client.get("/v1/cluster/at-risk").json()["at_risk"] == []


def test_requests_are_updated_and_pre_empt(client: TestClient) -> None:
    """An update keeps the id with another promise; a higher priority takes the room of lower ones, or all stays."""
    many = [{"id": f"r{number}", "nf": "ids", "slo": {"kind": "on-demand"}, "priority": -1} for number in range(32)]
    assert client.post("/v1/place", json={"requests": many}).json()["accepted"] == 32
    assert client.post("/v1/place", json={"requests": [REQUEST]}).json()["refused"] == 1
    told = changed(client, "preempt", request={**REQUEST, "priority": 5})
    assert [item["request"] for item in told["refused"]]
    assert "edge" in placed(client)
    changed(client, "update", request={**REQUEST, "slo": {"min_share": 0.4}}, surge=False)
    assert client.get("/v1/cluster/requests/edge").json()["decision"]["assignments"][0]["needed_mpps"] > 0.0
    told_before = client.get("/v1/cluster").content
    no = client.post(
        "/v1/cluster/changes", json={"action": "preempt", "request": {**REQUEST, "id": "x", "priority": -5}}
    )

    assert no.status_code == 409
    assert client.get("/v1/cluster").content == told_before
    rack = {"label": "rack", "value": "r1"}
    for body in (
        {"action": "drain"},
        {"action": "drain", "server": "none"},
        {"action": "update", "server": "s1"},
        {"action": "drain", "server": "s1", **rack},
        {"action": "fail_domain", "max_moves": 1, **rack},
        {"action": "fail_domain", "label": "rack"},
        {"action": "fail_domain", "server": "s1", **rack},
    ):
        assert client.post("/v1/cluster/changes", json=body).status_code == 422


@pytest.mark.slow
def test_a_job_that_was_killed_is_said_to_be_interrupted_and_goes_on(
    models_folder: Path, tmp_path: Path, run_service: Callable[..., Running]
) -> None:
    """Kill -9 in a large placement: what was placed stays, how far it was is told; resumed, it ends, nothing twice."""
    many = [{"id": f"r{number}", "nf": "ids", "slo": {"kind": "on-demand"}} for number in range(3000)]
    rows = [{"name": f"s{number}", "machine": "e5-2620v4"} for number in range(400)]
    service = run_service(models_folder, "--state", tmp_path / "state.sqlite")
    with httpx.Client(base_url=service.url, timeout=60.0) as line:
        line.post("/v1/cluster/servers", json={"servers": rows})
        headers = {"Prefer": "respond-async", "Idempotency-Key": "many"}
        where = line.post("/v1/place", json={"requests": many}, headers=headers).headers["location"]
        while not 0.0 < line.get(where).json()["done"] < 1.0:
            time.sleep(0.005)
    service.kill()
    last = run_service(models_folder, "--state", tmp_path / "state.sqlite")
    with httpx.Client(base_url=last.url, timeout=60.0) as line:
        job = line.get(where).json()
        assert job["state"] == "interrupted"
        assert 0.0 < job["done"] < 1.0
        assert job["message"].endswith("the service stopped before it ended")
        assert len(placed(line)) == job["result"]["accepted"] == job["done"] * len(many)
        assert "Resume" in line.get("/jobs").text
        assert line.post(f"{where}/resume").status_code == 202
        with line.stream("GET", f"{where}/events") as events:
            told = [json.loads(text[6:]) for text in events.iter_lines() if text.startswith("data: ")]
        ids = placed(line)

        assert min(item["done"] for item in told) >= job["done"]
        assert told[-1]["result"] == {"accepted": len(many), "refused": 0}
        assert sorted(ids) == sorted(item["id"] for item in many)
        assert line.post(f"{where}/resume").status_code == 409
        assert line.post("/v1/jobs/none/resume").status_code == 404


@pytest.mark.slow
def test_killed_under_writes_loses_and_doubles_nothing(
    models_folder: Path, tmp_path: Path, run_service: Callable[..., Running]
) -> None:
    """Kill -9 while requests are placed: whatever was acknowledged is there after the restart, once.

    SLOMO_KILLS sets how often; benchmarks/service_robust.py kills does it 500 times.
    """
    import threading

    kills = int(os.environ.get("SLOMO_KILLS", "2"))
    acknowledged: set[str] = set()
    servers: list[dict[str, Any]] = [{"name": f"s{number}", "machine": "e5-2620v4"} for number in range(60)]
    for turn in range(kills):
        service = run_service(models_folder, "--state", tmp_path / "state.sqlite")
        with httpx.Client(base_url=service.url, timeout=20.0) as line:
            if turn == 0:
                assert line.post("/v1/cluster/servers", json={"servers": servers}).status_code == 201
            assert acknowledged <= set(placed(line))

            begun = threading.Event()  # the first placing of a service waits for its models

            def write(turn: int = turn, line: httpx.Client = line, begun: threading.Event = begun) -> None:
                for number in range(10_000):
                    name = f"t{turn}-{number}"
                    body = {"requests": [{"id": name, "nf": "ids", "slo": {"kind": "on-demand"}}]}
                    try:
                        if line.post("/v1/place", json=body, headers={"Idempotency-Key": name}).status_code == 200:
                            acknowledged.add(name)
                            begun.set()
                    except httpx.HTTPError:
                        return

            writer = threading.Thread(target=write)
            writer.start()
            assert begun.wait(60.0)
            time.sleep(0.3 + 0.1 * (turn % 5))
            service.kill()
            writer.join()
    last = run_service(models_folder, "--state", tmp_path / "state.sqlite")
    with httpx.Client(base_url=last.url, timeout=20.0) as line:
        ids = placed(line)

    assert acknowledged
    assert acknowledged <= set(ids)
    assert len(ids) == len(set(ids))


def test_absurd_and_strange_outcomes_are_named_and_kept_apart(start: Started) -> None:
    """1e300 Mpps and another machine of the name are refused by name; error ratios are those of the rest."""
    client = start()
    seen = [{"target": "lpm", "throughput_mpps": 5.0}] * 3
    wrong = [
        {"target": "lpm", "throughput_mpps": 1e300},
        {"target": "lpm", "throughput_mpps": 60.0},
    ]
    answer = client.post("/v1/observations", json={"observations": [*seen, *wrong, *seen]}).json()
    assert (answer["kept"], answer["refused"]) == (6, 2)
    assert all("Mpps, needed 0 to" in row["error"] and row["hint"] for row in answer["observations"][3:5])
    (row,) = client.get("/v1/drift").json()["errors"]
    assert row["observations"] == 6
    assert 0.9 < row["ratio"] < 1.1


def test_state_is_its_owners_alone(start: Started, tmp_path: Path) -> None:
    """State, its log and its lock are readable by nobody else, also where they were before."""
    (tmp_path / "state.sqlite").touch(0o644)
    client = start(state=tmp_path / "state.sqlite")
    client.post("/v1/cluster/servers", json={"servers": SERVERS})
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()}
    assert len(modes) >= 3
    assert set(modes.values()) == {"0o600"}, modes


def test_no_request_waits_for_the_compiler(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the writer nor the threads that read compile anything, however much they have solved."""
    monkeypatch.setattr(compilation, "compiled", lambda *_: SimpleNamespace(signatures=[]))
    monkeypatch.setattr(compilation._Spent, "loops", {})
    monkeypatch.setattr(compilation._Spent, "servers", compilation.LOADING_SERVERS)
    service: Service = client.service  # type: ignore[attr-defined]

    assert service.store.write(lambda _: compilation.loop_for(1, settling.rounds_of, 4)).result() is None
    assert client.portal is not None
    assert client.portal.call(service.aside, lambda: compilation.loop_for(1, settling.rounds_of, 4)) is None
    assert compilation.loop_for(1, settling.rounds_of, 4) is not None


def test_what_single_questions_use_is_compiled_in_the_background(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds, and what one prediction by either method reads and composes."""
    pytest.importorskip("numba")
    compiled, asked = compilation.compiled, set()
    monkeypatch.setattr(compilation, "compiled", lambda *of: asked.add(of[0]) or compiled(*of))
    monkeypatch.setattr(compilation._Spent, "loops", {})
    monkeypatch.setattr(compilation._Spent, "ready", {})
    monkeypatch.setattr(compilation._Spent, "servers", compilation.LOADING_SERVERS)
    service: Service = client.service  # type: ignore[attr-defined]

    for step in service.model_store.answers.ahead():
        step()

    networks = {monotone_kernel.lay_out_rows, monotone_kernel.weigh_rows, monotone_kernel.leave_rows}
    assert asked == {settling.rounds_of, one_question.judge_one, one_question.compose_one, *networks}
