"""Functions behind `slomo control`, `enforce`, `whatif` and `noisy-neighbour`, for the command line and Python."""
