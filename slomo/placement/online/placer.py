"""A cluster and what runs on it: admit, remove and move requests; each change is made completely or not at all.

ResQ (NSDI'18) section 5: admission is immediate and greedy; a batch, or the running requests, may be planned as a
whole. All methods hold one lock. A large batch is planned outside it on a copy. A failed call leaves the state
unchanged. Changes of servers (drain, fail, add, remove, ...) are methods of :attr:`Placer.lifecycle`.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from slomo.errors import InvalidValueError, SlomoError
from slomo.models.library import ModelLibrary
from slomo.models.partition_profile import PartitionProfile
from slomo.placement.feasibility.estimates import ThroughputEstimates
from slomo.placement.feasibility.mixes import Pieces
from slomo.placement.online.admission import LARGE_BATCH, Admission
from slomo.placement.online.constraints import check_neighbours, check_possible
from slomo.placement.online.lifecycle import Lifecycle
from slomo.placement.online.moves import Move, consolidate
from slomo.placement.online.persistence import Restored, entry, restored, snapshot
from slomo.placement.online.scaling import scale_out
from slomo.placement.online.settings import Fallback, Observe, PlacerSettings
from slomo.placement.online.state import ClusterState
from slomo.placement.policies.base import Policy
from slomo.placement.policies.registry import policy_class
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.decision import Assignment, Decision, Refusal
from slomo.placement.problem.request import Request, check_request, require_placed, unique_requests
from slomo.units import plural
from slomo.vocabulary.defaults import DEFAULT_METHOD, DEFAULT_MODEL, Method
from slomo.vocabulary.display import html_table


class Placer:
    """Places requests on the servers of a cluster by a policy.

    Parameters
    ----------
    library : ModelLibrary
        Trained models.
    cluster : Cluster
        Servers.
    policy : str or Policy class
        A name of `policy_names`, or your own policy class.
    model : str
        Sensitivity model to ask; some policies insist on their own.
    confidence : float
        Probability with which all SLOs of a socket must hold, 0.5 up to below 1.
    profiles : sequence of PartitionProfile
        Throughput over cache ways, latency over load; for policies that partition the cache, and for latency SLOs.
    fallback : {"refuse", "alone", "worst-case"}
        What to do with a network function that has no model on a machine: refuse it there, give it a socket for
        itself, or take it to be as contentious as the most contentious profile of the library and as sensitive as the
        most sensitive one; then only `min_share` can be promised.
    method : {"auto", "composed", "equilibrium"}
        How mixes are predicted: each tenant beside the vectors of the others ("composed"), or all at their fixed
        point; "auto" takes the fixed point if the models support it. Policies with a model of their own use that.
    observe : callable, optional
        For policies that scale by what they see: returns the throughput of every request [Mpps], given the placer; by
        default predictions.
    slo_grid : float
        Promises are rounded up to multiples of this share of solo throughput, so that many different requests fall
        into few classes; rounding costs at most this share per request, and 0 rounds nothing.
    reference_machine : str, optional
        Machine type whose solo throughput `min_share` is a share of; by default the one where a request ends up.
    factors : mapping of str to mapping of str to float, optional
        Machine type -> workload -> what predictions are multiplied by, as outcomes taught.

    Raises
    ------
    ConfigurationError
        For models or profiles of another machine than the cluster's of that name.

    Examples
    --------
    >>> from slomo.models.library import ModelLibrary
    >>> placer = Placer(ModelLibrary([]), Cluster.uniform("e5-2620v4", 2), "first-fit", fallback="alone")
    >>> placer.servers_used
    0
    """

    def __init__(
        self,
        library: ModelLibrary,
        cluster: Cluster,
        policy: str | type[Policy] = "predicted",
        *,
        model: str = DEFAULT_MODEL,
        confidence: float = 0.95,
        profiles: Sequence[PartitionProfile] = (),
        fallback: Fallback = "refuse",
        method: Method = DEFAULT_METHOD,
        observe: Observe | None = None,
        slo_grid: float = 0.01,
        reference_machine: str | None = None,
        factors: Mapping[str, Mapping[str, float]] | None = None,
    ) -> None:
        if not hasattr(library, "require_measured_on"):
            raise InvalidValueError(
                f"{library!r} is no library of models", hint="load_library('slomo-models') reads a folder of them"
            )
        if not isinstance(cluster, Cluster):
            raise InvalidValueError(
                f"{cluster!r} is no cluster of servers",
                hint="write Cluster.uniform('e5-2620v4', 4), or placement.problem.documents.read_cluster(file)",
            )
        self.settings = PlacerSettings(
            model, confidence, profiles, fallback, method, observe, slo_grid, reference_machine, factors or {}
        )
        self._kind = policy_class(policy) if isinstance(policy, str) else policy
        self._lock = threading.RLock()
        self._core = self._made(library, cluster)

    def _made(self, library: ModelLibrary, cluster: Cluster) -> Admission:
        """Return an object that places requests on the empty cluster by the models of a library."""
        kind, settings = self._kind, self.settings
        model, method = kind.model or settings.model, "composed" if kind.model else settings.method
        grid, reference = settings.slo_grid, settings.reference_machine
        estimates = ThroughputEstimates(library, model, settings.confidence, settings.profiles, method, grid, reference)
        estimates.takes_strangers, estimates.factors = settings.fallback == "worst-case", settings.factors
        estimates.check_machines(cluster.machine_types)
        pieces = Pieces()
        return Admission(ClusterState(cluster, pieces), kind(estimates, pieces), estimates, settings.fallback)

    def __repr__(self) -> str:
        return (
            f"Placer({plural(len(self.requests), 'request')} on {self.servers_used} of {len(self.cluster)} servers, "
            f"policy {self.policy.name})"
        )

    def _repr_html_(self) -> str:
        state = self._core.state
        names = {r.id: [state.servers[i].name for i in sorted(state.servers_of(r.id))] for r in self.requests}
        rows = ((r.id, r.label, ", ".join(names[r.id])) for r in self.requests)
        return html_table(repr(self), ("request", "network functions", "servers"), rows)

    @property
    def cluster(self) -> Cluster:
        """The servers of the cluster."""
        return self._core.state.cluster

    @property
    def policy(self) -> Policy:
        """The policy that decides where requests go."""
        return self._core.policy

    @property
    def estimates(self) -> ThroughputEstimates:
        """Models and profiles with which the placer predicts."""
        return self._core.estimates

    @property
    def servers_used(self) -> int:
        """Number of servers on which something runs."""
        return self._core.state.servers_used

    @property
    def requests(self) -> tuple[Request, ...]:
        """Placed requests, in order of placement."""
        with self._lock:
            return tuple(self._core.state.requests.values())

    @cached_property
    def lifecycle(self) -> Lifecycle:
        """Changes of servers and running requests: add, remove, cordon, drain, fail, update, new models."""
        return Lifecycle(self)

    def admit(self, request: Request) -> Decision:
        """Place one request; if it is refused, name the first SLO that it would break.

        Raises
        ------
        InvalidValueError
            For an id that is placed already.
        UnknownNameError
            For an unknown network function, and an unknown request in its affinity.
        """
        with self._lock:
            self._check_new([request])
            if self.settings.fallback == "refuse":
                self.estimates.check_names([request], self.cluster.machines)
            with self._core.state.trial():
                return self._core.admitted(request)

    def place_all(self, requests: Iterable[Request]) -> tuple[Decision, ...]:
        """Place a batch, higher priorities first; return the decisions in the order of the requests.

        Each request is placed whole or refused whole, including one with an unknown network function; nothing placed
        before is moved. A large batch is planned outside the lock, and planned again if the state changed meanwhile.

        Raises
        ------
        InvalidValueError
            For an id that is placed already; then nothing is placed.
        UnknownNameError
            For an unknown request in an affinity; then nothing is placed.
        """
        batch = unique_requests(requests)
        if len(batch) >= LARGE_BATCH and not self._kind.scales:
            for _ in range(2):
                with self._lock:
                    self._check_new(batch)
                    core, version = self._core, self._core.state.version
                    plan = core.with_state(core.state.copy())
                decisions = self._placed(plan, batch)
                with self._lock:
                    if self._core is core and core.state.version == version:
                        self._core = plan
                        return decisions
        with self._lock:
            self._check_new(batch)
            with self._core.state.trial():
                return self._placed(self._core, batch)

    def placed_again(self, requests: Sequence[Request]) -> tuple[Decision, ...]:
        """Place the requests of another placer, even if requests that their constraints name are not here."""
        with self._lock:
            return self._placed(self._core, requests)

    def _placed(self, core: Admission, batch: Sequence[Request]) -> tuple[Decision, ...]:
        refuses = self.settings.fallback == "refuse"
        unknown = core.estimates.unknown(batch, core.state.cluster.machines) if refuses else {}
        refused = {name: _unknown(core, name, error) for name, error in unknown.items()}
        rest = [request for request in batch if request.id not in unknown]
        refused |= core.place(rest)
        if core.policy.scales:
            self._scale(core, rest)
        refused |= core.withdrawn(rest)
        refused |= core.gangs_whole(batch, refused)
        return tuple(refused.get(request.id) or core.writer.decision(request.id) for request in batch)

    def remove(self, request: str) -> Decision:
        """Remove a request; return its last decision.

        Raises
        ------
        UnknownNameError
            For an id that is not placed.
        """
        with self._lock:
            require_placed(request, self._core.state.requests)
            last = self._core.writer.decision(request)
            self._core.state.forget(request)
            return last

    def what_if(self, request: Request) -> Decision:
        """Return the decision that :meth:`admit` would make, without placing anything."""
        with self._lock, self._core.state.trial() as trial:
            trial.undo()
            return self.admit(request)

    def what_if_all(self, requests: Iterable[Request]) -> tuple[Decision, ...]:
        """Return what :meth:`place_all` would decide about a batch, without placing anything; raise the same errors."""
        batch = unique_requests(requests)
        with self._lock:
            self._check_new(batch)
            plan = self._core.with_state(self._core.state.copy())
        return self._placed(plan, batch)

    def decision(self, request: str) -> Decision:
        """Return the decision about a placed request, with predictions for the present mixes.

        Raises
        ------
        UnknownNameError
            For an id that is not placed.
        """
        with self._lock:
            require_placed(request, self._core.state.requests)
            return self._core.writer.decision(request)

    def layout(self) -> dict[str, tuple[Assignment, ...]]:
        """Return what runs on each server that is in use."""
        with self._lock:
            return self._core.writer.layout()

    def rebalance(self, max_moves: int) -> tuple[Move, ...]:
        """Empty servers by at most `max_moves` moves to other servers, without breaking an SLO.

        Raises
        ------
        InvalidValueError
            For a negative number of moves.
        """
        if max_moves < 0:
            raise InvalidValueError(f"max_moves is {max_moves}, needed 0 or more")
        with self._lock, self._core.state.trial():
            return consolidate(self._core, max_moves)

    def snapshot(self) -> dict[str, Any]:
        """Return what runs where as a JSON-ready document that :meth:`restore` reads."""
        with self._lock:
            return snapshot(self._core)

    def entry(self, request: str) -> dict[str, Any]:
        """Return one placed request as a snapshot contains it, for callers that store changes one by one.

        Raises
        ------
        UnknownNameError
            For an id that is not placed.
        """
        with self._lock:
            require_placed(request, self._core.state.requests)
            return entry(self._core.state, request)

    def restore(self, document: Mapping[str, Any], *, keep_at_risk: bool = False) -> Restored:
        """Replace the placer's record of what runs where by a snapshot, also by one of a smaller or larger cluster.

        Each request's need is computed anew, and every mix is judged before anything changes. Requests on servers that
        no longer exist are placed elsewhere if there is room.

        Parameters
        ----------
        document : mapping
            A snapshot.
        keep_at_risk : bool
            Leave requests where they run even if their promise no longer holds by the present models, and list them.
            Without it such a promise is an error.

        Returns
        -------
        Restored
            Requests that moved, those that no longer fit, and promises at risk.

        Raises
        ------
        ConfigurationError
            For a snapshot of another schema version, of other models or machines, or whose mixes do not hold; the state
            stays as it was.
        """
        with self._lock:
            core = self._core.with_state(ClusterState(self.cluster, self._core.pieces))
            result = restored(document, core, keep_at_risk=keep_at_risk)
            self._core = core
            return result

    def breaking(self) -> dict[str, float]:
        """Return the probability, for each server in use, that a promise breaks, from known prediction errors.

        Servers without a promise in a shared cache are left out; a policy that does not predict leaves out all.
        """
        with self._lock:
            return self._core.writer.breaking()

    def stats(self) -> dict[str, int]:
        """Return how many entries each cache has, for `slomo place --stats`."""
        with self._lock:
            core = self._core
            return {
                "requests": len(core.state.requests),
                "servers": len(core.state.servers),
                "kinds of pieces": len(core.pieces),
                "cuts": len(core.cut),
                **core.policy.oracle.sizes(),
                **core.writer.sizes(),
                **core.pieces.sizes(),
            }

    def _scale(self, core: Admission, batch: Sequence[Request]) -> None:
        needs = {request.id: core.writer.needed_here(request.id) for request in batch if request.id in core.state.spots}
        watch = self.settings.observe
        scale_out(core, core.writer.predicted if watch is None else lambda: watch(self), needs)

    def _check_new(self, requests: Sequence[Request]) -> None:
        placed = self._core.state.requests
        for request in requests:
            check_request(request)
            if request.id in placed:
                raise InvalidValueError(
                    f"request '{request.id}' is placed already", hint="remove it first, or give the new one another id"
                )
        if any(request.affinity or request.anti_affinity for request in requests):
            check_neighbours(requests, placed)
        check_possible(requests, self.cluster)


def _unknown(core: Admission, name: str, error: SlomoError) -> Decision:
    """Return the refusal of a request whose network function has no model or profile."""
    machines = ", ".join(core.state.cluster.machines)
    workload = getattr(error, "name", "") or "its network function"
    refused = Refusal(name, workload, machines, "model")
    reason = error.message if error.hint is None else f"{error.message}; {error.hint}"
    return Decision(name, False, core.policy.name, "", (), (reason,), refused)
