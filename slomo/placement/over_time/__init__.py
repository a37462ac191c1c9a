"""Placement over time, and its judge."""
