"""Compute fingerprints of models' content, so that models are compared by content, not by name."""

import hashlib
from collections.abc import Iterable
from typing import Any

from slomo.models.nf_model import NFModel
from slomo.vocabulary.workload import fingerprint_of


def model_fingerprint(model: NFModel, family: str) -> str:
    """Return a model's fingerprint: solo throughput, response, sensitivity model, widths (16 hexadecimal digits)."""
    parts: list[Any] = [model.machine, model.workload.key, model.solo_mpps, model.solo_vector.to_dict()]
    parts.append(None if model.response is None else model.response.to_dict())
    parts.append(model.contentiousness.to_dict())
    family = model.named(family)
    if family in model.sensitivity:
        sensitivity = model.sensitivity[family]
        parts += [sensitivity.to_dict(), getattr(sensitivity, "source", None)]
    parts.append(model.calibration[family].to_dict() if family in model.calibration else None)
    parts += [each.to_dict() for each in model.measured]
    return fingerprint_of(parts)


def joined_fingerprint(parts: Iterable[str]) -> str:
    """Return one fingerprint for several, independent of their order."""
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()[:16]
