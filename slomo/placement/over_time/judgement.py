"""Result of running a placement on a testbed: broken SLOs, and other counts."""

from dataclasses import dataclass

from slomo.files.stored import Stored


@dataclass(frozen=True)
class Violation:
    """An SLO that was broken in a run."""

    #: Id of the request with the SLO.
    request: str
    #: Network functions of the request.
    label: str
    #: ``"throughput"`` or ``"latency"``.
    what: str
    #: [Mpps] or [us].
    promised: float
    measured: float
    #: Server of the request's first instance.
    server: str


@dataclass(frozen=True)
class Judgement(Stored, derived=("violated_share",)):
    """How many SLOs broke, and other counts, when everything that was placed was run."""

    #: Name of the policy that placed the requests.
    policy: str
    #: Number of requests that were asked for, and number that were placed.
    requests: int
    placed: int
    #: Number of servers on which something runs.
    servers_used: int
    #: Broken SLOs.
    violations: tuple[Violation, ...]
    #: Aggregate normalised throughput: served, up to what was promised, over promised; 0 to 1.
    anat: float
    #: Share of the cores of used servers in use, 0 to 1.
    utilisation: float
    #: Number of pieces (units of placement) that were moved.
    migrations: int = 0
    #: Median and 99th percentile of the time of a decision [ms]; zeros if not measured.
    decision_ms: tuple[float, float] = (0.0, 0.0)
    #: Number of different mixes that were run.
    mixes_run: int = 0
    #: On-demand requests below what they ask for; without a promise these are no violations.
    on_demand_unmet: tuple[str, ...] = ()
    #: Aggregate normalised throughput of every interval, for chains with changing rates.
    anat_over_time: tuple[float, ...] = ()
    #: Time to place everything [s]; 0 if not measured.
    batch_s: float = 0.0
    #: Requests on shared hyper-threads, which are not simulated; they have no promise.
    not_run: tuple[str, ...] = ()

    @property
    def violated_share(self) -> float:
        """Share of placed requests whose SLO is broken, 0 to 1."""
        return len({item.request for item in self.violations}) / self.placed if self.placed else 0.0
