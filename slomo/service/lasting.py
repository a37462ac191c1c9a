"""Run background work for as long as the service runs; after an error, log it and start the work again."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

_LOG = logging.getLogger("slomo.service")
#: Pause after an error before work is started again [s].
PAUSE_S = 1.0


async def lasting(what: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `work` for as long as the service runs; after an unexpected error, log it as `what` and start again."""
    while True:
        try:
            await work()
        except Exception:
            _LOG.exception("%s failed, and begins anew", what)
        await asyncio.sleep(PAUSE_S)
