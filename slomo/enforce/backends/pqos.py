"""Cache ways and memory bandwidth through Intel's ``pqos``, where there is no resctrl.

Knobs: ``llc@0:1`` and ``mba@0:1`` (socket 0, class 1), ``core:3`` (its class). Classes that no core uses are taken.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager

from slomo.enforce.change import Wish
from slomo.enforce.plan import EnforcementPlan, TenantSetting
from slomo.errors import TestbedError
from slomo.host.locks import MachineLock
from slomo.host.places import this_place
from slomo.host.pqos_state import PqosState, parse_pqos_state, run_pqos
from slomo.host.tool import is_installed, package_hint


class PqosBackend:
    """Drives ``pqos``.

    Parameters
    ----------
    command : tuple of str
        Program and options, for instance ``("pqos", "-I")``.

    Examples
    --------
    >>> PqosBackend(("no-such-program",)).available()[0]
    False
    """

    name = "pqos"

    def __init__(self, command: tuple[str, ...] = ("pqos",)) -> None:
        self.command = command

    def available(self) -> tuple[bool, str]:
        """Ask pqos for its classes."""
        if not is_installed(self.command[0]):
            return False, f"'{self.command[0]}' is not installed ({package_hint('pqos')})"
        try:
            state = self._state()
        except TestbedError as problem:
            return False, problem.message
        return True, f"{len(state.classes)} classes"

    def place(self) -> str:
        """Return this host and boot."""
        return this_place("pqos")

    def lock(self) -> AbstractContextManager[object]:
        """Hold this host's lock."""
        return MachineLock("pqos")

    def wishes(self, plan: EnforcementPlan) -> tuple[Wish, ...]:
        """Return classes' settings, then the cores that use them.

        Raises
        ------
        TestbedError
            For too few free classes, cores that are not there, or a unit that pqos does not take.
        """
        state = self._state()
        by_settings: dict[tuple[tuple[str, str], ...], list[int]] = {}
        for tenant in plan.tenants:
            settings = self._settings(tenant)
            if settings:
                by_settings.setdefault(settings, []).extend(tenant.cores)
        unknown = sorted({core for cores in by_settings.values() for core in cores} - set(state.class_of))
        if unknown:
            raise TestbedError(f"pqos knows no core {unknown[0]}", hint=f"cores: {sorted(state.class_of)}")
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
                raise TestbedError(
                    f"memory bandwidth of {tenant.memory_bandwidth.text}, but pqos takes percent",
                    hint="give it in percent",
                )
            settings.append(("mba", f"{-(-round(tenant.memory_bandwidth.value) // 10) * 10}"))
        return tuple(settings)

    def _numbers(
        self, state: PqosState, wanted: dict[tuple[tuple[str, str], ...], list[int]]
    ) -> dict[tuple[tuple[str, str], ...], int]:
        """Return the class for each setting: the one its cores are alone in, else one that nobody uses."""
        numbers: dict[tuple[tuple[str, str], ...], int] = {}
        taken = {0, *state.class_of.values()}
        for settings, cores in wanted.items():
            own = {state.class_of[core] for core in cores} - {0}
            others = {number for core, number in state.class_of.items() if core not in cores}
            reusable = sorted(own - others - set(numbers.values()))
            free = reusable or [number for number in sorted(state.classes) if number not in taken]
            if not free:
                raise TestbedError(
                    f"{len(wanted)} classes of service are needed, pqos has "
                    f"{len(set(state.classes) - {0, *state.class_of.values()})} free",
                    hint="give tenants equal settings, or reset other allocations: pqos -R",
                )
            numbers[settings] = free[0]
            taken.add(free[0])
        return numbers

    def read(self, knob: str) -> str | None:
        """Return what a knob holds."""
        kind, _, rest = knob.partition(":")
        state = self._state()
        if kind == "core":
            number = state.class_of.get(int(rest))
            return None if number is None else str(number)
        return state.classes.get(int(rest), {}).get(kind)

    def write(self, knob: str, value: str | None) -> None:
        """Set a knob.

        Raises
        ------
        TestbedError
            With what pqos said.
        """
        kind, _, rest = knob.partition(":")
        words = ("-a", f"core:{value}={rest}") if kind == "core" else ("-e", f"{kind}:{rest}={value}")
        run_pqos([*self.command, *words])

    def knobs(self) -> Iterator[str]:
        """Return classes' settings and cores."""
        state = self._state()
        for number, settings in state.classes.items():
            yield from (f"{kind}:{number}" for kind in settings)
        yield from (f"core:{core}" for core in state.class_of)

    def _state(self) -> PqosState:
        return parse_pqos_state(run_pqos([*self.command, "-s"]))
