"""Cores that several NFs share, and chains of NFs that hand packets on."""
