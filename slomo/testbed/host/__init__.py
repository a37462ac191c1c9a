"""Measure on this machine: network functions as processes on cores, with or without hardware counters."""
