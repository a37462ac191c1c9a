"""Predict mixes in Arrow record batches, by one function that pyarrow, Dask, Spark and Ray can call.

Spark's `mapInArrow`, Ray's `map_batches` and Dask's `map_partitions` pass such batches. Names are converted to indices
once per batch, and `slomo.prediction.batch` answers with the same bits as everywhere.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from slomo.errors import ConfigurationError, InvalidValueError, SlomoError
from slomo.models.library import ModelLibrary, load_library
from slomo.models.storage import INDEX
from slomo.prediction.batch import predict_members
from slomo.prediction.members import Members
from slomo.prediction.options import OptionFields, PredictionOptions
from slomo.prediction.tenants import TenantModel, tenant_of

if TYPE_CHECKING:
    import pyarrow as pa

#: Input columns, added columns [Mpps; slowdown as a share of solo throughput], and texts added on request.
TARGET, COMPETITORS = "target", "competitors"
PREDICTED = ("solo_mpps", "throughput_mpps", "low_mpps", "high_mpps", "slowdown")
JUDGED = ("unit", "verdict", "reasons")


@dataclass(frozen=True)
class BulkQuestion:
    """Options for predicting many mixes; small, because engines send them to every worker."""

    #: Folder of a saved library, which every worker reads.
    models: str
    #: Needed where the library has models of several machines.
    machine: str | None = None
    #: How the answers are made.
    options: PredictionOptions = field(default_factory=PredictionOptions)
    #: Whether to add `JUDGED`, too.
    verdicts: bool = False

    @property
    def added(self) -> tuple[str, ...]:
        """Names of the columns that a prediction adds."""
        return (*PREDICTED, *JUDGED) if self.verdicts else PREDICTED


def predict_batches(
    batches: "Iterable[pa.RecordBatch]",
    models: str,
    machine: str | None = None,
    *,
    verdicts: bool = False,
    **how: Any,
) -> "Iterator[pa.RecordBatch]":
    """Yield each record batch with prediction columns added.

    Parameters
    ----------
    batches : iterable of pyarrow.RecordBatch
        With columns ``target`` (text) and ``competitors`` (list of text), names as `slomo.predict` takes them.
    models : str
        Folder of a saved library.
    machine : str, optional
        Needed where the library has models of several machines.
    verdicts : bool
        Also add the columns of `JUDGED`: unit, verdict, and reasons separated by ``; ``.
    **how
        As in `slomo.prediction.options.PredictionOptions`.

    Yields
    ------
    pyarrow.RecordBatch
        All columns of the batch, then those of `PREDICTED`, and of `JUDGED` if asked; NaN where a competitor lacks a
        metric the model reads.

    Raises
    ------
    ConfigurationError
        For a batch without these columns, or with other types in them.
    UnknownNameError, InvalidValueError
        For a name that has no model, or more NFs than the machine has cores.

    Examples
    --------
    >>> list(predict_batches([], "models"))
    []
    """
    fields: OptionFields = {"explain": False, **how}  # type: ignore[typeddict-item]
    question = BulkQuestion(str(models), machine, PredictionOptions(**fields), verdicts)
    for batch in batches:
        yield with_predictions(batch, predicted(batch, question))


def require_columns(names: Sequence[str], source: str = "") -> None:
    """Raise ConfigurationError if a table of mixes lacks a required column or has a column that predictions would fill.

    The message names `source`.
    """
    who = f"{source}: " if source else ""
    for column, kind in ((TARGET, "text"), (COMPETITORS, "a list of text")):
        if column not in names:
            has = ", ".join(names) or "none"
            raise ConfigurationError(
                f"{who}the mixes lack the column '{column}' ({kind}); they have: {has}", hint=_HINT
            )
    if taken := {*names} & {*PREDICTED, *JUDGED}:
        raise ConfigurationError(
            f"{who}the mixes have a column '{min(taken)}', which predictions are written to",
            hint="give it another name, or leave it out",
        )


def with_predictions(batch: "pa.RecordBatch", columns: "dict[str, NDArray[Any]]") -> "pa.RecordBatch":
    """Return a record batch with prediction columns added."""
    import pyarrow as pa

    arrays = [*batch.columns, *(pa.array(values) for values in columns.values())]
    return pa.RecordBatch.from_arrays(arrays, names=[*batch.schema.names, *columns])


def predicted(batch: "pa.RecordBatch", question: BulkQuestion) -> "dict[str, NDArray[Any]]":
    """Return the predictions for a record batch by column; raises as :func:`predict_batches`."""
    names, target, competitors = _coded(batch)
    index = Path(question.models, INDEX)
    library, known = _opened(question.models, index.stat().st_mtime_ns if index.exists() else 0)
    for number, name in names:
        if (question.machine, name) not in known:
            try:
                known[question.machine, name] = tenant_of(library, name, question.machine)
            except SlomoError as error:
                row = int(np.flatnonzero((target == number) | (competitors == number).any(axis=1))[0])
                error.message = f"mix {row}: {error.message}"
                raise
    tenants = tuple(known[question.machine, name] for _, name in names)
    made = predict_members(Members(tenants, target, competitors), question.machine or "", question.options)
    columns: dict[str, NDArray[Any]] = {name: getattr(made, name) for name in PREDICTED}
    if question.verdicts:
        reasons = np.array(["; ".join(each) for each in made.reasons], dtype=np.str_)
        columns |= {"unit": made.unit, "verdict": made.verdict, "reasons": reasons}
    return columns


@lru_cache(maxsize=4)
def _opened(models: str, changed: int) -> tuple[ModelLibrary, dict[tuple[str | None, str], TenantModel]]:  # noqa: ARG001
    """Return a library of models, and remembered look-ups of names; both are renewed when the models change."""
    return load_library(models), {}


def _coded(batch: "pa.RecordBatch") -> tuple[list[tuple[int, str]], NDArray[np.int64], NDArray[np.int64]]:
    """Return a batch's distinct names, and each mix as indices into them (-1: none)."""
    import pyarrow as pa
    import pyarrow.types as kinds

    require_columns(batch.schema.names)
    beside = batch.column(COMPETITORS)
    if kinds.is_null(beside.type) or not (kinds.is_list(beside.type) or kinds.is_large_list(beside.type)):
        held = beside.type.value_type if kinds.is_dictionary(beside.type) else beside.type
        raise ConfigurationError(f"column '{COMPETITORS}' holds {held}, needed lists of text", hint=_HINT)
    if beside.null_count:
        raise InvalidValueError(
            f"column '{COMPETITORS}': {beside.null_count} of {len(beside)} lists are missing", hint="[] says: alone"
        )
    flat, sizes = beside.flatten(), np.diff(beside.offsets.to_numpy(zero_copy_only=False)).astype(np.int64)
    targets = _dictionary(batch.column(TARGET), TARGET)
    others = _dictionary(flat, COMPETITORS)
    names = list(dict.fromkeys([*targets.dictionary.to_pylist(), *others.dictionary.to_pylist()]))
    number = {name: at for at, name in enumerate(names)}
    target, each = (
        np.array([*map(number.__getitem__, part.dictionary.to_pylist()), -1])[part.indices.to_numpy()]
        for part in (targets, others)
    )
    places = np.full((len(batch), int(sizes.max(initial=0))), -1, dtype=np.int64)
    places[np.arange(places.shape[1]) < sizes[:, np.newaxis]] = each
    used = np.unique(np.concatenate([target, each]))  # a dictionary may hold names that no row of this batch has
    assert isinstance(batch, pa.RecordBatch)
    packed = np.full(len(names) + 1, -1, dtype=np.int64)
    packed[used] = np.arange(len(used))
    return [(at, names[code]) for at, code in enumerate(used.tolist())], packed[target], packed[places]


def _dictionary(values: "pa.Array", column: str) -> "pa.DictionaryArray":
    """Return texts as codes into a dictionary. Raises ConfigurationError for other types or a missing text."""
    import pyarrow as pa
    import pyarrow.types as kinds

    if values.null_count:
        raise InvalidValueError(
            f"column '{column}': {values.null_count} of {len(values)} names are missing",
            hint="leave mixes without names out",
        )
    inner = values.type.value_type if kinds.is_dictionary(values.type) else values.type
    if not (kinds.is_string(inner) or kinds.is_large_string(inner) or (kinds.is_null(inner) and not len(values))):
        raise ConfigurationError(f"column '{column}' holds {inner}, needed text", hint=_HINT)
    coded = values if kinds.is_dictionary(values.type) else values.cast("string").dictionary_encode()
    try:
        coded.validate(full=True)
    except pa.ArrowInvalid as error:
        raise ConfigurationError(f"column '{column}' is damaged: {error}", hint="write the mixes again") from None
    return coded


_HINT = "needed: column 'target', text, and column 'competitors', lists of text"
