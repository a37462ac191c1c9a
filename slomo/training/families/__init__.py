"""Sensitivity model families by name."""
