"""On which servers network functions share resources other than cache and memory: ports and accelerators."""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from slomo.models.base import Floats
from slomo.models.nf_model import NFModel
from slomo.vocabulary.wire import wire_gbps


def ports_full(
    models: Sequence[NFModel], who: NDArray[np.int64], offered_mpps: Floats | None = None
) -> NDArray[np.bool_]:
    """Return on which servers shared ports may limit an NF, so that it uses less of other resources.

    `who`, shape (servers, places): index of the model, -1 for an empty place. `offered_mpps`, same shape: NaN saturates
    an NF.
    """
    most_gbps, frames, solo_gbps = _on_ports(tuple(models))
    if most_gbps == math.inf:
        return np.zeros(len(who), dtype=bool)
    gbps = solo_gbps[who]
    if offered_mpps is not None and (is_limited := np.isfinite(offered_mpps)).any():
        gbps = np.where(is_limited & (who >= 0), wire_gbps(frames[who], offered_mpps), gbps)
    full: NDArray[np.bool_] = gbps.sum(axis=1) > most_gbps
    return full


@lru_cache(maxsize=64)
def _on_ports(models: tuple[NFModel, ...]) -> tuple[float, Floats, Floats]:
    """Return the bandwidth of the machine's ports [Gbit/s], and each model's frame size and solo bandwidth."""
    stated = [model.capacities.ports_gbps for model in models if model.capacities is not None]
    frames = np.array([*(model.workload.traffic.packet_size_b for model in models), 0.0])
    solo = np.array([*(model.solo_mpps for model in models), 0.0])
    return min(stated, default=math.inf), frames, wire_gbps(frames, solo)


def accelerator_shared(models: Sequence[NFModel], who: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return on which servers two network functions use the same accelerator, shape ``(servers,)``."""
    shared = np.zeros(len(who), dtype=bool)
    names = _accelerators(tuple(models))
    for name in {*names} - {None}:
        uses = np.array([*(each == name for each in names), False])
        shared |= uses[who].sum(axis=1) > 1
    return shared


@lru_cache(maxsize=64)
def _accelerators(models: tuple[NFModel, ...]) -> tuple[str | None, ...]:
    return tuple(None if model.accelerator is None else model.accelerator.accelerator for model in models)
