"""Choose each run by the results of earlier ones (adaptive profiling)."""
