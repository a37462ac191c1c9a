"""Readers of hardware counters on a real machine; each uses one tool."""
