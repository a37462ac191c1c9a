"""Random operations on a placer, each followed by a look at every constraint from what the placer says of itself.

What is looked at is recomputed from snapshots, servers and requests alone, with none of the placer's bookkeeping, so
that policies, verbs and the placer's own checker are all held to it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from slomo.placement.online.change import ClusterChange
from slomo.placement.online.persistence import pieces
from slomo.placement.online.placer import Placer
from slomo.placement.over_time.reoptimise import reoptimise
from slomo.placement.problem.cluster import Cluster, Server
from slomo.placement.problem.request import SLO, Request
from slomo.placement.problem.whereabouts import EFFECTS, Neighbours, untolerated

#: Operations and how often each is drawn.
OPERATIONS = {
    "admit": 30, "place_all": 8, "remove": 14, "what_if": 3, "rebalance": 4, "drain": 5, "fail": 3, "fail_domain": 1,
    "cordon": 2, "uncordon": 9, "taint": 3, "update": 10, "preempt": 5, "restore": 1, "reoptimise": 1, "add_server": 1,
}  # fmt: skip
_LABELS: tuple[dict[str, str], ...] = (
    {"app": "web"},
    {"app": "db"},
    {"app": "web", "tier": "gold"},
    {"tier": "gold"},
    {},
)


def constrained_cluster(machine: str, racks: int = 3, per_rack: int = 2, *, plain: bool = False) -> Cluster:
    """Return a cluster of racks with taints, labels, limited amounts and reserved cores here and there.

    A plain one has only labels: new requests and moves are planned together nowhere else.
    """
    if plain:
        places = [(rack, number) for rack in range(racks) for number in range(per_rack)]
        labels = [{"rack": f"r{rack}", "disk": "ssd" if number else "hdd"} for rack, number in places]
        named = zip(places, labels, strict=True)
        return Cluster(tuple(Server(f"r{rack}-{number}", machine, labels=each) for (rack, number), each in named))
    servers = []
    for rack in range(racks):
        for number in range(per_rack):
            taints = ("old:PreferNoSchedule",) if number else ()
            taints = ("gpu=a100",) if rack == racks - 1 and number == 0 else taints
            servers.append(
                Server(
                    f"r{rack}-{number}", machine, labels={"rack": f"r{rack}", "disk": "ssd" if number else "hdd"},
                    taints=taints, resources={"memory_gib": 12.0} if rack == 0 else {},
                    reserved={"cores": 2, "labels": {"tier": "gold"}} if rack == 1 and number == 0 else None,
                )
            )  # fmt: skip
    return Cluster(tuple(servers))


class RandomOperations:
    """Draws operations, carries them out on a placer and counts what they break.

    Parameters
    ----------
    placer : Placer
        On a cluster of :func:`constrained_cluster`.
    functions : sequence of str
        Network functions it knows.
    seed : int
        Of all draws.

    Attributes
    ----------
    done : Counter of str
        Operations carried out.
    """

    def __init__(self, placer: Placer, functions: Sequence[str], seed: int) -> None:
        self.placer, self._functions = placer, list(functions)
        self._generator = np.random.default_rng(seed)
        self.done: Counter[str] = Counter()
        self._degraded: set[str] = set()
        self._made = 0
        self._look()
        self._plain = not any(server.taints for server in placer.cluster.servers)
        drawn = OPERATIONS | ({"taint": 0, "reoptimise": 9} if self._plain else {})
        weights = np.array([*drawn.values()], dtype=float)
        self._odds = weights / weights.sum()

    def step(self) -> list[str]:
        """Carry out one operation; return what is broken after it."""
        name = str(self._generator.choice([*OPERATIONS], p=self._odds))
        before, seen = self._homes, self._seen()
        budgets = {request.id: request.max_disrupted for request in self.placer.requests}
        owner = self._act(name)
        self.done[name] += 1
        self._look()
        after = self._homes
        self._degraded &= set(after)
        moved = {each for each, homes in after.items() if before.get(each) != homes}
        said = [f"{risk.request} is at risk: {risk.what}" for risk in self.placer.lifecycle.at_risk()]
        if self._seen() != seen:  # what was held against every constraint before is not held against them again
            said += self._violations(moved, before)
        broken = [f"{name}: {each}" for each in said]
        if name not in ("remove", "fail", "fail_domain", "taint"):
            for each, most in budgets.items():
                gone = sum((before[each] - after.get(each, Counter())).values())
                if most is not None and each != owner and gone > most:
                    broken.append(f"{name}: max_disrupted of {each}: {gone} moved")
        return broken

    def _look(self) -> None:
        """Take what a snapshot says of the pieces of each request, and of the servers that are closed."""
        state = self.placer._core.state
        self._closed = [state.servers[number].name for number, why in state.closed.items() if why != "removed"]
        self._pieces = {name: pieces(state, name) for name in state.requests}
        #: How many instances of each request are on which server.
        self._homes = {
            name: Counter(piece["server"] for piece in pieces for _ in range(piece["instances"]))
            for name, pieces in self._pieces.items()
        }

    def _seen(self) -> tuple[object, ...]:
        """Return all that constraints are held against."""
        placer = self.placer
        return self._pieces, self._closed, placer.cluster.servers, placer.requests, frozenset(self._degraded)

    def _pick(self, items: Sequence[str]) -> str:
        return items[int(self._generator.integers(len(items)))]

    def _act(self, name: str) -> str | None:
        """Carry out an operation; return whose owner asked for it."""
        placer, life = self.placer, self.placer.lifecycle
        if name in ("remove", "update") and not placer.requests:
            name = "admit"
        if name == "update":
            return self._update()
        acts: dict[str, Callable[[], object]] = {
            "admit": lambda: placer.admit(self._request()),
            "what_if": lambda: placer.what_if(self._request()),
            "place_all": self._batch,
            "remove": lambda: placer.remove(self._pick([request.id for request in placer.requests])),
            "preempt": lambda: life.preempt(replace(self._request(), priority=9)),
            "rebalance": lambda: placer.rebalance(int(self._generator.integers(0, 8))),
            "restore": self._restore,
            "reoptimise": lambda: reoptimise(
                placer, 0.0, max_moves=6, arriving=[self._request()] * (self._generator.random() < 0.5)
            ),
            "add_server": self._join,
            "fail_domain": lambda: self._lose(life.fail_domain("rack", self._pick(["r0", "r1", "r2"]))),
            "fail": lambda: self._lose(life.fail(self._server())),
            "taint": lambda: self._lose(life.taint(self._server(), self._taints())),
            "uncordon": lambda: [life.uncordon(server) for server in self._closed],
            "cordon": lambda: life.cordon(self._server()),
            "drain": lambda: life.drain(self._server()),
        }
        acts[name]()
        return None

    def _restore(self) -> None:
        snapshot = self.placer.snapshot()
        entries = {entry["request"]["id"]: entry["pieces"] for entry in snapshot["placed"]}
        if entries != self._pieces or [*snapshot["closed"]] != self._closed:
            raise AssertionError("the snapshot says something else than the state")
        self.placer.restore(snapshot)

    def _server(self) -> str:
        return self._pick([server.name for server in self.placer.cluster.servers])

    def _taints(self) -> list[str]:
        marks: tuple[list[str], ...] = ([], [], ["gpu=a100"], [f"old:{self._pick(EFFECTS)}"])
        return marks[int(self._generator.integers(len(marks)))]

    def _lose(self, change: ClusterChange) -> None:
        self._degraded |= set(change.degraded)

    def _join(self) -> None:
        if len(self.placer.cluster) < 8:
            first, self._made = self.placer.cluster.servers[0], self._made + 1
            self.placer.lifecycle.add_server(replace(first, name=f"new-{self._made}"))

    def _update(self) -> str:
        old = self.placer.requests[int(self._generator.integers(len(self.placer.requests)))]
        slo = SLO(min_share=float(self._generator.uniform(0.2, 0.9)))
        drawn = old if self._generator.random() < 0.3 else replace(old, slo=slo)
        self.placer.lifecycle.update(drawn, surge=bool(self._generator.random() < 0.5))
        return old.id

    def _batch(self) -> None:
        gang = f"g{self._made}" if self._generator.random() < 0.3 else None
        batch = [replace(self._request(), gang=gang) for _ in range(int(self._generator.integers(2, 7)))]
        decisions = self.placer.place_all(batch)
        accepted = {decision.accepted for decision in decisions}
        if gang is not None and len(accepted) > 1:
            raise AssertionError(f"gang {gang} was placed in part")

    def _request(self) -> Request:
        draw, self._made = self._generator, self._made + 1
        placed = [request.id for request in self.placer.requests]
        said: dict[str, object] = {"labels": _LABELS[int(draw.integers(len(_LABELS)))]}
        replicas = int(draw.integers(1, 4))
        if draw.random() < 0.25:
            said["min_replicas"] = int(draw.integers(1, replicas + 1))
        options: list[tuple[str, object]] = [
            ("selector", {"disk": "ssd"}), ("tolerations", ("gpu",)), ("tolerations", ("old", "gpu=a100")),
            ("spread", "rack"), ("spread", [{"label": "rack", "max_skew": 1}]), ("max_per_host", 1),
            ("max_per_host", 2),
            ("spread", [{"label": "host", "max_skew": 1}, {"label": "rack", "weight": 2.0}]),
            ("prefer", [{"selector": {"disk": "hdd"}, "weight": 3.0}]), ("max_disrupted", int(draw.integers(0, 2))),
            ("resources", {"memory_gib": 2.0}),
            ("anti_affinity", [{"labels": {"app": "db"}, "within": self._pick(["host", "rack"])}]),
            ("affinity", [{"labels": {"app": "web"}, "within": "rack"}]),
            ("affinity", [{"labels": {"app": "db"}, "weight": 1.0}]),
        ]  # fmt: skip
        if placed:
            options += [("affinity", (self._pick(placed),)), ("anti_affinity", (self._pick(placed),))]
        if replicas > 1:
            options.append(("survives", self._pick(["rack", "host"])))
        for at in draw.choice(len(options), size=int(draw.integers(0, 3)), replace=False).tolist():
            said[options[at][0]] = options[at][1]
        if said.get("affinity") == said.get("anti_affinity"):
            said.pop("affinity", None)
        if self._plain and draw.random() < 0.9:
            slo = SLO(min_share=float(draw.uniform(0.5, 0.95)))
            return Request(f"q{self._made}", self._pick(self._functions), slo, priority=int(draw.integers(0, 4)))
        chain = [self._pick(self._functions) for _ in range(1 if draw.random() < 0.8 else 2)]
        slo = SLO(min_share=float(draw.uniform(0.2, 0.95))) if draw.random() < 0.9 else SLO(kind="on-demand")
        said |= {"id": f"q{self._made}", "chain": chain, "slo": slo, "priority": int(draw.integers(0, 4))}
        return Request(**said, replicas=replicas)  # type: ignore[arg-type]

    def _violations(self, moved: set[str], before: Mapping[str, Counter[str]]) -> Iterator[str]:
        placer = self.placer
        servers = {server.name: server for server in placer.cluster.servers}
        requests = {request.id: request for request in placer.requests}
        homes = self._homes
        everywhere = [piece for seen in self._pieces.values() for piece in seen]
        seats = Counter((piece["server"], piece["socket"], core) for piece in everywhere for core in piece["cores"])
        if max(seats.values(), default=1) > 1:
            yield "a core is given twice"
        if any(len(piece["cores"]) != len(piece["workloads"]) for piece in everywhere):
            yield "a function has no core"
        for name, request in requests.items():
            yield from self._always(request, homes[name], servers)
            if name in moved:
                new = homes[name] - before.get(name, Counter())
                yield from self._when_placed(request, homes, new, servers, requests)
        for server in servers.values():
            yield from self._amounts(server, homes, requests)

    def _always(self, request: Request, homes: Counter[str], servers: Mapping[str, Server]) -> Iterator[str]:
        count, least = sum(homes.values()), request.min_replicas
        if not (least <= count or request.id in self._degraded) or count > request.replicas:
            yield f"{request.id} has {count} instances, asked for {least} to {request.replicas}"
        if max(homes.values(), default=0) > (request.max_per_host or count):
            yield f"max_per_host of {request.id}"
        strict = [item.label for item in request.spread if item.weight is None and item.max_skew is None]
        for label in [*strict, *([request.survives] if request.survives else [])]:
            domains = [servers[name].domain(label) for name in homes.elements()]
            if None in domains or len(set(domains)) < len(domains):
                yield f"spread of {request.id} over {label}"
        if request.survives and count < 2 and request.id not in self._degraded:
            yield f"{request.id} survives nothing"
        pieces = self._pieces[request.id]
        promised = sum(piece["needed_mpps"] * piece["instances"] for piece in pieces)
        if not any(piece["exclusive"] for piece in pieces) and promised < self._needed(request) - 1e-6:
            yield f"{request.id} is promised {promised:g} Mpps, asked for {self._needed(request):g}"
        for name in homes:
            if untolerated(servers[name].taints, request.tolerations, ("NoExecute",)):
                yield f"{request.id} runs beside a NoExecute taint of {name}"

    def _needed(self, request: Request) -> float:
        return self.placer.estimates.needed_mpps(request, self.placer.cluster.machines[0]) or 0.0

    def _when_placed(
        self,
        request: Request,
        homes: Mapping[str, Counter[str]],
        new: Counter[str],
        servers: Mapping[str, Server],
        requests: Mapping[str, Request],
    ) -> Iterator[str]:
        for name in new:
            if not set(request.selector) <= set(servers[name].labels):
                yield f"selector of {request.id} on {name}"
            if untolerated(servers[name].taints, request.tolerations, ("NoSchedule",)):
                yield f"{request.id} on the tainted {name}"
        if new:
            yield from self._skews(request, homes, servers)
            yield from self._neighbours(request, homes, servers, requests)

    def _skews(
        self, request: Request, homes: Mapping[str, Counter[str]], servers: Mapping[str, Server]
    ) -> Iterator[str]:
        for spread in request.spread:
            if spread.max_skew is not None and spread.weight is None:
                counts = Counter(servers[name].domain(spread.label) for name in homes[request.id].elements())
                eligible = self._eligible(request, spread.label, servers)
                if max(counts.values()) - min(counts[domain] for domain in {*eligible, *counts}) > spread.max_skew:
                    yield f"skew of {request.id}: {dict(counts)} of {sorted(map(str, eligible))}"

    def _neighbours(
        self,
        request: Request,
        homes: Mapping[str, Counter[str]],
        servers: Mapping[str, Server],
        requests: Mapping[str, Request],
    ) -> Iterator[str]:
        for near, items in ((True, request.affinity), (False, request.anti_affinity)):
            for item in items:
                if isinstance(item, Neighbours) and item.weight is not None:
                    continue
                label = item.within if isinstance(item, Neighbours) else "host"
                others = [
                    other
                    for other, each in requests.items()
                    if other != request.id and (other == item if isinstance(item, str) else item.names(each.labels))
                ]
                there = {servers[name].domain(label) for other in others for name in homes[other]}
                here = {servers[name].domain(label) for name in homes[request.id]}
                own = isinstance(item, Neighbours) and item.names(request.labels)
                if near and there and not here <= there and not own:
                    yield f"affinity of {request.id} with {item}"
                if not near and (there - {None}) & here:
                    yield f"anti-affinity of {request.id} with {item}"

    def _eligible(self, request: Request, label: str, servers: Mapping[str, Server]) -> set[str | None]:
        return {
            server.domain(label)
            for server in servers.values()
            if server.name not in self._closed
            and set(request.selector) <= set(server.labels)
            and not untolerated(server.taints, request.tolerations, ("NoSchedule", "NoExecute"))
        } - {None}

    def _amounts(
        self, server: Server, homes: Mapping[str, Counter[str]], requests: Mapping[str, Request]
    ) -> Iterator[str]:
        here = [(homes[name][server.name], request) for name, request in requests.items() if server.name in homes[name]]
        memory = sum(count * dict(request.resources).get("memory_gib", 0.0) for count, request in here)
        if memory > dict(server.resources).get("memory_gib", float("inf")) + 1e-6:
            yield f"memory of {server.name}: {memory:g}"
        if server.reserved is not None:
            outside = [(count, r) for count, r in here if not set(server.reserved.labels) <= set(r.labels)]
            cores = sum(count * len(r.chain) for count, r in outside)
            if cores > server.cores * len(server.nics) - server.reserved.cores:
                yield f"reserved cores of {server.name}"
