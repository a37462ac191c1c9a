"""Parse workloads as people write them, the inverse of `Workload.key`, for command lines and notebooks.

Grammar: ``NF[(knob=value,...)][@64B,100000f,zipf1.1,2.5Mpps][:count]``; every part but the name may be left out.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from slomo.errors import InvalidValueError
from slomo.vocabulary.workload import Setting, Traffic, Workload

_SHAPE = re.compile(
    r"^(?P<nf>[A-Za-z0-9][\w.+-]*)(?:\((?P<knobs>[^()]*)\))?(?:@(?P<traffic>[^:@()]+))?(?::(?P<count>[^:]*))?$"
)
_NUMBER = r"(\d{1,18}(?:\.\d{1,18})?(?:[eE][-+]?\d{1,3})?)"
_TRAFFIC = {
    "packet_size_b": re.compile(r"^(\d{1,12})B$"),
    "flow_count": re.compile(r"^(\d{1,12})f$"),
    "zipf_exponent": re.compile(rf"^zipf{_NUMBER}$"),
    "offered_mpps": re.compile(rf"^{_NUMBER}Mpps$"),
}
#: More of one workload are no mix of any server, but a slip, and a list of them fills the memory.
MOST_INSTANCES = 4096


def counted(names: Iterable[str]) -> str:
    """Return names without repetition, in order, with their counts.

    Examples
    --------
    >>> counted(["snort", "lpm", "snort"])
    '2 x snort + lpm'
    """
    counts = Counter(names)
    return " + ".join(name if count == 1 else f"{count} x {name}" for name, count in counts.items())


def parse_workload(text: str) -> Workload:
    """Parse one workload. Raises InvalidValueError for a text outside the grammar, or a value out of range.

    Examples
    --------
    >>> parse_workload("synthetic(data_size_mib=8)@1500B,1000f").key
    'synthetic(data_size_mib=8)@1500B,1000f'
    >>> parse_workload("lpm") == Workload("lpm")
    True
    """
    workload, count = parse_instances(text)
    if count != 1:
        raise InvalidValueError(f"'{text}' names {count} instances, needed one workload", hint="leave ':count' out")
    return workload


def text_of(name: object) -> str:
    """Return a workload's text; InvalidValueError unless it is a text."""
    if not isinstance(name, str):
        raise InvalidValueError(
            f"{name!r} names no workload, needed text or a Workload", hint="write for instance 'stats' or 'stats:3'"
        )
    return name


@lru_cache(maxsize=4096)  # thousands of requests name a few workloads
def parse_instances(text: str) -> tuple[Workload, int]:
    """Parse a workload and its number of instances, as in ``"stats:3"``.

    Raises InvalidValueError for a text outside the grammar, or a value out of range.

    Examples
    --------
    >>> workload, count = parse_instances("stats@64B:3")
    >>> workload.nf, count
    ('stats', 3)
    """
    match = _SHAPE.match(text_of(text).strip())
    if match is None:
        raise InvalidValueError(
            f"'{text}' names no workload",
            hint="write one NF at a time: NF, NF:count or NF(knob=value)@1500B,1000f:count",
        )
    return Workload(match["nf"], _configuration(match["knobs"], text), _traffic(match["traffic"], text)), _count(
        match["count"], text
    )


def each_instance(mix: Sequence[Workload | str] | Mapping[str, int]) -> Sequence[Workload | str]:
    """Return a mix with one entry per instance: a text with a count, or a name with one, is repeated without it.

    Examples
    --------
    >>> each_instance(["snort:2", "lpm"]), each_instance({"snort": 2})
    (['snort', 'snort', 'lpm'], ['snort', 'snort'])
    """
    if isinstance(mix, Mapping):
        mix = [f"{name}:{count}" for name, count in mix.items() if count != 0]
    if not any(isinstance(name, str) and ":" in name for name in mix):
        return mix
    spelled: list[Workload | str] = []
    for name in mix:
        count = parse_instances(name)[1] if isinstance(name, str) and ":" in name else 1
        spelled += [name.rpartition(":")[0] if isinstance(name, str) and ":" in name else name] * count
    return spelled


def _count(text: str | None, whole: str) -> int:
    if text is None:
        return 1
    if not re.fullmatch(r"[+]?\d{1,9}", text) or not 1 <= int(text) <= MOST_INSTANCES:
        raise InvalidValueError(
            f"'{whole}': number of instances is '{text}', needed 1 to {MOST_INSTANCES}",
            hint="write for instance stats:3",
        )
    return int(text)


def _configuration(text: str | None, whole: str) -> dict[str, Setting]:
    pairs: dict[str, Setting] = {}
    for part in filter(None, (text or "").split(",")):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value):
            raise InvalidValueError(
                f"'{whole}': '{part}' is no setting", hint="write for instance synthetic(data_size_mib=8,iterations=2)"
            )
        pairs[name] = _setting(value)
    return pairs


def _setting(text: str) -> Setting:
    if text in ("True", "False", "true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _traffic(text: str | None, whole: str) -> Traffic:
    values: dict[str, Any] = {}
    for part in filter(None, (text or "").split(",")):
        name = next((name for name, shape in _TRAFFIC.items() if shape.match(part.strip())), None)
        if name is None:
            raise InvalidValueError(
                f"'{whole}': '{part}' says nothing about traffic",
                hint="write for instance @1500B,1000f,zipf1.1,2.5Mpps (size, flows, law, load)",
            )
        number = _TRAFFIC[name].match(part.strip())
        assert number is not None
        values[name] = int(number[1]) if name in ("packet_size_b", "flow_count") else float(number[1])
    if "zipf_exponent" in values:
        values["flow_distribution"] = "zipf"
    return Traffic(**values)
