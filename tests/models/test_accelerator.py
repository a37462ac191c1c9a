"""Shares of an accelerator: in turns, never more than it can do, the same whatever the order of its users."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slomo.errors import InvalidValueError
from slomo.models.responses.accelerator import AcceleratorUse, shared_mpps, turns
from slomo.models.responses.service_time import ServiceTime
from slomo.training.accelerator_fit import fit_use
from slomo.training.service_time_fit import fit_service_time

uses = st.lists(
    st.tuples(st.floats(50.0, 2000.0), st.floats(0.2, 3.0), st.sampled_from(["pipeline", "run-to-completion"])),
    min_size=1,
    max_size=6,
)


@given(uses, st.integers(0, 1000))
def test_an_accelerator_is_never_more_than_fully_used(drawn, seed):
    """Served requests take at most all of its time, and nobody is faster than alone."""
    core = np.random.default_rng(seed).uniform(50.0, 2000.0, len(drawn))
    users = [AcceleratorUse("regex", *each) for each in drawn]
    mpps_of = shared_mpps(users, core)
    assert sum(mpps * use.demand_ns for mpps, use in zip(mpps_of, users, strict=True)) <= 1e3 * (1 + 1e-9)
    alone = [shared_mpps([use], [time])[0] for use, time in zip(users, core, strict=True)]
    assert (mpps_of <= np.array(alone) * (1 + 1e-9)).all()


@given(uses)
def test_order_does_not_matter(drawn):
    """Users named in another order get the same."""
    users = [AcceleratorUse("regex", *each) for each in drawn]
    core = [100.0 + 37.0 * i for i in range(len(users))]
    forth, back = shared_mpps(users, core), shared_mpps(users[::-1], core[::-1])
    assert back[::-1].tolist() == pytest.approx(forth.tolist())


def test_yalas_formula_holds_for_full_queues():
    """Where everybody keeps a queue, each gets 1 / (own + sum of the others)."""
    users = [AcceleratorUse("regex", time) for time in (200.0, 300.0, 500.0)]
    assert shared_mpps(users, [1.0, 1.0, 1.0]).tolist() == pytest.approx([1.0, 1.0, 1.0])


def test_turns_leave_an_idle_server_alone():
    """Demands that fit are served as asked."""
    assert turns(np.array([0.001, 0.002]), np.array([100.0, 200.0])).tolist() == [0.001, 0.002]


def test_a_use_survives_json():
    """A use rebuilt from its mapping is equal."""
    use = AcceleratorUse("regex", 400.0, 2.0, "run-to-completion")
    assert AcceleratorUse.from_dict(use.to_dict()) == use


def test_impossible_uses_are_refused():
    """Several accelerators in one call, times of 0 and demands of 0 are refused."""
    regex, crypto = AcceleratorUse("regex", 400.0), AcceleratorUse("crypto", 400.0)
    with pytest.raises(InvalidValueError, match="crypto, regex"):
        shared_mpps([regex, crypto], [1.0, 1.0])
    with pytest.raises(InvalidValueError, match="above 0"):
        shared_mpps([regex], [0.0])
    with pytest.raises(InvalidValueError, match="0 ns"):
        AcceleratorUse("regex", 0.0)


def test_a_service_line_goes_through_its_runs():
    """The line fitted to two runs of an accelerator gives both back, and survives JSON."""
    line = fit_service_time([330.2, 628.0], [1.176, 0.674])
    assert (1.0 / line.time_us([330.2, 628.0])).tolist() == pytest.approx([1.176, 0.674])
    assert ServiceTime.from_dict(line.to_dict()) == line
    assert float(line.shared_mpps(628.0, line.time_us(628.0))) == pytest.approx(0.337)


def test_a_line_needs_two_densities():
    """One density, or an accelerator that gets faster with more matches, is refused."""
    with pytest.raises(InvalidValueError, match="two densities"):
        fit_service_time([300.0, 300.0], [1.0, 1.1])
    with pytest.raises(InvalidValueError, match="faster with more matches"):
        fit_service_time([300.0, 600.0], [1.0, 2.0])


@pytest.mark.parametrize(
    "use",
    [AcceleratorUse("regex", 250.0, 2.0), AcceleratorUse("regex", 400.0, 1.0, "run-to-completion")],
)
def test_what_an_nf_asks_for_is_learned_from_its_slowdowns(use):
    """From throughput beside known competitors follow time per request, requests per packet and pattern."""
    core = 350.0
    services = [[each] * count for each in (200.0, 500.0, 1000.0, 2000.0) for count in (1, 2)]
    solo = shared_mpps([use], [core])[0]
    busy = [[use, *(AcceleratorUse("regex", each) for each in others)] for others in services]
    mpps = np.array([shared_mpps(uses, [core, *[50.0] * (len(uses) - 1)])[0] for uses in busy])
    learned = fit_use("regex", services, mpps, solo)
    assert (learned.pattern, learned.service_ns) == (use.pattern, pytest.approx(use.service_ns, rel=0.02))
    assert learned.requests == pytest.approx(use.requests, rel=0.02)
    assert learned.error < 0.01


def test_an_nf_that_loses_nothing_uses_no_accelerator():
    """Beside a busy accelerator, an NF as fast as alone asks nothing of it."""
    assert fit_use("regex", [[500.0], [2000.0]], np.array([3.99, 3.98]), 4.0) is None


def test_nfs_that_wait_fall_into_step():
    """Beside a slower NF that waits too, a faster one takes its pace; alone it keeps its own."""
    fast, slow = (AcceleratorUse("regex", time, 1.0, "run-to-completion") for time in (100.0, 400.0))
    both = shared_mpps([fast, slow], [650.0, 580.0])
    assert both.tolist() == pytest.approx([1e3 / 980, 1e3 / 980], rel=0.01)
    assert shared_mpps([fast, slow], [650.0, 580.0], [0.2, None])[0] == pytest.approx(0.2, rel=0.02)
    assert shared_mpps([fast], [650.0])[0] == pytest.approx(1e3 / 750)
