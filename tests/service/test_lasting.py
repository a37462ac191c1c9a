"""Work that lasts as long as the service."""

import asyncio

import pytest

from slomo.service import lasting


def test_work_begins_anew_after_a_fault(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A fault that nobody expected is logged with its traceback; a cancelled task ends."""
    monkeypatch.setattr(lasting, "PAUSE_S", 0.0)
    begun, fine = [0], asyncio.Event()

    async def work() -> None:
        begun[0] += 1
        if begun[0] < 3:
            raise KeyError("a node that nobody knows")
        fine.set()
        await asyncio.sleep(3600.0)

    async def run() -> None:
        task = asyncio.create_task(lasting.lasting("looking", work))
        await asyncio.wait_for(fine.wait(), 10.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert begun == [3]
    assert [record.getMessage() for record in caplog.records] == ["looking failed, and begins anew"] * 2
    assert "a node that nobody knows" in caplog.text
