"""Apply plans of settings, read from files, to this machine, and undo them; for the command line and Python."""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slomo.enforce.backends.registry import load_backend
from slomo.enforce.change import Backend
from slomo.enforce.executor import Undone, undo
from slomo.enforce.plan import EnforcementPlan
from slomo.errors import ConfigurationError, SlomoError, StoreError, UnknownNameError
from slomo.files.documents import convert, parse
from slomo.files.opening import read_text
from slomo.host.journal import Journal, Receipt, receipts_directory
from slomo.host.marker import boot_identity
from slomo.placement.problem.decision import Decision
from slomo.placement.problem.enforcement import plan_from_decision
from slomo.vocabulary.machine import load_machine

SIMULATED = "simulated"


@dataclass(frozen=True)
class UndoReport:
    """Result of undoing one receipt (record of changes)."""

    #: Which.
    receipt: str
    #: Settings that were restored, that no longer exist, that others have changed since, or that another receipt
    #: covers.
    result: Undone = field(default_factory=Undone)
    #: Why there was nothing left to undo.
    ended: str = ""
    #: Why the change could not be undone; its receipt stays open.
    left: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the receipt, and the settings by what became of them."""
        restored = [change.knob for change in self.result.restored]
        others = {name: list(getattr(self.result, name)) for name in ("vanished", "foreign", "covered")}
        return {"receipt": self.receipt, "restored": restored, **others}


def read_plan(path: str | Path, *, server: str | None = None, machine: str | None = None) -> EnforcementPlan:
    """Read a plan of settings, or make one from the decisions that `slomo place --json` printed.

    `path`: YAML or JSON: a plan, a decision, or a list of decisions. `server`, `machine`: the server whose decisions
    become the plan, and its machine type. Raises ConfigurationError if the file is neither, or if decisions come
    without server and machine.
    """
    data = parse(read_text(path), str(path)).data
    decisions = data.get("decisions") if isinstance(data, Mapping) else data
    if isinstance(data, Mapping) and "request" in data:
        decisions = [data]
    if isinstance(decisions, list):
        if server is None or machine is None:
            raise ConfigurationError(
                f"{path} holds decisions: which server's part?", hint="name --member and --machine, its type"
            )
        made = convert(decisions, tuple[Decision, ...], str(path))
        return plan_from_decision(made, server, load_machine(machine))
    if not isinstance(data, Mapping):
        raise ConfigurationError(f"{path}: holds no plan", hint="see docs/guides/protect-a-victim.md")
    return EnforcementPlan.from_dict(data, str(path))


def undo_receipts(name: str | None, folder: Path | None = None, backend: Backend | None = None) -> list[UndoReport]:
    """Undo one record of changes (receipt), or all, newest first; failures are reported, the rest still undone.

    `name`: identifier; None for all. `folder`: folder of the journal. `backend`: backend that undoes; the one that the
    receipt names if not given. If one receipt is named, raises the SlomoError of its undoing, or UnknownNameError.
    """
    journal = Journal(folder or receipts_directory())
    if name is not None:
        receipt = next((receipt for receipt in journal.receipts() if receipt.identifier == name), None)
        if receipt is None:
            raise UnknownNameError("receipt", name, [item.identifier for item in journal.receipts(still_open=True)])
        return [UndoReport(name, undo(receipt, backend or load_backend(receipt.head["backend"])))]
    return [_undone(receipt, backend) for receipt in reversed(journal.receipts(still_open=True))]


def _undone(receipt: Receipt, backend: Backend | None) -> UndoReport:
    try:
        head = receipt.head
        ended = ended_with_its_machine(head["backend"], head["place"], alive=receipt.owner_is_alive)
        if ended:
            receipt.journal.close(receipt)
            return UndoReport(receipt.identifier, ended=ended)
        return UndoReport(receipt.identifier, undo(receipt, backend or load_backend(head["backend"])))
    except SlomoError as problem:
        return UndoReport(receipt.identifier, left=problem.message)


def ended_with_its_machine(backend: str, place: str, *, alive: bool) -> str:
    """Return why a receipt (record of changes)'s changes no longer exist (a reboot, for instance); None if they may.

    >>> ended_with_its_machine("simulated", "simulated e5-2620v4", alive=False)
    'what it changed was simulated, by a process that ended'
    """
    if backend == SIMULATED:
        return "" if alive else "what it changed was simulated, by a process that ended"
    _, _, where = place.partition("@")
    host, _, boot = where.partition("/")
    if host == os.uname().nodename and boot.partition(";")[0] != boot_identity():
        return "what it changed ended with that boot"
    return ""


def describe_receipts(folder: Path | None = None) -> list[dict[str, Any]]:
    """Return one mapping per receipt (record of changes): identifier, backend, state, number of changes."""
    journal, rows = Journal(folder or receipts_directory()), []
    for receipt in journal.receipts():
        row = {"receipt": receipt.identifier, "backend": "", "state": "unreadable", "changes": 0}
        with contextlib.suppress(StoreError):
            head = receipt.head
            row |= {"backend": head["backend"], "state": head["state"], "changes": len(receipt.changes())}
        rows.append(row)
    return rows
