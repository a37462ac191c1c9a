"""What worker processes compute and die of; it imports little, since each of them imports it."""

import os
import signal


def once_killed(item: tuple[int, str]) -> int:
    """Kill the process that computes item 3, the first time."""
    number, marker = item
    if number == 3 and not os.path.exists(marker):
        open(marker, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def always_killed(item: int) -> int:
    """Kill every process that computes item 1."""
    if item == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return item
