"""One server, arrays of servers, and the compiled loop: the same bits whichever way the rounds are run."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slomo.equilibrium import settling, tables
from slomo.equilibrium.one_server import OneServer
from slomo.equilibrium.server import Joint, joint_vectors, solve_joint
from slomo.equilibrium.settling import response_table
from slomo.models.error_shape import ErrorShape, shapes_at
from slomo.models.functions import compilation
from slomo.models.functions.smooth import SmoothSensitivity
from slomo.models.interval_ends import ends_mpps, interval_of_one, predicted_loss
from slomo.models.responses.server_response import NEIGHBOURS, ServerResponse, packets_of_age
from slomo.vocabulary.capacities import Capacities
from slomo.vocabulary.metrics import METRICS


@pytest.fixture(scope="module")
def models(toy_library):
    """Return the toy's models, the first of which was profiled at part load as well."""
    first, *others = toy_library.values()
    profile = first.response.profile
    idle = replace(profile, weights=0.6 * profile.weights, scale=2.0 * profile.scale, limit=3.0 * profile.limit)
    return [replace(first, response=replace(first.response, part_load=idle)), *others]


def by(way, models, members, offered, **how):
    """Solve with the loop, or without it however many servers there are."""
    enough = compilation.LOADING_SERVERS, compilation.LOADED_SERVERS
    compilation.LOADING_SERVERS = compilation.LOADED_SERVERS = {"loop": 0, "arrays": 10**18}[way]
    try:
        return solve_joint(models, members, offered, **how)
    finally:
        compilation.LOADING_SERVERS, compilation.LOADED_SERVERS = enough


@pytest.fixture(scope="module")
def crowded(models):
    """Return the same with accesses in place of memory traffic, where the channel moves what two of them would."""
    renamed = [_of_memory(model.response) for model in models]
    most = 2.0 * max(float(response.profile.solo["LMB"]) for response in renamed)
    capacities = Capacities(8, memory_gb_s=most * 2**20 / 1e9)
    both = zip(models, renamed, strict=True)
    return [replace(model, capacities=capacities, response=response) for model, response in both]


def _of_memory(response):
    data = json.loads(json.dumps(response.to_dict()).replace("L2MISS", "LMB"))
    return replace(ServerResponse.from_dict(data), full_channel_ns=190.0)


@pytest.fixture(scope="module")
def mixed(crowded):
    """Return the crowded ones, which learned from mixes that a packet moves four fifths of what it moves at most."""
    return [replace(each, response=replace(each.response, traffic=_four_fifths(each.response))) for each in crowded]


def _four_fifths(response):
    names, at = (*response.pressure_names, NEIGHBOURS), response.profile.metric_names.index("LMB")
    ones, none = np.ones(len(names)), np.zeros(len(names))
    most = float(response.profile.high[at])
    return SmoothSensitivity(
        "traffic", names, "pressure", most, ones, none, 1e9 * ones, none, ones, none[None], np.zeros(1), 0.8
    )


def test_on_a_loaded_channel_packets_move_what_was_learned_from_mixes(crowded, mixed):
    """What all serve, times what a packet was learned to move, is the channel's most; vectors tell the same."""
    members = np.array([[0, 0, 1, 1, 2, 2]])
    joint, before = solve_joint(mixed, members), solve_joint(crowded, members)
    each = np.array([0.8 * mixed[who].response.traffic.solo_mpps for who in members[0]])
    most = mixed[0].capacities.limit(METRICS["LMB"])
    assert joint.converged[0]
    assert (each * joint.throughput_mpps[0]).sum() == pytest.approx(most, rel=0.02)
    told = joint_vectors(mixed, members, joint, ("LMB",))[0, :, 0]
    np.testing.assert_allclose(told, each * joint.throughput_mpps[0], rtol=0.03)
    assert np.abs(joint.throughput_mpps / before.throughput_mpps - 1.0).max() > 0.02
    pair = np.array([[0, 1]])  # moves too little to be corrected
    calm = [replace(model, capacities=replace(model.capacities, memory_gb_s=1e3)) for model in mixed]
    plain = [replace(model, response=replace(model.response, traffic=None)) for model in calm]
    np.testing.assert_array_equal(solve_joint(calm, pair).throughput_mpps, solve_joint(plain, pair).throughput_mpps)


@pytest.fixture(scope="module")
def long_queues(crowded):
    """Return the crowded ones, a fifth of whose traffic is what cards read back since queues are long."""
    return [_reading_back(each, 0.2) for each in crowded]


def _reading_back(model, share):
    response = model.response
    read_back = np.zeros(len(response.speed))
    read_back[0] = share * float(response.profile.low[response.profile.metric_names.index("LMB")])
    return replace(model, response=replace(response, read_back=read_back))


def test_a_full_channel_shortens_queues_before_requests_wait(crowded, long_queues):
    """Requests wait less by what cards no longer read back, not at all if that suffices; the channel stays full."""
    members, most = np.array([[0, 0, 1, 1, 2, 2]]), crowded[0].capacities.limit(METRICS["LMB"])
    enough = [_reading_back(each, 0.9) for each in crowded]
    tables = [response_table(tuple(each)) for each in (crowded, long_queues, enough)]
    plain, some, all_of_it = (table.settle(table.group(members)) for table in tables)
    assert all_of_it.waiting[0] == pytest.approx(1.0)
    assert 1.001 < some.waiting[0] < plain.waiting[0]
    for before, state in ((plain, some), (some, all_of_it)):
        assert state.converged[0]
        assert state.vector[0, :, tables[0].socket.channel].sum() == pytest.approx(most, rel=1e-3)
        assert (state.pace * state.speed > before.pace * before.speed).all()


def test_no_more_is_demanded_than_the_channel_carries_where_no_known_wait_suffices(mixed):
    """A fifth of the channel: at the longest wait of the profiles, all are slowed down by the same share."""
    narrow = [
        replace(model, capacities=replace(model.capacities, memory_gb_s=0.2 * model.capacities.memory_gb_s))
        for model in mixed
    ]
    members = np.array([[0, 0, 1, 1, 2, 2]])
    joint = solve_joint(narrow, members)
    each = np.array([0.8 * narrow[who].response.traffic.solo_mpps for who in members[0]])
    assert (each * joint.throughput_mpps[0]).sum() == pytest.approx(
        narrow[0].capacities.limit(METRICS["LMB"]), rel=0.02
    )


def test_traffic_that_feeds_itself_is_found(crowded):
    """Packets leave the cache only beside other traffic: of the states with and without traffic, the first is found."""
    fed, table = [_fed_by_others(each) for each in crowded], response_table(tuple(crowded))
    joint = solve_joint(fed, np.array([[0, 0, 1, 1, 2, 2]]))
    assert joint.converged[0]
    assert (joint.pressure[0, :, table.socket.channel] > 0.5 * table.socket.caps[table.socket.channel]).all()


def _fed_by_others(model):
    profile = model.response.profile
    at, beside = profile.metric_names.index("LMB"), profile.pressure_names.index("LMB")
    weights, low, solo = profile.weights.copy(), profile.low.copy(), {**profile.solo, "LMB": 0.0}
    weights[:, at], low[at] = 0.0, 0.0
    weights[1 + beside, at] = 2.0 * profile.high[at]
    profile = replace(profile, weights=weights, low=low, solo=type(profile.solo)(solo))
    return replace(model, response=replace(model.response, profile=profile))


@pytest.fixture(scope="module")
def aged(models):
    """Return the models with what they hold by age, which differs most in how fast it grows, in a small cache."""
    held, made = models[0].response.pressure_names.index("L3OCC"), []
    for number, model in enumerate(models):
        holding = np.zeros(len(model.response.speed))
        holding[[0, number + 1]] = 10.0, float(model.response.profile.high[held])
        made.append(replace(model, response=replace(model.response, holding=holding, full_kib=1e4)))
    return made


def test_a_full_cache_is_divided_by_one_age(aged, models):
    """What each NF holds is what it holds at the same age as the others, and all is held; vectors tell the same."""
    members = np.array([[0, 0, 1, 1, 2, 2], [0, 1, -1, -1, -1, -1]])
    table = response_table(tuple(aged))
    state = table.settle(table.group(members))
    held, speeds = table.socket.held, state.pace * state.speed
    halves = packets_of_age(len(aged[0].response.speed))
    for row, who in enumerate(members):
        here = who >= 0
        packets = state.age[row] * speeds[row, here]
        shares = packets[:, None] / (packets[:, None] + halves)
        holds = [aged[nf].response.holding @ [1.0, *share] for nf, share in zip(who[here], shares, strict=True)]
        own = state.vector[row, here, held]
        np.testing.assert_allclose(own, np.array(holds) * own.sum() / np.sum(holds), rtol=0.01)
    told = joint_vectors(aged, members, solve_joint(aged, members), ("L3OCC",))[0, :, 0]
    np.testing.assert_allclose(told, state.vector[0, :, held], rtol=0.01)
    before, now = (solve_joint(each, members).throughput_mpps[0] for each in (models, aged))
    assert np.abs(now / before - 1.0).max() > 1e-3
    some = [aged[0], *models[1:]]  # where one of them does not know, the cache is divided as before
    np.testing.assert_array_equal(
        solve_joint(some, members).throughput_mpps, solve_joint(models, members).throughput_mpps
    )


@pytest.mark.parametrize("kind", ["models", "crowded", "mixed", "long_queues", "aged"])
def test_the_loop_and_the_arrays_give_the_same_bits(kind, request):
    """Full and reduced load, full servers and empty ones, full memory channels and others."""
    models = request.getfixturevalue(kind)
    pytest.importorskip("numba")
    draw = np.random.default_rng(0)
    members = draw.integers(-1, len(models), (300, 9))
    reduced = np.where(draw.uniform(size=members.shape) < 0.3, draw.uniform(0.05, 3.0, members.shape), np.nan)
    for offered in (None, reduced):
        loop, arrays = (by(way, models, members, offered) for way in ("loop", "arrays"))
        for name in Joint.__dataclass_fields__:
            np.testing.assert_array_equal(getattr(loop, name), getattr(arrays, name), err_msg=name)
        assert loop.converged.mean() >= (0.99 if kind != "models" else 1.0)  # full channels: not all
        assert (loop.waiting > 1.0).any() == (kind not in ("models", "aged"))
        for row in range(60):  # one by one, as compiled code for a single server solves them
            here = np.flatnonzero(members[row] >= 0)
            one = by("loop", models, members[[row]][:, here], None if offered is None else offered[[row]][:, here])
            for name in Joint.__dataclass_fields__:
                row_of = getattr(arrays, name)[row]
                whole = row_of if np.ndim(row_of) == 0 else row_of[here]
                np.testing.assert_array_equal(getattr(one, name)[0], whole, err_msg=name)
    assert tables.compiled_networks(response_table(tuple(models)).responses) is not None


def test_no_more_is_moved_than_the_channel_has_and_waiting_is_what_makes_it_so(crowded):
    """Six of them ask for more than the channel moves: requests wait until what is asked for is what is moved."""
    members = np.array([[0, 0, 1, 1, 2, 2]])
    joint = solve_joint(crowded, members)
    moved = joint_vectors(crowded, members, joint, ("LMB",))[0].sum()
    most = crowded[0].capacities.limit(METRICS["LMB"])
    alone = sum(float(crowded[number].response.profile.solo["LMB"]) for number in members[0])
    assert joint.converged[0]
    assert joint.waiting[0] > 1.0
    assert moved == pytest.approx(most, rel=0.02)
    assert alone > most


def test_what_functions_serve_is_what_the_traffic_was_solved_for(models, monkeypatch):
    """Also where the smooth speed follows no pressure at all; servers on which they disagree have not converged."""
    blunt = [_of_one_speed(model) for model in models]
    table, members = response_table(tuple(blunt)), np.array([[0] * 6, [1] * 6, [2] * 6, [0, 0, 1, 1, 2, 2]])

    def apart():
        state = table.settle(table.group(members))
        pairs = [
            (blunt[who].response, state.pressure[i, place], state.pace[i, place])
            for i, row in enumerate(members)
            for place, who in enumerate(row)
        ]
        read = [float(nf.rows_mpps(felt[np.newaxis], np.array([5.0]))[0]) for nf, felt, _ in pairs]
        solved = [pace * float(nf.speed_mpps(felt[np.newaxis])[0]) for nf, felt, pace in pairs]
        return float(np.abs(np.array(read) / np.array(solved) - 1.0).max()), state.converged

    off, converged = apart()
    assert off < 0.011
    assert converged.all()
    monkeypatch.setattr(settling, "_CORRECTIONS", 0)
    off, converged = apart()
    assert off > 0.02
    assert not converged.all()


def _of_one_speed(model):
    speed = np.zeros_like(model.response.speed)
    speed[0] = model.solo_mpps
    return replace(model, response=replace(model.response, speed=speed, slowest_mpps=0.0))


@pytest.mark.parametrize("tries", [((0.8, 40), (0.4, 80)), ((0.4, 1), (0.15, 1), (0.15, 1))], ids=["enough", "too few"])
def test_many_servers_have_the_bits_of_one(models, tries, monkeypatch):
    """Many saturated servers, a third of them twice; what does not converge goes on to the next try."""
    pytest.importorskip("numba")
    members = np.random.default_rng(1).integers(-1, len(models), (900, 5))
    members = np.concatenate([members, members[::3]])
    monkeypatch.setattr(settling, "TRIES", tries)
    loop, arrays = (by(way, models, members, None) for way in ("loop", "arrays"))
    one_by_one = by("loop", models, members[:50], None)
    for name in Joint.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(loop, name), getattr(arrays, name), err_msg=name)
        np.testing.assert_array_equal(getattr(loop, name)[:50], getattr(one_by_one, name), err_msg=name)
    assert loop.converged.all() if len(tries) == 2 else not loop.converged.all()


def test_an_nf_at_part_load_puts_on_others_what_its_short_queue_does(models):
    """Far below what it could serve, its vector is the one profiled there; offered more, that of a saturated one."""
    first, other = models[0], models[1]
    saturated = OneServer([other, first], [None, None])
    mine, its = saturated.place
    without = replace(first, response=replace(first.response, part_load=None))
    low, high = (factor * saturated.possible_mpps(its) for factor in (0.3, 3.0))
    idle, full = (OneServer([other, model], [None, low]).pressure_on(mine) for model in (first, without))
    assert (idle < full).any()
    np.testing.assert_allclose(
        OneServer([other, first], [None, high]).pressure_on(mine), saturated.pressure_on(mine), rtol=1e-9
    )


LOADS = st.none() | st.floats(0.05, 4.0)


@given(st.lists(st.tuples(st.integers(0, 2), LOADS), min_size=1, max_size=6), st.sampled_from([0.5, 0.9]))
@settings(max_examples=30)
def test_one_server_is_a_row_of_many(models, tenants, coverage):
    """Every NF, read alone, has the numbers it has in arrays."""
    numbers, loads = [number for number, _ in tenants], [load for _, load in tenants]
    members, offered = np.array([numbers]), np.array([[np.nan if load is None else load for load in loads]])
    many = solve_joint(models, members, offered, coverage=coverage)
    one = OneServer([models[number] for number in numbers], loads)
    for i, place in enumerate(one.place):
        assert one.throughput_mpps(place) == many.throughput_mpps[0, i]
        assert one.interval_mpps(place, coverage) == (many.low_mpps[0, i], many.high_mpps[0, i])
        assert one.load_of(place) == many.load[0, i]
        assert (one.pressure_on(place) == many.pressure[0, i]).all()
    assert one.state.bound[0] == many.bound[0]


KNOTS = st.lists(st.tuples(st.floats(0.01, 1.0), st.floats(-0.1, 0.1), st.floats(1e-4, 0.3)), min_size=2, max_size=9)


@given(st.floats(0.0, 12.0), st.floats(0.1, 10.0), KNOTS, st.tuples(*[st.floats(-9.0, 9.0)] * 2))
def test_an_interval_without_arrays_has_the_same_bits(predicted, solo, knots, scores):
    """Plain numbers and arrays of several NFs agree, for predictions above solo as well."""
    steps, middle, size = (np.array(column) for column in zip(*knots, strict=True))
    shape = ErrorShape(np.cumsum(steps) - steps[0], middle, size)
    shapes = [ErrorShape(shape.loss[:2], middle[:2], size[:2]), shape]
    at, reach = shapes_at(shapes, np.array([1, 0]), np.full(2, predicted_loss(np.array([predicted]), solo)))
    for number, one in ((0, shape), (1, shapes[0])):
        away = [at[number : number + 1] + reach[number : number + 1] * score for score in scores]
        low, high = ends_mpps(np.array([predicted]), solo, (away[0], away[1]))
        assert interval_of_one(predicted, solo, one, scores) == (low[0], high[0])
