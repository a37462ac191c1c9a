"""Carry out a plan: refuse conflicts; record, make and verify each change; undo changes in any order."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from slomo.enforce.change import Backend
from slomo.enforce.conflicts import require_free
from slomo.enforce.plan import EnforcementPlan
from slomo.errors import TestbedError
from slomo.host.journal import Journal, Receipt, receipts_directory
from slomo.host.knobs import Change
from slomo.host.ledger import Undone, check_place, set_knobs, undo

__all__ = ["Undone", "apply", "diff", "show", "undo"]


def diff(plan: EnforcementPlan, backend: Backend) -> tuple[Change, ...]:
    """Return the changes that `apply` would make; empty if the machine already has the plan's settings.

    Raises SlomoError if the machine does not support the plan.
    """
    _require(backend)
    wished = {wish.knob: wish.value for wish in backend.wishes(plan)}
    changes = (Change(knob, backend.read(knob), value) for knob, value in wished.items())
    return tuple(change for change in changes if change.before != change.after)


def show(backend: Backend) -> Mapping[str, str | None]:
    """Return the present value of every setting that a backend knows; TestbedError if one cannot be read."""
    _require(backend)
    return {knob: backend.read(knob) for knob in backend.knobs()}


def apply(
    plan: EnforcementPlan, backend: Backend, *, receipts: Path | None = None, receipt: Receipt | None = None
) -> Receipt:
    """Change a machine's settings to those of a plan; return the receipt by which the changes can be undone.

    Parameters
    ----------
    plan : EnforcementPlan
        The plan to carry out.
    backend : Backend
        Backend that sets the knobs.
    receipts : path, optional
        Folder of the journal; by default the machine's own.
    receipt : Receipt, optional
        An open receipt to continue: the machine gets this plan's settings, and knobs that only the receipt's previous
        plan had set are restored.

    Returns
    -------
    Receipt
        Record for :func:`undo`; `made` lists the changes of this call.

    Raises
    ------
    InvalidValueError
        If the plan conflicts with itself, with protected processes, or with guarantees of another receipt.
    TestbedError
        If the machine refuses a change or does not keep it; the changes of this call are then undone.
    StoreError
        If a change cannot be recorded; it is then not made.
    """
    _require(backend)
    with backend.lock():
        if receipt is not None:
            check_place(receipt, backend)
        own = [] if receipt is None else [layer.label for layer in receipt.layers()]
        journal = Journal(receipts or receipts_directory()) if receipt is None else receipt.journal
        wishes = backend.revised_wishes(plan, [*own, *journal.taken_along()])
        require_free(plan, wishes, backend, journal, receipt)  # before anything is written
        if receipt is None:
            receipt = journal.begin(backend.name, backend.place(), plan.to_dict())
        made = set_knobs(receipt, wishes, backend)
        journal.mark(receipt, "applied", plan.to_dict())
    return replace(receipt, made=made)


def _require(backend: Backend) -> None:
    able, why = backend.available()
    if not able:
        raise TestbedError(f"{backend.name} cannot enforce here: {why}", hint="see `slomo doctor`")
