"""Predict a server under given settings (ways, throttles, cores, ...); find the smallest change that keeps all SLOs.

`slomo.prediction.question` makes the predictions. Profiles over partitions are measured once and stored with the
models, together with the prediction errors on partitions that were not profiled.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

from slomo.control.advice import advise
from slomo.control.situation import Outlook, Setting, Situation, explain, foresee
from slomo.errors import InvalidValueError, UnsupportedPredictionError
from slomo.models.library import ModelLibrary
from slomo.models.partition_profile import PartitionProfile, library_of
from slomo.models.responses.memory_traffic import joined
from slomo.prediction.allocated import allocation_models
from slomo.prediction.answers import Answers, answers_on
from slomo.prediction.options import OptionFields, PredictionOptions
from slomo.prediction.server_result import ServerPrediction
from slomo.prediction.tenants import TenantModels, server_of
from slomo.vocabulary.display import Result, html_table, short
from slomo.vocabulary.machine import Machine
from slomo.vocabulary.numbers import share_hint
from slomo.vocabulary.server_setting import ServerSetting
from slomo.vocabulary.way_masks import refusal
from slomo.vocabulary.workload import Workload
from slomo.workflow.names import named

#: Advice picks the setting that just suffices and so favours over-optimistic predictions (winner's curse); its margin
#: is therefore this quantile of the error.
ADVICE_COVERAGE = 0.98


@dataclass(frozen=True)
class PartitionAnswer(Result):
    """Predicted throughput of every tenant under the given settings, and the advised settings."""

    #: Every tenant as asked about.
    predicted: ServerPrediction
    #: Index of a tenant -> throughput that it was promised.
    promised_mpps: Mapping[int, float]
    #: The same server over ways, throttles and weights; None if a tenant was not profiled over them.
    situation: Situation | None = None
    #: Whether promises hold, and the ways that each tenant holds.
    outlook: Outlook | None = None
    #: The smallest change that keeps all SLOs; None if not asked for or not found.
    advice: Outlook | None = None
    #: Every tenant after it.
    advised: ServerPrediction | None = None

    @property
    def kept(self) -> bool:
        """Whether every promise is predicted to be kept."""
        return self.outlook.kept if self.outlook is not None else all(map(self._kept, self.promised_mpps))

    def _kept(self, place: int) -> bool:
        tenant = self.predicted.tenants[place]
        return tenant.throughput_mpps >= min(self.promised_mpps[place], tenant.solo_mpps)

    def rows(self, *, advised: bool = False) -> list[dict[str, Any]]:
        """Return one mapping per tenant, under the given settings or the advised ones."""
        server, outlook = (self.advised, self.advice) if advised else (self.predicted, self.outlook)
        if server is None:
            return []
        table = []
        for place, tenant in enumerate(server.tenants):
            row: dict[str, Any] = {
                "tenant": f"{place}:{tenant.workload.nf}",
                "throughput_mpps": tenant.throughput_mpps,
                "low_mpps": tenant.interval[0],
                "high_mpps": tenant.interval[1],
                "solo_mpps": tenant.solo_mpps,
                "slo_mpps": self.promised_mpps.get(place),
                "verdict": str(tenant.verdict),
                "reasons": list(tenant.reasons),
            }
            if self.situation is not None and outlook is not None:
                row |= _over_partition(self.situation, outlook, row["tenant"])
            else:
                row["kept"] = place not in self.promised_mpps or self._kept(place)
            table.append(row)
        return table

    def columns(self) -> dict[str, Sequence[Any]]:
        """Return one entry per tenant under the given settings, then one per tenant under the advised ones."""
        rows = [{"advised": advised, **row} for advised in (False, True) for row in self.rows(advised=advised)]
        return {name: [row.get(name) for row in rows] for name in (rows[0] if rows else ())}

    def row_labels(self) -> list[str]:
        """Return the tenants' names, and whether the row is of the advised setting."""
        pairs = zip(self.columns()["tenant"], self.columns()["advised"], strict=True)
        return [f"{tenant}, advised" if advised else str(tenant) for tenant, advised in pairs]

    def _repr_html_(self) -> str:
        columns = self.columns()
        names = ("tenant", "advised", "solo_mpps", "throughput_mpps", "low_mpps", "high_mpps", "slo_mpps", "kept")
        rows = zip(*([short(value) for value in columns[name]] for name in names), strict=True)
        return html_table(f"{'all promises hold' if self.kept else 'a promise breaks'}", names, rows)


def _over_partition(situation: Situation, outlook: Outlook, name: str) -> dict[str, Any]:
    setting, index = outlook.settings[name], list(situation.responses).index(name)
    cause, losses, lever = explain(situation, outlook, name)
    return {
        "ways": f"{setting.mask:#x}",
        "holds_ways": round(outlook.parted.ways[index], 2),
        "bandwidth_percent": setting.bandwidth_percent,
        "core_share": outlook.parted.shares[index],
        "weight": setting.weight,
        "remote_memory": setting.remote,
        "kept": name not in outlook.broken,
        "bottleneck": cause,
        "losses": dict(losses),
        "lever": lever,
    }


def what_if(
    models: ModelLibrary | Sequence[PartitionProfile],
    mix: Sequence[str | Workload],
    machine: Machine,
    setting: ServerSetting | None = None,
    *,
    slo_share: Mapping[int, float] | None = None,
    with_advice: bool = False,
    **how: Unpack[OptionFields],
) -> PartitionAnswer:
    """Predict every tenant of a mix under the given settings.

    Parameters
    ----------
    models : ModelLibrary or sequence of PartitionProfile
        Trained models, or profiles over partitions alone.
    mix : sequence of str or Workload
        Tenants; a text may carry a count, ``"stats:2"``.
    machine : Machine
        Where.
    setting : ServerSetting, optional
        Ways, throttles, cores, weights, memory nodes and a port; nothing is divided if not given.
    slo_share : mapping of int to float, optional
        Tenant's place in the mix -> share of its solo throughput that was promised.
    with_advice : bool
        Look for the smallest change that keeps all SLOs.
    **how
        As in `slomo.prediction.options.PredictionOptions`.

    Raises
    ------
    UnsupportedPredictionError
        For a part of the cache or of the memory's bandwidth, or advice, and a tenant not profiled over them.
    InvalidValueError
        For lists of different lengths, or values that the machine does not have.
    """
    library = models if isinstance(models, ModelLibrary) else library_of(models, machine)
    library.require_measured_on(machine)
    asked, options = setting or ServerSetting(), PredictionOptions(**{**how, "explain": False})  # type: ignore[arg-type]
    tenants = named(mix)
    require_possible(asked, machine, len(tenants))
    server = server_of(library, tenants, machine.name, asked)
    for place, share in (slo_share or {}).items():
        if not 0.0 < share <= 1.0:
            hint = share_hint(share, "0.9 promises 90 % of what it serves alone")
            raise InvalidValueError(f"slo_share of tenant {place} is {share}, needed above 0 and at most 1", hint=hint)
    promised = {place: share * server.tenants[place].model.solo_mpps for place, share in (slo_share or {}).items()}
    answers = answers_on(server, options)
    answer = PartitionAnswer(answers.whole(), promised)
    if len(server.by_socket) > 1 or any(model.allocation is None for model in server.models):
        if with_advice:
            allocation_models(server)
            raise UnsupportedPredictionError("advice is for the tenants of one socket", hint="leave out --advise")
        return answer
    situation, careful, margin = _situation(server, answers, promised, machine)
    outlook = foresee(situation)
    answer = replace(answer, situation=situation, outlook=outlook)
    advice = advise(careful, margin=margin) if with_advice else None
    if advice is None:
        return answer
    changed = careful.set_on(server, advice.settings)
    return replace(answer, advice=advice, advised=answers_on(changed, options).whole())


def require_possible(setting: ServerSetting, machine: Machine, tenants: int) -> None:
    """Raise InvalidValueError, naming the field, for a setting that this machine cannot have, or too many tenants."""
    checked = setting.checked(tenants)
    fullest = max(Counter(checked.sockets or [0] * tenants).values(), default=0)
    if checked.cores is None and fullest > machine.cores_per_socket:
        raise InvalidValueError(
            f"{fullest} tenants on a socket need {fullest} cores, '{machine.name}' has {machine.cores_per_socket}",
            hint=f"leave out {fullest - machine.cores_per_socket}, or let some share cores",
        )
    for mask in checked.ways or ():
        if why := refusal(mask, machine.full_way_mask, f"'{machine.name}'"):
            raise InvalidValueError(why, hint="0x3 is ways 0 and 1")
    for core in checked.cores or ():
        if core is not None:
            machine.socket_of(core)  # refuses a core that the machine does not have
    for name in ("nodes", "sockets"):
        for place in getattr(checked, name) or ():
            if place >= machine.sockets:
                raise InvalidValueError(f"{name}: {place}, but '{machine.name}' has {machine.sockets}, counted from 0")


def _situation(
    server: TenantModels, answers: Answers, promised: Mapping[int, float], machine: Machine
) -> tuple[Situation, Situation, float]:
    """Return a socket's tenants with their loads and promises, for predictions and for advice."""
    models = allocation_models(server)
    setting = server.setting
    names = [f"{place}:{tenant.workload.nf}" for place, tenant in enumerate(server.tenants)]
    ways, count = setting.ways or [machine.full_way_mask] * len(names), len(names)
    nodes = setting.nodes or server.sockets
    away = [node != socket for node, socket in zip(nodes, server.sockets, strict=True)]
    each = zip(ways, setting.bandwidth_percent or [100.0] * count, setting.weights or [1.0] * count, away, strict=True)
    situation = Situation(
        {name: model.response for name, model in zip(names, models, strict=True)},
        joined(model.memory for model in models),
        machine.llc_ways,
        dict(zip(names, [Setting(*values) for values in each], strict=True)),
        {names[place]: mpps for place, mpps in promised.items()},
        {name: load for name, load in zip(names, answers.loads, strict=True) if load is not None},
        cores={n: core for n, core in zip(names, setting.cores or [None] * count, strict=True) if core is not None},
        llcs=dict(zip(names, server.llcs, strict=True)),
        remote_ns=models[0].remote_ns,
        server=server if server.models[0].response is not None else None,
        how=answers.how,
    )
    own, shared = (max(m.excess(ADVICE_COVERAGE, shares_ways=flag) for m in models) for flag in (False, True))
    return situation, replace(situation, shared_doubt=max(0.0, 1.0 - (1.0 + own) / (1.0 + shared))), own
