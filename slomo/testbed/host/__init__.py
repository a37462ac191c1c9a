"""A real testbed: network functions as processes on the cores of this machine, with or without hardware counters."""
