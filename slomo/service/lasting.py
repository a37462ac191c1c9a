"""Run background work for as long as the service runs; an error is logged and the work is started again."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

_LOG = logging.getLogger("slomo.service")
#: Pause before work begins anew after a fault [s].
PAUSE_S = 1.0


async def lasting(what: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run work for as long as the service runs; after an unexpected error, log it and start the work again.

    `what`: names the work in the log. `work`: begins the work.
    """
    while True:
        try:
            await work()
        except Exception:
            _LOG.exception("%s failed, and begins anew", what)
        await asyncio.sleep(PAUSE_S)
