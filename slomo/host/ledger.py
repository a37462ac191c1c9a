"""Change settings ("knobs") through the machine's journal, so that each program can undo its changes in any order.

Setting and then undoing leaves the machine as it was found. Every change is written to the journal on disk before it is
made. Values that other programs set meanwhile are detected and left unchanged.
"""

import contextlib
import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from slomo.errors import SlomoError, StoreError, TestbedError
from slomo.host.journal import Journal, Layer, Receipt
from slomo.host.knobs import PRESENT, Change, InUseError, Knobs, VanishedError, Wish
from slomo.units import plural

#: Largest number of passes over all knobs: restoring one knob may change another (a process that leaves a CPU set).
_PASSES = 3


@dataclass(frozen=True)
class Undone:
    """Result of an undo: settings that were restored, that have vanished, and that were left unchanged."""

    #: Knobs that were restored.
    restored: tuple[Change, ...] = ()
    #: Knobs that could not be restored because their object no longer exists (an ended task, a removed group).
    vanished: tuple[str, ...] = ()
    #: Knobs that other programs have set meanwhile; left unchanged.
    foreign: tuple[str, ...] = ()
    #: Knobs that a later receipt has set; undoing that receipt will restore the earlier value.
    covered: tuple[str, ...] = ()


def set_knobs(receipt: Receipt, wishes: Sequence[Wish], knobs: Knobs) -> tuple[Change, ...]:
    """Give settings the intended values; restore those that the receipt (record of changes) has set but `wishes` omit.

    Return the changes made. TestbedError if the machine refuses a change or does not keep it; this call's changes are
    then undone. StoreError, without changing anything, if a change cannot be recorded.
    """
    session = _Session(receipt, knobs)
    before = receipt.layers()
    try:
        session.look(wishes)
        # a batch ends where a group is made or removed; it is one write, since an apply mostly waits for the disk
        for (give_back, _), group in itertools.groupby(wishes, lambda w: (w.give_back, w.value in (PRESENT, None))):
            batch = list(group)
            if give_back:
                names = {wish.knob for wish in batch}
                session.give_back([layer for layer in receipt.layers() if layer.label in names])
            else:
                session.set(batch)
        wished = {session.identity(wish.knob) for wish in wishes if not wish.give_back}
        session.give_back([layer for layer in receipt.layers() if (layer.place, layer.knob) not in wished])
    except SlomoError as problem:
        raise session.taken_back(problem, before) from None
    return tuple(session.made)


def undo(receipt: Receipt, knobs: Knobs) -> Undone:
    """Restore each setting of a receipt (record of changes) to the value of an earlier receipt or to the original one.

    Raises TestbedError if the receipt is of another boot or machine, or a knob cannot be restored; all others are
    restored.
    """
    if receipt.state == "undone":
        return Undone()
    check_place(receipt, knobs)
    with knobs.lock():
        session, layers = _Session(receipt, knobs), receipt.layers()
        result, refused = session.give_back(layers, complain=False)
        if refused:
            raise TestbedError(
                f"receipt '{receipt.identifier}': {len(refused)} of {len(layers)} changes could not be undone: "
                f"{'; '.join(refused[:3])}",
                hint="remove the cause and undo it again; the other changes are undone",
            )
        with contextlib.suppress(StoreError):  # the machine is restored; a second undo has nothing to do
            receipt.journal.mark(receipt, "undone")
    return result


def check_place(receipt: Receipt, knobs: Knobs) -> None:
    """Raise TestbedError if a receipt (a record of changes) is from another driver, machine or boot."""
    head = receipt.head
    if head["backend"] != knobs.name:
        raise TestbedError(
            f"receipt '{receipt.identifier}' was made by '{head['backend']}', not by '{knobs.name}'",
            hint=f"undo it with --backend {head['backend']}",
        )
    if head["place"] != knobs.place():
        raise TestbedError(
            f"receipt '{receipt.identifier}' is of another boot or machine ('{head['place']}', here '{knobs.place()}')",
            hint="its changes ended with that boot; `slomo enforce undo --all` closes it",
        )


@dataclass
class _Session:
    """The changes that are being made for one receipt (record of changes)."""

    receipt: Receipt
    knobs: Knobs
    made: list[Change] = field(default_factory=list)
    #: Number of another receipt whose value of one of these knobs is in force.
    heir: int | None = None
    #: Values of knobs before this session's first change, since setting one knob may change another.
    found: dict[str, str | None] = field(default_factory=dict)
    #: Knobs that change as a side effect of others in this session.
    following: set[str] = field(default_factory=set)

    @property
    def journal(self) -> Journal:
        return self.receipt.journal

    def identity(self, label: str) -> tuple[str, str]:
        """Return a setting's kind and name, which do not depend on how drivers are combined."""
        driver, knob = self.knobs.part(label)
        return driver.place(), knob

    def look(self, wishes: Sequence[Wish]) -> None:
        """Record the settings' values before any change."""
        for wish in wishes:
            if not wish.give_back:
                held = self.knobs.read(wish.knob)
                if held is not None:
                    self.found[wish.knob] = held
        values = {layer.knob: layer.value for layer in self.receipt.layers()}
        values |= {wish.knob.rpartition("|")[2]: wish.value for wish in wishes}
        early = [wish for wish in wishes if self.knobs.followed(wish.knob.rpartition("|")[2], values)]
        self.following = {wish.knob for wish in early}
        if early:  # recorded before the settings on which they depend change, so that a kill in between can be undone
            labels = {wish.knob.rpartition("|")[2]: wish.knob for wish in wishes}
            with self.journal.transaction():
                for wish in early:
                    followed = self.knobs.followed(wish.knob.rpartition("|")[2], values)
                    if all(self._leads(labels[name]) for name in followed if name in labels):
                        self._raise(wish)
                    self._layered(wish, self.found.get(wish.knob))

    def _leads(self, label: str) -> bool:
        """Return whether the receipt's value of a setting is in force, not the value of a later receipt."""
        owners = [layer.receipt for layer in self.journal.stack(*self.identity(label))]
        return self.receipt.number not in owners or owners[-1] == self.receipt.number

    def _raise(self, wish: Wish) -> None:
        """Move the receipt's value of a setting to the top of the setting's stack of values."""
        stack = self.journal.stack(*self.identity(wish.knob))
        mine = next((layer for layer in stack[:-1] if layer.receipt == self.receipt.number), None)
        if mine is not None:
            self.journal.drop(mine)
            self.journal.add(mine)

    def set(self, batch: Sequence[Wish]) -> None:
        """Record intended values in the journal, then write them to the machine."""
        now = {wish.knob: self.knobs.read(wish.knob) for wish in batch}
        with self.journal.transaction():
            changes = []
            for wish in batch:
                held = self.found.get(wish.knob, now[wish.knob])
                if self._layered(wish, held) and (held != wish.value or now[wish.knob] != wish.value):
                    changes.append(Change(wish.knob, held, wish.value))
        self.made += changes
        for change in changes:
            self._write(change.knob, change.after)

    def _layered(self, wish: Wish, held: str | None) -> bool:
        """Record an intended value in a setting's stack of values; return whether this value is now in force."""
        place, knob = self.identity(wish.knob)
        stack = self.journal.stack(place, knob)
        mine = next((layer for layer in stack if layer.receipt == self.receipt.number), None)
        if mine is not None and mine is not stack[-1]:
            self.journal.update(mine, wish.value, mine.value)
            return False
        if mine is not None and mine.value == wish.value == held:
            return True
        new_layer = Layer(0, place, knob, wish.knob, None, held, held)
        top = stack[-1] if stack else None
        if top is None or not (top.explains(held) or wish.knob in self.following):
            beneath = stack[-2] if mine is not None else None
            if beneath is not None and beneath.receipt is None:
                self.journal.update(beneath, held, held)
            else:
                self.journal.add(new_layer)
        if mine is not None:
            self.journal.drop(mine)
        self.journal.add(Layer(0, place, knob, wish.knob, self.receipt.number, wish.value, held))
        return True

    def _write(self, label: str, value: str | None) -> None:
        self.knobs.write(label, value)
        held = self.knobs.read(label)
        if held != value:
            raise TestbedError(
                f"{self.knobs.name}: '{label}' was set to {value!r} but reads {held!r}",
                hint="the machine rounds it or another program sets it too; see `slomo enforce diff`",
            )

    def give_back(self, layers: Sequence[Layer], *, complain: bool = True) -> tuple[Undone, list[str]]:
        """Restore settings to their values before this receipt (record of changes), the last change first."""
        kinds: dict[str, list[str]] = {"vanished": [], "foreign": [], "covered": []}
        pending: list[Change] = []
        steady: list[Change] = []
        refused: list[str] = []
        settled: list[Layer] = []
        if not layers:
            return Undone(), refused
        with self.journal.transaction():
            for layer in reversed(layers):
                stack = self.journal.stack(layer.place, layer.knob)
                try:
                    held = self.knobs.read(layer.label)
                except SlomoError as problem:
                    refused.append(problem.message)
                    continue
                kind, change = self._judged(layer, stack, held, layers)
                if kind == "steady":
                    steady.append(change)
                elif kind == "pending":
                    self.journal.update(layer, held, change.after)
                    pending.append(change)
                else:
                    # restoring other knobs may change the value that covers this one
                    stays = kind == "covered" and held is not None and stack[-1].explains(held)
                    steady += [Change(layer.label, held, held)] * stays
                    kinds[kind].append(layer.label)
                    self.heir = stack[-1].receipt if kind == "covered" else self.heir
                    settled.append(layer)
        self.made += pending
        restored, gone, in_use, failed = self._restored(pending, steady)
        heirs = {label: self._holder(label) or self.heir for label in failed}
        # a setting of another receipt prevents restoring it: both are restored when that receipt is undone
        for label, reason in failed.items():
            kinds["covered"] += [label] if heirs[label] is not None else []
            refused += [reason] if heirs[label] is None else []
        remains = {label: self._read(label) for label in heirs}
        with contextlib.suppress(StoreError), self.journal.transaction():
            ours = {change.knob for change in (*pending, *steady)}
            for layer in layers:
                heir = heirs.get(layer.label)
                stack = self.journal.stack(layer.place, layer.knob)
                if heir is not None and heir not in [each.receipt for each in stack]:
                    self.journal.hand_over(layer, heir)
                elif layer in settled or (layer.label in ours and (heir is not None or layer.label not in failed)):
                    # settled ones are removed only now: after a kill the receipt still has the groups that contain its
                    # own
                    self.journal.remove(layer)
                    if heir is not None and (left := self.journal.stack(layer.place, layer.knob)):
                        self.journal.update(left[-1], left[-1].value, remains[layer.label])  # it still has our value
        if refused and complain:
            raise TestbedError(
                f"{plural(len(refused), 'knob')} could not be restored: {refused[0]}", hint="see `slomo doctor`"
            )
        vanished = (*kinds["vanished"], *gone)
        changed = tuple(change for change in restored if change.before != change.after)
        return Undone(changed, vanished, (*kinds["foreign"], *in_use), tuple(kinds["covered"])), refused

    def _judged(
        self, layer: Layer, stack: Sequence[Layer], held: str | None, layers: Sequence[Layer]
    ) -> tuple[str, Change]:
        """Return how a recorded value is undone (covered, steady, vanished, pending, foreign), and by which change."""
        beneath = [each for each in stack if each.number < layer.number]
        change = Change(layer.label, held, beneath[-1].value if beneath else None)
        if stack[-1].number != layer.number:
            return "covered", change
        if held == change.after:
            # the kernel may have stored other CPUs for the thread after its CPU set
            return "steady" if held is None or self._holder(layer.label) is None else "pending", change
        if held is None and layer.value is not None:
            return "vanished", change
        follows = self.knobs.followed(layer.knob, {each.knob: each.value for each in layers})
        return ("pending" if follows or layer.explains(held) else "foreign"), change

    def _holder(self, label: str) -> int | None:
        """Return another open receipt that sets a setting on which the setting `label` depends; None if none does."""
        knob, others = self.identity(label)[1], self._others
        return next((number for number, values in others.items() if self.knobs.followed(knob, values)), None)

    @functools.cached_property
    def _others(self) -> dict[int, dict[str, str | None]]:
        """Receipt number -> its settings and values, for all other receipts that were not undone."""
        return {
            receipt.number: {layer.knob: layer.value for layer in receipt.layers()}
            for receipt in self.journal.receipts(still_open=True)
            if receipt.number != self.receipt.number
        }

    def _restored(
        self, pending: list[Change], steady: list[Change]
    ) -> tuple[list[Change], list[str], list[str], dict[str, str]]:
        """Write settings in several passes; return those restored, vanished, in use, and refused (with the reasons)."""
        restored: list[Change] = []
        gone: list[str] = []
        in_use: list[str] = []
        failed: dict[str, str] = {}
        for _ in range(_PASSES):
            failed, in_use = {}, []
            for change in pending:
                try:
                    restored.append(self._written(change))
                except VanishedError:
                    gone.append(change.knob)
                except InUseError:
                    in_use.append(change.knob)
                except SlomoError as problem:
                    failed[change.knob] = problem.message
            disturbed = [change for change in (*restored, *steady) if self._disturbed(change)]
            pending = [*(change for change in pending if change.knob in (*failed, *in_use)), *disturbed]
            if not pending:
                break
            failed.update((change.knob, f"'{change.knob}' does not keep {change.after!r}") for change in disturbed)
            restored = [change for change in restored if change not in disturbed]
            steady = [change for change in steady if change not in disturbed]
        return restored, gone, in_use, failed

    def _written(self, change: Change) -> Change:
        """Write a change, or the next earlier value whose object exists; raise VanishedError if there is none."""
        try:
            self._write(change.knob, change.after)
        except VanishedError:
            for layer in reversed(self.journal.stack(*self.identity(change.knob))[:-2]):
                with contextlib.suppress(VanishedError):
                    self._write(change.knob, layer.value)
                    return replace(change, after=layer.value)
            raise
        return change

    def _disturbed(self, change: Change) -> bool:
        """Return whether a restored setting has another value again."""
        held = self._read(change.knob)
        return held is not None and held != change.after

    def _read(self, label: str) -> str | None:
        """Return the value of a setting; None if it cannot be read."""
        try:
            return self.knobs.read(label)
        except SlomoError:
            return None

    def taken_back(self, problem: SlomoError, before: Sequence[Layer]) -> SlomoError:
        """Undo this session's changes after a failure, and return the error to raise."""
        first: dict[str, Change] = {}
        for change in self.made:
            earlier = first.pop(change.knob, None)
            first[change.knob] = Change(change.knob, change.after, earlier.after if earlier else change.before)
        back = list(reversed(first.values()))
        steady = [change for change in back if self._holds(change)]
        _, _, _, failed = self._restored([change for change in back if change not in steady], steady)
        if failed:
            consequence = (
                f"; {len(failed)} of its {len(first)} changes could not be taken back: {next(iter(failed.values()))}"
            )
            hint = f"slomo enforce undo {self.receipt.identifier}"
        else:
            consequence = "; what was changed before is taken back" if first else ""
            hint = problem.hint or "see `slomo enforce diff`"
            with contextlib.suppress(StoreError):  # on a full disk, a later undo finds these knobs restored
                self.journal.rewrite(self.receipt, before)
                if not before:
                    self.journal.mark(self.receipt, "undone")
        kind = type(problem) if isinstance(problem, TestbedError) or not first else TestbedError
        return kind(f"{problem.message}{consequence}", hint=hint)

    def _holds(self, change: Change) -> bool:
        try:
            return self.knobs.read(change.knob) == change.after
        except SlomoError:
            return False
