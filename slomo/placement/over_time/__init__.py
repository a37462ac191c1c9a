"""Simulate placed requests, also over time, and count broken SLOs."""
