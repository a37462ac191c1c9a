"""Documents that people write have a JSON Schema, and examples that slomo reads fit theirs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from slomo.cli.main import main
from slomo.enforce.plan import EnforcementPlan
from slomo.errors import SlomoError, UnknownNameError
from slomo.workflow.schemas import DOCUMENTS, document_schema

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLES = {
    "machine": "slomo/vocabulary/machines/e5-2620v4.yaml",
    "network-function": "slomo/vocabulary/network_functions/lpm.yaml",
    "control": "docs/examples/control/numa.yaml",
    "noisy-neighbour": "docs/examples/noisy-neighbour/test.yaml",
    "noisy-neighbour-host": "docs/examples/noisy-neighbour/host.yaml",
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_schema_is_one_and_has_its_id(name: str) -> None:
    """A schema is valid itself, and names the document and its version."""
    schema = document_schema(name)

    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:slomo:schema:{name}:1"
    assert schema["title"]


def test_schemas_are_the_same_in_every_process() -> None:
    """No part of a schema depends on the order of a set, which differs from process to process."""
    code = "from slomo.workflow.schemas import *; print([document_schema(name) for name in DOCUMENTS])"
    other = {**os.environ, "PYTHONHASHSEED": "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"}
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=other).stdout

    assert printed.strip() == str([document_schema(name) for name in DOCUMENTS])


@pytest.mark.parametrize(("name", "file"), EXAMPLES.items())
def test_examples_fit_their_schema_and_nothing_else_does(name: str, file: str) -> None:
    """A shipped document is valid; with a field that nobody knows it is not."""
    document = yaml.safe_load((REPOSITORY / file).read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(document_schema(name))

    assert list(validator.iter_errors(document)) == []
    assert list(validator.iter_errors({**document, "nobody-knows": 1}))


def test_loops_over_chains_and_plans_with_short_forms_fit() -> None:
    """`cpu_shares` states chains; a plan may have hexadecimal masks and plain percents, as `from_dict` reads them."""
    chains = yaml.safe_load((REPOSITORY / "docs/examples/control/cpu-shares.yaml").read_text(encoding="utf-8"))
    guide = (REPOSITORY / "docs/guides/protect-a-victim.md").read_text(encoding="utf-8")
    plan = yaml.safe_load(guide.split("# plan.yaml")[1].split("```")[0])
    validator = jsonschema.Draft202012Validator(document_schema("plan"))

    assert list(jsonschema.Draft202012Validator(document_schema("control")).iter_errors(chains)) == []
    assert list(validator.iter_errors(plan)) == []
    assert EnforcementPlan.from_dict(plan).tenants
    assert list(validator.iter_errors(EnforcementPlan.from_dict(plan).to_dict())) == []
    for wrong in ({"machine": "e5-2620v4"}, {"tenants": [{"tenant": "a", "llc_way_mask": "ways"}]}, {"tenants": [{}]}):
        assert list(validator.iter_errors(wrong))
        with pytest.raises(SlomoError):
            EnforcementPlan.from_dict(wrong)


def test_the_command_prints_and_lists(capsys: pytest.CaptureFixture[str]) -> None:
    """With a name the schema, without one what there is; a near name is proposed."""
    assert main(["schema", "requests"]) == 0
    assert json.loads(capsys.readouterr().out)["$id"] == "urn:slomo:schema:requests:1"
    assert main(["schema"]) == 0
    assert "urn:slomo:schema:hosts:1" in capsys.readouterr().out
    with pytest.raises(UnknownNameError, match="requests"):
        document_schema("request")
