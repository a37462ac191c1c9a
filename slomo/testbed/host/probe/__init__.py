"""Measure pressure without counters: by how much a competition slows down small programs of known sensitivity."""
