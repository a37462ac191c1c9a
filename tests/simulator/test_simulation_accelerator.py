"""Accelerators serve their users in turns, and the closed form of sharing agrees with the simulation of it."""

import pytest

from slomo.models.responses.accelerator import AcceleratorUse, shared_mpps
from slomo.simulator.engine import Tenant, simulate
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.network_function import load_network_function, parse_network_function
from slomo.vocabulary.workload import Traffic, Workload

BROADWELL = load_machine("e5-2620v4")
#: compute cycles at 2.1 GHz; caches play no part, so that the accelerator alone decides
GHZ = BROADWELL.frequency_ghz


def own(name, *, core_ns, service_ns, requests=1.0, pattern="pipeline"):
    """Describe an NF that does nothing but compute and ask a regex accelerator."""
    engine = f"{{name: regex, service_ns: {service_ns}, requests: {requests}, pattern: {pattern}}}"
    text = (
        f"description: {name}\nsimulated: {{compute_cycles: {core_ns * GHZ}, instructions: 100, "
        f"packet: {{written_lines: 0}}, accelerator: {engine}}}"
    )
    return parse_network_function(text, f"{name}.yaml", default_name=name)


def seats(*functions, offered=None):
    """Seat one NF per core."""
    loads = offered or [None] * len(functions)
    return [
        Tenant(Workload(each.name, traffic=Traffic(offered_mpps=load)), each, core)
        for core, (each, load) in enumerate(zip(functions, loads, strict=True))
    ]


def run(*functions, offered=None):
    """Return everybody's throughput [Mpps]."""
    result = simulate(BROADWELL, seats(*functions, offered=offered), seed=3, accesses=60_000)
    return [tenant.throughput_mpps for tenant in result.tenants]


def core_ns(function):
    """Return the time per packet outside the accelerator, measured without one."""
    document = {key: value for key, value in function.simulated.items() if key != "accelerator"}
    bare = type(function).from_dict({**function.to_dict(), "simulated": document})
    return 1e3 / run(bare)[0]


def test_backlogged_users_take_turns():
    """Users that always have a request waiting complete equally many, 1 / (sum of everybody's times) each."""
    fast, slow = own("fast", core_ns=50, service_ns=300), own("slow", core_ns=50, service_ns=900)
    assert run(fast, slow) == pytest.approx([1e3 / 1200, 1e3 / 1200], rel=0.02)


def test_turns_go_by_request_not_by_packet():
    """An NF with two requests per packet waits twice for everybody else's turn."""
    single, double = own("single", core_ns=50, service_ns=300), own("double", core_ns=50, service_ns=300, requests=2)
    assert run(single, double) == pytest.approx([1e3 / 600, 1e3 / 1200], rel=0.02)


def test_a_pipeline_hides_the_accelerator_behind_the_core():
    """A pipelined NF is as fast as its slower stage, one that waits takes the time of both."""
    stages = {"core_ns": 500, "service_ns": 300}
    line, waiting = own("line", **stages), own("waiting", **stages, pattern="run-to-completion")
    core = core_ns(line)
    assert run(line)[0] == pytest.approx(1e3 / core, rel=0.02)
    assert run(waiting)[0] == pytest.approx(1e3 / (core + 300), rel=0.02)


def test_a_light_user_gets_what_it_asks_for():
    """A user below its turn loses nothing, whatever the others queue."""
    light, heavy = own("light", core_ns=100, service_ns=200), own("heavy", core_ns=50, service_ns=400)
    mpps = run(light, heavy, offered=[0.5, None])
    assert mpps[0] == pytest.approx(0.5, rel=0.05)
    assert mpps[1] == pytest.approx((1 - 0.5e-3 * 200) / 400 * 1e3, rel=0.03)


def test_packets_without_a_request_pass():
    """Half a request per packet takes half the accelerator's time."""
    half = own("half", core_ns=50, service_ns=800, requests=0.5)
    assert run(half)[0] == pytest.approx(1e3 / 400, rel=0.02)


def test_latency_includes_the_time_at_the_accelerator():
    """A packet leaves after the accelerator has answered, also where the core went on meanwhile."""
    function = own("line", core_ns=100, service_ns=5000)
    tenant = simulate(BROADWELL, seats(function, offered=[0.02]), seed=3, accesses=10_000).tenants[0]
    assert tenant.latency_us["p50"] >= 5.1


@pytest.mark.parametrize(
    ("mix", "tolerance"),
    [
        ([("a", 300, 200, 1, "pipeline"), ("b", 200, 400, 1, "pipeline"), ("c", 900, 300, 1, "pipeline")], 0.03),
        ([("a", 100, 250, 2, "pipeline"), ("b", 100, 400, 1, "pipeline")], 0.03),
        ([("a", 500, 300, 1, "run-to-completion"), ("b", 100, 700, 1, "pipeline")], 0.03),
        ([("a", 1700, 300, 1, "run-to-completion"), ("b", 50, 200, 1, "pipeline"), ("c", 50, 350, 1, "pipeline")], 0.1),
        ([("a", 800, 300, 1, "run-to-completion"), ("b", 700, 300, 2, "run-to-completion")], 0.05),
        ([("a", 300, 300, 1, "run-to-completion")] * 4, 0.03),
    ],
)
def test_the_closed_form_agrees_with_the_simulation(mix, tolerance):
    """Shares computed from demands are those simulated: to 3 % with full queues, else to 10 %."""
    functions = [
        own(f"{name}-{i}", core_ns=core, service_ns=service, requests=requests, pattern=pattern)
        for i, (name, core, service, requests, pattern) in enumerate(mix)
    ]
    uses = [AcceleratorUse("regex", service, requests, pattern) for _, _, service, requests, pattern in mix]
    predicted = shared_mpps(uses, [core_ns(each) for each in functions])
    assert predicted.tolist() == pytest.approx(run(*functions), rel=tolerance)


def test_shipped_users_of_an_accelerator_slow_each_other_down():
    """The flow monitor loses to a competitor at its accelerator that leaves memory alone."""
    monitor, competitor = load_network_function("flow-monitor-regex"), load_network_function("synthetic-regex")
    alone, beside = run(monitor)[0], run(monitor, competitor)[0]
    assert alone == pytest.approx(1e3 / 850, rel=0.02)
    assert beside == pytest.approx(1e3 / 1350, rel=0.02)
