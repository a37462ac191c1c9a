"""Placement as time goes by, and its judge."""
