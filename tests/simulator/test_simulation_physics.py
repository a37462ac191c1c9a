"""What hardware does, the simulator does: isolation, DDIO, load, traffic, sockets, throttles."""

import dataclasses

import pytest

from slomo.errors import InvalidValueError, UnknownNameError
from slomo.simulator.engine import Tenant, simulate
from slomo.simulator.programs.layout import scale_of, seat_of
from slomo.simulator.programs.program import program
from slomo.vocabulary.machine import load_machine
from slomo.vocabulary.network_function import load_network_function
from slomo.vocabulary.workload import Traffic, Workload

BROADWELL = load_machine("e5-2620v4")


def tenant(name, core=0, *, traffic=None, mask=None, mba=None, memory=None, **knobs):
    """Seat an NF."""
    return Tenant(Workload(name, knobs, traffic or Traffic()), load_network_function(name), core, mask, mba, memory)


def mpps(*tenants, machine=BROADWELL, **options):
    """Return the first tenant's throughput."""
    return simulate(machine, tenants, seed=1, **{"accesses": 200_000, **options}).tenants[0].throughput_mpps


def hog(core, **options):
    """Seat a competitor that reads 16 MiB as fast as it can."""
    return tenant("synthetic", core, data_size_mib=16, reads_per_packet=1000, **options)


def test_the_routers_solo_run_is_that_of_resq():
    """LPM alone on ResQ's machine reproduces its line of Table 1 (5.475 Mpps, IPC 1.92, 3.87 references, 99.80 %)."""
    lpm = simulate(load_machine("e5-2695v4"), [tenant("lpm")], seed=1).tenants[0]
    assert lpm.throughput_mpps == pytest.approx(5.475, rel=0.05)
    assert lpm.vector["IPC"] == pytest.approx(1.92, rel=0.05)
    assert lpm.l3_references_per_packet == pytest.approx(3.87, rel=0.05)
    assert 100 * lpm.vector["L3HIT"] == pytest.approx(99.80, abs=0.5)


def test_way_masks_keep_competitors_out():
    """Behind its own ways a tenant loses far less to a competitor, and holds no more than those ways."""
    own, rest = 0x3FF, 0xFFC00
    shared = mpps(tenant("ip-router"), *(hog(1 + i) for i in range(4)))
    masked = (tenant("ip-router", mask=own), *(hog(1 + i, mask=rest) for i in range(4)))
    result = simulate(BROADWELL, masked, seed=1, accesses=200_000).tenants[0]
    assert result.throughput_mpps > 1.15 * shared
    assert result.vector["L3OCC"] - result.vector["DDIOOCC"] <= 10 * 1024 * 1.01


def test_too_many_buffers_leak_out_of_ddio():
    """Buffers that exceed the DDIO ways make the card miss the cache; few buffers do not."""

    def missed(buffers):
        seat = tenant("stats", traffic=Traffic(packet_size_b=1500), packet_buffers=buffers)
        vector = simulate(BROADWELL, [seat], accesses=300_000).sockets[0]
        return vector["PCIEMISS"] / (vector["PCIEMISS"] + vector["PCIEHIT"])

    assert missed(256) < 0.01
    assert missed(8192) > 0.4


def test_without_ddio_packets_come_from_memory():
    """On a processor without DDIO packets pass through memory, but for the header the core has read."""
    seat = tenant("stats", traffic=Traffic(packet_size_b=1500))
    vector = simulate(load_machine("epyc-7543"), [seat], accesses=200_000).sockets[0]
    assert vector["PCIEHIT"] < 0.05 * vector["PCIEMISS"]
    assert vector["DDIOOCC"] == 0.0


def test_below_capacity_nothing_is_lost_and_above_it_latency_grows():
    """A given load is served whole while the NF can, and overload costs packets and time."""
    light, heavy = (
        simulate(BROADWELL, [tenant("mazunat", traffic=Traffic(offered_mpps=load))], accesses=300_000).tenants[0]
        for load in (1.0, 9.0)
    )
    assert light.loss == 0.0
    assert light.throughput_mpps == pytest.approx(1.0, rel=0.03)
    assert heavy.loss > 0.2
    assert light.latency_us["p50"] <= light.latency_us["p95"] <= light.latency_us["p99"]
    assert heavy.latency_us["p50"] > 10 * light.latency_us["p95"]


def test_more_flows_and_flatter_traffic_press_harder():
    """Flow count and distribution decide what per-flow state costs."""
    few = mpps(tenant("flowstats", traffic=Traffic(flow_count=1_000)))
    many = mpps(tenant("flowstats", traffic=Traffic(flow_count=2_000_000)))
    skewed = mpps(
        tenant("flowstats", traffic=Traffic(flow_count=2_000_000, flow_distribution="zipf", zipf_exponent=1.2))
    )
    assert few > skewed > many


def test_large_packets_cost_payload_inspectors_more():
    """An NF that reads payload is slower on large packets."""
    assert mpps(tenant("snort", traffic=Traffic(packet_size_b=1500))) < 0.7 * mpps(tenant("snort"))


def test_the_wire_bounds_what_arrives():
    """No NF receives more than the line rate."""
    slow_wire = dataclasses.replace(BROADWELL, nic_gbps=1.0)
    assert mpps(tenant("l2fwd"), machine=slow_wire) == pytest.approx(slow_wire.line_rate_mpps(64), rel=0.01)


def test_remote_memory_is_slower_and_uses_the_link():
    """Memory on the other socket costs throughput and shows in RMB and UPI."""
    far = simulate(BROADWELL, [tenant("snort", memory=1)], seed=1, accesses=200_000)
    assert far.tenants[0].throughput_mpps < mpps(tenant("snort"))
    assert far.tenants[0].vector["RMB"] > 0.0
    assert far.tenants[0].vector["LMB"] == 0.0
    assert far.sockets[0]["UPI"] > 0.0


def test_sockets_do_not_share_a_cache():
    """Competitors on the other socket cost next to nothing."""
    alone = mpps(tenant("ip-router"))
    assert mpps(tenant("ip-router"), *(hog(8 + i) for i in range(4))) > 0.99 * alone


def test_domains_do_not_share_a_cache():
    """On a processor of several LLC domains a competitor in another domain takes no cache."""
    machine = load_machine("epyc-7543")
    beside, apart = (
        mpps(tenant("ip-router"), *(hog(c) for c in cores), machine=machine, scale=32)
        for cores in ((1, 2, 3), (4, 5, 6))
    )
    assert apart > 1.1 * beside


def test_a_throttled_core_reads_less():
    """MBA slows a core's requests down."""
    free, throttled = (
        simulate(BROADWELL, [hog(0, mba=percent)], accesses=200_000).sockets[0] for percent in (None, 20)
    )
    assert throttled["L2MISS"] < 0.5 * free["L2MISS"]


def test_a_chain_has_one_access_in_flight():
    """Dependent accesses are slower than independent ones, a stream is fastest."""
    rates = [
        simulate(
            BROADWELL,
            [tenant("synthetic", data_size_mib=256, reads_per_packet=1000, pattern=pattern)],
            accesses=200_000,
        ).sockets[0]["L2MISS"]
        for pattern in ("chain", "random", "sequential")
    ]
    assert rates[0] < 0.5 * rates[1] < 0.5 * rates[2]


def test_written_data_are_written_back():
    """Dirty lines that leave the cache are written to memory."""
    knobs = {"data_size_mib": 256, "reads_per_packet": 10, "writes_per_packet": 10}
    vector = simulate(BROADWELL, [tenant("synthetic", **knobs)], accesses=200_000).sockets[0]
    assert vector["WRITE"] == pytest.approx(0.5 * vector["READ"], rel=0.1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"core": 99}, "core 99"),
        ({"mask": 1 << 20}, "20 ways"),
        ({"mba": 5}, "10 to 100"),
        ({"memory": 2}, "memory socket 2"),
    ],
)
def test_impossible_seats_are_refused(change, words):
    """A core, mask, throttle or memory socket the machine lacks is refused by name."""
    with pytest.raises(InvalidValueError, match=words):
        simulate(BROADWELL, [tenant("lpm", **change)])


def test_a_core_seats_one_tenant():
    """Two tenants on one core are refused."""
    with pytest.raises(InvalidValueError, match="core 3 is given to 2 tenants"):
        simulate(BROADWELL, [tenant("lpm", 3), tenant("stats", 3)])


@pytest.mark.parametrize(
    "knobs", [{"data_size_mib": -1}, {"reads_per_packet": 1.5}, {"pattern": "zigzag"}, {"instances": 3}]
)
def test_impossible_knobs_are_refused(knobs):
    """A knob outside its range is refused."""
    with pytest.raises(InvalidValueError):
        simulate(BROADWELL, [tenant("synthetic", **knobs)])


def test_unknown_settings_are_refused_with_the_nearest():
    """A setting the NF does not have is refused with the nearest name."""
    with pytest.raises(UnknownNameError, match="did you mean 'data_size_mib'"):
        simulate(BROADWELL, [tenant("synthetic", data_sise_mib=3)])


def test_an_l2_of_twenty_ways_is_simulated():
    """An L2 of 1.25 MiB and 20 ways, as Ice Lake's, holds what one of the same size and 10 ways holds."""
    l2hit = [
        simulate(
            dataclasses.replace(BROADWELL, l2_kib=1280, l2_ways=ways),
            [tenant("mazunat")],
            accesses=50_000,
            tolerance=0.05,
        )
        .tenants[0]
        .vector["L2HIT"]
        for ways in (10, 20)
    ]
    assert l2hit[1] == pytest.approx(l2hit[0], rel=0.02)


@pytest.mark.parametrize("field", ["l2_ways", "llc_ways"])
def test_more_ways_than_are_simulated_are_refused(field):
    """A cache of 33 ways names the field and the range."""
    with pytest.raises(InvalidValueError, match=f"'{field}': got 33, .*\n.* to 32 ways"):
        dataclasses.replace(BROADWELL, **{field: 33})


@pytest.mark.parametrize("offered", [{}, {0: 3.0, 2: 2.5, 4: 2.5, 6: 2.5}])
def test_large_packets_do_not_leak_more_at_a_coarser_scale(offered):
    """A burst is as large a part of a scaled ring as of the whole one, so that packets stay in the cache as long."""
    names = ("lpm", "stats", *["stateless-firewall"] * 4, "ip-router", "ip-router")
    large = [
        tenant(name, core, traffic=Traffic(1500, offered_mpps=offered.get(core))) for core, name in enumerate(names)
    ]

    coarse, fine = (
        simulate(BROADWELL, large, seed=1, scale=scale, accesses=200_000, port_gbps=160.0) for scale in (16, 4)
    )

    assert [each.throughput_mpps for each in coarse.tenants] == pytest.approx(
        [each.throughput_mpps for each in fine.tenants], rel=0.01
    )


def test_the_scale_follows_from_the_largest_packet():
    """Sizes are scaled down less where the DDIO ways would hold few packets; without DDIO there is nothing to hold."""
    lpm = load_network_function("lpm")
    small, *large = (
        seat_of(BROADWELL, "lpm", program(lpm, Workload("lpm", {}, Traffic(size_b))), 0)
        for size_b in (64, 256, 512, 1500)
    )

    assert [scale_of(BROADWELL, [small, seat]) for seat in (small, *large)] == [16, 16, 12, 4]
    assert scale_of(dataclasses.replace(BROADWELL, ddio_ways=0), large) == 16
