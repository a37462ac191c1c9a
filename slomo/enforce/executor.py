"""Carry a plan out: read, write down, change, read back; and take it back in reverse order.

Design law 9: apply, then undo, leaves the machine as it was found. Nothing is changed that is not on the disk first.
"""

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from slomo.enforce.change import PRESENT, Backend, Change, VanishedError, Wish
from slomo.enforce.plan import EnforcementPlan
from slomo.enforce.receipt import Receipt, receipts_directory
from slomo.errors import SlomoError, StoreError, TestbedError


@dataclass(frozen=True)
class Undone:
    """What an undo did.

    Attributes
    ----------
    restored : tuple of Change
        Knobs that were set back.
    vanished : tuple of str
        What could not be set back because it is there no more (a task that ended, a group somebody removed).
    overwritten : tuple of str
        Knobs that held neither what was found nor what was applied: somebody changed them meanwhile.
    """

    restored: tuple[Change, ...] = ()
    vanished: tuple[str, ...] = ()
    overwritten: tuple[str, ...] = ()


def diff(plan: EnforcementPlan, backend: Backend) -> tuple[Change, ...]:
    """Return what an apply would change; nothing where the machine is as planned.

    Raises
    ------
    SlomoError
        If the machine does not offer what the plan needs.
    """
    _require(backend)
    return tuple(change for change in _against(backend.wishes(plan), backend) if change.before != change.after)


def show(backend: Backend) -> Mapping[str, str | None]:
    """Return what every knob holds.

    Raises
    ------
    TestbedError
        If the machine does not say.
    """
    _require(backend)
    return {knob: backend.read(knob) for knob in backend.knobs()}


def apply(
    plan: EnforcementPlan, backend: Backend, *, receipts: Path | None = None, receipt: Receipt | None = None
) -> Receipt:
    """Make a machine as planned.

    Parameters
    ----------
    plan : EnforcementPlan
        What is wanted.
    backend : Backend
        Who does it.
    receipts : path, optional
        Folder of receipts.
    receipt : Receipt, optional
        One to go on with, so that one undo takes back all of it; else a new one is begun.

    Returns
    -------
    Receipt
        What :func:`undo` needs.

    Raises
    ------
    TestbedError
        If the machine refuses a change or does not hold it; what this call had changed is taken back.
    StoreError
        If a change cannot be written down; it is not made.
    """
    _require(backend)
    with backend.lock():
        wishes = backend.wishes(plan)  # what the machine does not offer is refused before a receipt is begun
        if receipt is None:
            receipt = Receipt.begin(receipts or receipts_directory(), backend.name, backend.place(), plan)
        else:
            _check_place(receipt, backend)
        made: list[Change] = []
        try:
            for together in _batches(wishes):
                changes = [change for change in _against(together, backend) if change.before != change.after]
                receipt.intend(*changes)
                made += changes
                for change in changes:
                    _make(change, backend)
        except SlomoError as problem:
            if not made:  # nothing was written down either
                raise
            raise _taken_back(problem, made, receipt, backend) from None
        receipt.mark("applied")
    return receipt


def undo(receipt: Receipt, backend: Backend) -> Undone:
    """Give every knob back what it held before; doing it again does nothing.

    Raises
    ------
    TestbedError
        If the receipt is of another boot or machine, or a knob cannot be set back; the others are.
    """
    if receipt.state == "undone":
        return Undone()
    _check_place(receipt, backend)
    with backend.lock():
        result, refused = _reverse(receipt.originals(), backend)
        if refused:
            raise TestbedError(
                f"receipt '{receipt.identifier}': {len(refused)} of {len(receipt.originals())} changes could not be "
                f"undone: {'; '.join(refused[:3])}",
                hint="mend that and undo it again; the others are undone",
            )
        _mark_undone(receipt)
    return result


def _against(wishes: Iterable[Wish], backend: Backend) -> tuple[Change, ...]:
    return tuple(Change(wish.knob, backend.read(wish.knob), wish.value) for wish in wishes)


def _batches(wishes: Iterable[Wish]) -> Iterator[list[Wish]]:
    """Return wishes in order, cut where one makes or removes what later ones are about.

    What is in one batch is written down at once: waiting for the disk is most of the time that an apply takes.
    """
    for _, batch in itertools.groupby(wishes, key=lambda wish: wish.value in (PRESENT, None)):
        yield list(batch)


def _make(change: Change, backend: Backend) -> None:
    backend.write(change.knob, change.after)
    held = backend.read(change.knob)
    if held != change.after:
        raise TestbedError(
            f"{backend.name}: '{change.knob}' was set to {change.after!r} but reads {held!r}",
            hint="the machine rounds it or somebody else sets it too; see `slomo enforce diff`",
        )


def _taken_back(problem: SlomoError, made: list[Change], receipt: Receipt, backend: Backend) -> SlomoError:
    """Undo what one apply had done before it failed, and return the error to raise."""
    _, refused = _reverse(tuple(made), backend)
    if refused:
        said = f"; {len(refused)} of its {len(made)} changes could not be taken back: {refused[0]}"
        hint = f"slomo enforce undo {receipt.identifier}"
    else:
        said, hint = "; what was changed before is taken back", problem.hint or "see `slomo enforce diff`"
        _note_taken_back(receipt, made)
    kind = type(problem) if isinstance(problem, TestbedError) else TestbedError
    return kind(f"{problem.message}{said}", hint=hint)


def _note_taken_back(receipt: Receipt, made: list[Change]) -> None:
    if len(receipt.changes()) == len(made):
        _mark_undone(receipt)
        return
    with contextlib.suppress(StoreError):  # a full disk: undo finds these knobs as they were, and passes over them
        for change in reversed(made):
            receipt.intend(Change(change.knob, change.after, change.before))
        receipt.mark("applied")


def _reverse(changes: tuple[Change, ...], backend: Backend) -> tuple[Undone, list[str]]:
    restored, vanished, overwritten, refused = [], [], [], []
    for change in reversed(changes):
        try:
            held = backend.read(change.knob)
            if held == change.before:
                continue
            if held is None and change.before is not None and change.after is not None:
                vanished.append(change.knob)
                continue
            if held != change.after:
                overwritten.append(change.knob)
            backend.write(change.knob, change.before)
            if backend.read(change.knob) != change.before:
                raise TestbedError(f"'{change.knob}' does not take {change.before!r} back")
            restored.append(change)
        except VanishedError:
            vanished.append(change.knob)
        except SlomoError as problem:
            refused.append(problem.message)
    return Undone(tuple(restored), tuple(vanished), tuple(overwritten)), refused


def _mark_undone(receipt: Receipt) -> None:
    try:
        receipt.mark("undone")
    except StoreError:
        # The machine is as it was found; without the mark a second undo finds nothing to do.
        return


def _require(backend: Backend) -> None:
    able, why = backend.available()
    if not able:
        raise TestbedError(f"{backend.name} cannot enforce here: {why}", hint="see `slomo doctor`")


def _check_place(receipt: Receipt, backend: Backend) -> None:
    head = receipt.head
    if head["backend"] != backend.name:
        raise TestbedError(
            f"receipt '{receipt.identifier}' was made by '{head['backend']}', not by '{backend.name}'",
            hint=f"undo it with --backend {head['backend']}",
        )
    if head["place"] != backend.place():
        raise TestbedError(
            f"receipt '{receipt.identifier}' is of another boot or machine ('{head['place']}', here "
            f"'{backend.place()}')",
            hint="what it changed ended with that boot; remove the receipt",
        )
