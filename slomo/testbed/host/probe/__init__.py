"""Pressure without counters: how much a competition slows small reporters of known nature."""
