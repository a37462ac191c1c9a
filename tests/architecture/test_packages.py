"""Every third-party package has its home, and what is imported late is so for a stated reason."""

import ast
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "slomo"


@functools.cache
def trees() -> dict[Path, ast.Module]:
    """Return every file of the package with its syntax tree, read when the first test asks."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


#: Third-party package -> rooms or files that may import it; none else may. numpy and msgspec (types of what is read)
#: are at home everywhere.
HOMES: dict[str, tuple[str, ...]] = {
    "capstone": ("testbed/champsim/conversion.py",),
    "click": ("cli/",),
    "dask": ("fleet/",),
    "distributed": ("fleet/",),
    "fsspec": ("fleet/",),
    "httpx": ("client.py", "service/"),
    "jinja2": ("report/",),
    "llvmlite": ("simulator/",),
    "matplotlib": ("report/",),
    "opentelemetry": ("service/tracing.py",),
    "numba": ("simulator/", "models/functions/compilation.py", "files/machine_code.py"),
    "pandas": ("records/", "evaluation/", "profiling/plans/latency_plans.py"),
    "pyarrow": ("records/", "fleet/"),
    "pytest": ("testing/",),
    "tqdm": ("workflow/progress.py",),
    "scipy": (
        "training/",
        "profiling/plans/designs.py",
        "placement/planning/",
        "placement/policies/resq_milp.py",
        "workflow/twin.py",
    ),
    "sklearn": ("training/families/",),
    "starlette": ("service/",),
    "threadpoolctl": ("training/families/",),
    "uvicorn": ("service/server.py", "service/edge.py"),
    "xgboost": ("training/families/xgb.py",),
    "yaml": ("files/yaml_text.py", "vocabulary/documents.py", "enforce/", "control/pools/", "workflow/"),
}
#: Rooms and files that may import inside functions, and why.
DEFERRED = {
    "__init__.py": "the front door: names load when they are used",
    "client.py": "the front door of a service: httpx is an extra",
    "cli/": "the front door: help and completion load no verb",
    "config.py": "most have no settings file to parse",
    "errors.py": "only a wrong name looks for the nearest",
    "fleet/measuring.py": "most hosts are described by no file",
    "files/durable.py": "who only reads models makes no drafts",
    "files/documents.py": "only arrays need numpy",
    "files/yaml_text.py": "who reads JSON alone loads no YAML",
    "models/responses/arrivals.py": "most questions are about full load",
    "plugins.py": "what is built in needs no list of what is installed, which loads the e-mail parser",
    "service/demo.py": "the demonstration's models are trained, with a learner and pandas, where none are shipped",
    "testbed/registry.py": "a registry imports what is asked for",
    "workflow/names.py": "a dataset is opened with pandas, which predicting does without",
    "workflow/profile.py": "only an adaptive campaign trains models, with a learner",
    "workflow/predict.py": "the front door: a question is imported when it is asked",
    "models/functions/trees.py": "the compiled kernel is loaded for large batches only",
    "workflow/place.py": "a testbed is loaded by whoever checks what was placed, with pandas",
    "simulator/engine.py": "the kernel is compiled when it is first run",
    "simulator/sharing/engine.py": "the kernel is compiled when it is first run",
}
#: Packages that take long to load, or are extras, and may be imported where they are used.
LATE = {"xgboost", "scipy", "matplotlib", "jinja2", "tqdm", "pyarrow", "numba", "pandas"} | {
    "capstone",
    "dask",
    "distributed",
    "fsspec",
    "opentelemetry",
}

#: Files that read YAML: rooms that answer questions load them only where a description is needed.
DESCRIPTIONS = {"slomo.vocabulary.machine", "slomo.vocabulary.network_function"}


def imports(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted names that a tree imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def inside(path: Path) -> str:
    """Return a file's path inside the package."""
    return path.relative_to(PACKAGE).as_posix()


def typing_only(tree: ast.Module) -> set[str]:
    """Return what is imported for types alone."""
    blocks = [node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    return {name for block in blocks for name in imports(block)}


def test_every_package_is_imported_at_home_only() -> None:
    """A third-party package is imported in the rooms that own it, and no package is without a home."""
    strays = set()
    for path, tree in trees().items():
        for name in set(imports(tree)) - typing_only(tree):
            package = name.split(".")[0]
            if package in sys.stdlib_module_names or package in ("slomo", "numpy", "msgspec"):
                continue
            if not inside(path).startswith(HOMES.get(package, ())):
                strays.add(f"{inside(path)}: {package}")

    assert not strays


def late_imports() -> Iterator[tuple[str, str]]:
    """Yield each file with what it imports inside functions, but for what may be imported late anywhere."""
    for path, tree in trees().items():
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        for name in {name for node in functions for name in imports(node)}:
            if name.split(".")[0] not in LATE and name not in DESCRIPTIONS:
                yield inside(path), name


def test_imports_are_at_the_top() -> None:
    """Only the front door, registries and slow or optional packages are imported inside functions."""
    late = {f"{path}: {name}" for path, name in late_imports() if not path.startswith(tuple(DEFERRED))}

    assert not late


def test_no_exception_outlives_its_reason() -> None:
    """Every file and room listed here exists, and who may import late does."""
    listed = {*DEFERRED, *(home for homes in HOMES.values() for home in homes)}

    assert {name for name in listed if not (PACKAGE / name).exists()} == set()
    late = [path for path, _ in late_imports()]
    assert {name for name in DEFERRED if not any(path.startswith(name) for path in late)} == set()
