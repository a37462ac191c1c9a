"""Tests that every enforcement backend must pass: subclass the class and override three methods."""

from pathlib import Path

import pytest

from slomo.enforce.change import Backend
from slomo.enforce.executor import apply, diff, show, undo
from slomo.enforce.plan import EnforcementPlan
from slomo.errors import SlomoError
from slomo.host.journal import Receipt, open_receipts


class EnforcerContract:
    """Tests of a backend; pytest collects them in subclasses whose name begins with ``Test``.

    Examples
    --------
    In a test module of yours::

        class TestMyBackend(EnforcerContract):
            __test__ = True

            def make_backend(self):
                return MyBackend()

            def plans(self):
                return EnforcementPlan("s", (...,)), EnforcementPlan("s", (...,))

            def refused_plan(self):
                return EnforcementPlan("s", (TenantSetting("a", llc_way_mask=1 << 40),))
    """

    __test__ = False

    def make_backend(self) -> Backend:
        """Return the backend to be checked, on a machine that tests may change."""
        raise NotImplementedError

    def plans(self) -> tuple[EnforcementPlan, EnforcementPlan]:
        """Return two different plans that the machine supports, each with an effect."""
        raise NotImplementedError

    def refused_plan(self) -> EnforcementPlan:
        """Return a plan that the machine does not support."""
        raise NotImplementedError

    @pytest.fixture
    def backend(self) -> Backend:
        """Return the backend; skip the test if it does not work here."""
        backend = self.make_backend()
        able, why = backend.available()
        if not able:
            pytest.skip(f"{backend.name}: {why}")
        return backend

    @pytest.fixture
    def folder(self, tmp_path_factory: pytest.TempPathFactory) -> object:
        """Return a folder for receipts (records of changes)."""
        return tmp_path_factory.mktemp("receipts")

    def state(self, backend: Backend) -> object:
        """Return everything that a plan may change; override it to inspect more than the backend does."""
        knobs = {wish.knob for plan in self.plans() for wish in backend.wishes(plan)}
        return {**show(backend), **{knob: backend.read(knob) for knob in sorted(knobs)}}

    def test_it_is_named_and_placed(self, backend: Backend) -> None:
        """A backend has a name, and says on which machine its records of changes are valid."""
        assert backend.name
        assert backend.place()

    def test_applied_is_read_back(self, backend: Backend, folder: object) -> None:
        """After `apply`, the machine has the plan's settings: `diff` is empty."""
        receipt = _apply(self.plans()[0], backend, folder)
        try:
            assert diff(self.plans()[0], backend) == ()
            assert receipt.state == "applied"
            assert receipt.changes()
        finally:
            undo(receipt, backend)

    def test_diff_changes_nothing(self, backend: Backend) -> None:
        """`diff` does not change the machine."""
        before = self.state(backend)

        assert diff(self.plans()[0], backend)
        assert self.state(backend) == before

    def test_undone_is_as_found(self, backend: Backend, folder: object) -> None:
        """After `apply` and `undo` the machine is as before; a second `undo` does nothing."""
        before = self.state(backend)

        receipt = _apply(self.plans()[0], backend, folder)
        assert self.state(backend) != before
        undo(receipt, backend)

        assert self.state(backend) == before
        assert undo(receipt, backend).restored == ()
        assert receipt.state == "undone"

    def test_one_receipt_for_many_plans(self, backend: Backend, folder: object) -> None:
        """Several plans applied with one receipt are undone by one `undo`."""
        before = self.state(backend)
        first, second = self.plans()

        receipt = _apply(first, backend, folder)
        for plan in (second, first, second):
            apply(plan, backend, receipt=receipt)
        undo(receipt, backend)

        assert self.state(backend) == before

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    def test_receipts_are_undone_in_any_order(self, backend: Backend, folder: object, order: tuple[int, ...]) -> None:
        """Whichever of two receipts (records of changes) is undone first, the machine ends as it was at the start."""
        before = self.state(backend)

        receipts = [_apply(plan, backend, folder) for plan in self.plans()]
        for number in order:
            undo(receipts[number], backend)

        assert self.state(backend) == before
        assert [receipt.state for receipt in receipts] == ["undone", "undone"]

    def test_undoing_the_first_leaves_the_second(self, backend: Backend, folder: object) -> None:
        """The settings of the second receipt (record of changes) stay in force until it is undone itself."""
        first, second = (_apply(plan, backend, folder) for plan in self.plans())

        undo(first, backend)
        left = diff(self.plans()[1], backend)
        undo(second, backend)

        assert left == ()

    def test_a_receipt_survives_its_process(self, backend: Backend, folder: object) -> None:
        """A receipt (record of changes) that another process reads from disk can be undone, too."""
        before = self.state(backend)
        _apply(self.plans()[0], backend, folder)

        (receipt,) = open_receipts(Path(str(folder)))
        undo(receipt, backend)

        assert self.state(backend) == before

    def test_what_it_cannot_do_is_refused_whole(self, backend: Backend, folder: object) -> None:
        """A plan that the machine cannot carry out raises an error and changes nothing."""
        before = self.state(backend)

        with pytest.raises(SlomoError) as caught:
            _apply(self.refused_plan(), backend, folder)

        assert caught.value.exit_code in (2, 3)
        assert caught.value.hint
        assert self.state(backend) == before


def _apply(plan: EnforcementPlan, backend: Backend, folder: object) -> Receipt:
    return apply(plan, backend, receipts=Path(str(folder)))
