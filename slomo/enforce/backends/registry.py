"""Find backends by name; several names joined by a plus sign act as one backend."""

from collections.abc import Iterable

from slomo.enforce.backends.together import Together
from slomo.enforce.change import Backend
from slomo.errors import TestbedError, UnknownNameError
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
