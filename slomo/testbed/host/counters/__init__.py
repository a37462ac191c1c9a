"""Readers of hardware counters on a real machine; each yields contentiousness vectors from one source."""
