"""Read the competitors in a table cell: ``lpm + 2 x snort``, ``lpm;snort:2``, empty for a run alone.

Imported co-locations whose competitors are known by name calibrate intervals and test models; models are never fitted
to them.
"""

import re
from dataclasses import replace

from slomo.errors import InvalidValueError
from slomo.vocabulary.workload import Traffic, Workload
from slomo.vocabulary.workload_text import instances_of, parse_workload

#: Largest number of competitors in one cell.
MOST_COMPETITORS = 1024
_SHORT = re.compile(r"(?<![\w.(=,-])(\d{1,9})\s*[x*]\s*(?=\S)")
_NOBODY = ("", "-", "none", "nobody", "alone")


def named_competitors(cell: str, traffic: Traffic) -> tuple[Workload, ...]:
    """Return the competitors that a cell names, one entry per instance; `traffic` is that of those that state none.

    A cell has one or several mixes (`slomo.vocabulary.workload_text`), joined by ``;``, also as ``2xNF`` or ``2*NF``.

    >>> [workload.nf for workload in named_competitors("lpm + 2 x snort", Traffic())]
    ['lpm', 'snort', 'snort']
    >>> [workload.key for workload in named_competitors("acl@64B,10f:1; nat", Traffic(1518))]
    ['acl@64B,10f', 'nat@1518B,100000f']
    >>> named_competitors("-", Traffic())
    ()
    """
    if cell.strip().lower() in _NOBODY:
        return ()
    result: list[Workload] = []
    for part in cell.split(";"):
        if not part.strip():
            raise InvalidValueError(f"'{cell}' has no name between two separators", hint="lpm + 2 x snort")
        for text in instances_of(_SHORT.sub(r"\1 x ", part), MOST_COMPETITORS):
            workload = parse_workload(text)
            result.append(workload if "@" in text else replace(workload, traffic=traffic))
        if len(result) > MOST_COMPETITORS:
            raise InvalidValueError(f"'{cell}' names more than {MOST_COMPETITORS} competitors")
    return tuple(result)
