"""Pressure without counters, measured as the slowdown of small reporters with known sensitivity."""
