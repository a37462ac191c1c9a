"""Work that lasts as long as the service: a fault is logged and ends nothing."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

_LOG = logging.getLogger("slomo.service")
#: Pause before work begins anew after a fault [s].
PAUSE_S = 1.0


async def lasting(what: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run work without end; after a fault that it did not expect it begins anew.

    `what`: names the work in the log. `work`: begins the work.
    """
    while True:
        try:
            await work()
        except Exception:
            _LOG.exception("%s failed, and begins anew", what)
        await asyncio.sleep(PAUSE_S)
