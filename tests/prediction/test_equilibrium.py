"""Facts about whole servers: every NF at once, at the fixed point of everybody's answers."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import slomo
from slomo.equilibrium.memo import JointMemo
from slomo.equilibrium.server import joint_vectors, solve_joint
from slomo.equilibrium.settling import TRIES
from slomo.equilibrium.tables import flows_and_polled
from slomo.errors import InvalidValueError, UnknownNameError
from slomo.models.applicability import Verdict, applicability
from slomo.models.interval_ends import LEAST
from slomo.models.intervals import symmetric
from slomo.models.library import ModelLibrary
from slomo.models.responses.server_response import ServerResponse
from slomo.prediction.predictor import Predictor
from slomo.prediction.question import solve_server
from slomo.vocabulary.server_setting import ServerSetting
from slomo.vocabulary.workload import Traffic, Workload

MACHINE = "silver-4110"
NAMES = ("L2MISS", "L3OCC", "READ")


class Falling:
    """Throughput falls with the accesses of the others; read exactly, as trees are."""

    name, feature_names, composition = "equilibrium", NAMES, "pressure"

    def __init__(self, solo_mpps):
        self.solo_mpps = solo_mpps

    def predict_mpps(self, vectors):
        return self.solo_mpps / (1.0 + 0.004 * vectors[:, 0] + 0.00002 * vectors[:, 1])


def respond(model, slope=1.0):
    """Return the model with a server response; answers fall by `slope` times the profile's own slope."""
    profile = model.contentiousness
    packets = np.where(flows_and_polled(profile.metric_names)[0], model.solo_mpps, 1.0)
    weights = profile.weights / packets
    weights[1:] *= slope
    profile = replace(profile, weights=weights, low=0.0 * profile.low, high=profile.high / packets)
    speed = np.zeros(len(weights))
    speed[0], speed[1] = model.solo_mpps, -0.4 * model.solo_mpps
    seen = np.random.default_rng(0).uniform(0.0, 1.0, (60, 3)) * np.array([300.0, 11264.0, 40.0])
    response = ServerResponse(
        profile,
        speed,
        0.1 * model.solo_mpps,
        model.solo_mpps,
        Falling(model.solo_mpps),
        symmetric(np.arange(1, 100) / 500.0, "mixes"),
        applicability(NAMES, seen),
    )
    return replace(model, response=response)


@pytest.fixture
def server_library(library):
    """Make every NF of the small library answer running neighbours."""
    return ModelLibrary([respond(model) for model in library.values()])


def mpps(library, names, **options):
    return solve_server(library, names, MACHINE, **options).throughput_mpps


def test_alone_nothing_is_lost(server_library):
    """An NF without neighbours keeps exactly its solo throughput, and its vector is its solo vector (law 1)."""
    server = solve_server(server_library, ["lpm"], MACHINE)
    (lpm,) = server.tenants
    assert (lpm.throughput_mpps, lpm.slowdown) == (5.0, 0.0)
    assert lpm.interval == pytest.approx((5.0, 5.0), rel=1e-3)
    assert dict(lpm.vector) == {"L2MISS": 20.0, "L3OCC": 1500.0, "READ": 1.0}
    assert server.verdict is Verdict.SUPPORTED


def test_an_empty_server_has_no_answers(server_library):
    """No NFs, no predictions."""
    assert solve_server(server_library, [], MACHINE).tenants == ()


def test_order_changes_no_bit(server_library):
    """The order in which NFs are named does not change a bit of any answer (law 2)."""
    names = ["stats", "lpm", "snort", "nat", "lpm"]
    forward, backward = mpps(server_library, names), mpps(server_library, names[::-1])
    assert forward == backward[::-1]


def test_like_and_unlike_neighbours_differ(server_library):
    """Unlike neighbours press differently from as many like ones (law 2)."""
    assert mpps(server_library, ["lpm", "stats", "snort"])[0] != mpps(server_library, ["lpm", "stats", "stats"])[0]


def test_more_neighbours_never_help(server_library):
    """Each further neighbour costs the first NF throughput."""
    throughputs = [mpps(server_library, ["lpm", *["stats"] * count])[0] for count in range(7)]
    assert all(fewer > more for fewer, more in pairwise(throughputs))


def test_the_answer_is_a_fixed_point(server_library):
    """At the solution everybody's vector is its answer to the sum of the others' vectors, rates times its packets."""
    models = [server_library.find(nf, MACHINE) for nf in ("lpm", "nat", "snort")]
    members = np.array([[0, 1, 2]])
    at_rest = solve_joint(models, members)
    vectors = joint_vectors(models, members, at_rest, NAMES)[0]
    for place, model in enumerate(models):
        others = vectors.sum(axis=0) - vectors[place]
        again = model.response.profile.under(others[np.newaxis])[0]
        packets = np.where(flows_and_polled(NAMES)[0], at_rest.throughput_mpps[0, place], 1.0)
        assert np.allclose(again * packets, vectors[place], rtol=5e-3)


def test_batch_and_single_agree(server_library):
    """A server solved among others of other sizes gets the same bits as alone."""
    models = [server_library.find(nf, MACHINE) for nf in ("lpm", "nat", "snort", "stats")]
    members = np.array([[0, 1, 2, 3], [2, 2, -1, -1], [3, -1, -1, -1]])
    batch = solve_joint(models, members).throughput_mpps
    for row, mix in enumerate(members):
        assert np.array_equal(solve_joint(models, mix[np.newaxis]).throughput_mpps[0], batch[row])


def test_summed_occupancy_fits_the_cache(server_library):
    """All NFs together never hold more than the cache (law 4)."""
    models = [server_library.find("snort", MACHINE)]
    members = np.zeros((1, 8), dtype=int)
    vectors = joint_vectors(models, members, solve_joint(models, members), NAMES)
    assert vectors[0, :, 1].sum() <= 11264.0 * (1.0 + 1e-12)


def test_offered_load_below_capacity_is_served_whole(server_library):
    """An NF offered less than it can serve serves just that, and its rates fall with it while its cache lines stay."""
    idle = Workload("lpm", traffic=Traffic(offered_mpps=1.0))
    (lpm, _) = solve_server(server_library, [idle, "stats"], MACHINE).tenants
    (full, _) = solve_server(server_library, ["lpm", "stats"], MACHINE).tenants
    assert (lpm.throughput_mpps, lpm.slowdown) == (1.0, 0.0)
    assert 0.15 < lpm.load < 0.3
    assert lpm.vector["L2MISS"] < 0.4 * full.vector["L2MISS"]
    assert lpm.vector["L3OCC"] > 0.5 * full.vector["L3OCC"]


def test_a_neighbour_at_less_load_presses_less(server_library):
    """The other NF gains when its neighbour is offered less."""
    idle = Workload("stats", traffic=Traffic(offered_mpps=0.2))
    assert mpps(server_library, ["lpm", idle])[0] > mpps(server_library, ["lpm", "stats"])[0]


def test_offered_load_above_capacity_changes_nothing(server_library):
    """An offered load beyond what the NF can serve is saturation."""
    eager = Workload("lpm", traffic=Traffic(offered_mpps=9.0))
    assert mpps(server_library, [eager, "stats"]) == pytest.approx(mpps(server_library, ["lpm", "stats"]))


def test_sockets_do_not_touch(server_library):
    """NFs of two sockets are solved apart, and those away from the NIC are marked as extrapolated."""
    names = ["lpm", "stats", "nat"]
    server = solve_server(server_library, names, MACHINE, setting=ServerSetting(sockets=[0, 0, 1]))
    assert server.throughput_mpps[:2] == mpps(server_library, names[:2])
    assert server.throughput_mpps[2] == 2.7
    assert server.tenants[2].verdict is Verdict.EXTRAPOLATED
    assert "socket 1" in server.tenants[2].reasons[0]
    assert set(server.sockets) == {0, 1}


def test_convergence_is_reported(server_library):
    """A solved socket says how many rounds it took and how little is left."""
    convergence = solve_server(server_library, ["lpm", "stats", "nat"], MACHINE).sockets[0]
    assert convergence.converged
    assert convergence.ratio < 1.0
    assert convergence.bound < 0.02
    assert convergence.rounds <= sum(rounds for _, rounds in TRIES)


def test_intervals_at_reduced_load_are_those_of_arrivals(server_library):
    """The shorter the measurement, the further what is served strays from what is offered, to both sides."""
    idle = Workload("lpm", traffic=Traffic(offered_mpps=1.0))
    tenants = [solve_server(server_library, [idle, "stats"], MACHINE, window_s=s).tenants[0] for s in (0.01, 1.0)]
    (short_low, short_high), (long_low, long_high) = (tenant.interval for tenant in tenants)
    assert short_low < long_low < 1.0 < long_high < short_high
    assert short_high - 1.0 == pytest.approx(1.645 * (1.0 / 1e4) ** 0.5, rel=1e-3)
    assert solve_server(server_library, [idle, "stats"], MACHINE).tenants[0].interval == (1.0 - LEAST, 1.0 + LEAST)


def test_the_memo_and_the_server_agree(server_library):
    """A memo of the same models gives the throughput of `solve_server`, to the last bit."""
    models = [server_library.find(nf, MACHINE) for nf in ("lpm", "nat", "snort", "stats")]
    batch = JointMemo(models).solve(np.array([[3, 0, 2, -1]])).throughput_mpps[0]
    assert tuple(batch[:3]) == mpps(server_library, ["stats", "lpm", "snort"])


def swinging(model):
    """Return a response that jumps from all to nothing where the pressure is half its scale: no rounds settle there."""
    model = respond(model)
    weights = np.zeros_like(model.response.profile.weights)
    values = model.solo_vector.to_array(NAMES)
    weights[0], weights[1] = (1.0 + 1e7 / 3.0) * values, -1e7 * values
    return replace(model, response=replace(model.response, profile=replace(model.response.profile, weights=weights)))


def test_what_does_not_converge_falls_back_and_says_so(library):
    """Profiles that swing for ever are answered by composing, and every verdict says why."""
    wild = ModelLibrary([swinging(model) for model in library.values()])
    server = solve_server(wild, ["stats"] * 8, MACHINE)
    published = Predictor(wild, MACHINE).predict("stats", ["stats"] * 7)
    assert not server.sockets[0].converged
    assert "did not converge" in server.fallback
    assert server.throughput_mpps[0] == published.throughput_mpps
    assert server.verdict is not Verdict.SUPPORTED
    assert all("did not converge" in " ".join(tenant.reasons) for tenant in server.tenants)


@pytest.mark.parametrize("slope", [0.0, 1.0, 3.0, 10.0])
def test_steep_profiles_still_converge(library, slope):
    """Up to ten times the usual slope, eight NFs come to rest."""
    steep = ModelLibrary([respond(model, slope) for model in library.values()])
    assert solve_server(steep, ["lpm", "nat", "snort", "stats"] * 2, MACHINE).sockets[0].converged


def test_old_models_fall_back_and_say_so(library):
    """Models trained without the competition beside them compose; where the equilibrium was named, with the reason."""
    assert solve_server(library, ["lpm", "stats"], MACHINE).method == "composed"
    server = solve_server(library, ["lpm", "stats"], MACHINE, method="equilibrium")
    assert "without the competition beside it" in server.fallback
    assert server.tenants[0].verdict is Verdict.EXTRAPOLATED


def test_composing_is_the_same_for_servers_and_targets(server_library):
    """Method 'composed' gives the numbers of the predictor."""
    throughputs = mpps(server_library, ["lpm", "stats", "nat"], method="composed")
    assert (
        throughputs[0]
        == Predictor(server_library, MACHINE, method="composed").predict("lpm", ["stats", "nat"]).throughput_mpps
    )


def test_pressure_beyond_the_profile_is_said(server_library):
    """A pressure that was never measured makes the verdict say which."""
    model = server_library.find("lpm", MACHINE)
    narrow = applicability(NAMES, np.random.default_rng(0).uniform(0.0, 1.0, (40, 3)))
    shy = replace(model, response=replace(model.response, applicability=narrow))
    tenant = solve_server(server_library.merge(ModelLibrary([shy])), ["lpm", "stats"], MACHINE).tenants[0]
    assert tenant.verdict is Verdict.UNSUPPORTED
    assert "the profile covers" in tenant.reasons[0]


def test_wrong_questions_are_refused(server_library):
    """Unknown names, too many NFs for the cores, and sockets that do not fit are refused in words."""
    with pytest.raises(UnknownNameError, match="lpn"):
        solve_server(server_library, ["lpn"], MACHINE)
    with pytest.raises(InvalidValueError, match="9 cores"):
        solve_server(server_library, ["lpm"] * 9, MACHINE)
    with pytest.raises(InvalidValueError, match="needed one each"):
        solve_server(server_library, ["lpm"], MACHINE, setting=ServerSetting(sockets=[0, 1]))
    with pytest.raises(InvalidValueError, match="not above 0"):
        solve_joint([server_library.find("lpm", MACHINE)], np.array([[0]]), np.array([[0.0]]))


def test_results_are_plain_data(server_library):
    """A server's prediction turns into a mapping that JSON can hold, and into a table."""
    import json

    server = solve_server(server_library, ["lpm", "stats"], MACHINE)
    data = json.loads(json.dumps(server.to_dict(), allow_nan=False))
    assert [tenant["target"] for tenant in data["tenants"]] == ["lpm", "stats"]
    assert "lpm" in server._repr_html_()


def test_who_waits_for_its_turn_finds_less_in_the_cache(server_library):
    """Half of a core's time meets twice the neighbour's accesses per own one: as two of it on a whole core."""
    how = {"machine": MACHINE, "method": "equilibrium"}
    shared = slomo.predict("lpm", ["stats"], server_library, shares_core_with=["nat"], **how)
    once, twice = (
        slomo.predict("lpm", ["nat", *["stats"] * many], server_library, **how).throughput_mpps for many in (1, 2)
    )

    assert 2.0 * shared.throughput_mpps < 0.99 * once
    assert 2.0 * shared.throughput_mpps == pytest.approx(twice, rel=0.06)
    low, high = shared.interval
    assert low < shared.throughput_mpps < high
    assert shared.verdict is Verdict.SUPPORTED
