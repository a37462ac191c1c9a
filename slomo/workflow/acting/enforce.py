"""Enforce plans from files on this machine: what the command line and Python share."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slomo.enforce.backends.registry import load_backend
from slomo.enforce.change import Backend
from slomo.enforce.executor import Undone, undo
from slomo.enforce.plan import EnforcementPlan, plan_from_decision
from slomo.enforce.receipt import Receipt, all_receipts, open_receipts, receipts_directory
from slomo.errors import ConfigurationError, UnknownNameError
from slomo.files.documents import convert, parse
from slomo.files.opening import read_text
from slomo.placement.problem.decision import Decision
from slomo.vocabulary.machine import load_machine


@dataclass(frozen=True)
class UndoReport:
    """What undoing one receipt did.

    Attributes
    ----------
    receipt : Receipt
        Which.
    result : Undone
        What was restored, vanished and overwritten.
    """

    receipt: Receipt
    result: Undone


def read_plan(path: str | Path, *, server: str | None = None, machine: str | None = None) -> EnforcementPlan:
    """Read a plan, or make one of the decisions that `slomo place --json` prints.

    Parameters
    ----------
    path : str or path
        YAML or JSON: a plan, a decision, or a list of decisions.
    server, machine : str, optional
        Which server's part of the decisions, and its type.

    Raises
    ------
    ConfigurationError
        If it is neither, or decisions come without server and machine.
    """
    data = parse(read_text(path), str(path)).data
    decisions = data.get("decisions") if isinstance(data, Mapping) else data
    if isinstance(data, Mapping) and "request" in data:
        decisions = [data]
    if isinstance(decisions, list):
        if server is None or machine is None:
            raise ConfigurationError(
                f"{path} holds decisions: which server's part?", hint="name --server and --machine, its type"
            )
        made = convert(decisions, tuple[Decision, ...], str(path))
        return plan_from_decision(made, server, load_machine(machine))
    if not isinstance(data, Mapping):
        raise ConfigurationError(f"{path}: holds no plan", hint="see docs/guides/protect-a-victim.md")
    return EnforcementPlan.from_dict(data)


def find_receipt(name: str, folder: Path | None = None) -> Receipt:
    """Return a receipt by its file or identifier.

    Raises
    ------
    UnknownNameError
        If there is none.
    """
    if Path(name).is_file():
        return Receipt(Path(name))
    receipts = {receipt.identifier: receipt for receipt in all_receipts(folder)}
    if name not in receipts:
        raise UnknownNameError("receipt", name, receipts)
    return receipts[name]


def undo_receipts(name: str | None, folder: Path | None = None, backend: Backend | None = None) -> list[UndoReport]:
    """Undo one receipt, or all that are open, newest first.

    Parameters
    ----------
    name : str or None
        File or identifier; None for all.
    folder : path, optional
        Folder of receipts.
    backend : Backend, optional
        Who undoes; the one that the receipt names if not given.

    Raises
    ------
    SlomoError
        What `slomo.enforce.undo` raises.
    """
    receipts = [find_receipt(name, folder)] if name is not None else list(reversed(open_receipts(folder)))
    return [
        UndoReport(receipt, undo(receipt, backend or load_backend(receipt.head["backend"]))) for receipt in receipts
    ]


def describe_receipts(folder: Path | None = None) -> list[dict[str, Any]]:
    """Return one mapping per receipt: identifier, backend, state, number of changes."""
    return [
        {
            "receipt": receipt.identifier,
            "backend": receipt.head["backend"],
            "state": receipt.state,
            "changes": len(receipt.originals()),
        }
        for receipt in all_receipts(folder or receipts_directory())
    ]
