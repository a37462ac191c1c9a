"""Without its optional packages slomo predicts and places, and names the extra for everything else."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from slomo.cli.main import cli
from slomo.extras import EXTRA_OF, EXTRA_OF_VERB, missing, translated

ROOT = Path(__file__).resolve().parents[2]
#: A process in which no optional package can be imported.
BARE = f"""
import sys
sys.modules.update(dict.fromkeys({sorted({*EXTRA_OF, "llvmlite", "rich"} - {"httpx"})}))
from slomo.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def run_bare(folder, *words):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", BARE, *words], capture_output=True, text=True, cwd=folder, check=False
    )


#: Every command of the tree -> words to call it with, and the extra that it then names; None where it needs none.
EVERY: dict[str, tuple[str, str | None]] = {
    "agent": ("--node a --server http://127.0.0.1:9 --kubernetes http://127.0.0.1:9 --readings 1", None),
    "chain predict": ("chain.yaml", None),
    "chain run": ("chain.yaml", None),
    "chain simulate": ("chain.yaml", "simulate"),
    "completion": ("bash", None),
    "control run": ("control.yaml", "simulate"),
    "control status": ("", None),
    "dataset export": ("a.csv --out b.csv", "data"),
    "dataset import": ("a.csv --mapping yala-regex --out b.csv", "data"),
    "dataset list": ("", "data"),
    "dataset merge": ("a.csv a.csv --out b.csv", "data"),
    "dataset metrics": ("a.csv", "data"),
    "dataset screen": ("a.csv", "data"),
    "dataset show": ("a.csv", "data"),
    "demo": ("--out demo", "all"),
    "doctor": ("--quick", None),  # without it the same modules measure the memory, ten seconds of processor time
    "drift check": ("a.csv", "train"),
    "drift refit": ("a.csv", "train"),
    "enforce apply": ("plan.yaml --backend scheduler", None),
    "enforce diff": ("plan.yaml --backend scheduler", None),
    "enforce show": ("", None),
    "enforce undo": ("--all", None),
    "evaluate": ("--mixes 2", "all"),
    "fleet profile": ("lpm --hosts hosts.yaml --out b.parquet", "fleet"),
    "machine list": ("", None),
    "machine show": ("e5-2620v4", None),
    "models diff": ("models store", "fleet"),
    "models list": ("store", "fleet"),
    "models prune": ("store", "fleet"),
    "models pull": ("store models", "fleet"),
    "models push": ("models store", "fleet"),
    "models verify": ("store", "fleet"),
    "nf fit": ("a.csv --target lpm", "data"),
    "nf list": ("", None),
    "nf show": ("lpm", None),
    "noisy-neighbour": ("noise.yaml", "simulate"),
    "place batch": ("cluster.yaml requests.yaml --check", "simulate"),
    "place change": ("snapshot.json drain a-1", None),
    "place compare": ("cluster.yaml requests.yaml", "simulate"),
    "place profiles": ("lpm --out b.json", "simulate"),
    "place timeline": ("cluster.yaml requests.yaml --check", "simulate"),
    "place workload": ("sensitive --out b.json", None),
    "plugin list": ("", None),
    "predict": ("--target lpm --with nat", None),
    "probes": ("tables", "data"),
    "profile": ("lpm --runs 8 --out b.parquet", "simulate"),
    "rows": ("a.csv --target lpm", "data"),
    "schema": ("cluster", None),
    "serve": ("--demo", "service"),
    "train": ("a.csv", "train"),
    "whatif": ("lpm nat", "simulate"),
}
#: Options that need another extra than their command.
OPTIONS = {"profile lpm --testbed host --dry-run": "host"}
#: Commands whose files below are refused, so that they end with 2 on every installation.
REFUSED = ("chain predict", "chain run", "place change")
FILES = {
    "a.csv": "",
    "cluster.yaml": "servers: [{name: a, machine: e5-2620v4, count: 2}]",
    "requests.yaml": "requests: [{id: edge, chain: [lpm], slo: {min_share: 0.5}}]",
    "plan.yaml": "tenants: []",
    "chain.yaml": "chains: {}",
    "control.yaml": "{machine: e5-2620v4, controller: guard, steps: 2, tenants: [{name: a, workload: lpm, slo: 0.9}]}",
    "hosts.yaml": "hosts: []",
    "noise.yaml": "machine: e5-2620v4",
}
#: The same process for all: the exit code of each line, and what it said.
ALL_BARE = BARE.replace(
    "sys.exit(main(sys.argv[1:]))",
    """import contextlib, io, json
for line in json.load(sys.stdin):
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        try:
            code = main(line.split())
        except SystemExit as ended:
            code = ended.code
    print(json.dumps([code or 0, said.getvalue()]))
""",
)


def leaves(group: click.Group, path: str = "") -> list[str]:
    """Return every command of a tree that is no group."""
    listed: list[str] = []
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        inside = f"{path} {name}".strip()
        listed += leaves(command, inside) if isinstance(command, click.Group) else [inside]
    return listed


def test_every_command_runs_or_names_its_extra(tmp_path, toy_library):
    """Of all commands none ends with an internal fault or warns on the core installation; what is missing is named."""
    assert sorted(leaves(cli)) == sorted(EVERY)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text + "\n")
    toy_library.save(tmp_path / "slomo-models")
    lines = {f"{verb} {words}": extra for verb, (words, extra) in EVERY.items()} | OPTIONS

    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", ALL_BARE],
        input=json.dumps([*lines]),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    wrong = {}
    for (line, extra), told in zip(lines.items(), ran.stdout.splitlines(), strict=True):
        code, said = json.loads(told)
        missing_extra = "MissingExtraError" in said and f"hint: pip install 'slomo[{extra}]'" in said
        named = missing_extra if extra else "pip install" not in said
        refused = any(line.startswith(verb) for verb in REFUSED)
        if not named or code != (2 if extra or refused else 0):
            wrong[line] = (code, said)

    assert wrong == {}


def test_a_request_is_placed_without_extras(tmp_path):
    """Placement by the default policy needs no optional package."""
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({sorted(EXTRA_OF)})); import slomo;"
        "p = slomo.Placer(slomo.ModelLibrary([]), slomo.Cluster.uniform('e5-2620v4', 2), fallback='alone');"
        "print(p.admit(slomo.Request('edge', ('lpm',))).servers)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ended.stdout == "('e5-2620v4-1',)\n", ended.stderr


def test_a_batch_is_placed_on_two_kinds_of_servers_without_extras(tmp_path, toy_library):
    """The default policy then plans kind by kind; `slomo serve --demo` places so with the extra `service` alone."""
    toy_library.save(tmp_path / "slomo-models")
    kinds = "[{name: a, machine: e5-2620v4, cores_reserved: 1}, {name: b, machine: e5-2620v4, count: 3}]"
    (tmp_path / "cluster.yaml").write_text(f"servers: {kinds}")
    (tmp_path / "requests.yaml").write_text("requests: [{id: web, nf: lpm, count: 5, slo: {min_share: 0.5}}]")
    ended = run_bare(tmp_path, "place", "cluster.yaml", "requests.yaml")
    assert ended.returncode == 0, ended.stderr
    assert "5 of 5 placed" in ended.stderr
    assert "needs scipy, which is not installed; pip install 'slomo[optimize]'" in ended.stderr


@pytest.mark.parametrize("policy", ["octans", "node-balance"])
def test_chains_are_placed_without_the_simulator(tmp_path, policy):
    """Policies for chains that predict nothing place without any extra; only judging them needs the simulator."""
    (tmp_path / "cluster.yaml").write_text("servers: [{name: a, machine: e5-2620v4}]")
    (tmp_path / "chains.yaml").write_text("requests: [{id: web, chain: [lpm, stats], gbps: [2, 5]}]")
    ended = run_bare(tmp_path, "place", "cluster.yaml", "chains.yaml", "--policy", policy)
    assert ended.returncode == 0, ended.stderr
    assert "1 of 1 placed" in ended.stderr


def test_the_host_extra_is_enough_to_profile_a_host(tmp_path):
    """A campaign on a real machine is planned with what the extra `host` installs, without the simulator."""
    here = {"pandas", "pyarrow", "scipy"}
    without = BARE.replace(repr(sorted({*EXTRA_OF, "llvmlite", "rich"} - {"httpx"})), repr(sorted({*EXTRA_OF} - here)))
    words = ("profile", "lpm", "--testbed", "host", "--dry-run")
    ended = subprocess.run(
        [sys.executable, "-c", without, *words], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {name.partition(">")[0] for extra in ("host", "data") for name in extras[extra]}

    assert here <= named
    assert ended.returncode == 0, ended.stderr


def test_an_option_that_no_verb_needs_names_its_own_extra():
    """`profile --testbed champsim` without capstone names `champsim`, not what `profile` needs."""
    assert translated(missing("capstone"), "profile").hint == "pip install 'slomo[champsim]'"


def test_the_json_error_names_the_extra_too(tmp_path):
    """`--json` tells the same error as an object."""
    ended = run_bare(tmp_path, "dataset", "list", "--json")
    assert json.loads(ended.stderr)["error"]["hint"] == "pip install 'slomo[data]'"


def test_every_extra_that_is_named_exists():
    """No hint names an extra that `pyproject.toml` does not have."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {*EXTRA_OF.values(), *EXTRA_OF_VERB.values()} <= set(extras)
