"""`python -m slomo`: the command line, for environments where the script `slomo` is not on the path."""

import sys

from slomo.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
