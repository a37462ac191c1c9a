"""Who proposes the next setting: a protocol of two methods, and an adapter that lets any Optuna sampler keep it.

Ask and tell is how Optuna (Akiba et al., KDD'19) and scikit-optimize leave the loop to their callers. What is maximised
is *surprise*: how far a setting's throughput was from what a committee, fitted without it, foretold.
"""

from typing import Any, Protocol

from slomo.profiling.plans.designs import MOST_INSTANCES, RANGES, Pressure, point_at


class AskTell(Protocol):
    """Proposes settings for an `AdaptiveDesign`, and hears how surprising each was.

    The same settings told in the same order have to lead to the same proposals, or a campaign cannot be resumed.
    """

    def ask(self) -> Pressure:
        """Return a setting worth measuring; one that was returned before is asked for anew."""
        ...

    def tell(self, point: Pressure, surprise: float) -> None:
        """Note how far the throughput at `point` was from what was foretold, as a share of solo, 0 or more."""
        ...


class OptunaProposals:
    """Settings proposed by an Optuna study, whatever its sampler (``pip install slomo[optuna]``).

    Parameters
    ----------
    study : optuna.Study
        New, of direction ``"maximize"``, with a seeded sampler.
    instances : int
        Most synthetic competitors at a time.

    Examples
    --------
    A design whose settings a Gaussian process of Optuna proposes; ``ask`` and ``tell`` are then used as ever::

        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.GPSampler(seed=1))
        design = AdaptiveDesign(target, machine, settings, proposals=OptunaProposals(study))
    """

    def __init__(self, study: Any, instances: int = MOST_INSTANCES) -> None:
        from optuna.distributions import FloatDistribution

        self._study, self._instances = study, instances
        self._space = {name: FloatDistribution(0.0, 1.0) for name in (*RANGES, "instances")}
        self._trials: dict[Pressure, list[Any]] = {}

    def ask(self) -> Pressure:
        """Return the setting of a new trial."""
        trial = self._study.ask(self._space)
        point = point_at([trial.params[name] for name in self._space], self._instances)
        self._trials.setdefault(point, []).append(trial)
        return point

    def tell(self, point: Pressure, surprise: float) -> None:
        """Finish every trial that proposed this setting; others' settings are none of the study's business."""
        for trial in self._trials.pop(point, []):
            self._study.tell(trial, surprise)
