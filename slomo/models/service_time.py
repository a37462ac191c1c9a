"""The time of an accelerator per packet as a line over the match density, from runs of the accelerator alone.

Yala (ASPLOS'25): the time a regex accelerator takes for a packet is linear in its match-to-byte ratio, and users of one
accelerator take turns, so that their times add up: T = 1 / (own + sum of the others').
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from slomo.errors import InvalidValueError, MissingMetricError
from slomo.models.base import TRAFFIC_PREFIX, Floats
from slomo.models.checked_json import finite, text

if TYPE_CHECKING:
    from slomo.records.profile import ProfileDataset

#: Feature of an imported row: matches per megabyte, or whatever its author counted; only ratios matter.
DENSITY = "match_density"


@dataclass(frozen=True)
class ServiceTime:
    """Time per packet at an accelerator, linear in match density.

    Attributes
    ----------
    accelerator : str
        Which one.
    base_us : float
        Time at density 0 [us].
    slope_us : float
        Time added per unit of density [us].
    low, high : float
        Densities it was measured at, least and most.

    Examples
    --------
    >>> line = ServiceTime("regex", base_us=0.2, slope_us=0.002, low=100.0, high=600.0)
    >>> line.time_us([100.0, 400.0]).tolist()
    [0.4, 1.0]
    """

    accelerator: str
    base_us: float
    slope_us: float
    low: float
    high: float

    def time_us(self, density: ArrayLike) -> Floats:
        """Return the time per packet [us], shape of `density`; never below that of the smallest density measured / 100.

        The line is only known between :attr:`low` and :attr:`high`; a negative intercept must not turn into free work.
        """
        least = 0.01 * max(self.base_us + self.slope_us * self.low, 1e-6)
        return np.maximum(self.base_us + self.slope_us * np.asarray(density, dtype=np.float64), least)

    def shared_mpps(self, density: ArrayLike, others_us: ArrayLike = 0.0) -> Floats:
        """Return the throughput of an NF that takes turns with others [Mpps].

        Parameters
        ----------
        density : array of float
            Of the NF's own packets.
        others_us : array of float
            Summed time of one request of every other NF that keeps its queue full [us].

        Examples
        --------
        >>> line = ServiceTime("regex", base_us=0.2, slope_us=0.002, low=100.0, high=600.0)
        >>> line.shared_mpps(150.0), line.shared_mpps(150.0, line.time_us(400.0))
        (array(2.), array(0.66666667))
        """
        return np.asarray(1.0 / (self.time_us(density) + np.asarray(others_us, dtype=np.float64)))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping that :meth:`from_dict` reads back."""
        return dict(self.__dict__)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ServiceTime":
        """Rebuild from :meth:`to_dict`'s mapping."""
        numbers = [finite(data, name) for name in ("base_us", "slope_us", "low", "high")]
        return cls(text(data, "accelerator"), *numbers)


def fit_service_time(density: ArrayLike, mpps: ArrayLike, accelerator: str = "regex") -> ServiceTime:
    """Fit the line through runs of an accelerator that nobody else uses, by least squares of the time per packet.

    Parameters
    ----------
    density, mpps : array of float, shape (n,)
        Match density and throughput [Mpps] of each run; two different densities or more.
    accelerator : str
        Its name.

    Raises
    ------
    InvalidValueError
        For fewer than two densities, throughputs that are not above 0, or a time that falls with the density.

    Examples
    --------
    >>> line = fit_service_time([100.0, 400.0], [2.5, 1.0])
    >>> round(line.base_us, 6), round(line.slope_us, 6)
    (0.2, 0.002)

    References
    ----------
    Yala (ASPLOS'25), traffic-aware model of accelerators.
    """
    at, speed = np.asarray(density, dtype=np.float64), np.asarray(mpps, dtype=np.float64)
    known = np.isfinite(at) & np.isfinite(speed)
    if len(np.unique(at[known])) < 2 or not (speed[known] > 0.0).all():
        raise InvalidValueError(
            f"{int(known.sum())} runs of accelerator '{accelerator}' at {len(np.unique(at[known]))} match densities, "
            "needed two densities or more and throughputs above 0",
            hint="run the accelerator alone at a low and at a high match density",
        )
    slope, base = np.polyfit(at[known], 1.0 / speed[known], 1)
    if slope < 0.0:
        raise InvalidValueError(
            f"accelerator '{accelerator}' gets faster with more matches ({slope:.3g} us per unit of density)",
            hint="are densities and throughputs in the same order?",
        )
    return ServiceTime(accelerator, float(base), float(slope), float(at[known].min()), float(at[known].max()))


def service_time_of(dataset: "ProfileDataset", feature: str = DENSITY) -> ServiceTime:
    """Fit the line to an imported table whose network function is the accelerator.

    Parameters
    ----------
    dataset : ProfileDataset
        Rows of one accelerator, with throughput and the feature.
    feature : str
        Which feature is the match density.

    Raises
    ------
    MissingMetricError
        Where the table has no such feature.
    """
    frame = dataset.frame
    column = TRAFFIC_PREFIX + feature
    names = sorted(frame["nf"].unique())
    if column not in frame.columns or len(names) != 1:
        raise MissingMetricError(
            f"a table of {', '.join(names)} without feature '{feature}', or of several accelerators",
            hint=f"import the accelerator's own runs with 'feature: {feature}' at the column of the match density",
        )
    return fit_service_time(frame[column].to_numpy(dtype=float), frame["throughput_mpps"].to_numpy(), str(names[0]))
