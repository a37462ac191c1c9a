"""The console script `slomo`, also `python -m slomo` where the script is not on the path."""

import gc
import os
import sys

from slomo.cli.main import main


def console() -> int:
    """Set up this process, which ends with the command, and run the command line."""
    gc.set_threshold(20_000)  # imports leave tens of thousands of objects; by default they are searched every 700
    # numpy reads it on import; starting the threads takes a third of the import, and small matrices are slower on them
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return main()


if __name__ == "__main__":
    sys.exit(console())
