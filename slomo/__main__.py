"""The console script `slomo`, also `python -m slomo` where the script is not on the path."""

import gc
import os
import signal
import sys
from types import FrameType

from slomo.cli.faults import ended_by
from slomo.cli.main import main


def console() -> int:
    """Set up this process, which ends with the command, and run the command line."""
    gc.set_threshold(20_000)  # imports leave tens of thousands of objects; by default they are searched every 700
    # numpy reads it on import; starting the threads takes a third of the import, and small matrices are slower on them
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  (signal's signature)
        if not ended_by:  # `timeout` signals a command and then its group; the second signal must not interrupt the end
            ended_by.append(number)
            raise KeyboardInterrupt

    # SIGTERM unwinds the command as Ctrl-C does, so that programs it started end with it; then it ends by SIGTERM,
    # which service managers count as a clean end. SIGHUP, sent when a terminal closes, does what SIGTERM does.
    signal.signal(signal.SIGTERM, end)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    code = main()
    if ended_by:
        sys.stdout.flush()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)  # the kernel keeps this from a container's first process
        code = 128 + signal.SIGTERM
    return code


if __name__ == "__main__":
    sys.exit(console())
