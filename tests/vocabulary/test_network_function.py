"""Network functions are short documents, checked by schema, with errors people can act on."""

import pickle

import pytest

from slomo.errors import ConfigurationError, InvalidValueError, UnknownNameError
from slomo.simulator.programs.program import program
from slomo.vocabulary.knobs import knob, knobs
from slomo.vocabulary.network_function import (
    NetworkFunction,
    load_network_function,
    network_function_names,
    parse_network_function,
)
from slomo.vocabulary.network_function_file import SimulatedSection
from slomo.vocabulary.workload import Traffic, Workload

RESQ = {"efficuts", "endre", "firewall", "ipsec", "lpm", "mazunat", "snort", "stats", "suricata"}
SLOMO = {"ip-router", "vpn", "flowstats", "stateless-firewall", "maglev", "pfsense"}
ACCELERATED = {"flow-monitor-regex", "ids-regex", "synthetic-regex"}
SHIPPED = RESQ | SLOMO | ACCELERATED | {"l2fwd", "synthetic"}
OWN = """\
description: a cache of my own
simulated:
  compute_cycles: 500
  instructions: 700
  structures:
    - {name: table, size_mib: 4, reads: 3.5, pattern: chain}
    - {name: flows, bytes_per_flow: 64, reads: 1, writes: 1}
"""


def test_all_functions_are_shipped_with_sources():
    """ResQ's nine, SLOMO's, users of an accelerator, the forwarder and the synthetic competitor, with sources."""
    assert set(network_function_names()) >= SHIPPED
    assert all(len(load_network_function(name).source) > 20 for name in network_function_names())


@pytest.mark.parametrize("name", network_function_names())
def test_a_function_survives_dictionary_and_pickle(name):
    """from_dict reads what to_dict writes, and a function travels between processes."""
    nf = load_network_function(name)
    assert NetworkFunction.from_dict(nf.to_dict()) == nf
    assert pickle.loads(pickle.dumps(nf)) == nf


@pytest.mark.parametrize("name", network_function_names())
def test_every_function_can_be_simulated(name):
    """Each has a complete description of a packet's cost."""
    filled = program(load_network_function(name), Workload(name))
    assert filled.compute_cycles > 0
    assert filled.instructions > 0


def test_an_own_function_is_a_short_file(tmp_path):
    """A file of seven lines is a network function, named after the file."""
    path = tmp_path / "my-cache.yaml"
    path.write_text(OWN)
    nf = load_network_function(str(path))
    filled = program(nf, Workload(nf.name, {"table_mib": 8}, Traffic(flow_count=1000)))
    assert nf.name == "my-cache"
    assert [each.size_b for each in filled.structures] == [8 * 2**20, 64_000]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("reads: 3.5", "reads: -3", r"own\.yaml:6: field 'simulated.structures.0.reads'"),
        ("pattern: chain", "pattern: zigzag", r"own\.yaml:6: field 'simulated.structures.0.pattern'"),
        ("compute_cycles: 500", "compute: 500", r"own\.yaml:3: field 'simulated.compute'"),
        ("description: a cache of my own", "note: x", r"own\.yaml:1: field"),
        ("instructions: 700", "instructions: [", r"own\.yaml:\d+:\d+: is not YAML"),
    ],
)
def test_a_wrong_document_is_refused_by_line_and_field(old, new, words):
    """The error names file, line and field."""
    with pytest.raises(ConfigurationError, match=words):
        parse_network_function(OWN.replace(old, new), "own.yaml")


def test_a_document_that_is_huge_is_refused(tmp_path):
    """A file beyond the limit is not read."""
    path = tmp_path / "huge.yaml"
    path.write_text("#" * 1_000_001)
    with pytest.raises(ConfigurationError, match="at most 1000000"):
        load_network_function(str(path))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("description: &a [*a]\n", "nests without end"),
        (
            "a: &a [x, x]\n"
            + "".join(f"k{n}: &k{n} [{', '.join(9 * ['*' + (f'k{n - 1}' if n else 'a')])}]\n" for n in range(9)),
            "more than 200000 fields",
        ),
    ],
)
def test_aliases_cannot_expand_without_bound(text, words):
    """A document whose aliases stand for themselves, or for billions of fields, is refused at once."""
    with pytest.raises(ConfigurationError, match=words):
        parse_network_function(text, "x.yaml")


def test_an_unknown_function_is_refused_with_the_nearest():
    """A misspelt name gets the nearest one."""
    with pytest.raises(UnknownNameError, match="did you mean 'suricata'"):
        load_network_function("suricatta")


def test_a_function_without_simulation_is_refused():
    """What cannot be simulated says so."""
    nf = parse_network_function("description: only on a host\n", "x.yaml")
    with pytest.raises(ConfigurationError, match="no 'simulated' section"):
        program(nf, Workload("x"))


def test_an_undefined_setting_is_refused():
    """A document that refers to a setting it lacks is refused by that setting's name."""
    nf = parse_network_function(OWN.replace("size_mib: 4", "size_mib: $size"), "x.yaml")
    with pytest.raises(UnknownNameError, match="size"):
        program(nf, Workload("x"))


def test_knobs_have_units_ranges_and_defaults():
    """Every knob's default lies in its own range."""
    assert {
        "data_size_mib",
        "reads_per_packet",
        "iterations",
        "packet_buffers",
        "packet_size_b",
        "rate_mpps",
        "instances",
    } <= set(knobs())
    for each in knobs().values():
        assert each.check(each.default) == each.default
        assert each.description


def test_knobs_reach_the_synthetic_competitor():
    """Every knob changes what the competitor does."""
    nf = load_network_function("synthetic")
    settings = {
        "data_size_mib": 3, "reads_per_packet": 7, "writes_per_packet": 2, "iterations": 5, "pattern": "sequential",
        "packet_buffers": 512, "packet_size_b": 1000, "burst": 8, "rate_mpps": 0.5,
    }  # fmt: skip
    filled = program(nf, Workload("synthetic", settings))
    data = filled.structures[0]
    assert (data.size_b, data.reads, data.writes, data.pattern) == (3 * 2**20, 35, 10, "sequential")
    assert (filled.packet_buffers, filled.packet_size_b, filled.burst, filled.offered_mpps) == (512, 1000, 8, 0.5)


def test_the_file_type_states_the_defaults_that_the_simulator_uses():
    """A function that states only its work has the defaults that the schema of its file names."""
    bare = parse_network_function("description: x\nsimulated: {compute_cycles: 100, instructions: 200}\n", "x.yaml")
    filled, usual = program(bare, Workload("own-nf")), SimulatedSection(100.0, 200.0)
    assert (filled.written_lines, filled.packet_mlp) == (usual.packet.written_lines, usual.packet.mlp) == (1, 6.0)
    assert (filled.packet_buffers, filled.burst) == (usual.packet_buffers, usual.burst) == (2048, 32)


def test_a_knob_out_of_range_is_refused():
    """The error names knob, value and range."""
    with pytest.raises(InvalidValueError, match=r"iterations is 0, needed 1 to 100000"):
        knob("iterations").check(0)
