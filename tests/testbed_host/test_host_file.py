"""A host described in a file becomes the testbed it describes, or is refused by file, line and field."""

from pathlib import Path

import pytest

from slomo.errors import ConfigurationError, InvalidValueError, SlomoError, TestbedError
from slomo.testbed.host.host_file import load_host


def written(folder: Path, text: str) -> Path:
    file = folder / "rack.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_every_field_arrives(tmp_path: Path) -> None:
    """Cores, counters, settings and generator of the file are those of the testbed, and it states them."""
    file = written(
        tmp_path,
        "cores: [0]\ncounters: probe\nsettings: {window_s: 1.5, interleaved: false}\n"
        "generator: {name: pktgen, port: 22022}\n",
    )

    testbed = load_host(file, "rack")

    assert (testbed.machine, testbed.cores, testbed.source) == ("rack", (0,), "probe")
    assert (testbed.settings.window_s, testbed.settings.interleaved) == (1.5, False)
    assert testbed._bench.generator is not None
    assert testbed._bench.generator.name == "pktgen"


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("cores: [0]\nsetings: {}\n", ConfigurationError, r"rack.yaml:2: field 'setings'"),
        ("settings:\n  window: 3\n", ConfigurationError, r"rack.yaml:2: field 'settings.window'"),
        ("generator: {name: smoke}\n", ConfigurationError, r"rack.yaml:1: field 'generator.name'"),
        ("generator: {name: pktgen, colour: red}\n", InvalidValueError, "colour"),
        ("generator: {name: testpmd, place: '-oProxyCommand=x'}\n", InvalidValueError, "no host for SSH"),
        ("counters: guess\n", SlomoError, "guess"),
        ("cores: [4096]\n", TestbedError, "4096"),
        ("settings: {window_s: -1}\n", ConfigurationError, "settings.window_s': got -1"),
        ("- 1\n", ConfigurationError, "needed a mapping"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, kind: type[SlomoError], said: str) -> None:
    """Whatever the file gets wrong, the error says where or which value."""
    with pytest.raises(kind, match=said):
        load_host(written(tmp_path, text))
