"""What a change of a placed cluster did, or would do: moves, refusals, who is in the way, promises at risk."""

from dataclasses import dataclass

from slomo.files.stored import Stored
from slomo.placement.online.moves import Move
from slomo.placement.problem.decision import Decision


@dataclass(frozen=True)
class AtRisk:
    """A promise that, by the models of now, does not hold at the confidence asked for."""

    #: Whose, which network function, where.
    request: str
    workload: str
    server: str
    #: ``"throughput"``, ``"cores"`` or ``"ways"``.
    what: str
    #: What it needs, and what is to be counted on [Mpps].
    needed: float
    possible: float


@dataclass(frozen=True)
class ClusterChange(Stored):
    """What a change of the cluster did, or would do."""

    #: The change in words, for instance ``"drain rack-3"``.
    what: str
    #: It was carried out (asked with `what_if`: could be). Where not, everything is as it was.
    done: bool
    #: Pieces that run elsewhere now.
    moves: tuple[Move, ...] = ()
    #: Requests that lost their place, or did not get one, and why.
    refused: tuple[Decision, ...] = ()
    #: Requests that stand in the way.
    left: tuple[str, ...] = ()
    #: Promises that do not hold any more.
    at_risk: tuple[AtRisk, ...] = ()
    #: Requests that run on with an instance less, their promises kept; the next failure they may not survive.
    degraded: tuple[str, ...] = ()
    #: Constraints that stand in the way, in words.
    why: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """One line for people.

        Examples
        --------
        >>> ClusterChange("drain rack-3", False, left=("edge",)).text
        'drain rack-3: not done, 1 left: edge'
        """
        parts = ["done" if self.done else "not done"]
        parts += [f"{len(self.moves)} moved"] if self.moves else []
        names = [("without a place", [item.request for item in self.refused]), ("left", list(self.left))]
        names.append(("with an instance less", list(self.degraded)))
        names.append(("at risk", list(dict.fromkeys(item.request for item in self.at_risk))))
        for said, who in names:
            if who:
                parts.append(f"{len(who)} {said}: {', '.join(who[:5])}{', ...' if len(who) > 5 else ''}")
        return "; ".join([f"{self.what}: {', '.join(parts)}", *self.why[:3]])
