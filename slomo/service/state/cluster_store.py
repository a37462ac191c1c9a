"""The cluster on disk: when the service answers a change, the change is in memory and on disk, or in neither.

All changes run in the writer's thread, one after the other. A failed change leaves the placer unchanged. If a whole
transaction is lost (disk full), the placer is rebuilt from disk.
"""

import hashlib
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from slomo.errors import InvalidValueError, SlomoError
from slomo.placement.online.change import ClusterChange
from slomo.placement.online.lifecycle import Lifecycle
from slomo.placement.online.placer import Placer
from slomo.placement.problem.cluster import Cluster, Server
from slomo.placement.problem.request import Request
from slomo.service.door.operation import Answer, Call
from slomo.service.door.problems import Problem
from slomo.service.knowledge.model_store import ModelStore
from slomo.service.state import journal
from slomo.service.state.journal import Entry
from slomo.service.state.store import Store
from slomo.units import plural
from slomo.vocabulary.identity import require_same

_encode = msgspec.json.Encoder().encode


class ClusterStore:
    """Places requests on the cluster and stores the results."""

    def __init__(
        self, store: Store, model_store: ModelStore, policy: str = "predicted", confidence: float = 0.95
    ) -> None:
        self.store, self.model_store, self.policy, self.confidence = store, model_store, policy, confidence
        self._lock = threading.RLock()
        self.revision = 0
        #: Machine type -> workload -> factor that corrects predictions, learned from outcomes.
        self.factors: Mapping[str, Mapping[str, float]] = {}
        self.fault: str | None = None
        self._placer: Placer | None = None
        store.on_lost = self.reload
        self.reload()

    @property
    def placer(self) -> Placer:
        """The placer of the present cluster; Problem 409 if there is no cluster."""
        placer = self._placer
        if placer is None:
            raise Problem(409, "there are no servers yet", hint="POST /v1/cluster/servers")
        return placer

    @property
    def has_cluster(self) -> bool:
        """Whether the cluster has servers."""
        return self._placer is not None

    def reload(self) -> None:
        """Rebuild the placer from disk, with the present models."""
        with self._lock:
            self._placer, self.revision = self.store.read(
                lambda connection: (self._made(connection, journal.servers(connection)), journal.revision(connection))
            )

    def _made(self, connection: sqlite3.Connection, documents: Sequence[Entry]) -> Placer | None:
        """Create a placer for the stored servers, with the stored placements and closed servers."""
        if not documents:
            return None
        cluster = Cluster(tuple(_server(item) for item in documents))
        library = self.model_store.answers.library
        made = Placer(library, cluster, self.policy, confidence=self.confidence, factors=self.factors)
        _refill(made, journal.entries(connection), journal.closed(connection))
        return made

    def perform(self, call: Call, change: Callable[[sqlite3.Connection], tuple[Any, int]], verb: str) -> Answer:
        """Make a change that survives a restart, once per idempotency key, if the cluster has the expected revision."""
        return self.store.write(lambda connection: self._once(connection, call, change, verb)).result()

    def _once(
        self,
        connection: sqlite3.Connection,
        call: Call,
        change: Callable[[sqlite3.Connection], tuple[Any, int]],
        verb: str,
    ) -> Answer:
        key = call.headers.get("idempotency-key")
        digest = hashlib.sha256(verb.encode() + b"\0" + call.raw).hexdigest()
        if key is not None:
            repeated = self._repeated(connection, key, digest)
            if repeated is not None:
                return repeated
        _check_revision(call.headers.get("if-match"), journal.revision(connection))
        body, status = change(connection)
        encoded = _encode(body)
        headers = {"ETag": etag(self.revision)}
        if key is not None:
            journal.remember(connection, key, digest, status, headers, encoded)
        journal.add_audit(connection, call.caller.name, verb, call.id, status)
        return Answer(encoded, status, headers)

    def _repeated(self, connection: sqlite3.Connection, key: str, digest: str) -> Answer | None:
        if not 1 <= len(key) <= 200:
            raise Problem(422, f"Idempotency-Key of {len(key)} characters, needed 1 to 200")
        remembered = journal.remembered(connection, key)
        if remembered is None:
            return None
        if remembered[0] != digest:
            raise Problem(422, "this Idempotency-Key was used for another request", hint="take a new key")
        return Answer(remembered[3], remembered[1], {**remembered[2], "Idempotency-Replayed": "true"})

    def place(
        self, connection: sqlite3.Connection, requests: Sequence[Request], caller: str
    ) -> tuple[dict[str, Any], int]:
        """Place a batch of requests; store the accepted requests, and return the reasons for refused ones."""
        placer = self.placer
        decisions = placer.place_all(requests)
        try:
            fingerprint = self.model_store.answers.fingerprint
            after = {item.request: placer.entry(item.request) for item in decisions if item.accepted}
            journal.put_entries(connection, after)
            if len(after) > 1:
                journal.put_order(connection, [item.id for item in placer.requests])
            for item in decisions:
                journal.add_decision(connection, "place", item.request, item.to_dict(), fingerprint)
            number = None
            if after:
                self.revision = journal.advance(connection)
                number = journal.add_receipt(connection, "place", caller, dict.fromkeys(after), after)
        except BaseException:
            for item in decisions:
                if item.accepted:
                    placer.remove(item.request)
            raise
        accepted = sum(item.accepted for item in decisions)
        summary = {"accepted": accepted, "refused": len(decisions) - accepted, "receipt": number}
        return {"decisions": [item.to_dict() for item in decisions], **summary, "fingerprint": fingerprint}, 200

    def remove(self, connection: sqlite3.Connection, request: str, caller: str) -> tuple[dict[str, Any], int]:
        """Remove a placed request."""
        placer = self.placer
        if request not in {item.id for item in placer.requests}:
            raise Problem(404, f"request '{request}' is not placed", hint="list /v1/cluster/requests")
        before = placer.entry(request)
        document = placer.decision(request).to_dict()
        journal.put_entries(connection, {request: None})
        journal.add_decision(connection, "remove", request, document, self.model_store.answers.fingerprint)
        self.revision = journal.advance(connection)
        number = journal.add_receipt(connection, "remove", caller, {request: before}, {request: None})
        placer.remove(request)  # last, since after it only the disk can fail, and then the placer is rebuilt
        return {"removed": document, "receipt": number}, 200

    def rebalance(self, connection: sqlite3.Connection, max_moves: int, caller: str) -> tuple[dict[str, Any], int]:
        """Empty servers by moving requests to others."""
        placer = self.placer
        held = {item.id: placer.entry(item.id) for item in placer.requests}
        moves = placer.rebalance(max_moves)
        after: dict[str, Entry | None] = {name: placer.entry(name) for name in {move.request for move in moves}}
        number = None
        if moves:
            before: dict[str, Entry | None] = {name: held[name] for name in after}
            try:
                number = self._written(connection, "rebalance", caller, before, after)
            except BaseException:
                _refill(placer, held.values())
                raise
        rows = [{"request": move.request, "source": move.source, "target": move.target} for move in moves]
        return {"moves": rows, "receipt": number}, 200

    def live(
        self, connection: sqlite3.Connection, act: Callable[[Lifecycle], ClusterChange], caller: str
    ) -> tuple[dict[str, Any], int]:
        """Change the cluster (drain a server, change a request, ...), completely or not at all."""
        placer = self.placer
        before = placer.snapshot()
        change = act(placer.lifecycle)
        if not change.done:
            raise Problem(409, change.text, hint="send it with what_if to see what prevents it")
        try:
            number = self._lived(connection, change, caller, (before, placer.snapshot()))
        except BaseException:
            _refill(placer, before["placed"], before["closed"])
            raise
        return {**change.to_dict(), "receipt": number, "revision": self.revision}, 200

    def _lived(
        self, connection: sqlite3.Connection, change: ClusterChange, caller: str, snapshots: tuple[Entry, Entry]
    ) -> int | None:
        """Store the effects of a change; return the number of its receipt, None if no request was affected."""
        journal.put_closed(connection, snapshots[1]["closed"])
        before, after = ({entry["request"]["id"]: entry for entry in snapshot["placed"]} for snapshot in snapshots)
        names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        if not names:
            self.revision = journal.advance(connection)
            return None
        held, now = ({name: entries.get(name) for name in names} for entries in (before, after))
        return self._written(connection, change.what.split()[0], caller, held, now)

    def undo(self, connection: sqlite3.Connection, number: int, caller: str) -> tuple[dict[str, Any], int]:
        """Restore the state before a recorded change, if the requests concerned have not changed since."""
        receipt = journal.receipt(connection, number)
        if receipt is None:
            raise Problem(404, f"there is no receipt {number}", hint="list /v1/receipts")
        if receipt["undone_by"] is not None:
            raise Problem(409, f"receipt {number} was undone by receipt {receipt['undone_by']}")
        placer = self.placer
        held = {item.id: placer.entry(item.id) for item in placer.requests}
        moved = [name for name, entry in receipt["after"].items() if held.get(name) != entry]
        if moved:
            raise Problem(409, f"'{moved[0]}' has changed since receipt {number}", hint="undo the later receipt first")
        _refuse_failed(placer.snapshot()["closed"], receipt)
        values = {**held, **receipt["before"]}
        try:
            _refill(placer, [entry for entry in values.values() if entry is not None])
        except SlomoError as error:
            _refill(placer, held.values())
            raise Problem(409, f"receipt {number} cannot be undone: {error.message}") from None
        made = self._written(connection, f"undo {receipt['verb']}", caller, receipt["after"], receipt["before"])
        journal.mark_undone(connection, number, made)
        return {"undone": number, "receipt": made, "requests": sorted(receipt["before"])}, 200

    def _written(
        self,
        connection: sqlite3.Connection,
        verb: str,
        caller: str,
        before: Mapping[str, Entry | None],
        after: Mapping[str, Entry | None],
    ) -> int:
        journal.put_entries(connection, after)
        journal.put_order(connection, [item.id for item in self.placer.requests])
        self.revision = journal.advance(connection)
        for name in after:
            journal.add_decision(connection, verb, name, {"entry": after[name]}, self.model_store.answers.fingerprint)
        return journal.add_receipt(connection, verb, caller, before, after)

    def add_servers(self, connection: sqlite3.Connection, documents: Sequence[Entry]) -> tuple[dict[str, Any], int]:
        """Add servers to the cluster."""
        held = {item["name"] for item in journal.servers(connection)}
        documents = [{**item, "machine_fingerprint": _server(item).machine_type.fingerprint} for item in documents]
        twice = [item["name"] for item in documents if item["name"] in held]
        if twice:
            raise Problem(409, f"there is a server '{twice[0]}' already", hint="remove it first")
        made = self._made(connection, [*journal.servers(connection), *documents])
        journal.put_servers(connection, documents)
        self.revision = journal.advance(connection)
        self._placer = made
        return {"servers": len(held) + len(documents), "revision": self.revision}, 201

    def remove_server(self, connection: sqlite3.Connection, name: str) -> tuple[dict[str, Any], int]:
        """Remove an empty server from the cluster."""
        documents = journal.servers(connection)
        if name not in {item["name"] for item in documents}:
            raise Problem(404, f"there is no server '{name}'", hint="list /v1/cluster")
        busy = self.placer.layout().get(name, ())
        if busy:
            raise Problem(
                409, f"'{name}' runs {plural(len(busy), 'network function')}", hint="remove or move them first"
            )
        left = [item for item in documents if item["name"] != name]
        journal.drop_server(connection, name)
        made = self._made(connection, left)
        self.revision = journal.advance(connection)
        self._placer = made
        return {"servers": len(left), "revision": self.revision}, 200

    def exchange_models(self, factors: Mapping[str, Mapping[str, float]] | None = None) -> None:
        """Use new models and correction factors for the cluster, between two changes."""

        def rebuilt(connection: sqlite3.Connection) -> None:
            self.factors = factors or {}
            self._placer = self._made(connection, journal.servers(connection))

        self.store.write(rebuilt).result()


def etag(revision: int) -> str:
    """Return the entity tag of a cluster revision."""
    return f'"r{revision}"'


def _check_revision(expected: str | None, revision: int) -> None:
    if expected is None or expected.strip() == "*":
        return
    if etag(revision) not in {part.strip().removeprefix("W/") for part in expected.split(",")}:
        raise Problem(
            412, f"the cluster is at {etag(revision)}, not at {expected[:80]}", hint="read it again, then decide again"
        )


def server_documents(bodies: Iterable[Any]) -> list[Entry]:
    """Check servers by the library's rules, and return them as documents."""
    documents = []
    for body in bodies:
        document: Entry = msgspec.to_builtins(body)
        if document["machine"].endswith((".yaml", ".yml")):
            raise InvalidValueError(f"server '{document['name']}': a machine is named by its type, not by a file")
        documents.append(Server.from_dict(document).to_dict())
    return documents


def _server(document: Entry) -> Server:
    """Load a stored server; drop placements made when another machine had the same name."""
    server = Server.from_dict({name: value for name, value in document.items() if name != "machine_fingerprint"})
    stated, machine = document.get("machine_fingerprint", ""), server.machine_type
    require_same(machine.name, stated, machine.fingerprint, f"server '{server.name}'", "the state's decisions are for")
    return server


def _refill(placer: Placer, placed: Iterable[Entry], closed: Mapping[str, str] | None = None) -> None:
    """Put requests back on the servers on which they ran, without checking promises."""
    entries, document = list(placed), placer.snapshot()
    closed_before = document["closed"] if closed is None else dict(closed)
    placer.restore({**document, "placed": entries, "closed": closed_before}, keep_at_risk=True)


def _refuse_failed(closed: Mapping[str, str], receipt: Entry) -> None:
    """Raise an error if undoing would put placements on a failed server."""
    homes = {piece["server"] for entry in receipt["before"].values() if entry for piece in entry["pieces"]}
    failed = sorted(name for name in homes if closed.get(name) == "failed")
    if failed:
        raise Problem(409, f"server '{failed[0]}' has failed since", hint="uncordon it once it is back")
