"""Parse workloads and mixes as people write them, the inverse of `Workload.key` and of `counted`.

Grammar of a workload: ``NF[(knob=value,...)][@64B,100000f,zipf1.1,2.5Mpps]``; every part but the name may be left out.
Grammar of a mix: ``2 x snort + lpm``, as slomo prints it, or ``snort:2 + lpm``. The plus sign of a mix has a space
beside it; ``lpm+stats`` is a chain on one core.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from slomo.errors import InvalidValueError
from slomo.files.documents import in_document
from slomo.vocabulary.workload import Setting, Traffic, Workload

_SHAPE = re.compile(
    r"^(?P<nf>[A-Za-z0-9][\w.+-]*)(?:\((?P<knobs>[^()]*)\))?(?:@(?P<traffic>[^:@()]+))?(?::(?P<count>[^:]*))?$"
)
_NUMBER = r"(\d{1,18}(?:\.\d{1,18})?(?:[eE][-+]?\d{1,3})?)"
_TRAFFIC = {
    "packet_size_b": re.compile(r"^(\d{1,40})B$"),
    "flow_count": re.compile(r"^(\d{1,40})f$"),
    "zipf_exponent": re.compile(rf"^zipf{_NUMBER}$"),
    "offered_mpps": re.compile(rf"^{_NUMBER}Mpps$"),
}
_TIMES = re.compile(r"^(\d{1,9})\s+x\s+(\S.*)$")
_PLUS = re.compile(r"\s\+\s|\+(?=\s)|(?<=\s)\+")
_COUNT = re.compile(r":[^:()]*$")
#: More of one workload are no mix of any server, but a slip, and a list of them fills the memory.
MOST_INSTANCES = 4096


def counted(names: Iterable[str]) -> str:
    """Return names without repetition, in order, with their counts."""
    counts = Counter(names)
    return " + ".join(name if count == 1 else f"{count} x {name}" for name, count in counts.items())


def parse_workload(text: str) -> Workload:
    """Parse one workload. Raises InvalidValueError for a text outside the grammar, or a value out of range."""
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
    """Parse a workload and its number of instances, as in ``"stats:3"``; InvalidValueError as `parse_workload`."""
    match = _SHAPE.match(text_of(text).strip())
    if match is None:
        raise InvalidValueError(
            f"'{text}' names no workload",
            hint="write NF, NF:count, 2 x NF + NF, or NF(knob=value)@1500B,1000f",
        )
    return Workload(match["nf"], _configuration(match["knobs"], text), _traffic(match["traffic"], text)), _count(
        match["count"], text
    )


def instances_of(mix: str, most: int = MOST_INSTANCES) -> list[str]:
    """Return the workloads that a mix names, one text per instance, at most `most`.

    Raises InvalidValueError for a text outside the grammar.

    >>> instances_of("2 x snort@1500B + lpm"), instances_of("snort:2")
    (['snort@1500B', 'snort@1500B', 'lpm'], ['snort', 'snort'])
    """
    texts: list[str] = []
    for part in _PLUS.split(text_of(mix).strip()):
        times = _TIMES.match(part.strip())
        text = times[2] if times else part.strip()
        if not text and mix.strip():
            raise InvalidValueError(
                f"'{mix}' has no name beside a plus sign", hint="write for instance 2 x snort + lpm"
            )
        count = parse_instances(text)[1] * (int(times[1]) if times else 1)
        if not 0 < count <= most - len(texts):
            problem = f"more than the {most} instances that may be added" if count else "no instance of a workload"
            raise InvalidValueError(f"'{mix[:60]}' names {problem}")
        texts += [_COUNT.sub("", text)] * count
    return texts


def is_mix(name: object) -> bool:
    """Return whether a name may have a count or stand for several instances.

    >>> is_mix("lpm"), is_mix("lpm:2"), is_mix("lpm + nat")
    (False, True, True)
    """
    return isinstance(name, str) and (":" in name or " " in name)


def each_instance(mix: Sequence[Workload | str] | Mapping[str, int]) -> Sequence[Workload | str]:
    """Return a mix with one entry per instance: texts with counts or several names are replaced by their instances.

    Raises InvalidValueError for a single text instead of a list.

    >>> each_instance(["snort:2", "lpm"]), each_instance({"snort": 2})
    (['snort', 'snort', 'lpm'], ['snort', 'snort'])
    """
    if isinstance(mix, Mapping):
        mix = [f"{name}:{count}" for name, count in mix.items() if count != 0]
    if isinstance(mix, str):
        raise InvalidValueError(f"NFs are the text '{mix}', needed a list", hint=f"write ['{mix}']")
    if not any(map(is_mix, mix)):
        return mix
    instances: list[Workload | str] = []
    for name in mix:
        instances += instances_of(name, MOST_INSTANCES - len(instances)) if isinstance(name, str) else (name,)
    return instances


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
        if name in pairs:
            raise InvalidValueError(f"'{whole}': '{part}' is a second value of {name}, needed one")
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
        read = next(((name, number) for name, shape in _TRAFFIC.items() if (number := shape.match(part.strip()))), None)
        if read is None:
            raise InvalidValueError(
                f"'{whole}': '{part}' says nothing about traffic",
                hint="write for instance @1500B,1000f,zipf1.1,2.5Mpps (size, flows, law, load)",
            )
        name, number = read
        if name in values:
            raise InvalidValueError(f"'{whole}': '{part}' is a second value of {name}, needed one")
        values[name] = int(number[1]) if name in ("packet_size_b", "flow_count") else float(number[1])
    if "zipf_exponent" in values:
        values["flow_distribution"] = "zipf"
    with in_document(f"'{whole}'"):
        return Traffic(**values)
