"""Measured values: runs, measurements, provenance, and datasets of them."""
