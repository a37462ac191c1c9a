"""Cores shared by several NFs, and chains of NFs that pass packets on."""
