"""Tests that every placement policy must pass: subclass the class and name the policy.

Shipped with the library, as the contracts of models and testbeds are, so that a plug-in is held to the same facts.
"""

from collections.abc import Sequence

from slomo.models.library import ModelLibrary
from slomo.models.partition_profile import PartitionProfile
from slomo.placement.online.placer import Placer
from slomo.placement.policies.base import Policy
from slomo.placement.problem.cluster import Cluster
from slomo.placement.problem.request import Request


class PolicyContract:
    """Tests of a policy; pytest collects them in subclasses whose name begins with ``Test``.

    Examples
    --------
    In a test module of yours::

        class TestMyPolicy(PolicyContract):
            __test__ = True

            def make_policy(self):
                return MyPolicy
    """

    __test__ = False

    def make_policy(self) -> type[Policy]:
        """Return the class to be checked."""
        raise NotImplementedError("override make_policy")

    def library(self) -> ModelLibrary:
        """Return the models for placement; without any, every network function gets a socket for itself."""
        return ModelLibrary([])

    def profiles(self) -> Sequence[PartitionProfile]:
        """Return profiles over cache ways, for policies that need them."""
        return ()

    def placer(self, servers: int = 4) -> Placer:
        """Return a placer of the policy on an empty cluster."""
        cluster = Cluster.uniform("e5-2620v4", servers)
        return Placer(self.library(), cluster, self.make_policy(), profiles=self.profiles(), fallback="alone")

    def requests(self) -> tuple[Request, ...]:
        """Return a batch that an empty cluster has room for."""
        return (Request("a", "lpm"), Request("b", "stats"), Request("c", ("lpm", "stats")))

    def test_it_is_a_policy_with_a_name(self) -> None:
        """The class derives from `Policy` and has a name."""
        policy = self.make_policy()
        assert issubclass(policy, Policy)
        assert policy.name

    def test_no_core_is_given_twice(self) -> None:
        """Every network function of a batch has a core of its own."""
        decisions = self.placer().place_all(self.requests())
        cores = [(item.server, item.socket, item.seat) for decision in decisions for item in decision.assignments]
        assert len(cores) == len(set(cores))

    def test_a_request_is_placed_whole_or_refused_with_a_reason(self) -> None:
        """An accepted request has a core per network function; a refused one has none, and a reason."""
        for request, decision in zip(self.requests(), self.placer().place_all(self.requests()), strict=True):
            if decision.accepted:
                assert len(decision.assignments) >= len(request.chain)
            else:
                assert not decision.assignments
                assert decision.refused is not None

    def test_a_full_cluster_refuses(self) -> None:
        """A request without room is refused, and no part of it stays on the cluster."""
        placer = self.placer(servers=1)
        decisions = [placer.admit(Request(f"r{number}", "lpm")) for number in range(40)]
        assert not decisions[-1].accepted
        assert {request.id for request in placer.requests} == {d.request for d in decisions if d.accepted}

    def test_removing_all_empties_the_cluster(self) -> None:
        """After all requests are removed nothing runs, and the same batch is placed as before."""
        placer = self.placer()
        first = [decision.servers for decision in placer.place_all(self.requests())]
        for request in placer.requests:
            placer.remove(request.id)
        assert placer.servers_used == 0
        assert [decision.servers for decision in placer.place_all(self.requests())] == first

    def test_the_same_batch_is_placed_alike(self) -> None:
        """On two empty clusters the same batch is placed in the same way."""
        one, two = (self.placer().place_all(self.requests()) for _ in range(2))
        assert [decision.to_dict() for decision in one] == [decision.to_dict() for decision in two]
