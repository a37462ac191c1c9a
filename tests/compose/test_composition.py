"""Composition keeps laws 1, 2 and 5 and follows the rule of each metric."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slomo.compose.composition import Composition, compose, compose_arrays
from slomo.errors import ConfigurationError, InvalidValueError, UnknownNameError
from slomo.vocabulary.capacities import Capacities
from slomo.vocabulary.metrics import METRICS, Cap, Kind, Rule, Scope
from slomo.vocabulary.vector import MetricVector

EIGHT_CORES = Capacities(cores=8, llc_kib=20480.0, ddio_kib=2048.0, memory_gb_s=60.0, link_gb_s=16.0)
NAMES = tuple(METRICS)


PROPERTY = settings(max_examples=60, deadline=None)


def _vector(random, scope):
    """Draw a vector: every metric missing or zero now and then, else anywhere between 1e-3 and its largest."""
    shares = (Cap.ONE,)
    top = np.array([1.0 if METRICS[n].cap in shares or METRICS[n].kind is Kind.FREQUENCY else 5e4 for n in NAMES])
    values = top * 10.0 ** random.uniform(-3.0, 0.0, len(NAMES))
    fate = random.choice(["missing", "zero", "value", "value", "value"], len(NAMES))
    values = np.where(fate == "missing", np.nan, np.where(fate == "zero", 0.0, values))
    return MetricVector(dict(zip(NAMES, values, strict=True)), scope=scope)


def vectors(scope=Scope.CORE):
    """Vectors in which any metric may be missing or zero."""
    return st.integers(0, 2**32 - 1).map(lambda seed: _vector(np.random.default_rng(seed), scope))


@PROPERTY
@given(st.lists(vectors(), min_size=1, max_size=5), st.randoms(), st.sampled_from([None, "published"]))
def test_order_changes_no_bit(mix, random, compat):
    """The order of the competitors does not change the composition, not even in the last bit."""
    shuffled = random.sample(mix, len(mix))
    assert compose(mix, EIGHT_CORES, compat) == compose(shuffled, EIGHT_CORES, compat)


@PROPERTY
@given(vectors())
def test_one_vector_composes_to_itself(vector):
    """Composing one vector returns its values where no capacity forbids them."""
    assert dict(compose([vector]).vector) == dict(vector)
    assert dict(compose([vector], Capacities(cores=1)).vector) == dict(vector)


@PROPERTY
@given(vectors(scope=Scope.SOCKET))
def test_one_socket_vector_composes_to_itself_on_any_machine(vector):
    """A socket-level vector is not divided by the cores once more."""
    assert dict(compose([vector], Capacities(cores=8)).vector) == dict(vector)


@PROPERTY
@given(st.lists(vectors(), min_size=1, max_size=5), st.sampled_from([None, "published"]))
def test_missing_stays_missing(mix, compat):
    """A metric that any competitor lacks is missing from the composition."""
    composed = compose(mix, EIGHT_CORES, compat).vector
    for name in NAMES:
        if any(name not in vector for vector in mix):
            assert name not in composed


@PROPERTY
@given(st.lists(vectors(), min_size=1, max_size=5))
def test_nothing_exceeds_the_machine(mix):
    """Occupancies stay within the cache, reads plus writes within the memory channels, shares within 1."""
    composed = compose(mix, EIGHT_CORES).vector
    for name, value in composed.items():
        assert value <= EIGHT_CORES.limit(METRICS[name])
    if {"READ", "WRITE"} <= set(composed):
        assert composed["READ"] + composed["WRITE"] <= EIGHT_CORES.memory_gb_s * (1 + 1e-12)


@PROPERTY
@given(st.lists(vectors(), min_size=1, max_size=5))
def test_means_stay_within_what_they_average(mix):
    """No composed ratio leaves the range of the competitors' ratios."""
    for name, value in compose(mix).vector.items():
        if METRICS[name].rule in (Rule.WEIGHTED_MEAN, Rule.QUOTIENT):
            assert min(vector[name] for vector in mix) <= value <= max(vector[name] for vector in mix)


@PROPERTY
@given(st.lists(vectors(), min_size=1, max_size=4), st.sampled_from([None, "published"]))
def test_arrays_and_vectors_agree_to_the_bit(mix, compat):
    """One mix and a padded batch of mixes give the same numbers."""
    rectangle = np.full((2, 6, len(NAMES)), 7.0)
    rectangle[:, : len(mix)] = [vector.to_array(NAMES) for vector in mix]
    present = np.zeros((2, 6), dtype=bool)
    present[:, : len(mix)] = True
    batch = compose_arrays(rectangle, NAMES, EIGHT_CORES, compat, present)
    alone = compose(mix, EIGHT_CORES, compat).vector.to_array(NAMES)
    np.testing.assert_array_equal(batch[0], alone)
    np.testing.assert_array_equal(batch[1], alone)


def test_nobody_composes_to_zero_rates():
    """No competitors: everything that adds up is 0 and every ratio is missing."""
    composed = compose([], EIGHT_CORES).vector
    for name, definition in METRICS.items():
        assert composed.get(name) == (0.0 if definition.rule is Rule.SUM else None)
    empty = compose_arrays(np.empty((1, 0, 2)), ("L2MISS", "L3HIT"))
    assert empty[0, 0] == 0.0
    assert np.isnan(empty[0, 1])


def _core(**values):
    return MetricVector(values, scope=Scope.CORE)


BUSY = _core(
    IPC=2.0,
    INST=4000.0,
    EXEC=2.0,
    FREQ=1.0,
    L3MISS=8.0,
    L3MPI=0.002,
    L3HIT=0.8,
    L2MISS=40.0,
    L2HIT=0.5,
    READ=40.0,
    WRITE=20.0,
)
IDLE = _core(
    IPC=1.0,
    INST=1000.0,
    EXEC=0.5,
    FREQ=0.5,
    L3MISS=5.0,
    L3MPI=0.005,
    L3HIT=0.5,
    L2MISS=10.0,
    L2HIT=0.9,
    READ=30.0,
    WRITE=10.0,
)


def test_unlike_differs_from_like():
    """Two unlike competitors compose differently from twice either of them."""
    unlike = compose([BUSY, IDLE]).vector
    for name in BUSY:
        assert unlike[name] != compose([BUSY, BUSY]).vector[name], name
        assert unlike[name] != compose([IDLE, IDLE]).vector[name], name


def test_ratios_are_weighted_by_their_events():
    """A composed ratio equals the ratio of the composed events."""
    composed = compose([BUSY, IDLE], EIGHT_CORES).vector
    assert composed["L3MPI"] == pytest.approx(13.0 / 5000.0)
    assert composed["L3HIT"] == pytest.approx((40.0 * 0.8 + 10.0 * 0.5) / 50.0)
    assert composed["L2HIT"] == pytest.approx(1.0 - 50.0 / (40.0 / 0.5 + 10.0 / 0.1))
    assert composed["IPC"] == pytest.approx(2.5 / 1.5)
    assert composed["EXEC"] == pytest.approx(2.5 / 8)
    assert composed["FREQ"] == pytest.approx(1.5 / 8)


def test_reads_and_writes_share_one_cap():
    """Reads and writes are scaled down together and keep their proportion."""
    composed = compose([BUSY, IDLE], EIGHT_CORES)
    assert composed.vector["READ"] == pytest.approx(42.0)
    assert composed.vector["WRITE"] == pytest.approx(18.0)
    assert composed.capped == ("READ", "WRITE")


def test_published_rule():
    """The published rule averages four ratios, divides two by the cores, and sums all the rest."""
    composed = compose([BUSY, IDLE], EIGHT_CORES, "published")
    assert composed.vector["IPC"] == 1.5
    assert composed.vector["L3HIT"] == pytest.approx(0.65)
    assert composed.vector["L2HIT"] == pytest.approx(0.7)
    assert composed.vector["EXEC"] == pytest.approx(2.5 / 8)
    assert composed.vector["L3MPI"] == pytest.approx(0.007)
    assert composed.vector["READ"] == 70.0
    assert composed.capped == ()
    assert compose([BUSY, IDLE], compat="published").vector["EXEC"] == pytest.approx(2.5 / 8)


def test_ratio_without_its_weight_is_unknown():
    """A weighted mean whose weight was not reported is missing, unless all values agree."""
    assert "L3HIT" not in compose([_core(L3HIT=0.5), _core(L3HIT=0.9)]).vector
    assert compose([_core(L3HIT=0.5), _core(L3HIT=0.5)]).vector["L3HIT"] == 0.5


def test_no_events_give_the_plain_mean():
    """Where all weights are zero the plain mean stands in."""
    mix = [_core(L3HIT=0.5, L2MISS=0.0), _core(L3HIT=0.9, L2MISS=0.0)]
    assert compose(mix).vector["L3HIT"] == pytest.approx(0.7)


def test_composition_survives_json():
    """A composition written as JSON reads back equal, and another schema version is refused."""
    composed = compose([BUSY, IDLE], EIGHT_CORES)
    data = json.loads(json.dumps(composed.to_dict()))
    assert Composition.from_dict(data) == composed
    with pytest.raises(ConfigurationError, match="schema version 99"):
        Composition.from_dict({**data, "schema_version": 99})


def test_html_names_rule_and_cap():
    """The notebook view shows the rule of a metric and whether it was capped."""
    assert "sum, capped" in compose([BUSY, IDLE], EIGHT_CORES)._repr_html_()


def test_unknown_rule_and_wrong_shapes_are_refused():
    """An unknown composition rule and shapes that do not belong together are named in the error."""
    with pytest.raises(UnknownNameError, match="slom"):
        compose([BUSY], compat="slom")
    with pytest.raises(InvalidValueError, match="2 names"):
        compose_arrays(np.zeros((1, 2, 3)), ("READ", "WRITE"))
    with pytest.raises(InvalidValueError, match="mask"):
        compose_arrays(np.zeros((1, 2, 2)), ("READ", "WRITE"), present=np.ones((1, 3), dtype=bool))
