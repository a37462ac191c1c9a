"""Policies of slomo keep the contract that is shipped for everybody's."""

import pytest

from slomo.models.library import ModelLibrary
from slomo.placement.policies.base import Policy
from slomo.placement.policies.registry import policy_class
from slomo.placement.problem.request import Request
from slomo.testing.policy_contract import PolicyContract


@pytest.mark.parametrize("name", ["predicted", "slomo-search", "first-fit", "dobrescu", "e2"])
class TestShippedPolicies(PolicyContract):
    """The policies that need no profiles over cache ways, with the toy's models."""

    __test__ = True

    @pytest.fixture(autouse=True)
    def _choose(self, name: str, toy_library: ModelLibrary) -> None:
        self.name, self.models = name, toy_library

    def make_policy(self) -> type[Policy]:
        return policy_class(self.name)

    def library(self) -> ModelLibrary:
        return self.models

    def requests(self) -> tuple[Request, ...]:
        return (Request("a", "lpm"), Request("b", "nat"), Request("c", ("lpm", "ids")))


class TestWithoutModels(PolicyContract):
    """The default policy, where nothing is known of the network functions."""

    __test__ = True

    def make_policy(self) -> type[Policy]:
        return policy_class("predicted")
