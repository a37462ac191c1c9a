"""Traffic and settings that were not profiled."""
