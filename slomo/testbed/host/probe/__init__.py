"""Measure pressure without counters: by how much competitors slow down small programs (reporters)."""
