"""slomo: predict how much a network function slows down when it shares a server.

SLOMO (SIGCOMM'20) in four verbs: `profile` under a synthetic competitor, `train` one sensitivity model per network
function, `predict` a mix that was never run, `evaluate` predictions against such mixes. Names load when they are used
(PEP 562), so that importing slomo costs next to nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slomo.errors import SlomoError
    from slomo.models.library import ModelLibrary
    from slomo.models.nf_model import NFModel
    from slomo.prediction.evaluation import Evaluation
    from slomo.prediction.predictor import Predictor
    from slomo.prediction.result import Prediction
    from slomo.records.profile import ProfileDataset
    from slomo.records.storage import load_dataset
    from slomo.vocabulary.colocation import Colocation
    from slomo.vocabulary.machine import Machine
    from slomo.vocabulary.network_function import NetworkFunction
    from slomo.vocabulary.vector import MetricVector
    from slomo.vocabulary.workload import Traffic, Workload
    from slomo.workflow.ask import predict
    from slomo.workflow.judge import evaluate
    from slomo.workflow.learn import train
    from slomo.workflow.measure import profile

__all__ = [
    "Colocation",
    "Evaluation",
    "Machine",
    "MetricVector",
    "ModelLibrary",
    "NFModel",
    "NetworkFunction",
    "Prediction",
    "Predictor",
    "ProfileDataset",
    "SlomoError",
    "Traffic",
    "Workload",
    "evaluate",
    "load_dataset",
    "predict",
    "profile",
    "train",
]

_HOME = {
    "Colocation": "slomo.vocabulary.colocation",
    "Evaluation": "slomo.prediction.evaluation",
    "Machine": "slomo.vocabulary.machine",
    "MetricVector": "slomo.vocabulary.vector",
    "ModelLibrary": "slomo.models.library",
    "NFModel": "slomo.models.nf_model",
    "NetworkFunction": "slomo.vocabulary.network_function",
    "Prediction": "slomo.prediction.result",
    "Predictor": "slomo.prediction.predictor",
    "ProfileDataset": "slomo.records.profile",
    "SlomoError": "slomo.errors",
    "Traffic": "slomo.vocabulary.workload",
    "Workload": "slomo.vocabulary.workload",
    "evaluate": "slomo.workflow.judge",
    "load_dataset": "slomo.records.storage",
    "predict": "slomo.workflow.ask",
    "profile": "slomo.workflow.measure",
    "train": "slomo.workflow.learn",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("slomo")
    if name not in _HOME:
        raise AttributeError(f"module 'slomo' has no attribute '{name}'; it has: {', '.join(__all__)}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
