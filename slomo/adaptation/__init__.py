"""Derive models for traffic, settings and machines that were not profiled."""
