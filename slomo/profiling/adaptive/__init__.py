"""Adaptive profiling: each run is chosen from the results of earlier ones."""
