"""Predict all mixes of a parquet file and write the predictions to another one, in bounded memory.

If a run is interrupted, the same call continues it and writes the bytes that an uninterrupted run would have written.

Each row group's predictions are written durably into a folder beside the result. The result is assembled from them in
order, and renamed into place when complete.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slomo.errors import ConfigurationError, SlomoError, UsageError
from slomo.extras import need
from slomo.files.durable import write_durably
from slomo.files.lock import held_alone
from slomo.files.opening import open_regular, read_bytes, read_text
from slomo.fleet.batches import (
    COMPETITORS,
    JUDGED,
    PREDICTED,
    TARGET,
    BulkQuestion,
    predicted,
    require_columns,
    with_predictions,
)
from slomo.fleet.spread import spread
from slomo.models.library import load_library
from slomo.models.storage import INDEX

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

#: Number of mixes predicted together: their arrays take about 60 MB.
BATCH_ROWS = 65_536
JOB = "job.json"
MOST_BYTES = 2**42
_HINT = "name a parquet file of mixes"


@dataclass(frozen=True)
class BulkSummary:
    """How many mixes were predicted, and how long it took."""

    #: Predicted altogether.
    mixes: int
    row_groups: int
    #: Row groups that an earlier call had finished.
    kept: int


def predict_file(
    source: str | Path,
    target: str | Path,
    question: BulkQuestion,
    *,
    jobs: int | None = None,
    scheduler: str | None = None,
    report: Callable[[int, int], object] | None = None,
) -> BulkSummary:
    """Predict every mix of a parquet file and write the predictions to another one.

    The columns are those of `slomo.fleet.batches.predict_batches`. `jobs`: processes, every core by default; the result
    does not depend on it. `scheduler`: address of a Dask scheduler whose workers see the same files. `report` hears how
    many of how many row groups are done.
    """
    need("pyarrow")
    if Path(target).is_dir():
        raise UsageError(f"cannot write the predictions to '{target}': it is a folder", hint="name a file in it")
    if Path(target).exists() and os.path.samefile(source, target):
        raise UsageError(f"{target}: holds the mixes themselves", hint="name another file for the predictions")
    load_library(question.models)
    with _opened(source) as file:
        groups, mixes = file.num_row_groups, file.metadata.num_rows
        require_columns(file.schema_arrow.names, str(source))
    parts = Path(f"{target}.parts")
    with suppress(OSError):  # then it cannot be locked, which is told
        parts.parent.mkdir(parents=True, exist_ok=True)
    with held_alone(parts.with_name(parts.name + ".lock"), f"'{target}'"):
        job = _begun(parts, source, question)
        resumed = sum(_part(parts, group).is_file() for group in range(groups))
        done = spread(
            partial(predict_group, str(source), str(parts), question), range(groups), jobs=jobs, scheduler=scheduler
        )
        try:
            write_durably(target, lambda place: _assemble(source, parts, done, place, question, job, report))
        finally:
            done.close()  # type: ignore[attr-defined]
        shutil.rmtree(parts, ignore_errors=True)
    return BulkSummary(mixes, groups, resumed)


def predict_group(source: str, parts: str, question: BulkQuestion, group: int) -> int:
    """Predict one row group and write its part file, unless that file exists."""
    import pyarrow as pa

    place = _part(Path(parts), group)
    if place.is_file():
        return group

    def write(file: Any) -> None:
        with _opened(source) as mixes, pa.ipc.new_stream(file, _schema(question)) as stream:
            first = 0
            for batch in _batches(mixes, group, [TARGET, COMPETITORS]):
                try:
                    columns = predicted(batch, question)
                except SlomoError as error:
                    error.message = f"{source}, row group {group}, batch from row {first}: {error.message}"
                    raise
                stream.write_batch(pa.RecordBatch.from_pydict(columns))
                first += len(batch)

    write_durably(place, write)
    return group


def _schema(question: BulkQuestion) -> "pa.Schema":
    import pyarrow as pa

    return pa.schema([(name, pa.string() if name in JUDGED else pa.float64()) for name in question.added])


def _part(parts: Path, group: int) -> Path:
    return parts / f"{group:06d}.arrow"


def _assemble(
    source: str | Path,
    parts: Path,
    done: Iterator[int],
    place: Any,
    question: BulkQuestion,
    job: str,
    report: Callable[[int, int], object] | None,
) -> None:
    """Write mixes and predictions to the result, row group by row group, as part files are finished."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with _opened(source) as file:
        if report is not None:
            report(0, file.num_row_groups)
        schema = pa.schema([*file.schema_arrow, *_schema(question)])
        texts = [*(file.schema.column(i).path for i in range(len(file.schema))), *question.added[len(PREDICTED) :]]
        with pq.ParquetWriter(
            place, schema, compression="zstd", compression_level=1, use_dictionary=texts, store_schema=False
        ) as writer:
            for group in done:
                with pa.ipc.open_stream(pa.OSFile(str(_part(parts, group)))) as predictions:
                    rows = []
                    for mixes, answers in zip(_batches(file, group, None), predictions, strict=True):
                        columns = dict(zip(question.added, answers.columns, strict=True))
                        rows.append(with_predictions(mixes, columns).cast(schema))
                writer.write_table(pa.Table.from_batches(rows, schema), row_group_size=max(1, sum(map(len, rows))))
                if report is not None:
                    report(group + 1, file.num_row_groups)
            writer.add_key_value_metadata({"slomo": job})


def _batches(file: "pq.ParquetFile", group: int, columns: list[str] | None) -> "Iterator[pa.RecordBatch]":
    return file.iter_batches(BATCH_ROWS, row_groups=[group], columns=columns)  # type: ignore[no-any-return]


@contextmanager
def _opened(path: str | Path) -> "Iterator[pq.ParquetFile]":
    """Open a parquet file with its texts dictionary-encoded. Raises ConfigurationError if it is invalid."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    os.close(open_regular(path, MOST_BYTES, _HINT))  # a FIFO or a device is refused before Arrow waits for it
    try:
        with pq.ParquetFile(path) as plain:
            paths = [plain.schema.column(i).path for i in range(len(plain.schema))]
        texts = [name for name in paths if name.split(".")[0] in (TARGET, COMPETITORS)]
        with pq.ParquetFile(path, read_dictionary=texts, page_checksum_verification=True) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise  # the system's: of what is written meanwhile
        text = " ".join(str(error).split())[:160]
        raise ConfigurationError(f"{path}: is no parquet file: {text}", hint=_HINT) from None


def _begun(parts: Path, source: str | Path, question: BulkQuestion) -> str:
    """Return the options and files as text, after removing part files made with other options."""
    with os.fdopen(open_regular(source, MOST_BYTES, _HINT), "rb") as file:
        mixes = hashlib.file_digest(file, "sha256").hexdigest()
    begun = ""
    options = {name: getattr(question.options, name) for name in ("method", "model", "compat", "coverage", "window_s")}
    index = hashlib.sha256(read_bytes(Path(question.models, INDEX))).hexdigest()
    asked = {"machine": question.machine, **options, **({"verdicts": True} if question.verdicts else {})}
    job = json.dumps({"mixes": mixes, "models": index, **asked}, sort_keys=True)
    with suppress(ConfigurationError):
        begun = read_text(parts / JOB)
    if begun != job:
        shutil.rmtree(parts, ignore_errors=True)
        write_durably(parts / JOB, job)
    return job
