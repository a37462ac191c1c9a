"""Remember the latest decisions about pods, and show the predictions behind them."""

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slomo.service.kubernetes.judging import Judged, NodeJudge
from slomo.service.kubernetes.pods import PodNeed
from slomo.service.kubernetes.view import ClusterView
from slomo.service.kubernetes.wire import Pod

#: Number of pods whose judgements are kept for `/v1/explain`.
MOST_EXPLAINED = 300


@dataclass(frozen=True)
class _Explanation:
    pod: Pod
    nf: str | None
    #: Judgement of each node.
    judged: Mapping[str, Judged]
    #: Fingerprint of the models used.
    judge: NodeJudge
    outcome: str
    reason: str

    @property
    def path(self) -> str:
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"


class Explanations:
    """Remembers the latest decision about each pod, for a limited number of pods."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Explanation] = OrderedDict()

    def add(
        self,
        pod: Pod,
        need: PodNeed | None,
        judged: Mapping[str, Judged],
        judge: NodeJudge,
        outcome: str = "judged",
        reason: str = "",
    ) -> None:
        """Store a decision about a pod; it replaces an earlier decision."""
        made = _Explanation(pod, (need.nf or None) if need else None, judged, judge, outcome, reason)
        key = pod.metadata.uid or made.path
        self._kept.pop(key, None)
        self._kept[key] = made
        while len(self._kept) > MOST_EXPLAINED:
            self._kept.popitem(last=False)

    def explain(self, name: str, view: ClusterView) -> dict[str, Any] | None:
        """Return the predictions behind the last decision about a pod."""
        latest_first = reversed(self._kept.values())
        decision = self._kept.get(name) or next(
            (item for item in latest_first if name in (item.pod.metadata.name, item.path)), None
        )
        if decision is None:
            return None
        rows = [_row(node, judgement, decision.judge, view) for node, judgement in decision.judged.items()]
        answer = {
            "pod": decision.path,
            "uid": decision.pod.metadata.uid,
            "nf": decision.nf,
            "outcome": decision.outcome,
        }
        return {**answer, "reason": decision.reason or None, "nodes": rows}


def _row(node: str, judgement: Judged, judge: NodeJudge, view: ClusterView) -> dict[str, Any]:
    row: dict[str, Any] = {"node": node, "ok": judgement.ok, "judged": judgement.is_judged}
    row["reason"] = judgement.why or None
    if judgement.host is None or not judgement.is_judged:
        return row
    verdict = judge.oracle.verdict(judgement.host, judgement.mix)
    row["machine"] = judgement.host.machine
    row["headroom"] = verdict.headroom if math.isfinite(verdict.headroom) else None
    row["rates_mpps"] = {key: list(rate) for key, rate in verdict.rates.items()}
    if (breach := verdict.breach) is not None:
        row["breach"] = {name: getattr(breach, name) for name in ("workload", "what", "needed", "possible")}
    row["unknown_tenants"] = list(judge.strangers(node, view))
    return row
