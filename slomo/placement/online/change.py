"""Result of a change to the cluster, real or previewed: moves, refusals, obstacles, promises at risk."""

from dataclasses import dataclass

from slomo.files.stored import Stored
from slomo.placement.online.moves import Move
from slomo.placement.problem.decision import AtRisk, Decision


@dataclass(frozen=True)
class ClusterChange(Stored):
    """Result of a change to the cluster, real or previewed."""

    #: The change in words, for instance ``"drain rack-3"``.
    what: str
    #: Whether it was carried out (with `what_if`: whether it could be). If not, nothing has changed.
    done: bool
    #: Pieces that run elsewhere now.
    moves: tuple[Move, ...] = ()
    #: Requests that lost their place or did not get one, with reasons.
    refused: tuple[Decision, ...] = ()
    #: Requests that prevent the change.
    left: tuple[str, ...] = ()
    #: Promises that no longer hold.
    at_risk: tuple[AtRisk, ...] = ()
    #: Requests that continue with one instance less and keep their promises, but may not survive the next failure.
    degraded: tuple[str, ...] = ()
    #: Constraints that prevent the change, in words.
    why: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """One line that describes the change, for display.

        >>> ClusterChange("drain rack-3", False, left=("edge",)).text
        'drain rack-3: not done, 1 left: edge'
        """
        parts = ["done" if self.done else "not done"]
        parts += [f"{len(self.moves)} moved"] if self.moves else []
        names = [("without a place", [item.request for item in self.refused]), ("left", list(self.left))]
        names.append(("with an instance less", list(self.degraded)))
        names.append(("at risk", list(dict.fromkeys(item.request for item in self.at_risk))))
        for outcome, who in names:
            if who:
                parts.append(f"{len(who)} {outcome}: {', '.join(who[:5])}{', ...' if len(who) > 5 else ''}")
        return "; ".join([f"{self.what}: {', '.join(parts)}", *self.why[:3]])
