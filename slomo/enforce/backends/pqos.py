"""Set cache ways and memory bandwidth through Intel's ``pqos``, in classes of service that no core uses.

This backend is for hosts without resctrl.
"""

from slomo.enforce.change import Backend
from slomo.enforce.plan import EnforcementPlan, TenantSetting
from slomo.errors import RefusedSettingError
from slomo.host.knobs import Wish
from slomo.host.pqos import PqosKnobs, PqosState


class PqosBackend(PqosKnobs, Backend):
    """Sets cache ways and memory bandwidth of cores by ``pqos``; see `PqosKnobs` for the parameter."""

    divides_the_cache = True

    def wishes(self, plan: EnforcementPlan) -> tuple[Wish, ...]:
        """Return the settings to write, in order: those of the classes of service, then each core's class."""
        state = self.state()
        by_settings: dict[tuple[tuple[str, str], ...], list[int]] = {}
        for tenant in plan.tenants:
            settings = self._settings(tenant)
            if settings and not tenant.cores:
                raise RefusedSettingError(
                    f"tenant '{tenant.tenant}' names no cores, and pqos sets the cache ways of cores",
                    hint="name cores, or use the backend resctrl",
                )
            if settings:
                by_settings.setdefault(settings, []).extend(tenant.cores)
        unknown = sorted({core for cores in by_settings.values() for core in cores} - set(state.class_of))
        if unknown:
            raise RefusedSettingError(f"pqos knows no core {unknown[0]}", hint=f"cores: {sorted(state.class_of)}")
        numbers = self._numbers(state, by_settings)
        wishes: list[Wish] = []
        for settings, cores in by_settings.items():
            number = numbers[settings]
            there = state.classes[number]
            wishes += [Wish(f"{k}:{number}", v) for kind, v in settings for k in there if k.startswith(f"{kind}@")]
            wishes += [Wish(f"core:{core}", str(number)) for core in cores]
        return tuple(wishes)

    def _settings(self, tenant: TenantSetting) -> tuple[tuple[str, str], ...]:
        settings: list[tuple[str, str]] = []
        if tenant.llc_way_mask is not None:
            settings.append(("llc", f"{tenant.llc_way_mask:#x}"))
        if tenant.memory_bandwidth is not None:
            if tenant.memory_bandwidth.unit != "percent":
                raise RefusedSettingError(
                    f"memory bandwidth of {tenant.memory_bandwidth.text}, but pqos takes percent",
                    hint="give it in percent",
                )
            settings.append(("mba", f"{-(-round(tenant.memory_bandwidth.value) // 10) * 10}"))
        return tuple(settings)

    def _numbers(
        self, state: PqosState, tenants_numbered: dict[tuple[tuple[str, str], ...], list[int]]
    ) -> dict[tuple[tuple[str, str], ...], int]:
        """Return a class of service for each tenant: the class that only its cores use, or else an unused class."""
        numbers: dict[tuple[tuple[str, str], ...], int] = {}
        taken = {0, *state.class_of.values()}
        for settings, cores in tenants_numbered.items():
            own = {state.class_of[core] for core in cores} - {0}
            others = {number for core, number in state.class_of.items() if core not in cores}
            reusable = sorted(own - others - set(numbers.values()))
            free = reusable or [number for number in sorted(state.classes) if number not in taken]
            if not free:
                raise RefusedSettingError(
                    f"{len(tenants_numbered)} classes of service are needed, pqos has "
                    f"{len(set(state.classes) - {0, *state.class_of.values()})} free",
                    hint="give tenants equal settings, or reset other allocations: pqos -R",
                )
            numbers[settings] = free[0]
            taken.add(free[0])
        return numbers
