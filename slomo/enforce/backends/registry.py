"""Find backends by name; several names joined by a plus sign act as one backend."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path

from slomo.enforce.change import Backend
from slomo.enforce.plan import EnforcementPlan
from slomo.errors import ConfigurationError, TestbedError, UnknownNameError
from slomo.host.knobs import Knobs, Wish
from slomo.plugins import imported

_BACKENDS = {
    "resctrl": "resctrl:ResctrlBackend",
    "rdt-class": "rdt_class:RdtClassBackend",
    "cgroup": "cgroup:CgroupBackend",
    "scheduler": "scheduler:SchedulerBackend",
    "buffers": "buffers:BuffersBackend",
    "pqos": "pqos:PqosBackend",
}


def load_backend(name: str = "auto") -> Backend:
    """Return the backend with a given name.

    Parameters
    ----------
    name : str
        A name, several joined by ``+``, or ``"auto"``: the first of resctrl, pqos and cgroup that works on this host.

    Raises
    ------
    UnknownNameError
        For an unknown name.
    TestbedError
        If none works on this host; the message has every reason.

    Examples
    --------
    >>> load_backend("resctrl+cgroup").name
    'resctrl+cgroup'
    """
    if name == "auto":
        return first_that_works(("resctrl", "pqos", "cgroup"))
    parts = [_load(part) for part in name.split("+")]
    return parts[0] if len(parts) == 1 else Together(parts)


def _load(name: str) -> Backend:
    if name not in _BACKENDS:
        raise UnknownNameError("backend", name, [*_BACKENDS, "auto"])
    backend: Backend = imported(f"slomo.enforce.backends.{_BACKENDS[name]}")()
    return backend


def first_that_works(names: Iterable[str]) -> Backend:
    """Return the first of several backends that works on this host; TestbedError, with all reasons, if none does."""
    reasons = []
    for name in names:
        backend = _load(name)
        able, why = backend.available()
        if able:
            return backend
        reasons.append(f"{name}: {why}")
    raise TestbedError(f"nothing can be enforced on this host: {'; '.join(reasons)}", hint="see `slomo doctor`")


class Together(Backend):
    """Several backends, which write their settings in this order; a setting's name begins with its backend's name."""

    def __init__(self, backends: Sequence[Backend]) -> None:
        self._backends = {backend.name: backend for backend in backends}
        if not backends or len(self._backends) != len(backends):
            raise ConfigurationError("no backend, or one named twice", hint="name each once: resctrl+cgroup")
        self.name = "+".join(self._backends)
        self.acts_on_processes = any(backend.acts_on_processes for backend in backends)
        self.divides_the_cache = any(backend.divides_the_cache for backend in backends)
        self.sets_the_rest = any(backend.sets_the_rest for backend in backends)
        self.resctrl_tree = next((backend.resctrl_tree for backend in backends if backend.resctrl_tree), None)

    def available(self) -> tuple[bool, str]:
        """Return whether all backends are available, and the reason if not."""
        answers = [(name, *backend.available()) for name, backend in self._backends.items()]
        refused = [f"{name}: {why}" for name, able, why in answers if not able]
        return not refused, "; ".join(refused or [f"{name}: {why}" for name, _, why in answers])

    def place(self) -> str:
        """Return a text that names where each backend writes its settings: machine and boot, or a folder."""
        return "; ".join(backend.place() for backend in self._backends.values())

    def lock(self) -> AbstractContextManager[object]:
        """Hold the locks of all backends while a `with` block runs."""
        with ExitStack() as stack:
            for backend in self._backends.values():
                stack.enter_context(backend.lock())
            return stack.pop_all()
        raise AssertionError("unreachable")

    def foreign_masks(self) -> dict[str, int]:
        """Return the cache ways of groups that other programs made, as all backends see them."""
        return {name: mask for backend in self._backends.values() for name, mask in backend.foreign_masks().items()}

    def part(self, knob: str) -> tuple[Knobs, str]:
        """Return the backend to which a setting belongs, and the setting's name in that backend."""
        name, _, rest = knob.partition("|")
        return self._backends[name], rest

    def followed(self, knob: str, others: Mapping[str, str | None]) -> tuple[str, ...]:
        """Return the other settings on which a thread's CPUs depend: its process's CPU set and that set's CPUs."""
        kind, _, thread = knob.partition(":")
        members = [name for name in others if kind == "cpus" and name.startswith("member:cpuset:")]
        mine = [name for name in members if (Path("/proc") / name.rpartition(":")[2] / "task" / thread).exists()]
        return (*mine, *(file for name in mine if (file := f"file:{others[name]}/cpuset.cpus") in others))

    def wishes(self, plan: EnforcementPlan) -> tuple[Wish, ...]:
        """Return the settings that all backends shall write, in order."""
        return self.revised_wishes(plan, ())

    def revised_wishes(self, plan: EnforcementPlan, own: Sequence[str]) -> tuple[Wish, ...]:
        """Return the settings that all backends shall write if the plan's receipt already holds the knobs `own`."""
        return tuple(
            replace(wish, knob=f"{name}|{wish.knob}")
            for name, backend in self._backends.items()
            for wish in backend.revised_wishes(plan, [k.removeprefix(f"{name}|") for k in own])
        )

    def read(self, knob: str) -> str | None:
        """Return the present value of one setting."""
        backend, rest = self.part(knob)
        return backend.read(rest)

    def write(self, knob: str, value: str | None) -> None:
        """Write a setting's value through its backend."""
        backend, rest = self.part(knob)
        backend.write(rest, value)

    def knobs(self) -> Iterator[str]:
        """Return the names of all backends' settings."""
        return (f"{name}|{knob}" for name, backend in self._backends.items() for knob in backend.knobs())
