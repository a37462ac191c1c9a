"""Workloads as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slomo.errors import InvalidValueError
from slomo.vocabulary.workload import Traffic, Workload
from slomo.vocabulary.workload_text import each_instance, instances_of, parse_instances, parse_workload

TRAFFIC = st.builds(
    Traffic,
    packet_size_b=st.integers(64, 9000),
    flow_count=st.integers(1, 10_000_000),
    flow_distribution=st.just("uniform"),
    offered_mpps=st.none() | st.integers(1, 50).map(lambda n: n / 4),
)
SETTINGS = st.dictionaries(
    st.sampled_from(["data_size_mib", "iterations", "pattern"]),
    st.integers(0, 99) | st.sampled_from(["chain", "random"]),
    max_size=3,
)


@given(traffic=TRAFFIC, settings=SETTINGS)
def test_text_is_the_inverse_of_the_key(traffic: Traffic, settings: dict[str, int | str]) -> None:
    """Reading a workload's key gives the workload."""
    workload = Workload("ip-router", settings, traffic)

    assert parse_workload(workload.key) == workload


def test_zipf_traffic_is_read() -> None:
    """A Zipf exponent makes the flow distribution Zipf."""
    traffic = parse_workload("lpm@64B,1000f,zipf1.1").traffic

    assert (traffic.flow_distribution, traffic.zipf_exponent) == ("zipf", 1.1)


def test_a_mix_keeps_colons_of_settings_and_counts_all_its_instances() -> None:
    """A colon within parentheses is no count; the limit is that of the whole mix."""
    assert instances_of("nf(device=0000:3b:00.0):2") == ["nf(device=0000:3b:00.0)"] * 2
    with pytest.raises(InvalidValueError, match="more than the 96 instances"):
        each_instance(["lpm:4000", "nat:97"])


def test_instances_follow_the_last_colon() -> None:
    """NF:count names count instances; without it there is one."""
    assert parse_instances("stats:3") == (Workload("stats"), 3)
    assert parse_instances("stats") == (Workload("stats"), 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":3",
        "a b",
        "stats:",
        "stats:0",
        "stats:-1",
        "stats:x",
        "stats:1.5",
        "stats:99999",
        "s(",
        "s(a)",
        "s(=1)",
        "s@fast",
        "s@1B",
        "s@64B:2:3",
        "s@64B,1500B",
        "s(a=1,a=2)",
    ],
)
def test_what_names_no_workload_is_refused(text: str) -> None:
    """A malformed workload is a usage error, never a guess."""
    with pytest.raises(InvalidValueError):
        parse_instances(text)


def test_one_workload_is_not_several() -> None:
    """A count has no place where one workload is needed."""
    with pytest.raises(InvalidValueError, match="one workload"):
        parse_workload("stats:2")
