"""Measured data: runs, measurements, their provenance, and datasets."""
