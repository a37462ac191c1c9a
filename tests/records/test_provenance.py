"""Provenance: what a run states about itself and what must agree."""

from slomo.records.provenance import (
    describe_environment,
    describe_run,
    difference,
    merge_environments,
    platform_fingerprint,
    versions,
)
from slomo.vocabulary.colocation import Colocation
from slomo.vocabulary.workload import Workload


def test_a_run_states_all_that_matters():
    """Provenance names machine, NF, configuration, traffic, competitors, seed, versions and platform."""
    target = Workload("lpm", {"routes": 1000})
    stated = describe_run(Colocation("silver-4110", target, (Workload("nat"),)), 5, "simulated", {"scale": 8})
    assert (stated["machine"], stated["seed"], stated["testbed"]) == ("silver-4110", 5, "simulated")
    assert stated["target"]["configuration"] == {"routes": 1000}
    assert stated["target"]["traffic"]["packet_size_b"] == 64
    assert [item["nf"] for item in stated["competitors"]] == ["nat"]
    assert {"python", "numpy"} <= set(stated["versions"])
    assert stated["platform"] == platform_fingerprint()


def test_packages_that_are_absent_are_left_out():
    """Versions list only what is installed."""
    assert set(versions(["surely-no-such-package"])) == {"python"}


def test_host_can_be_left_out():
    """The environment of a simulated dataset need not depend on who made it."""
    assert not {"versions", "platform"} & set(describe_environment("simulated", host=False))


def test_only_what_must_match_is_compared():
    """Seeds and versions may differ, testbeds and settings may not."""
    left = describe_environment("simulated", {"scale": 8}) | {"seed": 1}
    right = describe_environment("simulated", {"scale": 4}, host=False) | {"seed": 2}
    assert difference(left, right) == ("settings.scale: 8 | 4",)


def test_a_missing_setting_differs():
    """A setting only one side states is a difference."""
    assert difference({"settings": {}}, {"settings": {"turbo": True}}) == ("settings.turbo: not stated | True",)


def test_other_network_functions_are_no_difference():
    """Only NFs both sides name are compared; the merged environment lists all."""
    left, right = {"network_functions": {"a": "1"}}, {"network_functions": {"b": "2"}}
    assert difference(left, right) == ()
    assert merge_environments(left, right) == {"network_functions": {"a": "1", "b": "2"}}
