"""What `--yaml` prints is a file that loads again as the same machine or network function."""

from pathlib import Path

import pytest

from slomo.cli.main import main
from slomo.vocabulary.machine import load_machine, machine_names
from slomo.vocabulary.network_function import load_network_function, network_function_names


@pytest.mark.parametrize("name", machine_names())
def test_machines_load_again(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every shipped machine, printed as YAML and loaded, is itself."""
    assert main(["machine", "show", name, "--yaml"]) == 0
    file = tmp_path / "printed.yaml"
    file.write_text(capsys.readouterr().out, encoding="utf-8")

    assert load_machine(str(file)) == load_machine(name)


@pytest.mark.parametrize("name", network_function_names())
def test_network_functions_load_again(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every shipped network function, printed as YAML and loaded, is itself."""
    assert main(["nf", "show", name, "--yaml"]) == 0
    file = tmp_path / "printed.yaml"
    file.write_text(capsys.readouterr().out, encoding="utf-8")

    assert load_network_function(str(file)).to_dict() == load_network_function(name).to_dict()
