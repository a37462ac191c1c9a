"""Decide whether a server can run a mix of network functions: predicted throughputs, their bounds, verdicts."""
