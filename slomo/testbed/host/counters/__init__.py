"""Readers of hardware counters on a real machine, each by one tool."""
