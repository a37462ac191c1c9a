"""slomo: predict how much a network function slows down when it shares a server.

SLOMO (SIGCOMM'20) in four verbs: `profile` measures network functions beside a synthetic competitor, `train` fits one
sensitivity model per function, `predict` answers about a mix that was never run, `evaluate` compares predictions with
measured mixes. A `Placer` uses the predictions to keep the SLOs of a cluster. Names are imported on first use (PEP
562), so `import slomo` is fast.

>>> import slomo
>>> placer = slomo.Placer(slomo.ModelLibrary([]), slomo.Cluster.uniform("e5-2620v4", 2), "first-fit", fallback="alone")
>>> placer.admit(slomo.Request("edge", ("lpm",))).servers
('e5-2620v4-1',)
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slomo.errors import SlomoError
    from slomo.evaluation.evaluate import Evaluation
    from slomo.models.library import ModelLibrary, load_library
    from slomo.models.nf_model import NFModel
    from slomo.placement.online.placer import Placer
    from slomo.placement.problem.cluster import Cluster
    from slomo.placement.problem.request import SLO, Request
    from slomo.prediction.predictor import Predictor
    from slomo.prediction.result import Prediction
    from slomo.records.dataset import ProfileDataset
    from slomo.records.importing.door import import_table
    from slomo.records.storage import load_dataset
    from slomo.vocabulary.colocation import Colocation
    from slomo.vocabulary.machine import Machine, load_machine
    from slomo.vocabulary.network_function import NetworkFunction, load_network_function
    from slomo.vocabulary.vector import MetricVector
    from slomo.vocabulary.workload import Traffic, Workload
    from slomo.workflow.evaluate import evaluate
    from slomo.workflow.predict import predict, predict_batch
    from slomo.workflow.profile import profile
    from slomo.workflow.train import train

__all__ = [
    "SLO",
    "Cluster",
    "Colocation",
    "Evaluation",
    "Machine",
    "MetricVector",
    "ModelLibrary",
    "NFModel",
    "NetworkFunction",
    "Placer",
    "Prediction",
    "Predictor",
    "ProfileDataset",
    "Request",
    "SlomoError",
    "Traffic",
    "Workload",
    "evaluate",
    "import_table",
    "load_dataset",
    "load_library",
    "load_machine",
    "load_network_function",
    "predict",
    "predict_batch",
    "profile",
    "train",
]

_HOME = {
    "Cluster": "slomo.placement.problem.cluster",
    "Colocation": "slomo.vocabulary.colocation",
    "Evaluation": "slomo.evaluation.evaluate",
    "Machine": "slomo.vocabulary.machine",
    "MetricVector": "slomo.vocabulary.vector",
    "ModelLibrary": "slomo.models.library",
    "NFModel": "slomo.models.nf_model",
    "NetworkFunction": "slomo.vocabulary.network_function",
    "Placer": "slomo.placement.online.placer",
    "Prediction": "slomo.prediction.result",
    "Predictor": "slomo.prediction.predictor",
    "ProfileDataset": "slomo.records.dataset",
    "Request": "slomo.placement.problem.request",
    "SLO": "slomo.placement.problem.request",
    "SlomoError": "slomo.errors",
    "Traffic": "slomo.vocabulary.workload",
    "Workload": "slomo.vocabulary.workload",
    "evaluate": "slomo.workflow.evaluate",
    "import_table": "slomo.records.importing.door",
    "load_dataset": "slomo.records.storage",
    "load_library": "slomo.models.library",
    "load_machine": "slomo.vocabulary.machine",
    "load_network_function": "slomo.vocabulary.network_function",
    "predict": "slomo.workflow.predict",
    "predict_batch": "slomo.workflow.predict",
    "profile": "slomo.workflow.profile",
    "train": "slomo.workflow.train",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("slomo")
    if name not in _HOME:
        raise AttributeError(f"module 'slomo' has no attribute '{name}'; it has: {', '.join(__all__)}")
    try:
        value = getattr(importlib.import_module(_HOME[name]), name)
    except ImportError as error:
        from slomo.extras import translated

        raise translated(error, name) or error from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
