"""Optional packages of each feature, and the error with the command that installs them.

`pip install slomo` loads models, predicts, places and asks a service. Everything else is an extra of `pyproject.toml`.
"""

import importlib.util
import sys

from slomo.errors import MissingExtraError

#: importable package -> the smallest extra that installs it
EXTRA_OF = {
    "capstone": "champsim",
    "dask": "fleet",
    "distributed": "fleet",
    "fsspec": "fleet",
    "httptools": "service",
    "jinja2": "report",
    "matplotlib": "report",
    "numba": "simulate",
    "opentelemetry": "otel",
    "pandas": "data",
    "pyarrow": "data",
    "scipy": "optimize",
    "sklearn": "train",
    "starlette": "service",
    "threadpoolctl": "train",
    "uvicorn": "service",
    "uvloop": "service",
    "xgboost": "train",
}
#: verb of the command line or `slomo`'s top level -> the extra that covers all its needs
EXTRA_OF_VERB = {
    "dataset": "data",
    "demo": "all",
    "drift": "train",
    "evaluate": "all",
    "fleet": "fleet",
    "import_table": "data",
    "load_dataset": "data",
    "models": "fleet",
    "noisy-neighbour": "simulate",
    "profile": "simulate",
    "serve": "service",
    "train": "train",
}

#: packages that only an option needs, so that no verb's extra has them
OF_NO_VERB = {"capstone", "opentelemetry"}


def need(*packages: str, extra: str | None = None) -> None:
    """Raise MissingExtraError unless all packages are installed; nothing is imported.

    `packages`: importable names, such as ``"sklearn"``. `extra`: extra to name instead of the smallest that installs
    the package. Raises MissingExtraError with the command that installs what is missing; exit code 2.

    >>> need("numpy")
    """
    for package in packages:
        if sys.modules.get(package) is None and importlib.util.find_spec(package) is None:
            raise missing(package, extra)


def missing(package: str, extra: str | None = None) -> MissingExtraError:
    """Return the error for a package that is not installed.

    >>> print(missing("numba"))
    this needs the package 'numba', which is not installed
    hint: pip install 'slomo[simulate]'
    """
    name = extra or EXTRA_OF.get(package)
    error = MissingExtraError(
        f"this needs the package '{package}', which is not installed",
        hint=f"pip install 'slomo[{name}]'" if name else f"pip install {package}",
    )
    error.name = package
    return error


def translated(error: ImportError, verb: str | None = None) -> MissingExtraError | None:
    """Return the MissingExtraError for a failed import; None if the package belongs to no extra.

    `error`: what Python raised. `verb`: the verb that was called, such as ``"train"``; the hint names the extra that
    covers all its needs.

    >>> translated(ModuleNotFoundError("No module named 'pandas'", name="pandas.core"), "train").hint
    "pip install 'slomo[train]'"
    """
    package = (error.name or "").partition(".")[0]
    chosen = isinstance(error, MissingExtraError) and error.hint != missing(package).hint  # by the caller of `need`
    if isinstance(error, MissingExtraError) and (verb not in EXTRA_OF_VERB or package in OF_NO_VERB or chosen):
        return error  # says its extra already
    return missing(package, EXTRA_OF_VERB.get(verb or "")) if package in EXTRA_OF else None
