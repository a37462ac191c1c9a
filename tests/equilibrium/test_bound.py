"""Facts about the proven distance to the fixed point."""

from dataclasses import replace

import numpy as np
import pytest

from slomo.equilibrium.bound import proven_bound
from slomo.equilibrium.rounds import answer, come_to_rest, laid_out, within_capacities
from slomo.equilibrium.server import solve_joint
from slomo.equilibrium.settling import TRIES, responses_of
from slomo.equilibrium.tables import shared_socket, tables

MIXES = np.array([[0, 1, -1, -1], [0, 1, 2, -1], [2, 2, 1, 0], [1, 1, -1, -1], [0, -1, -1, -1]])


@pytest.fixture(scope="module")
def models(toy_library):
    """Return the toy's models."""
    return list(toy_library.values())


@pytest.fixture(scope="module")
def servers(models):
    """Lay the mixes out in a cache that is never overfull."""
    responses = responses_of(models)
    names = responses[0].pressure_names
    return laid_out(tables(responses), MIXES, np.full(MIXES.shape, np.inf), shared_socket(names, None))


def settled(servers, vector):
    """Go on for thousands of small rounds, far beyond the tolerance."""
    age = np.full(len(vector), 1e4)
    for _ in range(5000):
        following, age, _ = answer(servers, vector, np.ones(len(vector)), age)
        vector = vector + 0.2 * (following - vector)
        within_capacities(servers, vector)
    return vector


def test_the_fixed_point_is_within_the_bound(servers):
    """Where the bound is proven, the fixed point is at most as far away as it says, and it says something useful."""
    rest = come_to_rest(servers, TRIES)
    bound = proven_bound(servers, rest.vector, rest.age)
    reference = servers.start.max(axis=1)[:, None, :]
    distance = (np.abs(settled(servers, rest.vector) - rest.vector) / reference).max(axis=(1, 2))
    assert np.isfinite(bound).sum() >= 3
    assert (distance <= bound + 1e-12).all()
    assert bound[np.isfinite(bound)].max() < 0.02


def test_far_from_a_fixed_point_nothing_near_is_claimed(servers):
    """From the solo vectors, no bound is smaller than the distance to the fixed point."""
    bound = proven_bound(servers, servers.start, np.ones(len(servers.start)))
    reference = servers.start.max(axis=1)[:, None, :]
    distance = (np.abs(settled(servers, servers.start) - servers.start) / reference).max(axis=(1, 2))
    assert (distance <= bound + 1e-12).all()
    assert distance[:4].min() > 0.01


def test_full_caches_are_proven_too(servers):
    """Where everybody's share of a full cache is scaled, the bound still holds the fixed point."""
    held = servers.start[:, :, servers.socket.held].sum(axis=1, keepdims=True)
    occupancy = np.arange(servers.start.shape[2]) == servers.socket.held
    small = replace(servers.socket, caps=np.where(occupancy, 0.7 * held.min(), np.inf))
    for full in (replace(servers, socket=small), replace(servers, least=0.95 * held[:, :, None] * occupancy)):
        rest = come_to_rest(full, TRIES)
        bound = proven_bound(full, rest.vector, rest.age)
        reference = full.start.max(axis=1)[:, None, :]
        distance = (np.abs(settled(full, rest.vector) - rest.vector) / reference).max(axis=(1, 2))
        assert np.isfinite(bound).sum() >= 3
        assert (distance <= bound + 1e-12).all()


def test_caches_divided_by_age_are_proven_too(models, servers):
    """Where a cache is divided by age, full or not, the bound still holds the fixed point."""
    terms, held = servers.weight.shape[2], servers.start[:, :, servers.socket.held]
    weight = servers.weight.copy()
    for nf in range(len(models)):
        weight[:, :, 1 + nf, servers.start.shape[2] + 1] = np.where(nf == MIXES, 2.0 * held, 0.0)
    assert terms > len(models)
    occupancy = np.arange(servers.start.shape[2]) == servers.socket.held
    small = replace(servers.socket, caps=np.where(occupancy, 0.7 * held.sum(axis=1).min(), np.inf))
    for aged in (replace(servers, weight=weight), replace(servers, weight=weight, socket=small)):
        rest = come_to_rest(aged, TRIES)
        bound = proven_bound(aged, rest.vector, rest.age)
        reference = aged.start.max(axis=1)[:, None, :]
        distance = (np.abs(settled(aged, rest.vector) - rest.vector) / reference).max(axis=(1, 2))
        assert np.isfinite(bound).sum() >= 3
        assert (distance <= bound + 1e-12).all()


def test_a_box_of_full_and_other_caches_is_not_proven(servers):
    """Where the cache is just about full, slopes jump within the box and nothing is claimed, without a warning."""
    rest = come_to_rest(servers, TRIES)
    held = float(settled(servers, rest.vector)[0, :, servers.socket.held].sum())
    caps = np.where(np.arange(servers.start.shape[2]) == servers.socket.held, held, np.inf)
    edge = replace(servers, socket=replace(servers.socket, caps=caps))
    assert np.isinf(proven_bound(edge, rest.vector, rest.age)[0])


def test_solving_says_whether_the_bound_is_proven(models):
    """Unless it is asked for, the bound is the estimate; at reduced load it always is."""
    reduced = np.where(MIXES == 0, 0.3, np.nan)
    assert not solve_joint(models, MIXES).proven.any()
    with_proof = solve_joint(models, MIXES, prove=True)
    assert np.isfinite(with_proof.bound).all()
    assert not solve_joint(models, MIXES[:1], reduced[:1], prove=True).proven.any()
