"""Models for traffic and settings that were not profiled."""
