"""Choosing each run by what the ones before it taught."""
