r"""Import measured tables and PCM recordings as profile datasets.

A mapping (`slomo.records.importing.mapping`) states the meaning of the columns.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     table = Path(folder, "acl.txt")
...     _ = table.write_text("2e6 4 500\n8e6 16 400\n")
...     dataset = import_table(table, {
...         "machine": "bluefield-2", "nf": "acl", "names": ["misses", "wss", "perf"],
...         "columns": {
...             "misses": {"metric": "L2MISS", "unit": "1/s"}, "wss": {"metric": "L3OCC", "unit": "MiB"},
...             "perf": {"target": "throughput", "unit": "kpps"},
...         },
...     })
>>> dataset.throughput.tolist(), dataset.vectors("competition", ["L3OCC"]).iloc[1].tolist()
([0.5, 0.4], [16384.0])
>>> dataset.solo_mpps("acl"), dataset.solo_source("acl")
(0.5, 'best measured')
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

import slomo.records.importing.pcm as pcm_import
import slomo.records.importing.table as table_import
import slomo.records.schema as schema
from slomo.errors import ConfigurationError
from slomo.records.dataset import ProfileDataset
from slomo.records.importing.mapping import TableMapping, load_mapping, throughput_mpps
from slomo.records.provenance import describe_environment


def import_table(path: str | Path, mapping: str | Path | Mapping[str, Any]) -> ProfileDataset:
    """Read a measured table, or PCM recordings, through a mapping.

    Parameters
    ----------
    path : str or Path
        The table (CSV, whitespace-separated or parquet). For a mapping of kind ``pcm``: the recording, or the folder of
        recordings.
    mapping : path or mapping
        Meaning of the columns; a YAML file, or its content.

    Returns
    -------
    ProfileDataset
        Rows of plan ``imported`` (``solo`` for rows without competitors). `environment["import"]` lists the rows that
        were dropped, the metrics that were not reported, and the columns that were not used.

    Raises
    ------
    ConfigurationError
        For an invalid mapping or table; the message names file, line, and field or column.
    """
    place, document = Path(path), load_mapping(mapping)
    if document.file.kind == "pcm":
        table_rows = pcm_import.read_rows(place, document)
    else:
        if place.is_dir():
            raise ConfigurationError(
                f"{place}: is a directory, needed one table", hint="import its files one by one and merge them"
            )
        table_rows = table_import.read_rows(place, document)
    frame = pd.DataFrame(table_rows.listed)
    return ProfileDataset(frame, _environment(place, document, table_rows, frame))


def _environment(
    path: Path, mapping: TableMapping, table_rows: table_import.TableRows, frame: pd.DataFrame
) -> dict[str, Any]:
    solo = mapping.file.solo
    shares = solo is None and any(column.target == "share" for column in mapping.columns.values())
    report: dict[str, Any] = {"file": path.name, "rows": len(table_rows.listed), "dropped": table_rows.dropped}
    report |= {"unreported": table_rows.unreported, "ignored": table_rows.ignored}
    environment = describe_environment("imported", host=False) | {"import": report}
    if shares:
        report["unit"] = "share"
        throughput_units: dict[str, dict[str, str]] = {}
        for machine, nf in zip(frame[schema.MACHINE], frame[schema.NF], strict=True):
            throughput_units.setdefault(str(machine), {})[str(nf)] = "share"
        environment["throughput_units"] = throughput_units
    if shares or solo is not None:
        mpps = 1.0 if solo is None else throughput_mpps(solo.value, solo.unit)
        environment["stated_solo_mpps"] = {str(target): mpps for target in frame[schema.TARGET].unique()}
    elif not (frame[schema.PLAN] == schema.Plan.SOLO).any():
        report["solo"] = "not measured: slowdowns are relative to the best throughput measured"
    described = [column for column in mapping.columns.values() if column.feature and column.unit]
    if described:
        report["units"] = {f"{schema.TRAFFIC_PREFIX}{column.feature}": column.unit for column in described}
    return environment
