"""Chains as verbs: simulated under a policy, their hand-overs, what their stages need."""
