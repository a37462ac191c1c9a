"""Chains as verbs: simulated, run on this host, placed on nodes and judged there; what their stages need."""
