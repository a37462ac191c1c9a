"""Vectors, workloads, co-locations and capacities are values that travel unharmed."""

import json
import math
import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slomo.errors import InvalidValueError, MissingMetricError
from slomo.vocabulary.capacities import Capacities
from slomo.vocabulary.colocation import Colocation, Isolation
from slomo.vocabulary.metrics import METRICS, Scope, metric
from slomo.vocabulary.vector import MetricVector
from slomo.vocabulary.workload import Traffic, Workload

vectors = st.builds(
    MetricVector,
    st.dictionaries(st.sampled_from(sorted(METRICS)), st.one_of(st.none(), st.just(math.nan), st.floats(0, 1e9))),
    scope=st.sampled_from(Scope),
)
workloads = st.builds(
    Workload,
    st.sampled_from(["lpm", "snort", "synthetic"]),
    st.dictionaries(
        st.sampled_from(["data_size_mib", "rules"]), st.one_of(st.integers(0, 99), st.floats(0, 9), st.text(max_size=4))
    ),
    st.builds(
        Traffic,
        packet_size_b=st.integers(64, 1500),
        flow_count=st.integers(1, 10**6),
        offered_mpps=st.one_of(st.none(), st.floats(0.1, 9)),
    ),
)
colocations = st.builds(
    Colocation, st.just("e5-2620v4"), st.one_of(st.none(), workloads), st.lists(workloads, max_size=3).map(tuple)
)


@given(vector=vectors)
def test_vectors_round_trip(vector: MetricVector) -> None:
    """to_dict and from_dict, and pickling between processes, keep every value and every gap."""
    assert MetricVector.from_dict(vector.to_dict()) == vector
    assert pickle.loads(pickle.dumps(vector)) == vector


def test_missing_is_not_zero() -> None:
    """Asking for what was not reported raises, and arrays show a gap."""
    vector = MetricVector({"IPC": None, "L3MISS": 0.0})

    assert "IPC" not in vector
    with pytest.raises(MissingMetricError, match="IPC was not reported"):
        vector["IPC"]
    assert math.isnan(vector.to_array(("IPC", "L3MISS"))[0])
    assert vector.to_array(("IPC", "L3MISS"))[1] == 0.0


@pytest.mark.parametrize("bad", [-1.0, math.inf, -math.inf, 1e31])
def test_vectors_refuse_impossible_values(bad: float) -> None:
    """No metric is negative, infinite, or too large for single precision."""
    with pytest.raises(InvalidValueError, match="READ"):
        MetricVector({"READ": bad})


@given(one=workloads, other=workloads)
def test_equal_workloads_have_equal_keys(one: Workload, other: Workload) -> None:
    """The key tells workloads apart exactly as equality does, but for numbers printed alike."""
    assert Workload.from_dict(one.to_dict()) == one
    if one == other:
        assert one.key == other.key
        assert hash(one) == hash(other)


@given(colocation=colocations)
def test_colocations_round_trip_with_their_fingerprint(colocation: Colocation) -> None:
    """A co-location rebuilt from its mapping has the same key."""
    for one in (colocation, replace(colocation, memory_node=tuple(range(len(colocation.tenants))))):
        again = Colocation.from_dict(json.loads(json.dumps(one.to_dict())))

        assert again == one
        assert again.key == one.key


@pytest.mark.parametrize(
    "change",
    [
        {"packet_size_b": 63},
        {"flow_count": 0},
        {"flow_distribution": "normal"},
        {"offered_mpps": -2.0},
        {"offered_mpps": math.nan},
    ],
)
def test_impossible_traffic_is_refused(change: dict[str, object]) -> None:
    """Each field names itself, what it got and what it needs."""
    with pytest.raises(InvalidValueError, match=f"{next(iter(change))} is .* needed"):
        Traffic(**change)  # type: ignore[arg-type]


@pytest.mark.parametrize("mask", [0, -1, 0x5, 0b1101])
def test_way_masks_are_one_block(mask: int) -> None:
    """CAT takes contiguous masks only."""
    with pytest.raises(InvalidValueError, match="not one block"):
        Isolation(llc_way_mask=mask)


def test_isolation_lists_every_tenant() -> None:
    """A list of the wrong length is refused instead of shifted."""
    with pytest.raises(InvalidValueError, match="1 tenants, the co-location has 3"):
        Colocation("m", Workload("lpm"), (Workload("nat"),) * 2, isolation=(Isolation(),))
    with pytest.raises(InvalidValueError, match="memory_nodes lists 1 tenants, the co-location has 2"):
        Colocation("m", Workload("lpm"), (Workload("nat"),), memory_node=(1,))
    for node, told in ((1.5, "memory node 1.5"), ((0, 1.5), "whole numbers"), (-1, "whole numbers")):
        with pytest.raises(InvalidValueError, match=told):
            Colocation("m", Workload("lpm"), (Workload("nat"),), memory_node=node)
    assert hash(Colocation("m", Workload("lpm"), (Workload("nat"),), memory_node=[0, 1]))


def test_capacities_speak_the_units_of_the_metric() -> None:
    """A limit is given in the metric's own unit, infinite where nothing bounds it."""
    socket = Capacities(8, llc_kib=20480, ddio_kib=2048, memory_gb_s=68.3)

    assert socket.limit(metric("L3OCC")) == 20480
    assert socket.limit(metric("READ")) == 68.3
    assert math.isclose(socket.limit(metric("LMB")), 68.3e9 / 2**20)
    assert math.isinf(socket.limit(metric("L2MISS")))
    assert Capacities.from_dict(socket.to_dict()) == socket
