"""Simulate cores that several NFs share, and chains of NFs that pass packets to each other."""
