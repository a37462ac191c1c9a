"""Learn an accelerator's time per packet over match density, from runs of the accelerator alone.

Yala (ASPLOS'25): the time a regex accelerator takes for a packet is linear in its match-to-byte ratio.
"""

import numpy as np
from numpy.typing import ArrayLike

from slomo.errors import InvalidValueError, MissingMetricError
from slomo.models.base import TRAFFIC_PREFIX
from slomo.models.responses.service_time import DENSITY, ServiceTime
from slomo.records.dataset import ProfileDataset
from slomo.units import plural


def fit_service_time(density: ArrayLike, mpps: ArrayLike, accelerator: str = "regex") -> ServiceTime:
    """Fit the line to runs of an accelerator with a single user, by least squares of time per packet.

    `density`, `mpps`, shape (n,): match density and throughput [Mpps] of each run; two different densities or more.
    `accelerator`: its name. Raises InvalidValueError for fewer than two densities, throughputs that are not above 0, or
    a time that falls with the density.
    """
    at, speed = np.asarray(density, dtype=np.float64), np.asarray(mpps, dtype=np.float64)
    usable = np.isfinite(at) & np.isfinite(speed)
    if len(np.unique(at[usable])) < 2 or not (speed[usable] > 0.0).all():
        raise InvalidValueError(
            f"{plural(int(usable.sum()), 'run')} of accelerator '{accelerator}' at "
            f"{len(np.unique(at[usable]))} match densities, needed two densities or more and throughputs above 0",
            hint="run the accelerator alone at a low and at a high match density",
        )
    slope, base = np.polyfit(at[usable], 1.0 / speed[usable], 1)
    if slope < 0.0:
        raise InvalidValueError(
            f"accelerator '{accelerator}' gets faster with more matches ({slope:.3g} us per unit of density)",
            hint="are densities and throughputs in the same order?",
        )
    times = 1.0 / speed[usable]
    off = (base + slope * at[usable]) / times - 1.0
    error = float(np.sqrt((off**2).sum() / (len(times) - 2))) if len(times) > 2 else 0.0
    reach = float(at[usable].min()), float(at[usable].max())
    return ServiceTime(accelerator, float(base), float(slope), *reach, error=error)


def service_time_of(dataset: ProfileDataset) -> ServiceTime:
    """Fit the line to an imported table whose network function is the accelerator itself.

    `dataset`: rows of one accelerator, with throughput and the match density. Raises MissingMetricError if the table
    has no such feature.
    """
    frame = dataset.frame
    column = TRAFFIC_PREFIX + DENSITY
    names = sorted(frame["nf"].unique())
    if column not in frame.columns or len(names) != 1:
        raise MissingMetricError(
            f"a table of {', '.join(names)} without feature '{DENSITY}', or of several accelerators",
            hint=f"import the accelerator's own runs with 'feature: {DENSITY}' at the column of the match density",
        )
    return fit_service_time(frame[column].to_numpy(dtype=float), frame["throughput_mpps"].to_numpy(), str(names[0]))
