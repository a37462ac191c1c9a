"""Facts about a socket whose cache is divided, told by models that never saw one."""

import numpy as np
import pytest

from slomo.equilibrium.divided import solve_divided
from slomo.equilibrium.server import solve_joint
from slomo.errors import InvalidValueError
from slomo.models.library import ModelLibrary

WAYS = 20
WHOLE = (1 << WAYS) - 1


def test_without_walls_it_is_the_usual_equilibrium(toy_library: ModelLibrary) -> None:
    """Everybody with every way does what the server's fixed point says, within 1 % of solo throughput."""
    models = list(toy_library.values())
    members = np.array([[0, 1, 2, 2]])
    mix = [models[number] for number in members[0]]
    divided = solve_divided(mix, [WHOLE] * 4, WAYS)
    solo = np.array([model.solo_mpps for model in mix])
    assert divided.converged
    assert np.abs((divided.throughput_mpps - solve_joint(models, members).throughput_mpps[0]) / solo).max() < 0.01


def test_more_ways_of_its_own_never_cost_an_nf_anything(toy_library: ModelLibrary) -> None:
    """Throughput rises with the ways behind the wall, and network functions alike do alike."""
    mix = [toy_library.find("lpm"), toy_library.find("nat"), toy_library.find("nat")]
    answers = [solve_divided(mix, [(1 << own) - 1, *[WHOLE ^ ((1 << own) - 1)] * 2], WAYS) for own in (1, 4, 8, 12)]
    own = [answer.throughput_mpps[0] for answer in answers]
    assert own == sorted(own)
    for answer in answers:
        assert answer.throughput_mpps[1] == pytest.approx(answer.throughput_mpps[2], rel=1e-9)


@pytest.mark.parametrize("masks", [[0, 1], [1], [1, 1 << WAYS]])
def test_masks_that_are_none_are_refused(toy_library: ModelLibrary, masks: list[int]) -> None:
    """One mask per network function, of ways that there are."""
    model = toy_library.find("lpm")
    with pytest.raises(InvalidValueError, match="one mask each"):
        solve_divided([model, model], masks, WAYS)
