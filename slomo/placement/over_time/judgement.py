"""What became of a placement: which SLOs broke where it was run, and what else was counted."""

from dataclasses import dataclass

from slomo.files.stored import Stored


@dataclass(frozen=True)
class Violation:
    """A broken SLO.

    Attributes
    ----------
    request : str
        Whose.
    label : str
        Its network functions.
    what : str
        ``"throughput"`` or ``"latency"``.
    promised, measured : float
        [Mpps] or [us].
    server : str
        Where (its first one).
    """

    request: str
    label: str
    what: str
    promised: float
    measured: float
    server: str


@dataclass(frozen=True)
class Judgement(Stored, derived=("violated_share",)):
    """What became of a placement.

    Attributes
    ----------
    policy : str
        Who placed.
    requests, placed : int
        Asked for, and placed.
    servers_used : int
        Servers on which something runs.
    violations : tuple of Violation
        Broken SLOs.
    anat : float
        Aggregate normalised throughput: served, up to what was promised, over promised; 0 to 1.
    utilisation : float
        Share of the cores of used servers that run something, 0 to 1.
    migrations : int
        Pieces moved.
    decision_ms : tuple of (float, float)
        Median and 99th percentile of the time of a decision [ms]; zeros where not taken.
    mixes_run : int
        Different mixes that were run.
    on_demand_unmet : tuple of str
        On-demand requests that miss what they ask for; nothing was promised them, so these are no violations.
    anat_over_time : tuple of float
        Aggregate normalised throughput of every interval, for chains whose rates change.
    batch_s : float
        Time in which everything was placed [s]; 0 where not taken.
    not_run : tuple of str
        Requests that share cores as hyper-threads, which is not simulated; nothing was promised them.
    """

    policy: str
    requests: int
    placed: int
    servers_used: int
    violations: tuple[Violation, ...]
    anat: float
    utilisation: float
    migrations: int = 0
    decision_ms: tuple[float, float] = (0.0, 0.0)
    mixes_run: int = 0
    on_demand_unmet: tuple[str, ...] = ()
    anat_over_time: tuple[float, ...] = ()
    batch_s: float = 0.0
    not_run: tuple[str, ...] = ()

    @property
    def violated_share(self) -> float:
        """Share of placed requests whose SLO is broken, 0 to 1."""
        return len({item.request for item in self.violations}) / self.placed if self.placed else 0.0
