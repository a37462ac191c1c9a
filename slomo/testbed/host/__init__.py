"""The real testbed: network functions as processes on this machine's cores, with or without hardware counters."""
